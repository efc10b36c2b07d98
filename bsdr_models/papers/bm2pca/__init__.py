"""BM2PCA as its paper prints it."""

from bsdr_models.lazy import load_on_use

_PUBLIC: dict[str, str | None] = {"build_model": "model", "gibbs": None, "mean_field": None}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
