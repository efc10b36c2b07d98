"""Parts of the models for PyMC models of one's own: likelihoods, priors and potentials."""

from bsdr_models.lazy import load_on_use

_PUBLIC = {
    "back_constraint": "dgplvm.model",
    "class_separation": "dgplvm.model",
    "margin_factor": "papers.bm2pca.model",
    "metric_projection": "bsdr.model",
    "multinomial_probit": "bsdr.model",
}

__all__ = list(_PUBLIC)


__getattr__ = load_on_use("bsdr_models", _PUBLIC)
