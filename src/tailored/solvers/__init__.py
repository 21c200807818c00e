"""How the paper's objectives are minimised."""
