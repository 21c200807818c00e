"""Experiments: a configuration in, a tidy table out, figures from the table."""
