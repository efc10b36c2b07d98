r"""BM2PCA as a PyMC model.

For each sample n = 1..N with features :math:`x_n` (D,), R components and K outcomes,

.. math::
    t \sim N(0, \delta^{-1} I), \quad w_{ji} \sim N(0, r_i^{-1}), \quad
    r_i \sim \mathrm{Ga}(a_r, b_r), \quad \tau \sim \mathrm{Ga}(a_\tau, b_\tau), \\
    z_n \sim N(0, I), \quad x_n \sim N(W z_n + t, \tau^{-1} I), \\
    \nu_c \sim \mathrm{Ga}(a_\nu, b_\nu), \quad \eta_{ci} \sim N(0, \nu_c^{-1}), \quad
    f_{nc} = \eta_c^\top z_n + \eta_{c0},

with Gammas by shape and rate. Each outcome has a margin factor,

* signs, :math:`\phi_{nc} = \exp\{-2 C \max(0, 1 - y_{nc} f_{nc})\}`, or 1 for y = 0;
* real targets, :math:`\phi_{nc} = \exp\{-2 C \max(0, |y_{nc} - f_{nc}| - \epsilon)\} /
  (2 \epsilon + 1 / C)`.

The factor of a sign is a *pseudo-likelihood*: :math:`\phi(+1) + \phi(-1)` depends on f, so labels
cannot be drawn, and C cannot be chosen by the evidence. The factor of a real target is its density:
uniform for :math:`|y - f| < \epsilon`, with exponential tails.

Hand-written code keeps the latent coordinates, and the scale :math:`\lambda` of each hinge as a
mixture of normals (:mod:`~bsdr_models.papers.bm2pca.loss_augmentation`), given which all
conditionals are conjugate; ``augmented=True`` declares both, Eq. (4). Otherwise, for NUTS and ADVI,
the latent coordinates are integrated out: with :math:`A = I + \tau W^\top W` and T such that
:math:`T A T^\top = I`,

.. math::
    x_n \sim N(t, W W^\top + \tau^{-1} I), \qquad
    T^{-\top} z_n \mid x_n \sim N(b_n, I), \quad b_n = \tau T W^\top (x_n - t),

so the class score given :math:`x_n` is normal with mean :math:`b_n^\top T \eta_c + \eta_{c0}` and
variance :math:`|T \eta_c|^2`, and the expectation of a single factor has a closed form.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none

from bsdr_models.bm2pca.model import declared_targets
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.data.validation import check_features
from bsdr_models.inference import dims
from bsdr_models.inference.declaring import (
    Tensor,
    named_model,
    read_priors,
    starting_at,
)
from bsdr_models.numerics.arrays import DeclaredTarget, SamplesLike, TargetLike
from bsdr_models.options import TOLERANCE, check_number
from bsdr_models.papers.bm2pca.gibbs import SAMPLING
from bsdr_models.papers.starts import Start

ROW_DIMS = (dims.OBS, dims.FEATURE)
LATENT_DIMS = (dims.OBS, dims.COMPONENT)

# Added to the variance of a score, which is zero at the initial weights of ADVI.
TINY = 1e-16


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int,
    target: DeclaredTarget = "multiclass",
    priors: BM2PCAPriors | Mapping[str, Any] | None = None,
    augmented: bool = False,
    C: float = 10.0,
    epsilon: float = 0.1,
    unlabeled: object = None,
    name: str = "",
) -> pm.Model:
    r"""Declare the pseudo-posterior of BM2PCA as printed as a PyMC model with named dims.

    All outcomes share one subspace. The paper's one-vs-rest is
    ``build_model(X, y == c, ...)`` for every class c.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features, scaled by the caller. Column names of a data frame become the coordinate
        ``feature``.
    y : array-like of shape (N,) or (N, K)
        Classes of any sortable type. Two classes are one outcome, +1 for the second of them in
        sorted order; more classes are one outcome each, against the rest. Or zeros and ones of K
        labels, or K real outputs, NaN if missing.
    n_components : int
        R, between 1 and D.
    target : {"multiclass", "binary", "multilabel", "regression"}, default="multiclass"
        What y holds: classes, two classes, several labels, or real outputs.
    priors : BM2PCAPriors or dict, optional
        Hyper-parameters, ``bsdr_models.papers.bm2pca.SAMPLING`` by default, or priors of variables
        as for :func:`bsdr_models.bsdr.build_model`. Under the nearly flat hyper-parameters of the
        paper, ``bsdr_models.BM2PCAPriors()``, every transition of NUTS diverges.
    augmented : bool, default=False
        Include the latent coordinates and the scales of the hinges of signs, as Eq. (4) of the
        paper and its engines do.
    C : float
        Cost of a violated margin.
    epsilon : float, default=0.1
        Half width of the insensitive interval of real outputs.
    unlabeled : scalar, optional
        Value of y that marks a missing label, as for :class:`bsdr_models.BM2PCAClassifier`:
        the semi-supervised model.
    name : str, default=""
        Prefix of all variables, for several models in one ``with pm.Model()``. These share dims.

    Returns
    -------
    pymc.Model
        Free variables: ``offset``, ``loadings``, ``weights``, ``bias``, the precisions, if
        augmented ``latent`` and ``hinge_scale`` (obs, outcome), else with K > 1 ``latent_offset``:
        several outcomes of a sample depend on the same latent coordinates,
        which are kept as an offset from their mean given the features. Its density has kinks, which
        slow NUTS; with K = 1 it is smooth.
        Observed are the features, as ``samples``, and real outputs, as ``y``. The margin factors of
        signs are the potential ``margins`` (obs, outcome), which predictive draws ignore: signs
        have no draws and no ``log_likelihood``. ``scores`` (obs, outcome) are class scores, with
        K = 1 their means given the features. ``coef`` (feature, outcome) and ``intercept``
        (outcome,) give the mean class score of a new sample as ``x @ coef + intercept``; they are
        identified, unlike the rotation of loadings and weights. A single sign has the axis
        ``score``, not ``outcome``.

    Notes
    -----
    New samples are given by ``pm.set_data({"X": X, "y_data": y}, coords={"obs": ...})``, where
    y has a row of zeros for each.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there is one class only, or an argument is out
        of range.

    See Also
    --------
    bsdr_models.bm2pca.build_model : the recommended model.
    bsdr_models.papers.PaperBM2PCAClassifier : the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers.bm2pca import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = build_model(scale(X), y, n_components=2)
    >>> "loadings" in model.named_vars
    True
    """
    check_number("C", C)
    check_number("epsilon", epsilon, TOLERANCE)
    if augmented and target == "regression":
        raise ValueError("augmented=True is Eq. (4), of signs; target='regression' has none")
    numbers, own = read_priors(priors, SAMPLING)
    X_array, features = check_features(X, y, n_components)
    values, axis, outcomes = declared_targets(y, target, unlabeled, n_samples=len(X_array))
    half_width = epsilon if target == "regression" else None
    score_dims = (dims.OBS, axis)
    n_scores = values.shape[1]
    coords = {
        dims.OBS: range(len(X_array)),
        dims.COMPONENT: range(n_components),
        dims.FEATURE: features,
        axis: outcomes,
    }

    centre = np.nanmean(values, axis=0) if half_width is not None else 0.0
    start = Start.of(X_array, np.nan_to_num(values - centre), n_components)
    mean = X_array.mean(axis=0)

    def gamma(name: str, shape: float, rate: float, axes: Any = ()) -> Tensor:
        # A Python float such as 0.5 would become single precision, and its log gamma as well.
        return own.declare(pm.Gamma, name, np.float64(shape), np.float64(rate), dims=axes)

    with named_model(name, coords) as model:
        X_data = pm.Data("X", X_array, dims=ROW_DIMS)
        # PyMC has no NaN in data.
        y_data = pm.Data("y_data", np.where(np.isnan(values), np.inf, values), dims=score_dims)

        kind = starting_at(mean)
        sd = numbers.offset_precision**-0.5
        t = own.declare(kind, "offset", mu=0.0, sigma=sd, dims=dims.FEATURE)
        # Scales, because PyTensor cannot compile ADVI with a precision of length one.
        both = (dims.FEATURE, dims.COMPONENT)
        sd = None
        if "loadings" not in own.given:
            shape = numbers.loading_shape
            r = gamma("loading_precision", shape, numbers.loading_rate, dims.COMPONENT)
            sd = r**-0.5
        kind = starting_at(np.linalg.lstsq(start.latent, X_array - mean)[0].T)
        W = own.declare(kind, "loadings", mu=0.0, sigma=sd, dims=both)
        tau = gamma("noise_precision", numbers.noise_shape, numbers.noise_rate)
        if not {"weights", "bias"} <= own.given.keys():
            nu = gamma("weight_precision", numbers.weight_shape, numbers.weight_rate, axis)
            sd = nu**-0.5
        kind = starting_at(start.weights)
        eta = own.declare(kind, "weights", mu=0.0, sigma=sd, dims=(dims.COMPONENT, axis))
        e0 = own.declare(starting_at(start.bias), "bias", mu=0.0, sigma=sd, dims=axis)

        # Compiled code broadcasts an axis of length one only if it is known to have that length.
        W = pt.specify_shape(W, (X_array.shape[1], n_components))
        eta = pt.specify_shape(eta, (n_components, n_scores))

        T, V, _ = whitening(W, tau, n_components=n_components)
        h = product(T, eta)  # (R, K)
        coef = pm.Deterministic("coef", product(V, h), dims=(dims.FEATURE, axis))
        pm.Deterministic("intercept", e0 - (t[:, None] * coef).sum(axis=0), dims=axis)

        variance = []
        if augmented:
            z = own.declare(pm.Normal, "latent", 0.0, 1.0, dims=LATENT_DIMS)
            pm.Normal("samples", z @ W.T + t, tau=tau, observed=X_data, dims=ROW_DIMS)
            f = product(z, eta)
        else:
            _samples(X_data, t, W, tau, n_components)
            b = (X_data - t) @ V
            if n_scores > 1:
                b = b + pm.Normal("latent_offset", 0.0, 1.0, dims=LATENT_DIMS)
                pm.Deterministic("latent", product(b, T), dims=LATENT_DIMS)
            else:
                variance = [(h**2).sum(axis=0) + TINY]
            f = product(b, h)
        f = pm.Deterministic("scores", f + e0, dims=score_dims)
        if augmented:
            # Eq. (4): the factors of lambda alone are a Gamma density.
            lam = pm.Gamma("hinge_scale", np.float64(0.5), np.float64(0.5), dims=score_dims)
            u = C * (1.0 - y_data * f)
            factor = pt.neq(y_data, 0.0) * (-u - u**2 / (2.0 * lam))
            pm.Potential("margins", factor, dims=score_dims)
        elif half_width is not None:
            pm.CustomDist(
                "y",
                *(f, *variance),
                dist=partial(_draw_target, C=C, epsilon=half_width),
                logp=partial(margin_factor, C=C, epsilon=half_width),
                signature="(),()->()" if variance else "()->()",
                observed=y_data,
                dims=score_dims,
            )
        else:
            factor = margin_factor(y_data, f, *variance, C=C)
            pm.Potential("margins", factor, dims=score_dims)
        normal = "integrated out, which needs their normal prior; augmented=True declares them"
        own.check(latent=normal, latent_offset=normal, hinge_scale="defines the hinge")
    return model


def product(a: Tensor, b: Tensor) -> Tensor:
    """Product (m, R) x (R, n) of small matrices by sums; Numba needs seconds per call of BLAS."""
    return (a[:, :, None] * b[None]).sum(axis=1)


def whitening(W: Tensor, tau: Tensor, *, n_components: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Lower triangular T with :math:`T A T^\top = I`, where :math:`A = I + \tau W^\top W`.

    Also return :math:`V = \tau W T^\top` (D, R) and log |A|. Elimination column by column avoids
    linear algebra, which Numba compiles slowly.
    """
    rest = np.eye(n_components) + tau * product(W.T, W)
    T = pt.eye(n_components)
    for i in range(n_components - 1):
        below = pt.where(np.arange(n_components) > i, rest[:, i] / rest[i, i], 0.0)
        rest = rest - below[:, None] * rest[i]
        T = T - below[:, None] * T[i]
    pivots = pt.diagonal(rest)
    T = T / pt.sqrt(pivots)[:, None]
    return T, tau * product(W, T.T), pt.log(pivots).sum()


def _samples(X_data: Tensor, t: Tensor, W: Tensor, tau: Tensor, n_components: int) -> None:
    """Observe X with the latent coordinates integrated out."""

    def log_density(x: Tensor, t: Tensor, W: Tensor, tau: Tensor) -> Tensor:
        _, V, log_det = whitening(W, tau, n_components=n_components)
        constant = x.shape[1] * (pt.log(tau) - math.log(2.0 * math.pi)) - log_det
        square = tau * ((x - t) ** 2).sum(axis=1) - (((x - t) @ V) ** 2).sum(axis=1)
        return 0.5 * (constant - square)

    def draw(t: Tensor, W: Tensor, tau: Tensor, size: Any) -> Tensor:
        n_samples = () if rv_size_is_none(size) else (size[0],)
        z = pm.Normal.dist(0.0, 1.0, size=(*n_samples, n_components))
        return pm.Normal.dist(z @ W.T + t, tau=tau)

    pm.CustomDist(
        "samples",
        *(t, W, tau),
        dist=draw,
        logp=log_density,
        signature="(d),(d,r),()->(d)",
        observed=X_data,
        dims=ROW_DIMS,
    )


# A margin factor is the product of exp(-2 C max(0, v)) over the excesses v of a score.


def margin_factor(
    y: Tensor,
    scores: Tensor,
    variance: Tensor | None = None,
    *,
    C: float = 1.0,
    epsilon: float | None = None,
) -> Tensor:
    r"""Log of the factor by which a max-margin classifier or regression weighs a score.

    Parameters
    ----------
    y : array or tensor
        Signs +1 and -1, 0 for a missing label; or real targets, NaN or infinite if missing.
    scores : tensor
        f, of the same shape as y, or the mean of normal scores.
    variance : tensor, optional
        Of normal scores, over which the factor is then averaged.
    C : float
        Cost of a violated margin.
    epsilon : float, optional
        Half width of the insensitive interval of real targets. By default y are signs.

    Returns
    -------
    tensor
        Of signs :math:`-2 C \max(0, 1 - y f)`, a pseudo-likelihood; of real targets the density
        :math:`-2 C \max(0, |y - f| - \epsilon) - \log(2 \epsilon + 1 / C)`; 0 if y is missing.

    See Also
    --------
    bsdr_models.papers.bm2pca.build_model : a model with these factors.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from bsdr_models.parts import margin_factor
    >>> X, signs = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    >>> with pm.Model() as model:
    ...     weights = pm.Normal("weights", shape=1)
    ...     margins = pm.Potential("margins", margin_factor(signs, X @ weights, C=2.0))
    >>> pm.draw(margins, draws=3).shape
    (3, 2)
    """
    known, excesses, constant = _excesses(y, scores, C, epsilon)
    if variance is None:
        factor = -2.0 * C * sum(pt.maximum(v, 0.0) for v in excesses)
    else:
        factor = log_expected_factor(excesses, variance, C)
    return known * (factor - constant)


def _excesses(
    y: Tensor, f: Tensor, C: float, epsilon: float | None
) -> tuple[Tensor, list[Tensor], float]:
    """Which targets are known, the excesses v of the scores, and the log of the normaliser."""
    y = pt.as_tensor(y)
    if epsilon is None:
        return pt.neq(y, 0.0), [1.0 - y * f], 0.0
    known = pt.lt(pt.abs(y), np.inf)
    y = pt.switch(known, y, 0.0)  # no NaN in a gradient
    return known, [y - f - epsilon, f - y - epsilon], math.log(2.0 * epsilon + 1.0 / C)


def _draw_target(f: Tensor, *more: Any, C: float, epsilon: float) -> Tensor:
    """Real targets at scores f, or at normal scores of a variance."""
    *variance, _ = more  # the last is the size
    for each in variance:
        f = f + pt.sqrt(each) * pm.Normal.dist(0.0, 1.0, shape=f.shape)
    share = 2.0 * epsilon / (2.0 * epsilon + 1.0 / C)  # of the interval
    inside, place = (pm.Uniform.dist(0.0, 1.0, shape=f.shape) for _ in range(2))
    tail = epsilon + pm.Exponential.dist(2.0 * C, shape=f.shape)
    size = pt.switch(inside < share, epsilon * place, tail)
    sign = pt.sign(pm.Uniform.dist(-1.0, 1.0, shape=f.shape))
    return f + sign * size


def log_expected_factor(excesses: list[Tensor], variance: Tensor, C: float) -> Tensor:
    r"""Log of the expectation of a margin factor under normal scores, (N, K).

    ``excesses`` holds the means (N, K) of v, one for a hinge and two for a real target, of common
    variance. A hinge has :math:`P(v < 0) + E[e^{-2 C v}; v > 0]`. Of the two v of a real target at
    most one is positive, and none with probability :math:`P(\max v < 0)`.
    """
    if len(excesses) == 1:
        inside = log_decay(-excesses[0], variance, 0.0)
    else:
        # Differences of tails from the nearer end do not cancel.
        most = log_decay(-pt.maximum(*excesses), variance, 0.0)
        least = log_decay(pt.minimum(*excesses), variance, 0.0)
        inside = most + pt.log(-pt.expm1(pt.minimum(least - most, -1e-200)))
    for v in excesses:
        outside = log_decay(v, variance, 2.0 * C)
        more = inside - outside  # 1e16 if the variance is tiny, which would cancel in the sum
        inside = pt.switch(more > 40.0, inside, outside + pt.softplus(more))
    return inside


def log_decay(mean: Tensor, variance: Tensor, rate: float) -> Tensor:
    r"""Log of :math:`E[e^{-\rho v}; v > 0]` for v ~ N(mean, variance); the normal tail at rho = 0.

    .. math::
        e^{\rho^2 s^2 / 2 - \rho m} \Phi(x) = \tfrac12 e^{-m^2 / 2 s^2}
        \operatorname{erfcx}(-x / \sqrt 2), \qquad x = m / s - \rho s

    For x < -1 the second form avoids cancellation. Arguments are clipped so that both branches of
    the ``switch`` and their gradients are finite.
    """
    sd = pt.sqrt(variance)
    x = mean / sd - rate * sd
    near = pt.maximum(x, -1.0)
    far = pt.minimum(x, -1.0)
    return pt.switch(
        x < -1.0,
        pt.log(pt.erfcx(-far / math.sqrt(2.0)) / 2.0) - mean**2 / (2.0 * variance),
        pt.log1p(-pt.erfc(near / math.sqrt(2.0)) / 2.0) + rate * (0.5 * rate * variance - mean),
    )
