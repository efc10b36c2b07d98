"""D-GPLVM: discriminative Gaussian process latent variable model (Urtasun and Darrell, 2007)."""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "SPEC": "spec",
    "DGPLVMClassifier": "estimator",
    "LogNormal": "priors",
    "Mapping": "settings",
    "Optimization": "settings",
    "Priors": "priors",
    "build_model": "model",
    "build_paper_model": "paper.model",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Public names, loaded on first use."""
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
