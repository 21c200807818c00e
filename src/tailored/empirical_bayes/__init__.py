"""The recommended way to learn: a mixture of linear mixed models by EM, chosen on held-out tasks."""
