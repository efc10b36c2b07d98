r"""The recommended BM2PCA as a PyMC model: the pseudo-posterior whose mode its engine finds.

With whitened features :math:`a_n`, a fixed linear map of the features
(:mod:`~bsdr_models.metric`),

.. math::
    q_{ji} \sim N(0, 1 / \rho), \quad \eta_{ci} \sim N(0, 1 / \nu), \quad
    f_{nc} = \eta_c^\top Q^\top a_n + \eta_{c0}, \quad
    \phi_n = e^{-C L(y_n, f_n, \sigma^2 |\eta|^2)},

where L is a hinge that the variance of the latent coordinates smooths
(:mod:`~bsdr_models.bm2pca.smooth_hinge`). One-vs-rest has no Q and weights of the whitened
features.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.special import logsumexp
from scipy.sparse import issparse

from bsdr_models.bm2pca.label_free import pseudo_labels
from bsdr_models.bm2pca.smooth_hinge import TINY_WIDTH
from bsdr_models.bm2pca.subspace import SubspacePosterior
from bsdr_models.bm2pca.task import Task
from bsdr_models.dims import BASIS, COMPONENT, FEATURE, OBS

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any


def declare(task: Task, posterior: SubspacePosterior) -> pm.Model:
    """The model on the samples of a fit; ValueError if they are sparse.

    ``scores`` (obs, outcome) are the class scores of samples ``X``. The margin factors are the
    potential ``margins``: labels, in ``y_data`` as signs, have no draws.
    """
    if issparse(task.X):
        raise ValueError("model_ needs dense samples")
    settings, metric = posterior.settings, posterior.metric
    signs, axis = pseudo_labels(task)[0], task.score_axis
    (n, d), k = task.X.shape, signs.shape[1]
    slopes = metric.effects  # of the whitened features, (D, B)
    sd = settings.weight_precision**-0.5
    coords = {OBS: range(n), FEATURE: range(d), BASIS: range(slopes.shape[1]), axis: range(k)}
    with pm.Model(coords=coords) as model:
        X = pm.Data("X", task.X, dims=(OBS, FEATURE))
        y = pm.Data("y_data", signs, dims=(OBS, axis))
        Z = (X - metric.mean) @ slopes
        if posterior.one_vs_rest:
            H = pm.Normal("metric_weights", 0.0, sd, dims=(BASIS, axis))
            coef = slopes @ H
        else:
            model.add_coord(COMPONENT, range(len(posterior.mean_weights)))
            precision = settings.projection_precision
            Q = pm.Normal("metric_projection", 0.0, precision**-0.5, dims=(BASIS, COMPONENT))
            H = pm.Normal("weights", 0.0, sd, dims=(COMPONENT, axis))
            Z = pm.Deterministic("latent", Z @ Q, dims=(OBS, COMPONENT))
            coef = slopes @ Q @ H
        b = pm.Normal("bias", 0.0, settings.penalty(1, k)[0] ** -0.5, dims=axis)
        pm.Deterministic("coef", coef, dims=(FEATURE, axis))
        pm.Deterministic("intercept", b - metric.mean @ coef, dims=axis)
        f = pm.Deterministic("scores", Z @ H + b, dims=(OBS, axis))
        square = settings.latent_variance * (H**2).sum(axis=0)
        losses = [
            (_multiclass_loss if multiclass else _loss)(y[:, own], f[:, own], square[own])
            for own, multiclass in settings.blocks(k)
        ]
        pm.Potential("margins", -settings.cost * pt.concatenate(losses, axis=1))
    return model


def _loss(y: Tensor, f: Tensor, square: Tensor) -> Tensor:
    """The smoothed hinge of each label, (N, K), 0 without a label."""
    u = 1.0 - y * f
    return pt.neq(y, 0.0) * (u + pt.sqrt(u**2 + square + TINY_WIDTH**2))


def _multiclass_loss(y: Tensor, f: Tensor, square: Tensor) -> Tensor:
    """The smoothed hinge of all classes, (N, 1), 0 without a class."""
    own = pt.gt(y, 0.0)
    alternatives = pt.switch(pt.neq(y, 0.0), f + 0.5 * square + pt.invert(own), -np.inf)
    loss = logsumexp(alternatives, axis=1) - (own * f).sum(axis=1)
    return pt.switch(own.any(axis=1), loss, 0.0)[:, None]
