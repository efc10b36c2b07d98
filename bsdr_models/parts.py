"""Parts of the models for PyMC models of one's own: likelihoods, priors and potentials."""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "back_constraint": "dgplvm.model",
    "class_separation": "dgplvm.model",
    "margin_factor": "bm2pca.paper.model",
    "metric_projection": "bsdr.model",
    "multinomial_probit": "bsdr.model",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Public names, loaded on first use."""
    if name in _PUBLIC:
        return getattr(import_module(f"bsdr_models.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
