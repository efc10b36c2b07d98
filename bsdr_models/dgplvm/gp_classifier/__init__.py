"""Gaussian process classification with a probit likelihood, by Laplace and EP."""
