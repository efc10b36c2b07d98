r"""PyMC model of BSDR at full rank; that of the paper is in :mod:`bsdr_models.papers.bsdr.model`.

The variables are those of :mod:`bsdr_models.bsdr.problem`. The response has latent utilities,
:math:`t_n \sim N(\eta_n, I)`, which are integrated out; with a probability :math:`\epsilon`, the
lapse, a label is independent of the features:

* ``multiclass``: :math:`y_n = \arg\max_c t_{nc}`;
* ``multilabel``: :math:`y_{nc} = 1` iff :math:`t_{nc} > 0`;
* ``regression``: :math:`y_{nc} \sim N(\eta_{nc}, \sigma_c^2)`, :math:`\log \sigma_c` normal.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.sort import sort
from pytensor.tensor.special import logsumexp

from bsdr_models.bsdr.feature_map import FeatureMap, learn_map
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import make_contrasts
from bsdr_models.data.targets import name_groups, read_classes
from bsdr_models.data.validation import check_features, read_views
from bsdr_models.inference import dims
from bsdr_models.inference.declaring import (
    NO_PRIORS,
    OwnPriors,
    Tensor,
    declare_constant,
    draw_sign,
    log_phi,
    log_sign_probability,
    named_model,
    read_declared,
    read_priors,
)
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import (
    DeclaredTarget,
    FloatArray,
    IntArray,
    SamplesLike,
    TargetLike,
)

# Largest error of the log probability over K = 3, 10, 30 and eta of standard deviation 0.5 to 100:
# 7e-7 nats. Three Newton steps from the initial value below end within 1e-2 of the mode.
N_NODES = 16
N_NEWTON = 3

RESPONSE_DIMS = (dims.OBS, dims.LABEL)
# Scale of the half-normal prior of the standard deviation of group effects.
GROUP_WIDTH = 1.5


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int | None = None,
    target: DeclaredTarget = "multiclass",
    priors: HierarchicalPriors | Mapping[str, object] | None = None,
    kernel: str | Kernel = "linear",
    views: Mapping[str, Sequence[object]] | None = None,
    groups: TargetLike | None = None,
    name: str = "",
) -> pm.Model:
    """Declare the joint distribution of BSDR as a PyMC model with named dims.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features, used as they are (centre and scale them first). Column names of a data frame
        become the coordinate ``feature``.
    y : array-like of shape (N,) or (N, K)
        ``multiclass``: labels (N,) of any sortable type; ``binary``: two of them.
        ``multilabel``: 0/1 or bool (N, K). ``regression``: float (N,) or (N, K).
    n_components : int, optional
        Rank of the model. It is full, one component for each of the K - 1 contrasts of K classes,
        or for each label or output, and need not be given.
    target : {"multiclass", "binary", "multilabel", "regression"}
        What y holds: classes, two classes with one latent utility, which is positive for the
        second, labels of a multi-label problem, or real outputs.
    priors : HierarchicalPriors or dict, optional
        Hyper-parameters, or some of them by name. The name of a free variable may have a prior of
        its own: a function of name and dims such as ``functools.partial(pm.Laplace, mu=0, b=1)``,
        or a ``Prior`` of pymc-extras.
    kernel, views
        As for :class:`bsdr_models.BSDRClassifier`.
    groups : array-like of shape (N,), optional
        Group of each sample, such as its clinic. Groups differ in their linear predictors, by
        normal effects whose standard deviation is learned.
    name : str, default=""
        Prefix of all variables, for several models in one ``with pm.Model()``. These share dims.

    Returns
    -------
    pymc.Model
        With the variables ``scale``, ``projection`` (feature, contrast), ``coef`` (feature,
        outcome) and ``bias`` (centred over classes), for ``regression`` ``noise_scale``.
        With several views, or a kernel other than the linear one, whitened features take the place
        of features: ``whitened`` (obs, basis) is data, ``basis_weights`` (basis, contrast) the
        projection, and ``view_scale`` (view,) the relative scale of each of several views. With
        groups, ``group_effect`` (group, outcome), centred over classes, and ``group_scale``.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, or an option is not known.

    See Also
    --------
    bsdr_models.papers.bsdr.build_model : the model of the paper.
    bsdr_models.predict_groups : predictions for samples of known and of new groups.

    Notes
    -----
    New samples are given by ``pm.set_data({"X": X, "y_data": y}, coords={"obs": ...})``, where
    ``y`` is ignored but must have their number; with groups also ``group_index`` (N,).

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.bsdr import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> with build_model(scale(X), y) as model:
    ...     prior = pm.sample_prior_predictive(10, random_seed=0)
    >>> prior["prior"]["projection"].dims
    ('chain', 'draw', 'feature', 'contrast')
    """
    numbers, own = read_priors(priors, HierarchicalPriors())
    array, features = check_features(X, y, 1)
    named = read_views(views, features)
    return declare_hierarchical(
        array,
        y,
        numbers,
        target,
        learn_map(array, metric="identity", kernel=kernel, views=named),
        features,
        n_components=n_components,
        groups=None if groups is None else name_groups(groups, X),
        own=own,
        name=name,
    )


def declare_hierarchical(
    X: FloatArray,
    y: TargetLike,
    priors: HierarchicalPriors,
    target: DeclaredTarget,
    feature_map: FeatureMap,
    features: Iterable[object],
    *,
    n_components: int | None = None,
    groups: tuple[list[object], IntArray] | None = None,
    own: OwnPriors = NO_PRIORS,
    name: str = "",
    sample_weight: FloatArray | None = None,
) -> pm.Model:
    """The model at full rank, with the whitened features or prior covariance of a feature map.

    Of groups: their names, and that of each sample (N,).
    Weights of the samples (N,) are powers of their likelihoods.
    """
    y_array, labels = read_response(y, target, n_samples=len(X))
    contrasts = make_contrasts(len(labels), target)
    if n_components not in (None, len(contrasts)):
        raise ValueError(
            f"n_components must be {len(contrasts)}, the rank of the recommended model, got "
            f"{n_components!r}; papers.bsdr.build_model has fewer"
        )
    metric = feature_map.metric
    coords = {
        dims.OBS: list(range(len(X))),
        dims.LABEL: labels,
        dims.CONTRAST: list(range(len(contrasts))),
    }
    with named_model(name, coords) as model:
        axes = RESPONSE_DIMS[: y_array.ndim]
        y_data = pm.Data("y_data", y_array, dims=axes)
        declare_constant("lapse", priors.lapse)
        scale = own.declare(pm.HalfNormal, "scale", priors.scale)
        if metric is None:
            projected = _whitened_map(X, scale, priors.view_width, feature_map, own)
        else:
            model.add_coord(dims.FEATURE, list(features))
            X_data = pm.Data("X", X, dims=(dims.OBS, dims.FEATURE))
            both = (dims.FEATURE, dims.CONTRAST)
            offset = own.declare(pm.Normal, "projection_offset", 0.0, 1.0, dims=both)
            P = pm.Deterministic("projection", scale * _root(metric, offset), dims=both)
        width = priors.bias_scale
        a = own.declare(pm.Normal, "bias_contrasts", 0.0, width, dims=dims.CONTRAST)
        b = pm.Deterministic("bias", a @ contrasts, dims=dims.LABEL)
        if metric is None:
            eta = projected @ contrasts + b
        else:
            coef = pm.Deterministic("coef", P @ contrasts, dims=(dims.FEATURE, dims.LABEL))
            eta = X_data @ coef + b
        if groups is not None:
            model.add_coord(dims.GROUP, groups[0])
            group = pm.Data("group_index", groups[1], dims=dims.OBS)
            spread = own.declare(pm.HalfNormal, "group_scale", GROUP_WIDTH)
            offset = pm.Normal("group_offset", dims=(dims.GROUP, dims.CONTRAST))
            effect = spread * offset @ contrasts
            eta += pm.Deterministic("group_effect", effect, dims=(dims.GROUP, dims.LABEL))[group]
        if target == "regression":
            location = priors.noise_location
            width = priors.noise_width
            sigma = own.declare(pm.LogNormal, "noise_scale", location, width, dims=dims.LABEL)
            response = pm.Normal("y", eta, sigma=sigma, observed=y_data, dims=axes)
        elif target == "multiclass":
            k = len(labels)
            lapse = priors.lapse
            response = multinomial_probit(
                "y", eta, n_classes=k, lapse=lapse, observed=y_data, dims=axes
            )
        else:
            response = binary_probit("y", eta, lapse=priors.lapse, observed=y_data, dims=axes)
        if sample_weight is not None:
            further = (sample_weight - 1.0).reshape(-1, *[1] * (y_array.ndim - 1))
            pm.Potential("sample_weight", further * pm.logp(response, y_data))
        own.check()
    return model


def metric_projection(offset: Tensor, X: FloatArray, y: TargetLike | None = None) -> Tensor:
    r"""Projection whose prior covariance is the metric of the features.

    Parameters
    ----------
    offset : tensor of shape (D, R)
        Independent standard normal variables.
    X : ndarray of shape (N, D)
        Samples that are centred and scaled to unit variance.
    y : array-like of shape (N,), optional
        Classes, from which the metric is learned; without them it does not know labels.

    Returns
    -------
    tensor of shape (D, R)
        A root of the covariance :math:`\Lambda` of :mod:`bsdr_models.learned_metric` times the
        offsets, without a D x D matrix. The mean variance of the projected samples is one.

    See Also
    --------
    build_model : a model with such a prior.
    bsdr_models.SupervisedWhitening : the metric as a transformer.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.parts import metric_projection
    >>> X, y = load_wine(return_X_y=True)
    >>> X = scale(X)
    >>> with pm.Model():
    ...     offset = pm.Normal("offset", shape=(13, 2))
    ...     latent = pm.Deterministic("latent", X @ metric_projection(offset, X, y))
    >>> pm.draw(latent).shape
    (178, 2)
    """
    classes = None if y is None else read_classes(y).coded
    metric = learn_map(X, classes).metric
    assert metric is not None
    return _root(metric, offset)


def _root(metric: Metric, offset: Tensor) -> Tensor:
    """A root of the prior covariance times offsets (D, J)."""
    removed = metric.turned @ (metric.removed[:, None] * (metric.turned.T @ offset))
    return metric.diagonal[:, None] * (offset - removed)


def _whitened_map(
    X: FloatArray, scale: Tensor, width: float, feature_map: FeatureMap, own: OwnPriors
) -> Tensor:
    """Projection of whitened features, (obs, contrast)."""
    model = pm.modelcontext(None)
    whitened = feature_map.whiten(X)
    model.add_coord(dims.BASIS, list(range(whitened.shape[1])))
    basis = pm.Data("whitened", whitened, dims=(dims.OBS, dims.BASIS))
    both = (dims.BASIS, dims.CONTRAST)
    offset = own.declare(pm.Normal, "basis_offset", 0.0, 1.0, dims=both)
    weights = scale * offset
    if feature_map.index is not None:
        model.add_coord(dims.VIEW, list(feature_map.names))
        relative = own.declare(pm.LogNormal, "view_scale", 0.0, width, dims=dims.VIEW)
        weights = relative[feature_map.index][:, None] * weights
    weights = pm.Deterministic("basis_weights", weights, dims=both)
    return basis @ weights


def multinomial_probit(
    name: str, eta: Tensor, *, n_classes: int, lapse: float = 0.0, **options: object
) -> Tensor:
    r"""Class whose utility :math:`t_c \sim N(\eta_c, 1)` is the largest, as a random variable.

    Parameters
    ----------
    name : str
        Name of the variable in the model.
    eta : tensor of shape (..., K)
        Linear predictors.
    n_classes : int
        K, at least 2.
    lapse : float, default=0
        Probability of a class at random.
    **options
        Arguments of ``pymc.CustomDist``, such as ``dims`` and ``observed``, class indices (...,).

    Returns
    -------
    tensor of shape (...,)
        The class. Its log probability, with the utilities integrated out, has an error below 1e-6
        nats and an exact gradient.

    See Also
    --------
    build_model : a model with this likelihood.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models.parts import multinomial_probit
    >>> X, y = load_iris(return_X_y=True)
    >>> with pm.Model() as model:
    ...     weights = pm.Normal("weights", shape=(4, 3))
    ...     label = multinomial_probit("y", X @ weights, n_classes=3, observed=y)
    >>> pm.draw(label).shape
    (150,)
    """
    log_probability = partial(log_choice_probability, n_labels=n_classes)
    return _label(name, eta, draw_choice, log_probability, "(k)->()", n_classes, lapse, options)


def binary_probit(name: str, eta: Tensor, *, lapse: float = 0.0, **options: object) -> Tensor:
    """Label that is 1 if its utility N(eta, 1) is positive, else 0, of the shape of eta."""
    return _label(name, eta, draw_sign, log_sign_probability, "()->()", 2, lapse, options)


def _label(
    name: str,
    eta: Tensor,
    draw: Callable[[Tensor, Tensor], Tensor],
    log_probability: Callable[[Tensor, Tensor], Tensor],
    signature: str,
    k: int,
    lapse: float,
    options: dict[str, object],
) -> Tensor:
    """A label of k classes that is random with probability ``lapse``."""

    def log_probability_with_lapse(y: Tensor, eta: Tensor) -> Tensor:
        log_p = math.log1p(-lapse) + log_probability(y, eta)
        return pt.logaddexp(log_p, math.log(lapse / k))

    def draw_with_lapse(eta: Tensor, size: Tensor) -> Tensor:
        label = draw(eta, size)
        uniform = pm.Uniform.dist(0.0, 1.0, shape=label.shape)
        guess = pt.floor(k * pm.Uniform.dist(0.0, 1.0, shape=label.shape)).astype("int64")
        return pt.switch(uniform < lapse, guess, label)

    return pm.CustomDist(
        name,
        eta,
        dist=draw_with_lapse if lapse > 0.0 else draw,
        logp=log_probability_with_lapse if lapse > 0.0 else log_probability,
        signature=signature,
        dtype="int64",
        **options,
    )


def draw_choice(eta: Tensor, size: Tensor) -> Tensor:
    """Index of the largest utility N(eta, I), (...,), of linear predictors (..., K)."""
    return pt.argmax(eta + pm.Normal.dist(0.0, 1.0, shape=eta.shape), axis=-1)


def log_choice_probability(y: Tensor, eta: Tensor, *, n_labels: int) -> Tensor:
    r"""Log probability that utility y (...,) is the largest of N(eta, I), eta (..., K).

    .. math::
        p(y = c \mid \eta) = \int N(u; 0, 1) \prod_{j \ne c} \Phi(u + \eta_c - \eta_j)\, du
        = \int e^{f(u)} du

    The log integrand f is concave with :math:`-f'' \in [1, K]`. The Gauss-Hermite rule is centred
    at its mode and scaled by :math:`(-f'')^{-1/2}` there, both constant under the gradient, since
    the integral does not depend on them.

    K is a constant, so that the shapes of the graph are static.
    """
    rivals = (y[..., None] + np.arange(1, n_labels)) % n_labels
    own = pt.take_along_axis(eta, y[..., None], axis=-1)
    margin = own - pt.take_along_axis(eta, rivals, axis=-1)  # (..., K - 1)
    if n_labels == 2:
        return log_phi(margin[..., 0] / math.sqrt(2.0))

    mode, scale = _centre(disconnected_grad(margin), n_rivals=n_labels - 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
    log_weights = np.log(weights) + 0.5 * nodes**2 - 0.5 * math.log(2.0 * math.pi)
    u = mode[..., None] + scale[..., None] * nodes  # (..., nodes)
    f = -0.5 * u**2 + log_phi(u[..., None] + margin[..., None, :]).sum(axis=-1)
    return pt.log(scale) + logsumexp(log_weights + f, axis=-1)


def _centre(margin: Tensor, *, n_rivals: int) -> tuple[Tensor, Tensor]:
    r"""Mode of f and :math:`(-f'')^{-1/2}` there, by Newton's method.

    With h the normal hazard, :math:`f'(u) = -u + \sum_j h(u + d_j)`, and h(x) > max(0, -x): the
    root of the piecewise linear bound, :math:`\max_k -\sum_{j \le k} d_{(j)} / (1 + k)`, is an
    initial value from below, from which Newton steps on a convex decreasing function never
    overshoot.
    """

    def derivatives(u: Tensor) -> tuple[Tensor, Tensor]:
        # JAX differentiates what PyTensor disconnects; beyond 37 the hazard is 0, its gradient NaN.
        x = pt.minimum(u[..., None] + margin, 37.0)
        hazard = math.sqrt(2.0 / math.pi) / pt.erfcx(-x / math.sqrt(2.0))
        return -u + hazard.sum(axis=-1), 1.0 + (hazard * (x + hazard)).sum(axis=-1)

    falls = -pt.cumsum(sort(margin, axis=-1), axis=-1) / (1.0 + np.arange(1, n_rivals + 1))
    u = pt.maximum(falls.max(axis=-1), 0.0)
    for _ in range(N_NEWTON):
        slope, curvature = derivatives(u)
        u = u + slope / curvature
    return u, derivatives(u)[1] ** -0.5


def read_response(
    y: TargetLike, target: DeclaredTarget, *, n_samples: int
) -> tuple[np.ndarray, Sequence[object]]:
    """Encoded y, (N,) of label indices or (N, K), and names of labels or outputs."""
    values, names = read_declared(y, target, n_samples=n_samples)
    return (values[:, None], names[1:]) if target == "binary" else (values, names)
