"""The models of the package, by their cards."""

from bsdr_models.bsdr.card import CARD as BSDR

ZOO = (BSDR,)
