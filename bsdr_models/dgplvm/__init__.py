"""D-GPLVM: discriminative Gaussian process latent variable model (Urtasun and Darrell, 2007)."""

from bsdr_models.lazy import load_on_use

_PUBLIC = {
    "SPEC": "trees",
    "DGPLVMClassifier": "estimator",
    "LogNormal": "priors",
    "DGPLVMMapping": "priors",
    "DGPLVMOptimization": "priors",
    "DGPLVMPriors": "priors",
    "build_model": "model",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
