"""Specifications of the models of the package."""

from bsdr_models.bm2pca.spec import SPEC as BM2PCA
from bsdr_models.bsdr.spec import SPEC as BSDR
from bsdr_models.dgplvm.spec import SPEC as DGPLVM

REGISTRY = (BSDR, BM2PCA, DGPLVM)
