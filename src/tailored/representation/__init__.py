"""The learned function of a task's features: its representation τ(s) and its prior mean b(s)."""
