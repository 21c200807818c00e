"""Algorithm 1, which minimises the paper's surrogate, with given or selected step sizes."""

from .search import ProjectedSGD

__all__ = ["ProjectedSGD"]
