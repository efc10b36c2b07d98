"""D-GPLVM as its paper prints it."""

from bsdr_models.lazy import load_on_use

_PUBLIC = {"build_model": "model"}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
