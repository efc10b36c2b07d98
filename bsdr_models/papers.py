"""The models of the papers, as printed; the recommended ones are exported by `bsdr_models`."""

from bsdr_models.bm2pca.paper.estimator import PaperBM2PCAClassifier

__all__ = ["PaperBM2PCAClassifier"]
