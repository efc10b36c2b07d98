"""Fits of D-GPLVM as one kind of ``xarray.DataTree``, whichever engine made them."""

from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.latent_inference import grid_points, landscape_grid, tail_probability
from bsdr_models.dgplvm.learn import Learned
from bsdr_models.dgplvm.predict import ByMap, Placement, Posterior
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dims import (
    GRID_X,
    GRID_Y,
    LABEL,
    TERM,
)
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context, InferenceMethod

# Points of a landscape along one axis, for one component and for two.
LANDSCAPE_POINTS = {1: 200, 2: 60}


def fit_tree(
    learned: Learned, context: Context, *, inference_method: InferenceMethod
) -> xr.DataTree:
    """Tree of a fit.

    ``posterior`` holds the positions of the training rows and the kernel parameters: the mode as a
    single draw, or the draws of a sampler. ``fit/latent_mean`` and ``latent_cov`` are where each
    training row would lie as a new one: what a map may show without flattering itself.

    Parameters
    ----------
    learned : Learned
    context : Context
    inference_method : str
    """
    r = learned.latent.shape[1]
    placement = any_placement(learned)
    index = context.index
    assert index is not None
    fit: dict[str, Any] = {
        "latent_mean": learned.left_out.mean,
        "latent_cov": learned.left_out.cov,
        "relevance": relevance(learned.left_out.mean, index),
        "elbo": learned.trace,
        "restarts": np.array(learned.restarts),
        "objective_terms": np.array(list(learned.terms.values())),
        "class_size": np.bincount(index[index >= 0], minlength=len(context.labels)),
    }
    if isinstance(placement, ByMap):
        slope, spread, share = placement.sensitivity(context.X)
        own = placement.out_of_range_left_out()
        fit |= {
            "projection_mean": slope,
            "projection_sd": spread,
            "feature_relevance": share,
            "out_of_range": own,
            "tail_probability": tail_probability(-own, -own),
        }
    groups: dict[str, dict[str, Any]] = {
        "posterior": _posterior(learned),
        "fit": fit,
    }
    if learned.sampled is not None:
        fit |= dict(learned.sampled.fit)
        groups["sample_stats"] = dict(learned.sampled.sample_stats)
    dims: dict[str, tuple[str, ...]] = {"objective_terms": (TERM,), "class_size": (LABEL,)}
    coords: dict[str, Any] = {TERM: list(learned.terms)}
    if r in LANDSCAPE_POINTS:
        axes, groups["landscape"] = _landscape(learned)
        grid = (GRID_X, GRID_Y)[:r]
        dims |= {"log_precision": grid, "probability_at": (*grid, LABEL)}
        coords |= dict(zip(grid, axes, strict=True))
    tree = context.fit_tree(
        groups,
        SPEC,
        inference_method=inference_method,
        n_components=r,
        attrs={"converged": int(learned.converged), "interrupted": int(learned.interrupted)},
        dims=dims,
        coords=coords,
    )
    if isinstance(placement, ByMap):
        tree["fit/projection_sd"].attrs["over"] = "rows"
    return tree


def _posterior(learned: Learned) -> dict[str, Any]:
    """Draws of a sampler, or the mode as one draw of one chain."""
    if learned.sampled is not None:
        draws = dict(learned.sampled.draws)
        if draws["latent"].size > datatree.MAX_NUMBERS:
            del draws["latent"]
        return draws
    found: dict[str, Any] = {name: np.array(v)[None, None] for name, v in learned.variables.items()}
    return {"latent": learned.latent[None, None], **found}


def any_placement(learned: Learned) -> Placement:
    """How new rows are placed, by the last draw where there are several."""
    posterior = learned.posterior
    return (posterior if isinstance(posterior, Posterior) else posterior.draws[-1]).placement


def out_of_range(placement: Placement, rows: FloatArray) -> dict[str, FloatArray]:
    """How far from the training rows others lie, and how many of those lie as far out.

    Of placements by the map; there is no such number for the others.
    """
    if not isinstance(placement, ByMap):
        return {}
    found = placement.out_of_range(rows)
    tail = tail_probability(-found, -placement.out_of_range_left_out())
    return {"out_of_range": found, "tail_probability": tail}


def _landscape(learned: Learned) -> tuple[tuple[FloatArray, ...], dict[str, Any]]:
    """Precision of the features, and class probabilities, over the latent space."""
    r = learned.latent.shape[1]
    axes = landscape_grid(
        np.concatenate([learned.latent, learned.left_out.mean]), n=LANDSCAPE_POINTS[r]
    )
    points = grid_points(axes)
    shape = tuple(len(axis) for axis in axes)
    posterior = learned.posterior
    one = posterior if isinstance(posterior, Posterior) else posterior.draws[-1]
    log_p = one.classifier.log_probabilities(points)
    return axes, {
        "log_precision": learned.decoder.log_precision(points).reshape(shape),
        "probability_at": np.exp(log_p).reshape(*shape, -1),
    }


def relevance(latent: FloatArray, index: IntArray) -> FloatArray:
    """Share of each component in the scatter of the class centroids, (R,)."""
    classes = np.unique(index[index >= 0])
    centroids = np.stack([latent[index == label].mean(axis=0) for label in classes])
    scatter = ((centroids - centroids.mean(axis=0)) ** 2).sum(axis=0)
    return scatter / (scatter.sum() or 1.0)
