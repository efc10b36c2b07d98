"""Supervised Bayesian dimensionality reduction.

Importing the package loads NumPy at most; estimators, models and plots are loaded when they are
first asked for.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "BSDRClassifier": "bsdr_models.bsdr.estimator",
    "BSDRRegressor": "bsdr_models.bsdr.estimator",
    "MNPClassifier": "bsdr_models.bsdr.mnp",
    "Priors": "bsdr_models.bsdr.priors",
    "ZOO": "bsdr_models.zoo",
}

__all__ = ["ZOO", "BSDRClassifier", "BSDRRegressor", "MNPClassifier", "Priors"]


def __getattr__(name: str) -> Any:
    """Public names, loaded on first use."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]
