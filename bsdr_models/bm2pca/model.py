r"""The recommended BM2PCA as a PyMC model: the pseudo-posterior whose mode its engine finds.

With whitened features :math:`a_n`, a fixed linear map of the features
(:mod:`~bsdr_models.learned_metric.metric`),

.. math::
    q_{ji} \sim N(0, 1 / \rho), \quad \eta_{ci} \sim N(0, 1 / \nu), \quad
    f_{nc} = \eta_c^\top Q^\top a_n + \eta_{c0}, \quad
    \phi_n = e^{-C L(y_n, f_n, \sigma^2 |\eta|^2)},

where L is a hinge that the variance of the latent coordinates smooths
(:mod:`~bsdr_models.bm2pca.subspace`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.special import logsumexp

from bsdr_models.bm2pca.subspace import (
    TINY_WIDTH,
    Settings,
    compares_classes,
    initial_state,
    signs_of,
)
from bsdr_models.data.validation import check_features
from bsdr_models.inference.declaring import (
    NO_PRIORS,
    OwnPriors,
    Tensor,
    named_model,
    read_declared,
    read_priors,
    starting_at,
)
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS, SCORE
from bsdr_models.learned_metric.metric import ClassBasis, Metric, named_weights
from bsdr_models.numerics.arrays import DeclaredTarget, FloatArray, SamplesLike, TargetLike
from bsdr_models.options import check_number


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int | None = None,
    target: DeclaredTarget = "multiclass",
    priors: Mapping[str, Any] | None = None,
    C: float = 1.0,
    unlabeled: object = None,
    name: str = "",
) -> pm.Model:
    r"""Declare the pseudo-posterior of BM2PCA as a PyMC model with named dims.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features, used as they are (centre and scale them first). Column names of a data frame
        become the coordinate ``feature``.
    y : array-like of shape (N,) or (N, K)
        Classes of any sortable type. Two classes have one class score, positive for the second of
        them in sorted order; more classes have one each. Or zeros and ones of K labels.
    n_components : int, optional
        Dimension R of the latent space, at most the number of features. It is by default, and at
        most, one fewer than there are classes, or the number of labels.
    target : {"multiclass", "binary", "multilabel"}, default="multiclass"
        What y holds: classes, two classes, or several labels. For real outputs use
        :func:`bsdr_models.papers.bm2pca.build_model`.
    priors : dict, optional
        Priors of free variables by name, as for :func:`bsdr_models.bsdr.build_model`.
    C : float, default=1.0
        Cost of a violated margin.
    unlabeled : scalar, optional
        Value of y that marks a missing label, as for :class:`bsdr_models.BM2PCAClassifier`.
    name : str, default=""
        Prefix of all variables, for several models in one ``with pm.Model()``. These share dims.

    Returns
    -------
    pymc.Model
        Free variables: ``metric_projection`` (basis, component), Q, over the whitened features,
        ``weights`` (component, outcome) and ``bias`` (outcome,). Deterministic: ``latent`` (obs,
        component), ``coef`` (feature, outcome), ``intercept`` (outcome,) and ``scores`` (obs,
        outcome), the class scores of samples ``X``. The margin factors are the potential
        ``margins``, which predictive draws ignore: labels, in ``y_data`` as signs, have no draws.
        Two classes have the axis ``score`` in place of ``outcome``.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there is one class only, or an argument is out
        of range.

    See Also
    --------
    bsdr_models.papers.bm2pca.build_model : the model of the paper.
    bsdr_models.BM2PCAClassifier : the estimator, whose ``model_`` has the metric that it learned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.bm2pca import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = build_model(scale(X), y)
    >>> model.named_vars_to_dims["latent"]
    ('obs', 'component')
    """
    check_number("C", C)
    _, own = read_priors(priors, None)
    if target == "regression":
        raise ValueError("target='regression' has the paper's model only: papers.bm2pca")
    X_array, features = check_features(X, y, 1 if n_components is None else n_components)
    n, d = X_array.shape
    signs, axis, outcomes = declared_targets(y, target, unlabeled, n_samples=n)
    exclusive = target != "multilabel"
    units = np.ones(d)
    # The metric of no label is that of any.
    metric = Metric.learn(X_array, ClassBasis.one(n), named_weights("identity"), units)
    n_scores = signs.shape[1]
    most = min(n_scores - 1 if exclusive and n_scores > 1 else n_scores, d)
    r = most if n_components is None else min(n_components, most)
    return declare(
        X_array,
        signs,
        {FEATURE: features, axis: outcomes},
        metric=metric,
        settings=Settings(cost=C, multiclass=exclusive and compares_classes(n, d, r, n_scores)),
        n_components=r,
        own=own,
        name=name,
    )


def declared_targets(
    y: TargetLike, target: DeclaredTarget, unlabeled: object, *, n_samples: int
) -> tuple[FloatArray, str, list[Any]]:
    """Targets (N, K), the name of their axis, and the outcomes along it.

    Signs, 0 without a label, of which two classes have one, that of the second; or real outputs.
    """
    values, names = read_declared(y, target, n_samples=n_samples, unlabeled=unlabeled, missing=True)
    if target == "regression":
        return values, LABEL, names
    signs = signs_of(values, len(names))
    for label, column in enumerate(signs.T if target == "multilabel" else ()):
        if not {-1.0, 1.0} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    n_scores = signs.shape[1]
    return signs, SCORE if n_scores == 1 else LABEL, names[-n_scores:]


def declare(
    X: FloatArray,
    signs: FloatArray,
    coords: dict[str, Any],
    *,
    metric: Metric,
    settings: Settings,
    n_components: int,
    own: OwnPriors = NO_PRIORS,
    name: str = "",
) -> pm.Model:
    """The model of signs times weights of the samples (N, K), the axis last in ``coords``."""
    *_, axis = coords
    k = signs.shape[1]
    start = initial_state(metric.whiten(X), signs, n_components, settings)
    unused = n_components - start.projection.shape[1]
    of_axes = starting_at(np.pad(start.projection, ((0, 0), (0, unused))))
    of_weights = starting_at(np.pad(start.weights[1:], ((0, unused), (0, 0))))
    slopes = metric.effects  # of the whitened features, (D, B)
    sd = settings.weight_precision**-0.5
    coords = {
        OBS: range(len(X)),
        BASIS: range(slopes.shape[1]),
        COMPONENT: range(n_components),
        **coords,
    }
    with named_model(name, coords) as model:
        X_data = pm.Data("X", X, dims=(OBS, FEATURE))
        y = pm.Data("y_data", signs, dims=(OBS, axis))
        width = settings.projection_precision**-0.5
        both = (BASIS, COMPONENT)
        Q = own.declare(of_axes, "metric_projection", mu=0.0, sigma=width, dims=both)
        H = own.declare(of_weights, "weights", mu=0.0, sigma=sd, dims=(COMPONENT, axis))
        whitened = (X_data - metric.mean) @ slopes
        Z = pm.Deterministic("latent", whitened @ Q, dims=(OBS, COMPONENT))
        coef = slopes @ Q @ H
        width = settings.penalty(1, k)[0] ** -0.5
        b = own.declare(starting_at(start.weights[0]), "bias", mu=0.0, sigma=width, dims=axis)
        pm.Deterministic("coef", coef, dims=(FEATURE, axis))
        pm.Deterministic("intercept", b - metric.mean @ coef, dims=axis)
        f = pm.Deterministic("scores", Z @ H + b, dims=(OBS, axis))
        square = settings.latent_variance * (H**2).sum(axis=0)
        loss = _multiclass_loss if settings.multiclass else _loss
        pm.Potential("margins", -settings.cost * loss(y, f, square))
        own.check()
    return model


def _loss(y: Tensor, f: Tensor, square: Tensor) -> Tensor:
    """The smoothed hinge of each label, (N, K), 0 without a label."""
    u = 1.0 - pt.sign(y) * f
    return pt.abs(y) * (u + pt.sqrt(u**2 + square + TINY_WIDTH**2))


def _multiclass_loss(y: Tensor, f: Tensor, square: Tensor) -> Tensor:
    """The smoothed hinge of all classes, (N, 1), 0 without a class."""
    own = pt.gt(y, 0.0)
    alternatives = pt.switch(pt.neq(y, 0.0), f + 0.5 * square + pt.invert(own), -np.inf)
    loss = logsumexp(alternatives, axis=1) - (own * f).sum(axis=1)
    return pt.switch(own.any(axis=1), y.max(axis=1) * loss, 0.0)[:, None]
