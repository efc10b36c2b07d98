"""BSDR: Bayesian supervised dimensionality reduction (Gönen, 2013)."""

from bsdr_models.lazy import load_on_use

_PUBLIC = {
    "BSDRClassifier": "estimator",
    "BSDRRegressor": "estimator",
    "SPEC": "trees",
    "HierarchicalPriors": "priors",
    "Kernel": "kernels",
    "build_model": "model",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
