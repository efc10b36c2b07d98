"""BSDR: Bayesian supervised dimensionality reduction (Gönen, 2013)."""
