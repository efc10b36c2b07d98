"""The models of the package, by their cards."""

from bsdr_models.bm2pca.card import CARD as BM2PCA
from bsdr_models.bsdr.card import CARD as BSDR

ZOO = (BSDR, BM2PCA)
