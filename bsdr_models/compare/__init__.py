"""Annex: several models, compared and averaged, and any classifier judged by held-out samples."""
