"""The modules of the papers are what the drivers expect."""

from bsdr_models.bsdr import gibbs, mean_field
from bsdr_models.inference import protocols
from bsdr_models.inference.protocols import GibbsModule, MeanFieldModule


def test_modules_offer_their_engines():
    assert isinstance(mean_field, MeanFieldModule)
    assert isinstance(gibbs, GibbsModule)
    assert not isinstance(protocols, MeanFieldModule | GibbsModule)
