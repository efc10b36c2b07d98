"""Specification of BM2PCA, and its fits as ``xarray.DataTree``."""

from types import MappingProxyType

import numpy as np
from scipy.sparse import issparse

from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray

SPEC = ModelSpec(
    name="bm2pca",
    citation_bibtex="""@inproceedings{du2015bm2pca,
  author    = {Du, Changying and Zhe, Shandian and Zhuang, Fuzhen and Qi, Yuan and He, Qing
               and Shi, Zhongzhi},
  title     = {Bayesian Maximum Margin Principal Component Analysis},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {29},
  pages     = {2582--2588},
  year      = {2015},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS, LABEL),
            "offset": (FEATURE,),
            "loading_precision": (COMPONENT,),
            "loadings": (FEATURE, COMPONENT),
            "noise_precision": (),
            "latent": (OBS, COMPONENT),
            "weight_precision": (LABEL,),
            "weights": (COMPONENT, LABEL),
            "bias": (LABEL,),
            "scores": (OBS, LABEL),
            "coef": (FEATURE, LABEL),
            "intercept": (LABEL,),
        }
    ),
    identified=("coef", "intercept", "noise_precision"),
    alignment=MappingProxyType(
        {"loadings": "loadings", "weights": "weights", "method": "procrustes"}
    ),
)


# Dims of free variables of the PyMC models that are not in the specification.
FREE_DIMS: dict[str, tuple[str, ...]] = {
    "latent_offset": (OBS, COMPONENT),
    "metric_projection": (BASIS, COMPONENT),
}

# Draws from the q of mean field.
N_DRAWS = 500


def count_draws(n_features: int, n_scores: int) -> int:
    """Draws from q, of which those of the effects have at most `MAX_NUMBERS` numbers."""
    return int(np.clip(datatree.MAX_NUMBERS // (n_features * n_scores), 20, N_DRAWS))


def recorded(draws: dict[str, FloatArray], context: Context) -> dict[str, FloatArray]:
    """Draws, effects of a single score expanded to two classes, without loadings too large.

    Several scores of a sample share its latent coordinates, whose offsets are free in PyMC.
    """
    complete = not issparse(context.X) and not np.isnan(context.X).any()
    if complete and "latent" in draws and draws["bias"].shape[-1] > 1:
        draws["latent_offset"] = latent_offset(draws, context.X)
    if "loadings" in draws and draws["loadings"].size > datatree.MAX_NUMBERS:
        del draws["loadings"]
    if draws["coef"].shape[-1] != len(context.targets.names):
        draws |= {name: context.per_class(draws[name]) for name in ("coef", "intercept")}
    return draws


def latent_offset(draws: dict[str, FloatArray], X: FloatArray) -> FloatArray:
    """L'z - L^-1 tau W'(x - t), L L' = I + tau W'W, of the PyMC model: (chain, draw, N, R)."""
    W = draws["loadings"]
    tau = draws["noise_precision"][..., None, None]
    L = np.linalg.cholesky(np.eye(W.shape[-1]) + tau * (W.mT @ W))
    linear = tau * ((X - draws["offset"][..., None, :]) @ W)
    return draws["latent"] @ L - np.linalg.solve(L, linear.mT).mT
