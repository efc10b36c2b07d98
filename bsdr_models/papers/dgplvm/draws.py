"""Predictions of the paper's and of the recommended model from trees, by draws of their posterior.

A draw of the latent coordinates has a Gaussian process classifier, Eqs. (1) to (3) of the paper.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import xarray as xr

from bsdr_models.dgplvm.back_constraint import Embedder, centroid_weights, make_mapping
from bsdr_models.dgplvm.engines import N_DRAWS, make_embedder
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.left_out import LeftOut
from bsdr_models.dgplvm.posterior import DGPLVMPosterior, Draw
from bsdr_models.dgplvm.probit import EP
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference.datatree import read
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.papers.dgplvm.laplace import LAPLACE
from bsdr_models.papers.dgplvm.map import PaperEmbedder, kernel_mapping
from bsdr_models.papers.reading import take_draws

# Embedder of one draw, and the latent coordinates (N, R) that its classifier is fitted to.
Embedding = tuple[Embedder, FloatArray]
# How the posterior of the classifier is approximated.
Approximation = Literal["ep", "laplace"]
APPROXIMATIONS = {"ep": EP, "laplace": LAPLACE}


def classify(
    embeddings: Iterable[Embedding], index: IntArray, approximation: Approximation
) -> tuple[list[Draw], FloatArray]:
    """Classifiers of draws, with the kernel of the first one, of classes (N,).

    Also log odds of the problems of the last draw, each sample left out of its classifier, (N, P).
    """
    kernel = None
    draws = []
    for embedder, latent in embeddings:
        functions, log_odds = fit_gp_classifier(
            latent, index, kernel=kernel, approximation=APPROXIMATIONS[approximation]
        )
        kernel = functions.kernel
        draws.append(Draw(embedder=embedder, functions=(functions,)))
    return draws, log_odds


def posterior_of(tree: xr.DataTree) -> DGPLVMPosterior:
    """Posterior of at most `N_DRAWS` draws of a tree."""
    read(tree, "fit", "y_index", "class_frequency")
    index = tree["fit/y_index"].to_numpy()
    recommended = "map_noise" in tree.attrs
    embeddings = _recommended_embeddings if recommended else _papers_embeddings
    approximation = tree.attrs.get("approximation", "ep")
    draws, _ = classify(embeddings(tree, index), index, approximation)
    calibration = Calibration(
        temperature=tree.attrs.get("temperature", 1.0),
        signal=tree.attrs.get("signal", 1.0),
        log_frequency=np.log(tree["fit/class_frequency"].to_numpy()),
    )
    return DGPLVMPosterior(draws=tuple(draws), calibration=calibration)


def _papers_embeddings(tree: xr.DataTree, index: IntArray) -> Iterator[Embedding]:
    """Those of the paper's model, whose classifier is fitted to the latent coordinates."""
    if "latent_raw" not in tree["posterior"] or "width" not in tree.attrs:
        raise ValueError(
            "the tree does not have the back-constraint of its model: give model= to from_trace"
        )
    width = tree.attrs["width"]
    samples = tree["constant_data/X"].to_numpy()
    mapping = kernel_mapping(samples, width if np.isfinite(width) else None)
    some = take_draws(tree, ["latent", "latent_raw"], N_DRAWS)
    for latent, raw in zip(some["latent"], some["latent_raw"], strict=True):
        yield PaperEmbedder.of(mapping, raw), latent


def _recommended_embeddings(tree: xr.DataTree, index: IntArray) -> Iterator[Embedding]:
    """Those of the recommended model without a metric: its classifier is fitted to left-out ones.

    The back-constraint leaves each sample out, by classes (N,).
    """
    mapping = make_mapping(
        tree["constant_data/X"].to_numpy(),
        centroid_weights(index),
        width=tree.attrs["map_width"],
        noise=tree.attrs["map_noise"],
    )
    for latent in take_draws(tree, ["latent"], N_DRAWS)["latent"]:
        left_out = LeftOut.of(mapping, latent, index, (), make_mapping)
        embedder = make_embedder(mapping, latent, index, [left_out])
        yield embedder, left_out.latent
