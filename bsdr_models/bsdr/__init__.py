"""BSDR: Bayesian supervised dimensionality reduction (Gönen, 2013)."""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "BSDRClassifier": "estimator",
    "BSDRRegressor": "estimator",
    "SPEC": "spec",
    "HierarchicalPriors": "priors",
    "Kernel": "kernels",
    "Optimization": "paper.engines",
    "PAPER": "priors",
    "SAMPLING": "priors",
    "SPARSE": "priors",
    "Priors": "priors",
    "build_model": "model",
    "build_paper_model": "paper.model",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    """Public names, loaded on first use."""
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
