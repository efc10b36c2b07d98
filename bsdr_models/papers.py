"""The models as their papers print them, for comparison; the recommended ones are in the package.

Every class has the engines of its paper.
"""

from bsdr_models.bm2pca.paper.estimator import PaperBM2PCAClassifier
from bsdr_models.bsdr.paper.estimator import PaperBSDRClassifier, PaperBSDRRegressor
from bsdr_models.dgplvm.paper.estimator import PaperDGPLVMClassifier

__all__ = [
    "PaperBM2PCAClassifier",
    "PaperBSDRClassifier",
    "PaperBSDRRegressor",
    "PaperDGPLVMClassifier",
]
