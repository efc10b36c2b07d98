r"""One view, x_n ~ N(W z_n + t, I / tau), and its factors, as in Bayesian PCA [1]_.

The paper of BM2PCA refers to [1]_ for these updates.

In a complete view all features share the covariance of their loadings, so the axis J of
covariances has length 1; with missing values J = D. All formulas broadcast J over the features.

Shapes: P problems, N samples, D features in working coordinates, R components.

References
----------
.. [1] C. M. Bishop (1999). Variational principal components. ICANN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.design import row_space
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.row_space import Rows

# Most numbers of a basis of the row space to which sparse X is reduced.
MAX_BASIS = 30_000_000
# Eigenvalues of a sparse Gram matrix with a smaller share of the largest are numerical noise.
GRAM_TOL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Data of one view."""

    X: FloatArray | csr_array  # (N, D), dense or CSR; 0 for a missing value
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

    def project(self, B: FloatArray) -> FloatArray:
        """X @ B for a stack B (P, D, R): (P, N, R)."""
        return np.stack([self.X @ each for each in B])

    def project_back(self, A: FloatArray) -> FloatArray:
        """X.T @ A for a stack A (P, N, R): (P, D, R)."""
        return np.stack([self.X.T @ each for each in A])

    def to_features(self, B: FloatArray) -> FloatArray:
        """From working coordinates (..., D, R) to features (..., n_features, R)."""
        return B if self.basis is None else np.asarray(self.basis @ B)


def split_views(X: Rows, columns: Sequence[IntArray | None]) -> list[Rows]:
    """Samples (N, P) as the features of each view, (N, d); None stands for all features."""
    return [X if own is None else X[:, own] for own in columns]


def make_view(X: FloatArray | csr_array, *, reduce: bool = True) -> View:
    """Make a view of X (N, n_features), with NaN for missing values.

    Wide complete X is reduced to its row space, unless not ``reduce``. Sparse X is never centred.
    """
    n, p = X.shape
    mask = None
    basis = None
    count = np.array([float(n)])
    if not issparse(X) and not (present := ~np.isnan(X)).all():
        X = np.where(present, X, 0.0)
        mask = present.astype(np.float64)
        count = present.sum(axis=0)
    elif reduce and p > n and (not issparse(X) or n * p <= MAX_BASIS):
        basis = _sparse_row_space(X) if issparse(X) else row_space(X)[1]
        X = np.ascontiguousarray(X @ basis)
    return View(
        X=X,
        mask=mask,
        n_features=p,
        basis=basis,
        count=count.astype(np.float64),
        total=np.asarray(X.sum(axis=0), dtype=np.float64).ravel(),
        square=float(np.sum(np.square(X.data if issparse(X) else X))),
    )


def _sparse_row_space(X: csr_array) -> FloatArray:
    """Orthonormal basis of the row space of wide sparse X, from X X' alone."""
    values, vectors = eigh((X @ X.T).toarray())
    keep = values > GRAM_TOL * values[-1]
    return np.asarray(X.T @ (vectors[:, keep] / np.sqrt(values[keep])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Sufficient statistics of q(Z) for a view: sums over the samples that have a feature."""

    total: FloatArray  # Of E[z], (P, J, R)
    second: FloatArray  # Of E[z z'], (P, J, R, R)
    cross: FloatArray  # Of x E[z]', (P, D, R)


def latent_moments(mean: FloatArray, cov: FloatArray, view: View) -> Moments:
    """Sufficient statistics for z_n of mean (P, N, R) and covariance (P, N, R, R)."""
    p, n, r = mean.shape
    cross = view.project_back(mean)
    if view.mask is None:
        second = np.swapaxes(mean, 1, 2) @ mean + cov.sum(axis=1)
        return Moments(total=mean.sum(axis=1)[:, None], second=second[:, None], cross=cross)
    each = (mean[..., :, None] * mean[..., None, :] + cov).reshape(p, n, r * r)
    second = (view.mask.T @ each).reshape(p, -1, r, r)
    return Moments(total=view.mask.T @ mean, second=second, cross=cross)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loadings:
    """q(W): one normal per feature."""

    mean: FloatArray  # (P, D, R)
    cov: FloatArray  # (P, J, R, R)
    log_det: FloatArray  # log |cov|, (P, J)
    copies: int  # Number of features per index of the axis J

    @property
    def second(self) -> FloatArray:
        """E[W'W], (P, R, R)."""
        spread = self.copies * self.cov.sum(axis=1)
        return np.swapaxes(self.mean, 1, 2) @ self.mean + spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """q(t): independent normals."""

    mean: FloatArray  # (P, D)
    variance: FloatArray  # (P, J)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Factors of one view."""

    loadings: Loadings  # W
    loading_precision: Gamma  # r, (P, R)
    offset: Offset  # t
    noise_precision: Gamma  # tau, (P,)


def initial_state(view: View, *, n_problems: int, n_components: int) -> ViewState:
    """Factors of a view from the mean and variance of its samples; no loadings."""
    p = n_problems
    r = n_components
    d = view.total.size
    j = view.count.size
    centre_square = float(view.total @ view.total) / max(float(view.count.mean()), 1.0)
    scale = max(view.n_observed, 1.0) / max(view.square - centre_square, 1e-300)
    count = np.maximum(view.count, 1.0)
    return ViewState(
        loadings=Loadings(
            mean=np.zeros((p, d, r)),
            cov=np.tile(np.eye(r) / scale, (p, j, 1, 1)),
            log_det=np.full((p, j), -r * np.log(scale)),
            copies=view.copies,
        ),
        loading_precision=Gamma(shape=np.ones((p, r)), rate=np.full((p, r), 1.0 / scale)),
        offset=Offset(
            mean=np.tile(view.total / count, (p, 1)),
            variance=np.tile(1.0 / (scale * count), (p, 1)),
        ),
        noise_precision=Gamma(shape=np.ones(p), rate=np.full(p, 1.0 / scale)),
    )


def update(state: ViewState, moments: Moments, view: View, priors: Priors) -> ViewState:
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
    tau = state.noise_precision.mean[:, None, None]
    prior = state.loading_precision.mean[:, None, None, :] * np.eye(moments.second.shape[-1])
    cov, log_det = inv_spd(prior + tau[..., None] * moments.second, name="loading precision")
    linear_term = tau * (moments.cross - state.offset.mean[..., None] * moments.total)
    if view.mask is None:
        mean = linear_term @ cov[:, 0]
    else:
        mean = np.einsum("pdr,pdrs->pds", linear_term, cov)
    return Loadings(mean=mean, cov=cov, log_det=log_det, copies=view.copies)


def loading_precision(state: ViewState, view: View, priors: Priors) -> Gamma:
    """Optimal q(r): Ga(a_r + d / 2, b_r + E|W_i|**2 / 2)."""
    square = np.einsum("prr->pr", state.loadings.second)
    return Gamma(
        shape=np.full_like(square, priors.loading_shape + 0.5 * view.n_features),
        rate=priors.loading_rate + 0.5 * square,
    )


def offset(state: ViewState, moments: Moments, view: View, priors: Priors) -> Offset:
    """Optimal q(t): shrunken mean of the residuals x - W E[z]."""
    tau = state.noise_precision.mean[:, None]
    variance = 1.0 / (priors.offset_precision + view.count * tau)
    rest = view.total - np.sum(state.loadings.mean * moments.total, axis=2)
    return Offset(mean=variance * tau * rest, variance=variance)


def residual(state: ViewState, moments: Moments, view: View) -> FloatArray:
    """R = E of the squared distance between the observed values and W z + t, (P,)."""
    mean = state.loadings.mean
    center = state.offset
    spread = np.einsum("pjrs,pjrs->p", state.loadings.cov, moments.second)
    if view.mask is None:
        gram = np.swapaxes(mean, 1, 2) @ mean
        fitted = np.einsum("prs,prs->p", gram, moments.second[:, 0])
    else:
        fitted = np.einsum("pdr,pdrs,pds->p", mean, moments.second, mean, optimize=True)
    linear_term = moments.cross - center.mean[..., None] * moments.total
    found: FloatArray = (
        view.square
        - 2.0 * center.mean @ view.total
        + np.sum(view.count * center.mean**2, axis=1)
        - 2.0 * np.einsum("pdr,pdr->p", mean, linear_term)
        + fitted
        + view.copies * (spread + center.variance @ view.count)
    )
    return found


def noise_precision(state: ViewState, moments: Moments, view: View, priors: Priors) -> Gamma:
    """Optimal q(tau): Ga(a_tau + |O| / 2, b_tau + R / 2)."""
    found = residual(state, moments, view)
    return Gamma(
        shape=np.full_like(found, priors.noise_shape + 0.5 * view.n_observed),
        rate=priors.noise_rate + 0.5 * np.maximum(found, 0.0),
    )


def latent_terms(
    states: Sequence[ViewState], parts: Sequence[View]
) -> tuple[FloatArray, FloatArray]:
    """Precision, (P, 1, R, R) or (P, N, R, R), and linear term (P, N, R) of z given all views."""
    precision: FloatArray = np.eye(states[0].loadings.mean.shape[-1])[None, None]
    linear_term: FloatArray = np.zeros(1)
    for state, view in zip(states, parts, strict=True):
        precision = precision + latent_precision(state, view)
        linear_term = linear_term + latent_linear_term(state, view)
    return precision, linear_term


def latent_precision(state: ViewState, view: View) -> FloatArray:
    """Precision of z_n from the view: (P, 1, R, R), or (P, N, R, R) with missing values."""
    tau = state.noise_precision.mean[:, None, None, None]
    if view.mask is None:
        return tau * state.loadings.second[:, None]
    mean = state.loadings.mean
    cov = state.loadings.cov
    p, d, r = mean.shape
    second = (mean[..., :, None] * mean[..., None, :] + cov).reshape(p, d, r * r)
    return tau * (view.mask @ second).reshape(p, -1, r, r)


def latent_linear_term(state: ViewState, view: View) -> FloatArray:
    """Linear term of z_n from the view, (P, N, R)."""
    scaled = state.noise_precision.mean[:, None, None] * state.loadings.mean
    center = state.offset.mean[..., None] * scaled
    shift = center.sum(axis=1, keepdims=True) if view.mask is None else view.mask @ center
    return view.project(scaled) - shift


def bound_terms(
    state: ViewState, moments: Moments, view: View, priors: Priors
) -> dict[str, FloatArray]:
    """Terms of the bound from the view, each (P,)."""
    W = state.loadings
    t = state.offset
    r = state.loading_precision
    tau = state.noise_precision
    d = view.n_features
    copies = view.copies
    delta = priors.offset_precision
    square = np.einsum("prr->pr", W.second)
    centre = np.sum(t.mean**2, axis=1) + copies * t.variance.sum(axis=1)
    misfit = tau.mean * residual(state, moments, view)
    r_divergence = r.negative_divergence(priors.loading_shape, priors.loading_rate)
    return {
        "features": 0.5 * view.n_observed * (tau.mean_log - LOG_2PI) - 0.5 * misfit,
        "offset": 0.5 * d * (np.log(delta) + 1.0)
        - 0.5 * delta * centre
        + 0.5 * copies * np.log(t.variance).sum(axis=1),
        "loadings": 0.5 * np.sum(d * (r.mean_log + 1.0) - r.mean * square, axis=1)
        + 0.5 * copies * W.log_det.sum(axis=1),
        "loading_precision": r_divergence.sum(axis=1),
        "noise_precision": tau.negative_divergence(priors.noise_shape, priors.noise_rate),
    }
