"""Drivers that know nothing of any paper, and the one result type."""
