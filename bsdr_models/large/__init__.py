"""Annex: Laplace's method for many samples, also in Dask arrays."""
