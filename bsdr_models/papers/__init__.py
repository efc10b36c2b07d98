"""The models as their papers print them, for comparison with the recommended models.

Every class has the engines of its paper. Their steps are the functions ``init`` and ``step`` of
four modules: ``bsdr.mean_field``, ``bsdr.gibbs``, ``bm2pca.mean_field`` and ``bm2pca.gibbs``.
"""

from bsdr_models.lazy import load_on_use
from bsdr_models.papers import bm2pca, bsdr, dgplvm

_PUBLIC = {
    "PaperBM2PCAClassifier": "bm2pca.estimator",
    "PaperBSDRClassifier": "bsdr.estimator",
    "PaperBSDRRegressor": "bsdr.estimator",
    "PaperDGPLVMClassifier": "dgplvm.estimator",
}

__all__ = [*_PUBLIC, "bm2pca", "bsdr", "dgplvm"]
__getattr__ = load_on_use(__name__, _PUBLIC)
