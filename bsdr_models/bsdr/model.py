r"""PyMC models of BSDR.

The *hierarchical* model, the default, at full rank. For each sample n = 1..N with features
:math:`x_n` (D,) and K classes,

.. math::
    \tau \sim N^+(0, s_\tau^2), \qquad
    p_j \sim N(0, \tau^2 \Lambda / D), \quad b \sim N(0, s_b^2), \qquad
    \eta_n = C^\top (P^\top x_n + b),

where the rows of C are orthonormal contrasts, since only differences between classes matter, and P
has a column :math:`p_j` for each: a matrix-normal prior whose scale :math:`\tau` reduces the rank
by shrinkage. :math:`\Lambda` is the identity, or a power of the shrunk covariance of the features
(:class:`bsdr_models.bsdr.posterior.Metric`). With a probability :math:`\epsilon`, the lapse, a
label is independent of the features.

The model of the *paper* [1]_:

.. math::
    q_{fs} \sim N(0, \phi^{-1}), \quad \phi \sim \mathrm{Ga}(a_\phi, b_\phi), \qquad
    z_n \sim N(Q^\top x_n, \sigma_z^2 I), \qquad
    w_{sc} \sim N(0, \psi_{sc}^{-1}), \quad b_c \sim N(0, \lambda_c^{-1}), \qquad
    \eta_n = W^\top z_n + b,

with Gamma priors (shape, rate) on :math:`\psi` and :math:`\lambda` and one precision
:math:`\phi` per entry, column or row of Q. The response of both is

* ``multiclass``: :math:`t_n \sim N(\eta_n, I)`, :math:`y_n = \arg\max_c t_{nc}` [1]_, Section II;
* ``multilabel``: :math:`t_{nc} \sim N(\eta_{nc}, 1)`, :math:`y_{nc} = 1` iff :math:`t_{nc} > 0`;
* ``regression``: :math:`y_{nc} \sim N(\eta_{nc}, \tau_c^{-1})`, :math:`\tau_c` a Gamma; in the
  hierarchical model :math:`N(\eta_{nc}, \sigma_c^2)`, :math:`\log \sigma_c` normal.

The *augmented* parametrisation of the paper's model has every variable of the paper, for conjugate
samplers. The *marginal* one, for NUTS and ADVI, integrates out the latent utilities t and the
entry-wise precisions, and writes the latent coordinates as offsets.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.sort import sort
from pytensor.tensor.special import logsumexp

from bsdr_models import dims
from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.posterior import Metric, make_contrasts
from bsdr_models.bsdr.priors import PAPER, HierarchicalPriors, Priors, Variant
from bsdr_models.bsdr.views import FeatureMap, Views, learn_map
from bsdr_models.inputs import check_features, column_names, encode_classes, read_views

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any

# Largest error of the log probability over K = 3, 10, 30 and eta of standard deviation 0.5 to 100:
# 7e-7 nats. Three Newton steps from the initial value below end within 1e-2 of the mode.
N_NODES = 16
N_NEWTON = 3

RESPONSE_DIMS = (dims.OBS, dims.LABEL)


def build_model(
    X: Any,
    y: Any,
    *,
    n_components: int | None = None,
    variant: Variant = "hierarchical",
    priors: HierarchicalPriors | Priors | None = None,
    target: Target = "multiclass",
    kernel: Any = "linear",
    views: Any = None,
    augmented: bool = False,
) -> pm.Model:
    r"""Declare the joint distribution of BSDR as a PyMC model with named dims.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features, used as they are (centre and scale them first). Column names of a data frame
        become the coordinate ``feature``.
    y : array-like of shape (N,) or (N, K)
        ``multiclass``: labels (N,) of any sortable type. ``multilabel``: 0/1 or bool (N, K).
        ``regression``: float (N,) or (N, K).
    n_components : int, optional
        R, between 1 and D, of the paper's model only.
    variant : {"hierarchical", "paper"}
    priors : HierarchicalPriors or Priors, optional
        Hyper-parameters of the variant; None are its defaults.
    target : {"multiclass", "multilabel", "regression"}
    kernel, views
        Hierarchical model: as for :class:`bsdr_models.BSDRClassifier`, but for ``"auto"``.
    augmented : bool
        Paper's model: include the latent utilities T and all precisions, without transforms. The
        indicator of :math:`y = \arg\max t` rules out gradient-based samplers.

    Returns
    -------
    pymc.Model
        Variables of the hierarchical model: ``scale``, ``projection`` (feature, contrast), ``coef``
        (feature, outcome) and ``bias`` (centred over classes), for ``regression`` ``noise_scale``.
        With several views, or a kernel other than the linear one, whitened features take the place
        of features: ``whitened`` (obs, basis) is data, ``basis_weights`` (basis, contrast) the
        projection, and ``view_scale`` (view,) the relative scale of each of several views.
        Free variables of the augmented parametrisation: ``projection``, ``latent``, ``weights``,
        ``bias``, ``utilities`` (not for regression), ``*_precision``. Of the marginal one:
        ``projection``, ``latent_offset``, ``weights``, ``bias``, ``noise_precision`` (regression)
        and ``projection_precision`` (columnwise, rowwise); ``latent`` is deterministic.
        In both, ``coef`` (feature, outcome) is Q W; for ``multiclass`` it is centred over labels,
        as is ``bias_centered`` (outcome,), since only differences between labels are identified.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, or an option is not known.

    See Also
    --------
    bsdr_models.BSDRClassifier.from_posterior : predictions from draws of the model.
    build_mnp_model : the probit on all features.

    Notes
    -----
    ``pm.compute_log_likelihood`` gives :math:`\log p(y_n \mid z_n, W, b)`. Leave-one-out
    cross-validation needs the likelihood with :math:`z_n` integrated out.

    New samples are given by ``pm.set_data({"X": X, "y_data": y}, coords={"obs": ...})``, where
    ``y`` is ignored but must have their number. ``pm.sample_posterior_predictive`` then needs
    ``sample_vars="latent_offset"`` for draws of the paper's marginal model, since the latent
    coordinates of other samples are in the trace. ``idata_`` of the hierarchical model holds
    functions of the sampled normals, which PyMC would draw from their prior: give
    ``freeze_vars=["coef", "bias"]``.

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
    _check_choice("variant", variant, ("hierarchical", "paper"))
    _check_choice("target", target, get_args(Target))
    if variant == "hierarchical":
        if augmented or n_components is not None:
            name = "augmented" if augmented else "n_components"
            raise ValueError(f"{name} is for variant='paper'")
        if not isinstance(priors, HierarchicalPriors | None):
            raise ValueError(f"priors must be a HierarchicalPriors, got {type(priors).__name__}")
        feature_map = None
        if views is not None or kernel != "linear":
            X, names = check_features(X, 1)
            feature_map = learn_map(X, kernel, read_views(views, names))
        return declare_hierarchical(X, y, priors or HierarchicalPriors(), target, feature_map)
    if views is not None or kernel != "linear":
        raise ValueError("kernel and views are for variant='hierarchical'")
    if n_components is None:
        raise ValueError("variant='paper' needs n_components")
    if not isinstance(priors, Priors | None):
        raise ValueError(f"priors must be a Priors, got {type(priors).__name__}")
    priors = priors or PAPER
    X_array, features = check_features(X, n_components)
    y_array, labels = _check_target(y, target, n_samples=len(X_array))
    coords: dict[str, list[Any]] = {
        dims.OBS: list(range(len(X_array))),
        dims.FEATURE: features,
        dims.COMPONENT: list(range(n_components)),
        dims.LABEL: labels,
    }
    with pm.Model(coords=coords) as model:
        X_data = pm.Data("X", X_array, dims=(dims.OBS, dims.FEATURE))
        y_data = pm.Data("y_data", y_array, dims=RESPONSE_DIMS[: y_array.ndim])

        Q = _projection(priors, augmented=augmented)
        Z = _latent(X_data @ Q, priors.latent_scale, augmented=augmented)
        W, b = _classifier(dims.COMPONENT, priors, augmented=augmented)
        if target == "multiclass":
            contrast = W - W.mean(axis=1, keepdims=True)
            pm.Deterministic("coef", Q @ contrast, dims=(dims.FEATURE, dims.LABEL))
            pm.Deterministic("bias_centered", b - b.mean(), dims=(dims.LABEL,))
        else:
            pm.Deterministic("coef", Q @ W, dims=(dims.FEATURE, dims.LABEL))

        eta = Z @ W + b
        if target == "regression":
            _outputs(eta, y_data, priors, augmented=augmented)
        elif target == "multilabel":
            _label_set(eta, y_data, y_array, augmented=augmented)
        else:
            _choice(eta, y_data, y_array, n_labels=len(labels), augmented=augmented)
    return model


def build_mnp_model(
    X: Any, y: Any, *, priors: Priors | None = None, augmented: bool = False
) -> pm.Model:
    """Declare the multinomial probit on all features, the baseline of the paper.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Scaled features; the columns of a data frame name them.
    y : array-like of shape (n_samples,)
        Classes.
    priors : Priors, optional
        Of weights and biases; the paper's by default.
    augmented : bool, default=False
        Keep precisions and utilities as variables, as in the paper; otherwise they are integrated
        out.

    Returns
    -------
    pymc.Model

    Raises
    ------
    ValueError
        If X or y are not finite, of the wrong shape or of different lengths.

    See Also
    --------
    build_model : the same likelihood on a projection.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models.bsdr import build_mnp_model
    >>> model = build_mnp_model(*load_iris(return_X_y=True))
    >>> [variable.name for variable in model.free_RVs]
    ['weights', 'bias']
    """
    X_array, features = check_features(X, 1)
    y_array, labels = _check_target(y, "multiclass", n_samples=len(X_array))
    coords = {dims.OBS: list(range(len(X_array))), dims.FEATURE: features, dims.LABEL: labels}
    with pm.Model(coords=coords) as model:
        X_data = pm.Data("X", X_array, dims=(dims.OBS, dims.FEATURE))
        y_data = pm.Data("y_data", y_array, dims=dims.OBS)
        W, b = _classifier(dims.FEATURE, priors or PAPER, augmented=augmented)
        pm.Deterministic("coef", W - W.mean(axis=1, keepdims=True), dims=(dims.FEATURE, dims.LABEL))
        pm.Deterministic("bias_centered", b - b.mean(), dims=(dims.LABEL,))
        _choice(X_data @ W + b, y_data, y_array, n_labels=len(labels), augmented=augmented)
    return model


def declare_hierarchical(
    X: Any, y: Any, priors: HierarchicalPriors, target: Target, feature_map: FeatureMap | None
) -> pm.Model:
    """The model at full rank, with the whitened features or prior covariance of a feature map."""
    linear = feature_map is None or isinstance(feature_map, Metric)
    X_array, features = check_features(X, 1) if linear else (X, [])
    y_array, labels = _check_target(y, target, n_samples=len(X_array))
    contrasts = make_contrasts(len(labels), target)
    coords = {
        dims.OBS: list(range(len(X_array))),
        dims.LABEL: labels,
        dims.CONTRAST: list(range(len(contrasts))),
    }
    with pm.Model(coords=coords) as model:
        y_data = pm.Data("y_data", y_array, dims=RESPONSE_DIMS[: y_array.ndim])
        scale = pm.HalfNormal("scale", priors.scale)
        if linear:
            model.add_coord(dims.FEATURE, features)
            metric = feature_map if isinstance(feature_map, Metric) else Metric.learn(X_array)
            X_data, P = _linear_map(X_array, scale, metric)
        else:
            Z = _whitened_map(np.asarray(X_array, dtype=np.float64), scale, priors, feature_map)
        a = pm.Normal("bias_contrasts", 0.0, priors.bias_scale, dims=dims.CONTRAST)
        b = pm.Deterministic("bias", a @ contrasts, dims=dims.LABEL)
        if linear:
            coef = pm.Deterministic("coef", P @ contrasts, dims=(dims.FEATURE, dims.LABEL))
            eta = X_data @ coef + b
        else:
            eta = Z @ contrasts + b
        observed = {"observed": y_data, "dims": RESPONSE_DIMS[: y_array.ndim]}
        if target == "regression":
            location, width = priors.noise_location, priors.noise_width
            sigma = pm.LogNormal("noise_scale", location, width, dims=dims.LABEL)
            pm.Normal("y", eta, sigma=sigma, **observed)
        elif target == "multilabel":
            logp = partial(_with_lapse, _log_sign_probability, priors.lapse, 2)
            draw = partial(_draw_sign_with_lapse, priors.lapse)
            options = {"signature": "()->()", "dtype": "int64"}
            pm.CustomDist("y", eta, dist=draw, logp=logp, **options, **observed)
        else:
            k = len(labels)
            logp = partial(
                _with_lapse, partial(log_choice_probability, n_labels=k), priors.lapse, k
            )
            draw = partial(_draw_choice_with_lapse, priors.lapse, k)
            options = {"signature": "(k)->()", "dtype": "int64"}
            pm.CustomDist("y", eta, dist=draw, logp=logp, **options, **observed)
    return model


def _linear_map(X: FloatArray, scale: Tensor, metric: Metric) -> tuple[Tensor, Tensor]:
    """Samples (obs, feature) and projection (feature, contrast)."""
    X_data = pm.Data("X", X, dims=(dims.OBS, dims.FEATURE))
    offset = pm.Normal("projection_offset", 0.0, 1.0, dims=(dims.FEATURE, dims.CONTRAST))
    # Lambda^(1/2) times the offsets, without a D x D matrix.
    inside = metric.axes.T @ offset
    outside = metric.outside * metric.used[:, None] * (offset - metric.axes @ inside)
    P = scale * (metric.axes @ (metric.size[:, None] * inside) + outside)
    return X_data, pm.Deterministic("projection", P, dims=(dims.FEATURE, dims.CONTRAST))


def _whitened_map(
    X: FloatArray, scale: Tensor, priors: HierarchicalPriors, feature_map: Any
) -> Tensor:
    """Projection of whitened features, (obs, contrast)."""
    model = pm.modelcontext(None)
    basis = feature_map.whiten(X)
    model.add_coord(dims.BASIS, list(range(basis.shape[1])))
    basis = pm.Data("whitened", basis, dims=(dims.OBS, dims.BASIS))
    offset = pm.Normal("basis_offset", 0.0, 1.0, dims=(dims.BASIS, dims.CONTRAST))
    weights = scale * offset
    if isinstance(feature_map, Views):
        model.add_coord(dims.VIEW, list(feature_map.names))
        relative = pm.LogNormal("view_scale", 0.0, priors.view_width, dims=dims.VIEW)
        weights = relative[feature_map.index][:, None] * weights
    weights = pm.Deterministic("basis_weights", weights, dims=(dims.BASIS, dims.CONTRAST))
    return basis @ weights


def _with_lapse(
    log_probability: Callable[[Tensor, Tensor], Tensor],
    lapse: float,
    k: int,
    y: Tensor,
    eta: Tensor,
) -> Tensor:
    """Log of (1 - lapse) p + lapse / k."""
    log_p = math.log1p(-lapse) + log_probability(y, eta)
    return pt.logaddexp(log_p, math.log(lapse / k))


def _draw_choice_with_lapse(lapse: float, k: int, eta: Tensor, size: Any) -> Tensor:
    choice = _draw_choice(eta, size)
    uniform = pm.Uniform.dist(0.0, 1.0, shape=choice.shape)
    guess = pt.floor(k * pm.Uniform.dist(0.0, 1.0, shape=choice.shape)).astype("int64")
    return pt.switch(uniform < lapse, guess, choice)


def _draw_sign_with_lapse(lapse: float, eta: Tensor, size: Any) -> Tensor:
    sign = _draw_sign(eta, size)
    uniform = pm.Uniform.dist(0.0, 1.0, shape=eta.shape)
    guess = pt.floor(2.0 * pm.Uniform.dist(0.0, 1.0, shape=eta.shape)).astype("int64")
    return pt.switch(uniform < lapse, guess, sign)


# Priors of the paper


def _scale_mixture(
    name: str,
    precision_name: str,
    *,
    shape: float,
    rate: float,
    dims: tuple[str, ...],
    augmented: bool,
) -> Tensor:
    """N(0, 1/phi) with phi ~ Ga(shape, rate) per entry; integrated, Student-t of 2 shape dof."""
    if not augmented:
        return pm.StudentT(name, nu=2 * shape, mu=0.0, sigma=math.sqrt(rate / shape), dims=dims)
    precision = _precision(precision_name, shape, rate, dims, augmented=augmented)
    return pm.Normal(name, 0.0, tau=precision, dims=dims)


def _classifier(inputs: str, priors: Priors, *, augmented: bool) -> tuple[Tensor, Tensor]:
    """Weights (inputs, outcome) and biases (outcome,)."""
    weights = _scale_mixture(
        "weights",
        "weight_precision",
        shape=priors.weight_shape,
        rate=priors.weight_rate,
        dims=(inputs, dims.LABEL),
        augmented=augmented,
    )
    bias = _scale_mixture(
        "bias",
        "bias_precision",
        shape=priors.bias_shape,
        rate=priors.bias_rate,
        dims=(dims.LABEL,),
        augmented=augmented,
    )
    return weights, bias


def _precision(
    name: str, shape: float, rate: float, dims: tuple[str, ...], *, augmented: bool
) -> Tensor:
    """Gamma (shape, rate), untransformed for conjugate samplers."""
    options = {"default_transform": None} if augmented else {}
    return pm.Gamma(name, alpha=shape, beta=rate, dims=dims, **options)


def _projection(priors: Priors, *, augmented: bool) -> Tensor:
    """Q (feature, component), with one precision per entry, column or row."""
    kind, shape, rate = priors.projection_prior, priors.projection_shape, priors.projection_rate
    names = ("projection", "projection_precision")
    both = (dims.FEATURE, dims.COMPONENT)
    if kind == "entrywise":
        return _scale_mixture(*names, shape=shape, rate=rate, dims=both, augmented=augmented)
    group = dims.COMPONENT if kind == "columnwise" else dims.FEATURE
    phi = _precision("projection_precision", shape, rate, (group,), augmented=augmented)
    return pm.Normal(
        "projection", 0.0, tau=phi if kind == "columnwise" else phi[:, None], dims=both
    )


def _latent(mean: Tensor, scale: float, *, augmented: bool) -> Tensor:
    """Z (obs, component) ~ N(mean, scale^2), centred if augmented, else by offsets."""
    both = (dims.OBS, dims.COMPONENT)
    if augmented:
        return pm.Normal("latent", mean, sigma=scale, dims=both)
    offset = pm.Normal("latent_offset", 0.0, 1.0, dims=both)
    return pm.Deterministic("latent", mean + scale * offset, dims=both)


# Responses


def _choice(
    eta: Tensor,
    y_data: Tensor,
    y: np.ndarray,
    *,
    n_labels: int,
    augmented: bool,
) -> None:
    """y (obs,) = argmax of utilities N(eta, I)."""
    options = {"signature": "(k)->()", "dtype": "int64", "observed": y_data, "dims": dims.OBS}
    if augmented:
        T = pm.Normal("utilities", eta, 1.0, dims=RESPONSE_DIMS, initval=np.eye(n_labels)[y])
        pm.CustomDist("y", T, dist=_largest, logp=_is_largest, **options)
    else:
        logp = partial(log_choice_probability, n_labels=n_labels)
        pm.CustomDist("y", eta, dist=_draw_choice, logp=logp, **options)


def _label_set(eta: Tensor, y_data: Tensor, y: np.ndarray, *, augmented: bool) -> None:
    """y (obs, outcome) = 1 where the utility N(eta, 1) is positive."""
    options = {"signature": "()->()", "dtype": "int64", "observed": y_data, "dims": RESPONSE_DIMS}
    if augmented:
        T = pm.Normal("utilities", eta, 1.0, dims=RESPONSE_DIMS, initval=2.0 * y - 1.0)
        pm.CustomDist("y", T, dist=_positive, logp=_is_sign, **options)
    else:
        pm.CustomDist("y", eta, dist=_draw_sign, logp=_log_sign_probability, **options)


def _outputs(eta: Tensor, y_data: Tensor, priors: Priors, *, augmented: bool) -> None:
    """y (obs, outcome) ~ N(eta, 1/tau), one noise precision per output."""
    tau = _precision(
        "noise_precision",
        priors.noise_shape,
        priors.noise_rate,
        (dims.LABEL,),
        augmented=augmented,
    )
    pm.Normal("y", eta, tau=tau, observed=y_data, dims=RESPONSE_DIMS)


def _largest(utilities: Tensor, size: Any) -> Tensor:
    return pt.argmax(utilities, axis=-1)


def _is_largest(y: Tensor, utilities: Tensor) -> Tensor:
    return pt.switch(pt.eq(pt.argmax(utilities, axis=-1), y), 0.0, -np.inf)


def _draw_choice(eta: Tensor, size: Any) -> Tensor:
    return pt.argmax(eta + pm.Normal.dist(0.0, 1.0, shape=eta.shape), axis=-1)


def _positive(utilities: Tensor, size: Any) -> Tensor:
    return pt.gt(utilities, 0.0).astype("int64")


def _is_sign(y: Tensor, utilities: Tensor) -> Tensor:
    return pt.switch(pt.eq(pt.gt(utilities, 0.0), pt.gt(y, 0)), 0.0, -np.inf)


def _draw_sign(eta: Tensor, size: Any) -> Tensor:
    return pt.gt(eta + pm.Normal.dist(0.0, 1.0, shape=eta.shape), 0.0).astype("int64")


def _log_sign_probability(y: Tensor, eta: Tensor) -> Tensor:
    return log_phi(pt.switch(pt.gt(y, 0), eta, -eta))


# Probit probabilities


def log_phi(x: Tensor) -> Tensor:
    """Log of the standard normal distribution function, with finite gradients in both tails.

    Both branches get finite arguments, since the gradient of a ``switch`` multiplies the branch not
    taken by zero.
    """
    left, right = pt.minimum(x, -1.0), pt.maximum(x, -1.0)
    return pt.switch(
        x < -1.0,
        pt.log(pt.erfcx(-left / math.sqrt(2.0)) / 2.0) - 0.5 * left**2,
        pt.log1p(-pt.erfc(right / math.sqrt(2.0)) / 2.0),
    )


def log_choice_probability(y: Tensor, eta: Tensor, *, n_labels: int) -> Tensor:
    r"""Log probability that utility ``y`` is the largest of N(eta, I).

    .. math::
        p(y = c \mid \eta) = \int N(u; 0, 1) \prod_{j \ne c} \Phi(u + \eta_c - \eta_j)\, du
        = \int e^{f(u)} du

    The log integrand f is concave with :math:`-f'' \in [1, K]`. The Gauss-Hermite rule is centred
    at its mode and scaled by :math:`(-f'')^{-1/2}` there, both constant under the gradient, since
    the integral does not depend on them.

    Parameters
    ----------
    y : (...,) of int
    eta : (..., K)
    n_labels : int
        K, a constant so that the shapes of the graph are static.

    Returns
    -------
    (...,)
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
    falls = -pt.cumsum(sort(margin, axis=-1), axis=-1) / (1.0 + np.arange(1, n_rivals + 1))
    u = pt.maximum(falls.max(axis=-1), 0.0)
    for _ in range(N_NEWTON):
        slope, curvature = _slope_and_curvature(u, margin)
        u = u + slope / curvature
    _, curvature = _slope_and_curvature(u, margin)
    return u, curvature**-0.5


def _slope_and_curvature(u: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    x = u[..., None] + margin
    hazard = math.sqrt(2.0 / math.pi) / pt.erfcx(-x / math.sqrt(2.0))
    return -u + hazard.sum(axis=-1), 1.0 + (hazard * (x + hazard)).sum(axis=-1)


# Validation


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def _check_target(y: Any, target: Target, *, n_samples: int) -> tuple[np.ndarray, list[Any]]:
    """Encoded y, (N,) of label indices or (N, K), and names of labels or outputs."""
    array = np.asarray(y)
    if len(array) != n_samples:
        raise ValueError(f"X has {n_samples} samples and y has {len(array)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("y contains NaN or infinity")
    if target == "multiclass":
        return encode_classes(array)
    if array.ndim == 1 and target == "regression":
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"y must be a matrix (N, K) for target={target!r}, got {array.shape}")
    names = column_names(y, "y", array.shape[1])
    if target == "regression":
        return array.astype(np.float64), names
    if not np.isin(array, (0, 1)).all():
        raise ValueError("y must hold 0 and 1 only for target='multilabel'")
    return array.astype(np.int64), names
