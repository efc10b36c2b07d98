r"""PyMC model of Gönen (2013).

For each sample n = 1..N with features :math:`x_n` (D,), R components and K labels,

.. math::
    q_{fs} \sim N(0, \phi^{-1}), \quad \phi \sim \mathrm{Ga}(a_\phi, b_\phi), \qquad
    z_n \sim N(Q^\top x_n, \sigma_z^2 I), \qquad
    w_{sc} \sim N(0, \psi_{sc}^{-1}), \quad b_c \sim N(0, \lambda_c^{-1}), \qquad
    \eta_n = W^\top z_n + b,

with Gamma priors (shape, rate) on :math:`\psi` and :math:`\lambda` and one precision
:math:`\phi` per entry, column or row of Q. The response is that of :mod:`bsdr_models.bsdr.model`
without the lapse; the noise of real outputs has a precision :math:`\tau_c`, a Gamma.

The *augmented* parametrisation has every variable of the paper, for conjugate samplers. The
*marginal* one, for NUTS and ADVI, integrates out the latent utilities t and the entry-wise
precisions, and writes the latent coordinates as offsets.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from bsdr_models.bsdr.model import (
    RESPONSE_DIMS,
    binary_probit,
    multinomial_probit,
    read_response,
)
from bsdr_models.data.validation import check_features
from bsdr_models.inference import dims
from bsdr_models.inference.declaring import (
    OwnPriors,
    Tensor,
    declare_constant,
    named_model,
    read_priors,
    starting_at,
)
from bsdr_models.numerics.arrays import DeclaredTarget, FloatArray, SamplesLike, TargetLike
from bsdr_models.papers.bsdr.priors import PAPER, PROJECTION_PRECISION_DIMS, Priors
from bsdr_models.papers.starts import Start

# Why no other prior can be given, unless the variable is declared.
FIXED = dict.fromkeys(
    ("projection_precision", "weight_precision", "bias_precision"),
    "integrated out, which needs its Gamma prior; augmented=True declares it",
) | {"latent": "normal given the features; augmented=False has latent_offset"}

# Shape and rate of a Gamma, and dims of a variable.
type Pair = tuple[float, float]
type Dims = tuple[str, ...]


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int,
    target: DeclaredTarget = "multiclass",
    priors: Priors | Mapping[str, object] | None = None,
    augmented: bool = False,
    name: str = "",
) -> pm.Model:
    r"""Declare the joint distribution of the paper's BSDR as a PyMC model with named dims.

    Parameters
    ----------
    X, y, target, name
        As for :func:`build_model`.
    n_components : int
        R, between 1 and D.
    priors : Priors or dict, optional
        Hyper-parameters, the paper's by default, or priors of variables as for
        :func:`build_model`.
    augmented : bool, default=False
        Include the latent utilities T and all precisions, without transforms. The indicator of
        :math:`y = \arg\max t` rules out gradient-based samplers.

    Returns
    -------
    pymc.Model
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
    bsdr_models.papers.bsdr.predict : predictions from draws of the model.
    bsdr_models.bsdr.build_model : the recommended model.

    Notes
    -----
    ``pm.compute_log_likelihood`` gives :math:`\log p(y_n \mid z_n, W, b)`. Leave-one-out
    cross-validation needs the likelihood with :math:`z_n` integrated out.

    ``pm.sample_posterior_predictive`` of new samples needs ``sample_vars="latent_offset"`` for
    draws of the marginal model, since the trace has the latent coordinates of other samples.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers.bsdr import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = build_model(scale(X), y, n_components=2)
    >>> [variable.name for variable in model.free_RVs]
    ['projection', 'latent_offset', 'weights', 'bias']
    """
    numbers, own = read_priors(priors, PAPER)
    X_array, features = check_features(X, y, n_components)
    y_array, labels = read_response(y, target, n_samples=len(X_array))
    coords: dict[str, Sequence[object]] = {
        dims.OBS: list(range(len(X_array))),
        dims.FEATURE: features,
        dims.COMPONENT: list(range(n_components)),
        dims.LABEL: labels,
    }
    both = (dims.COMPONENT, dims.LABEL)
    by_sample = (dims.OBS, dims.COMPONENT)
    with named_model(name, coords) as model:
        X_data = pm.Data("X", X_array, dims=(dims.OBS, dims.FEATURE))
        response = RESPONSE_DIMS[: y_array.ndim]
        y_data = pm.Data("y_data", y_array, dims=response)

        latent_scale = declare_constant("latent_scale", np.float64(numbers.latent_scale))
        start = _start(X_array, y_array, len(labels), target, n_components)
        Q = _projection(numbers, own, augmented, start.projection)
        if augmented:
            mean = X_data @ Q
            Z = pm.Normal("latent", mean, sigma=latent_scale, dims=by_sample)
        else:
            offset = own.declare(pm.Normal, "latent_offset", 0.0, 1.0, dims=by_sample)
            Z = X_data @ Q + latent_scale * offset
            Z = pm.Deterministic("latent", Z, dims=by_sample)
        prior = (numbers.weight_shape, numbers.weight_rate)
        names = ("weights", "weight_precision")
        W = _scale_mixture(own, names, prior, both, augmented, start.weights)
        prior = (numbers.bias_shape, numbers.bias_rate)
        axes = (dims.LABEL,)
        names = ("bias", "bias_precision")
        b = _scale_mixture(own, names, prior, axes, augmented, start.intercept)
        contrast = W
        if target == "multiclass":
            contrast = W - W.mean(axis=1, keepdims=True)
            pm.Deterministic("bias_centered", b - b.mean(), dims=(dims.LABEL,))
        pm.Deterministic("coef", Q @ contrast, dims=(dims.FEATURE, dims.LABEL))

        eta = Z @ W + b
        if target == "regression":
            prior = (numbers.noise_shape, numbers.noise_rate)
            tau = _precision(own, "noise_precision", prior, axes, augmented)
            pm.Normal("y", eta, tau=tau, observed=y_data, dims=response)
        elif augmented:
            _augmented_label(eta, y_array, len(labels), y_data)
        elif target == "multiclass":
            multinomial_probit("y", eta, n_classes=len(labels), observed=y_data, dims=response)
        else:
            binary_probit("y", eta, observed=y_data, dims=response)
        own.check(**FIXED)
    return model


def _start(
    X: FloatArray, y: np.ndarray, n_labels: int, target: DeclaredTarget, n_components: int
) -> Start:
    """Initial values by the labels of samples (N, D), or by real outputs."""
    if target == "regression":
        return Start.of(X, y - y.mean(axis=0), n_components)
    indicators = np.eye(n_labels)[y] if y.ndim == 1 else y
    return Start.of(X, 2.0 * indicators - 1.0, n_components)


def _scale_mixture(
    own: OwnPriors,
    names: tuple[str, str],
    prior: Pair,
    dims: Dims,
    augmented: bool,
    start: FloatArray,
) -> Tensor:
    """N(0, 1/phi), phi ~ Ga(prior) per entry; with phi integrated Student-t of 2 shape dof."""
    name, precision_name = names
    shape, rate = prior
    if not augmented:
        kind = starting_at(start, pm.StudentT)
        sd = math.sqrt(rate / shape)
        return own.declare(kind, name, nu=2.0 * shape, mu=0.0, sigma=sd, dims=dims)
    sigma = None
    if name not in own.given:
        sigma = _precision(own, precision_name, prior, dims, augmented) ** -0.5
    return own.declare(starting_at(start), name, mu=0.0, sigma=sigma, dims=dims)


def _precision(own: OwnPriors, name: str, prior: Pair, dims: Dims, augmented: bool) -> Tensor:
    """Gamma (shape, rate), untransformed for conjugate samplers."""
    options = {"default_transform": None} if augmented else {}
    return own.declare(pm.Gamma, name, alpha=prior[0], beta=prior[1], dims=dims, **options)


def _projection(priors: Priors, own: OwnPriors, augmented: bool, start: FloatArray) -> Tensor:
    """Q (feature, component), with one precision per entry, column or row."""
    kind = priors.projection_prior
    prior = (priors.projection_shape, priors.projection_rate)
    names = ("projection", "projection_precision")
    both = (dims.FEATURE, dims.COMPONENT)
    if kind == "entrywise" or names[0] in own.given:
        return _scale_mixture(own, names, prior, both, augmented, start)
    axes = PROJECTION_PRECISION_DIMS[kind]
    phi = _precision(own, names[1], prior, axes, augmented)
    phi = phi if kind == "columnwise" else phi[:, None]
    return own.declare(starting_at(start), names[0], mu=0.0, sigma=phi**-0.5, dims=both)


def _augmented_label(eta: Tensor, y: np.ndarray, n_labels: int, observed: Tensor) -> None:
    """Utilities N(eta, I), and y their argmax (obs,), or 1 where they are positive (obs, label)."""
    of_class = y.ndim == 1
    initial = np.eye(n_labels)[y] if of_class else 2.0 * y - 1.0
    T = starting_at(initial)("utilities", mu=eta, sigma=1.0, dims=RESPONSE_DIMS)
    label, signature = (_largest, "(k)->()") if of_class else (_positive, "()->()")
    pm.CustomDist(
        "y",
        T,
        dist=label,
        logp=lambda y, T: pt.switch(pt.eq(label(T, None), y), 0.0, -np.inf),
        signature=signature,
        dtype="int64",
        observed=observed,
        dims=RESPONSE_DIMS[: y.ndim],
    )


def _largest(utilities: Tensor, size: Tensor) -> Tensor:
    return pt.argmax(utilities, axis=-1)


def _positive(utilities: Tensor, size: Tensor) -> Tensor:
    return pt.gt(utilities, 0.0).astype("int64")
