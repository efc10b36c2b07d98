r"""One view, x_n ~ N(W z_n + t, I / tau), and its factors, as in Bayesian PCA [1]_.

The paper of BM2PCA refers to [1]_ for these updates.

In a complete view all features share the covariance of their loadings, so the axis J of
covariances has length 1; with missing values J = D. A covariance of each feature of a complete view
would cost D inversions, and a wide view could not be reduced to its row space.

Shapes: N samples, D features in working coordinates, R components.

References
----------
.. [1] C. M. Bishop (1999). Variational principal components. ICANN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.linalg import inv_spd, row_space


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Data of one view."""

    X: FloatArray  # (N, D); 0 for a missing value
    mask: FloatArray | None  # 1 for an observed value, else 0, (N, D); None for a complete view
    n_features: int  # Number of features: D, or more if X holds coordinates in its row space
    # (n_features, D), orthonormal, from working coordinates to features; None for the identity.
    basis: FloatArray | None
    count: FloatArray  # Number of samples with the feature, (J,)
    total: FloatArray  # Sum of the samples, (D,)
    square: float  # Sum of the squares of all values

    @property
    def copies(self) -> int:
        """Number of features per index of the axis J."""
        return self.n_features if self.mask is None else 1

    @property
    def n_observed(self) -> float:
        """Number of observed values."""
        return float(self.copies * self.count.sum())

    def to_features(self, B: FloatArray) -> FloatArray:
        """From working coordinates (D, ...) to features (n_features, ...)."""
        return B if self.basis is None else np.asarray(self.basis @ B)


def split_views(X: FloatArray, columns: Sequence[IntArray | None]) -> list[FloatArray]:
    """Samples (N, D) as the features of each view, (N, d); None stands for all features."""
    return [X if own is None else X[:, own] for own in columns]


def make_view(X: FloatArray, *, reduce: bool = True) -> View:
    """Make a view of X (N, n_features), with NaN for missing values.

    Wide complete X is reduced to its row space, unless not ``reduce``.
    """
    n, d = X.shape
    mask = None
    basis = None
    count = np.array([float(n)])
    if (gaps := np.isnan(X)).any():
        mask = (~gaps).astype(np.float64)
        count = mask.sum(axis=0)
        X = np.where(gaps, 0.0, X)
    elif reduce and d > n:
        basis = row_space(X)[1]
        X = np.ascontiguousarray(X @ basis)
    return View(
        X=X,
        mask=mask,
        n_features=d,
        basis=basis,
        count=count,
        total=X.sum(axis=0),
        square=float(np.sum(np.square(X))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Sufficient statistics of q(Z) for a view: sums over the samples that have a feature."""

    total: FloatArray  # Of E[z], (J, R)
    second: FloatArray  # Of E[z z'], (J, R, R)
    cross: FloatArray  # Of x E[z]', (D, R)


def latent_moments(mean: FloatArray, cov: FloatArray, view: View) -> Moments:
    """Sufficient statistics for z_n of mean (N, R) and covariance (N, R, R)."""
    n, r = mean.shape
    cross = np.asarray(view.X.T @ mean)
    if view.mask is None:
        second = mean.T @ mean + cov.sum(axis=0)
        return Moments(total=mean.sum(axis=0)[None], second=second[None], cross=cross)
    each = (mean[:, :, None] * mean[:, None] + cov).reshape(n, r * r)
    second = (view.mask.T @ each).reshape(-1, r, r)
    return Moments(total=view.mask.T @ mean, second=second, cross=cross)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loadings:
    """q(W): one normal per feature."""

    mean: FloatArray  # (D, R)
    cov: FloatArray  # (J, R, R)
    log_det: FloatArray  # log |cov|, (J,)
    copies: int  # Number of features per index of the axis J

    @property
    def second(self) -> FloatArray:
        """E[W'W], (R, R)."""
        return self.mean.T @ self.mean + self.copies * self.cov.sum(axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """q(t): independent normals."""

    mean: FloatArray  # (D,)
    variance: FloatArray  # (J,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Factors of one view."""

    loadings: Loadings  # W
    loading_precision: Gamma  # r, (R,)
    offset: Offset  # t
    noise_precision: Gamma  # tau, ()


def initial_state(view: View, *, n_components: int) -> ViewState:
    """Factors of a view from the mean and variance of its samples; no loadings."""
    r = n_components
    j = view.count.size
    centre_square = float(view.total @ view.total) / max(float(view.count.mean()), 1.0)
    scale = max(view.n_observed, 1.0) / max(view.square - centre_square, 1e-300)
    count = np.maximum(view.count, 1.0)
    return ViewState(
        loadings=Loadings(
            mean=np.zeros((view.total.size, r)),
            cov=np.tile(np.eye(r) / scale, (j, 1, 1)),
            log_det=np.full(j, -r * np.log(scale)),
            copies=view.copies,
        ),
        loading_precision=Gamma(shape=np.ones(r), rate=np.full(r, 1.0 / scale)),
        offset=Offset(mean=view.total / count, variance=1.0 / (scale * count)),
        noise_precision=Gamma(shape=np.array(1.0), rate=np.array(1.0 / scale)),
    )


def update(state: ViewState, moments: Moments, view: View, priors: BM2PCAPriors) -> ViewState:
    """Optimal q(W), q(r), q(t) and q(tau), one after the other."""
    state = replace(state, loadings=loadings(state, moments, view))
    state = replace(state, loading_precision=loading_precision(state, view, priors))
    state = replace(state, offset=offset(state, moments, view, priors))
    return replace(state, noise_precision=noise_precision(state, moments, view, priors))


def loadings(state: ViewState, moments: Moments, view: View) -> Loadings:
    r"""Optimal q(W).

    .. math::
        S_j = (\operatorname{diag} E[r] + E[\tau] \sum_{n \in O_j} E[z_n z_n^\top])^{-1}, \quad
        M_j = E[\tau] S_j \sum_{n \in O_j} (x_{nj} - E[t_j]) E[z_n]
    """
    tau = state.noise_precision.mean
    precision = np.diag(state.loading_precision.mean) + tau * moments.second
    cov, log_det = inv_spd(precision, name="loading precision")
    linear_term = tau * (moments.cross - state.offset.mean[:, None] * moments.total)
    shared = view.mask is None
    mean = linear_term @ cov[0] if shared else np.einsum("dr,drs->ds", linear_term, cov)
    return Loadings(mean=mean, cov=cov, log_det=log_det, copies=view.copies)


def loading_precision(state: ViewState, view: View, priors: BM2PCAPriors) -> Gamma:
    """Optimal q(r): Ga(a_r + d / 2, b_r + E|W_i|**2 / 2)."""
    square = np.diagonal(state.loadings.second)
    return Gamma(
        shape=np.full_like(square, priors.loading_shape + 0.5 * view.n_features),
        rate=priors.loading_rate + 0.5 * square,
    )


def offset(state: ViewState, moments: Moments, view: View, priors: BM2PCAPriors) -> Offset:
    """Optimal q(t): shrunken mean of the residuals x - W E[z]."""
    tau = state.noise_precision.mean
    variance = 1.0 / (priors.offset_precision + view.count * tau)
    rest = view.total - np.sum(state.loadings.mean * moments.total, axis=1)
    return Offset(mean=variance * tau * rest, variance=variance)


def residual(state: ViewState, moments: Moments, view: View) -> float:
    """R = E of the squared distance between the observed values and W z + t."""
    mean = state.loadings.mean
    center = state.offset
    spread = np.einsum("jrs,jrs->", state.loadings.cov, moments.second)
    if view.mask is None:
        fitted = np.einsum("rs,rs->", mean.T @ mean, moments.second[0])
    else:
        fitted = np.einsum("dr,drs,ds->", mean, moments.second, mean, optimize=True)
    linear_term = moments.cross - center.mean[:, None] * moments.total
    return float(
        view.square
        - 2.0 * center.mean @ view.total
        + np.sum(view.count * center.mean**2)
        - 2.0 * np.einsum("dr,dr->", mean, linear_term)
        + fitted
        + view.copies * (spread + center.variance @ view.count)
    )


def noise_precision(state: ViewState, moments: Moments, view: View, priors: BM2PCAPriors) -> Gamma:
    """Optimal q(tau): Ga(a_tau + |O| / 2, b_tau + R / 2)."""
    square = max(residual(state, moments, view), 0.0)
    return Gamma(
        shape=np.array(priors.noise_shape + 0.5 * view.n_observed),
        rate=np.array(priors.noise_rate + 0.5 * square),
    )


def latent_terms(
    states: Sequence[ViewState], parts: Sequence[View]
) -> tuple[FloatArray, FloatArray]:
    """Precision, (1, R, R) or (N, R, R), and linear term (N, R) of z given all views."""
    precision: FloatArray = np.eye(states[0].loadings.mean.shape[1])[None]
    linear_term: FloatArray = np.zeros(1)
    for state, view in zip(states, parts, strict=True):
        precision = precision + latent_precision(state, view)
        linear_term = linear_term + latent_linear_term(state, view)
    return precision, linear_term


def latent_precision(state: ViewState, view: View) -> FloatArray:
    """Precision of z_n from the view: (1, R, R), or (N, R, R) with missing values."""
    tau = state.noise_precision.mean
    if view.mask is None:
        return tau * state.loadings.second[None]
    mean = state.loadings.mean
    d, r = mean.shape
    second = (mean[:, :, None] * mean[:, None] + state.loadings.cov).reshape(d, r * r)
    return tau * (view.mask @ second).reshape(-1, r, r)


def latent_linear_term(state: ViewState, view: View) -> FloatArray:
    """Linear term of z_n from the view, (N, R)."""
    scaled = state.noise_precision.mean * state.loadings.mean
    center = state.offset.mean[:, None] * scaled
    shift = center.sum(axis=0) if view.mask is None else view.mask @ center
    return np.asarray(view.X @ scaled - shift)
