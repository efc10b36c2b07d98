"""Annex: transformers before a classifier or regressor, for a ``Pipeline``."""
