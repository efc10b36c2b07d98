"""BM2PCA: Bayesian maximum margin principal component analysis (Du et al., 2015)."""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "BM2PCAClassifier": "estimator",
    "BM2PCARegressor": "paper.regressor",
    "SPEC": "spec",
    "EpsilonInsensitiveLoss": "settings",
    "HingeLoss": "settings",
    "PAPER": "priors",
    "SAMPLING": "priors",
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
