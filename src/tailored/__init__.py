"""tailored: conditional meta-learning of linear representations."""

__version__ = "0.1.0.dev0"
