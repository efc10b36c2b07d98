"""The models as their papers print them, for comparison with the recommended models.

Every class has the engines of its paper. Their steps are the functions of four modules: ``init``
and ``step`` of ``bsdr_mean_field``, ``bsdr_gibbs``, ``bm2pca_mean_field`` and ``bm2pca_gibbs``.
"""

from bsdr_models.bm2pca.paper import gibbs as bm2pca_gibbs
from bsdr_models.bm2pca.paper import mean_field as bm2pca_mean_field
from bsdr_models.bm2pca.paper.estimator import PaperBM2PCAClassifier
from bsdr_models.bsdr.paper import gibbs as bsdr_gibbs
from bsdr_models.bsdr.paper import mean_field as bsdr_mean_field
from bsdr_models.bsdr.paper.estimator import PaperBSDRClassifier, PaperBSDRRegressor
from bsdr_models.dgplvm.paper.estimator import PaperDGPLVMClassifier

__all__ = [
    "PaperBM2PCAClassifier",
    "PaperBSDRClassifier",
    "PaperBSDRRegressor",
    "PaperDGPLVMClassifier",
    "bm2pca_gibbs",
    "bm2pca_mean_field",
    "bsdr_gibbs",
    "bsdr_mean_field",
]
