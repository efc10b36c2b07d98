"""The models of the package, by their cards."""

from bsdr_models.bm2pca.card import CARD as BM2PCA
from bsdr_models.bsdr.card import CARD as BSDR
from bsdr_models.dgplvm.card import CARD as DGPLVM

ZOO = (BSDR, BM2PCA, DGPLVM)
