"""BM2PCA: Bayesian maximum margin principal component analysis (Du et al., 2015)."""

from bsdr_models.lazy import load_on_use

_PUBLIC = {
    "BM2PCAClassifier": "estimator",
    "SPEC": "trees",
    "HingeLoss": "priors",
    "PAPER": "priors",
    "BM2PCAPriors": "priors",
    "build_model": "model",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
