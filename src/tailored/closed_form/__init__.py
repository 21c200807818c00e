"""Tasks under a prior of the squared loss: weights, and what intervals need, in one compiled pass over the rows.

For the priors of empirical Bayes the whole way from a task's rows to its weights is arithmetic on its second moments
G = XᵀX, Xᵀy and yᵀy.  With τ = Σ_k r_k τ_k, and J such that ``JᵀJ = (I + τG)⁻¹ τ`` is the posterior covariance in units of
the noise,

    (I + τG)⁻¹ δ = δ − JᵀJ G δ ,

and the weights are those of the first pass, the posterior mean of the mixture, plus (I + τG)⁻¹ times what the levels of
b(s) add.  J has as many rows as the components that the task may come from have directions.  No φ(s) is formed.
"""

from ._on_device import weights_on_device
from ._solving import MOST_COLUMNS, ClosedForm, Solved, Spreads

__all__ = ["MOST_COLUMNS", "ClosedForm", "Solved", "Spreads", "weights_on_device"]
