"""Supervised Bayesian dimensionality reduction.

Importing the package loads NumPy at most; estimators, models and plots are loaded on first use.

Progress (restarts, iterations, jitter, seconds) is logged below the name ``bsdr_models``:
``logging.basicConfig(level="INFO")`` shows it, ``"DEBUG"`` shows more.
"""

import logging
from importlib import import_module
from typing import Any

# Module of each public name.
_PUBLIC = {
    "BM2PCAClassifier": "bsdr_models.bm2pca.estimator",
    "BM2PCAPriors": "bsdr_models.bm2pca.priors",
    "BM2PCARegressor": "bsdr_models.papers.bm2pca.regressor",
    "BSDRClassifier": "bsdr_models.bsdr.estimator",
    "BSDRRegressor": "bsdr_models.bsdr.estimator",
    "DGPLVMClassifier": "bsdr_models.dgplvm.estimator",
    "DGPLVMMapping": "bsdr_models.dgplvm.priors",
    "DGPLVMOptimization": "bsdr_models.dgplvm.priors",
    "DGPLVMPriors": "bsdr_models.dgplvm.priors",
    "EpsilonInsensitiveLoss": "bsdr_models.papers.bm2pca.regressor",
    "GroupCentering": "bsdr_models.transformers.centering",
    "HingeLoss": "bsdr_models.bm2pca.priors",
    "HierarchicalPriors": "bsdr_models.bsdr.priors",
    "PredictionPlane": "bsdr_models.compare.plane",
    "Sampling": "bsdr_models.options",
    "StackedClassifier": "bsdr_models.compare.stacking",
    "SupervisedWhitening": "bsdr_models.transformers.whitening",
    "align_draws": "bsdr_models.papers.alignment",
    "compare_centering": "bsdr_models.compare.centering",
    "compare_models": "bsdr_models.compare.comparison",
    "cross_validated_map": "bsdr_models.compare.cross_validation",
    "diagnose": "bsdr_models.diagnosis",
    "feature_stability": "bsdr_models.compare.stability",
    "from_trace": "bsdr_models.papers.traces",
    "load": "bsdr_models.persistence",
    "predict_groups": "bsdr_models.papers.groups",
    "report": "bsdr_models.html_report",
    "shift_class_shares": "bsdr_models.compare.class_shares",
}

__all__ = [*_PUBLIC, "plots"]

# Silent unless the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Public names, loaded on first use."""
    if name == "__version__":
        from bsdr_models.inference.datatree import package_version

        return package_version()
    if name == "plots":
        return import_module("bsdr_models.plots")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC, "plots", "__version__"]
