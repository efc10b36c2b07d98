"""Supervised Bayesian dimensionality reduction."""
