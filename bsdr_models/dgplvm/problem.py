r"""What engines of D-GPLVM get, and the objective: density of features, criterion of separation.

**Density.** Every feature is a Gaussian process given latent coordinates. With the kernel matrix K
of the samples the density depends on the features by D and S = X X' only. :func:`evaluate`
integrates out the mean of each feature under a flat prior,

.. math::
    \tfrac{D}{2} [\ln|K| + \ln(1' K^{-1} 1) - \ln N + (N - 1) \ln 2\pi] + \tfrac12 tr(P S), \qquad
    P = K^{-1} - K^{-1} 1 1' K^{-1} / 1' K^{-1} 1,

with :math:`K = v a \exp(-|x_i - x_j|^2 / 2 l^2) + v b I` and v the variance of the features. Values
are negative log densities in nats with all constants.

**Objective.** docs/derivations/dgplvm.md has that of the recommended model, of whitened latent
coordinates :math:`X = \sqrt n\,(A - 1 \bar a^\top)\,(A_c^\top A_c)^{-1/2}`, :math:`A = L_b U`:

.. math::
    F(U, t) = \tau L(X, t) + w J(X)
        + \tfrac{(N - 1) R + \nu}{2} \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu)
        - \sum_i \log p(t_i).

With scatter matrices of the n labelled samples within classes, between their means, and in total,
:math:`S_t = S_b + S_w`, the criteria J are

=============== ============================================ ==================
name            J                                            in the paper
=============== ============================================ ==================
trace_ratio     :math:`tr(S_b^{-1} S_w)`                     eq. (13)
inverse_trace   :math:`1 / tr(S_w^{-1} S_b)`                 eq. (12)
total           :math:`tr(S_t^{-1} S_w)`                     -
=============== ============================================ ==================

They are invariant under :math:`X \to XQ + 1b^\top` for every invertible Q.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
from scipy.linalg import blas, lapack

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.priors import (
    MAP_DOF,
    CriterionName,
    DGPLVMMapping,
    DGPLVMOptimization,
    DGPLVMPriors,
    LogNormal,
    ParameterPrior,
)
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.linalg import (
    cholesky,
    factorise_inplace,
    rbf,
    rbf_gradient,
    row_space,
    standardise,
)
from bsdr_models.options import StrOptions, check_parameters

# Eigenvalues below this share of the largest, per sample, are rounding errors.
_RANK_TOL = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class DGPLVMProblem:
    """Training samples (N, B), classes (N,), -1 without a label, and options.

    Samples are in the metric of the training samples, if these are given. ``criterion`` is that of
    the priors or what "auto" stands for.
    """

    X: FloatArray
    y_index: IntArray
    n_components: int
    criterion: str = "trace_ratio"
    priors: DGPLVMPriors = field(default_factory=DGPLVMPriors)
    mapping: DGPLVMMapping = field(default_factory=DGPLVMMapping)
    optimization: DGPLVMOptimization = field(default_factory=DGPLVMOptimization)
    training: Training | None = None

    @property
    def known(self) -> IntArray:
        """Indices of the labelled samples."""
        return np.flatnonzero(self.y_index >= 0)

    @property
    def n_labels(self) -> int:
        """Number of classes, each of which has labelled samples."""
        return int(self.y_index.max()) + 1

    def starts(self, n_starts: int, rng: np.random.Generator) -> list[FloatArray]:
        """Initial latent coordinates (N, R): principal components, then normal draws.

        Columns have mean 0 and variance 1; those beyond the rank of the features are random.
        """
        if n_starts == 0:
            return []
        n = len(self.X)
        r = self.n_components
        centred = self.X - self.X.mean(axis=0)
        scores = (centred @ row_space(centred)[1])[:, :r]
        initial = [np.hstack([scores, rng.standard_normal((n, r - scores.shape[1]))])]
        initial += [rng.standard_normal((n, r)) for _ in range(n_starts - 1)]
        return [standardise(latent) for latent in initial]


def class_centroids(values: FloatArray, y_index: IntArray) -> FloatArray:
    """Means (C, D) of the samples of every class (N,) that has some; -1 is none."""
    labels = np.unique(y_index[y_index >= 0])
    return np.stack([values[y_index == label].mean(axis=0) for label in labels])


def relevance(latent: FloatArray, index: IntArray) -> FloatArray:
    """Share of each component in the scatter of the class centroids, (R,)."""
    scatter = class_centroids(latent, index).var(axis=0)
    return scatter / (scatter.sum() or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGram:
    """Gram matrix of the features, to which the densities reduce them.

    ``root`` (N, r), in Fortran order, has root root' = X X'; ``variance`` is v, of one feature
    about its mean, averaged over features, and ``n_effective`` tr(S)^2 / tr(S^2), at most D.
    """

    root: FloatArray
    variance: float
    n_features: int
    n_effective: float

    @property
    def temper(self) -> float:
        """Power of the likelihood, the share of effective features."""
        return self.n_effective / self.n_features

    @classmethod
    def of(cls, X: FloatArray) -> "FeatureGram":
        """From centred features (N, D) of samples that are not all equal."""
        n_samples, n_features = X.shape
        wide = n_features >= n_samples
        size, axes = np.linalg.eigh(X @ X.T if wide else X.T @ X)
        total = float(size.sum())
        if not total > 0.0:
            raise ValueError("all samples of X are equal")
        kept = size > _RANK_TOL * n_samples * size[-1]
        axes = axes[:, kept]
        # The transpose of a product is in Fortran order without a copy.
        root = np.asfortranarray(axes * np.sqrt(size[kept])) if wide else (axes.T @ X.T).T
        return cls(
            root=root,
            variance=total / ((n_samples - 1) * n_features),
            n_features=n_features,
            n_effective=min(float(n_features), total**2 / float(size @ size)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A negative log density, and its gradients in latent coordinates and log parameters."""

    value: float
    latent: FloatArray
    log_parameters: FloatArray


def evaluate(latent: FloatArray, log_kernel: FloatArray, gram: FeatureGram) -> Evaluation:
    """Density with the means of the features integrated out, at latent coordinates (N, R).

    ``log_kernel`` (3,) are logs of signal a, length-scale l and noise b, with a and b in units of
    the variance of the features. A LinAlgError, which the optimiser handles, says that the latent
    coordinates are not finite or the kernel matrix is not numerically positive definite.
    """
    signal, lengthscale, noise = np.exp(log_kernel) * [gram.variance, 1.0, gram.variance]
    smooth = rbf(latent, None, lengthscale, signal)
    factor, log_det = factorise(latent, smooth, noise)
    value, _, G = normal_density(factor, log_det, gram.root, gram.n_features, integrate_mean=True)
    total, gradient = rbf_gradient(latent, smooth, lengthscale, G)
    by_scale = -float(np.vdot(gradient, latent))  # K depends on latent / l only
    by_log = [total, by_scale, noise * np.trace(G)]
    return Evaluation(value=value, latent=gradient, log_parameters=np.array(by_log))


def factorise(latent: FloatArray, smooth: FloatArray, noise: float) -> tuple[FloatArray, float]:
    """Lower Cholesky factor of a symmetric kernel matrix with noise on its diagonal, and ln|K|."""
    if not math.isfinite(latent.sum()):
        raise np.linalg.LinAlgError("the latent coordinates are not finite")
    K = smooth.copy().T  # in Fortran order
    K[np.diag_indices_from(K)] += noise
    return factorise_inplace(K, name="the kernel matrix")


def normal_density(
    factor: FloatArray,
    log_det: float,
    root: FloatArray,
    n_outputs: int,
    *,
    integrate_mean: bool = False,
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log density of D normal columns Y of covariance K, with Y Y' = root root'.

    From :func:`factorise`; the factor is overwritten. Also K^-1 root (P root, if the means are
    integrated out), and the lower triangle of the gradient in K.
    """
    n, r = root.shape
    half = np.empty((n, r + integrate_mean), order="F")
    half[:, :r] = root
    half[:, r:] = 1.0
    half = blas.dtrsm(1.0, factor, half, lower=1, overwrite_b=1)
    value = 0.5 * n_outputs * (log_det + (n - integrate_mean) * LOG_2PI)
    if integrate_mean:  # P = L^-T (I - e e') L^-1, e along L^-1 1
        ones = half[:, -1]
        weight = ones @ ones  # 1' K^-1 1
        blas.dger(-1.0 / weight, ones, ones @ half[:, :r], a=half[:, :r], overwrite_a=1)
        value += 0.5 * n_outputs * math.log(weight / n)
        ones *= math.sqrt(n_outputs / weight)
    value += 0.5 * float(np.vdot(half[:, :r], half[:, :r]))
    W = blas.dtrsm(1.0, factor, half, lower=1, trans_a=1, overwrite_b=1)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    # G = (D K^-1 - W W') / 2
    G = blas.dsyrk(-0.5, W, beta=0.5 * n_outputs, c=inverse, lower=1, overwrite_c=1)
    return value, W[:, :r], G


# A matrix is singular if an eigenvalue is below this share of the largest.
_SINGULAR = 1e-12

type Gradient = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A criterion by its name, for given labels: latent (N, R) -> (J, dJ/dlatent).

    ``order`` (N_l,) are the labelled samples, sorted by class, and ``counts`` (C,) the numbers of
    samples of the classes that are present.
    """

    name: str
    order: IntArray
    counts: IntArray

    def __call__(self, latent: FloatArray) -> tuple[float, FloatArray]:
        r"""J >= 0 and its gradient (N, R), which is 0 for unlabelled samples.

        With :math:`V^\top S_b V = diag(l)`, :math:`V^\top S_t V = I`, J a function of l with
        derivatives f', and X the centred coordinates,

        .. math::
            \frac{dJ}{dX} = \frac{2}{N_l} \big[ (BX)\, V diag(f'(1 - l)) V^\top
                - (WX)\, V diag(f'\, l) V^\top \big] .

        A LinAlgError says that J is not defined for these latent coordinates.
        """
        X = latent[self.order]
        X = X - X.mean(axis=0)
        starts = np.cumsum(self.counts) - self.counts
        means = np.add.reduceat(X, starts, axis=0) / self.counts[:, None]
        BX = np.repeat(means, self.counts, axis=0)
        WX = X - BX
        V, w, b = _axes(X, WX, BX)  # (R, R), (R,), (R,), with w + b = 1
        if self.name == "trace_ratio" and b[0] < _SINGULAR:
            raise np.linalg.LinAlgError(
                "between-class scatter of the latent coordinates is singular"
            )
        value, by_b = _combine(self.name, w, b)
        turned = (BX @ V) * (by_b * w) - (WX @ V) * (by_b * b)
        gradient = np.zeros(latent.shape)
        gradient[self.order] = (2.0 / len(X)) * turned @ V.T
        return value, gradient


def _axes(
    X: FloatArray, WX: FloatArray, BX: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Axes V (R, R) that diagonalise S_w and S_b, and the diagonals of both.

    WX and BX (N_l, R) are such that N_l S_w = X' W X and N_l S_b = X' B X.
    """
    n = len(X)
    S_w = X.T @ WX / n
    S_b = X.T @ BX / n
    S_t = S_w + S_b
    sd = np.sqrt(np.diagonal(S_t))
    if not (np.isfinite(sd).all() and (sd > 0.0).all()):
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    scale = np.outer(sd, sd)  # makes the test for singularity independent of units
    size, axes = np.linalg.eigh(S_t / scale)
    if size[0] < _SINGULAR:
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    white = axes / np.sqrt(size)
    b, V = np.linalg.eigh(white.T @ (S_b / scale) @ white)
    V = (white @ V) / sd[:, None]
    # 1 - b would lose precision for a class that has nearly collapsed to a point.
    within = WX @ V
    w = np.einsum("nr,nr->r", within, within) / n
    return V, w, b


def _combine(name: str, w: FloatArray, b: FloatArray) -> tuple[float, FloatArray]:
    """J of eigenvalues w of S_t^-1 S_w and b of S_t^-1 S_b, and its derivatives in b = 1 - w."""
    if name == "total":
        return float(w.sum()), -np.ones(len(b))
    if name != "inverse_trace":
        return float((w / b).sum()), -1.0 / b**2
    smallest = w.min()  # J = w_min / sum(b w_min / w), also valid for w_min = 0
    share = np.divide(smallest, w, out=np.ones(len(w)), where=w > smallest)
    total = float(b @ share)
    return float(smallest) / total, -((share / total) ** 2)


def make_criterion(name: str, y_index: IntArray) -> Criterion:
    """The named criterion for the classes (N,) that have samples, -1 without a label."""
    labelled = np.flatnonzero(y_index >= 0)
    order = labelled[np.argsort(y_index[labelled], kind="stable")]
    present, counts = np.unique(y_index[order], return_counts=True)
    if len(present) < 2:
        raise ValueError(f"a criterion needs samples of at least two classes, got {len(present)}")
    return Criterion(name=name, order=order, counts=counts)


def choose_criterion(name: str, n_components: int, n_classes: int, n_labelled: int) -> str:
    """The paper's criterion for fewer components than classes, else ``"total"``, if "auto".

    A ValueError says that there are too many components, for the labelled samples or the given
    criterion.
    """
    if n_components >= n_labelled:
        raise ValueError(
            f"n_components={n_components} is too large for {n_labelled} labelled samples: "
            f"{n_labelled - 1} at most"
        )
    check_parameters(
        {"criterion": [StrOptions(set(get_args(CriterionName)))]}, {"criterion": name}, "D-GPLVM"
    )
    few = n_components <= n_classes - 1
    if name == "auto":
        return "trace_ratio" if few else "total"
    if name in ("trace_ratio", "inverse_trace") and not few:
        raise ValueError(
            f"criterion={name!r} needs n_components <= {n_classes - 1}, one less than the number "
            f"of classes, got {n_components}; criterion='total' has no such limit"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of the objective by name, in nats, J without its weight, and the gradients."""

    values: dict[str, float]
    criterion: float
    latent: FloatArray
    log_parameters: FloatArray

    @property
    def total(self) -> float:
        """The objective F, in nats."""
        return sum(self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(ABC):
    """F of a vector of raw coordinates and log parameters, for the optimiser.

    The log parameters are those of the kernel of the features; ``gram`` is that of the features,
    and ``weight`` w.
    """

    gram: FeatureGram
    criterion: Criterion
    weight: float
    n_components: int
    parameter_priors: Sequence[ParameterPrior]
    mapping: MappingPrior

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """F and its gradient."""
        raw, log_parameters = self.unpack(x)
        latent, gradient_to_raw = self.transform(raw)
        terms = self.terms(latent, log_parameters)
        by_raw = gradient_to_raw(terms.latent)
        return terms.total, np.concatenate([by_raw.ravel(), terms.log_parameters])

    @abstractmethod
    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Latent coordinates (N, R) of raw ones, and the map of gradients back to these."""

    @abstractmethod
    def likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Negative log density of the features, given latent coordinates (N, R)."""

    def mapping_terms(self, latent: FloatArray) -> dict[str, tuple[float, FloatArray]]:
        """Terms of the mapping by name, with gradients in latent coordinates; by default none."""
        return {}

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector of latent coordinates (N, R), before whitening."""
        return np.concatenate([self.mapping.raw(latent).ravel(), log_parameters])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Raw coordinates and log parameters."""
        size = len(x) - len(self.parameter_priors)
        return x[:size].reshape(-1, self.n_components), x[size:]

    def latent(self, x: FloatArray) -> FloatArray:
        """Latent coordinates (N, R) of an optimisation vector."""
        return self.transform(self.unpack(x)[0])[0]

    def terms(self, latent: FloatArray, log_parameters: FloatArray) -> Terms:
        """Terms of F, and gradients in latent coordinates (N, R) and log parameters."""
        J, by_criterion = self.criterion(latent)
        density = self.likelihood(latent, log_parameters)
        values = {"likelihood": density.value, "criterion": self.weight * J}
        gradient = self.weight * by_criterion + density.latent
        for name, (value, by_latent) in self.mapping_terms(latent).items():
            values[name] = value
            gradient += by_latent
        value, derivative = self.priors(log_parameters)
        values["priors"] = value
        return Terms(
            values=values,
            criterion=J,
            latent=gradient,
            log_parameters=density.log_parameters + derivative,
        )

    def priors(self, log_parameters: FloatArray) -> tuple[float, FloatArray]:
        """Negative log prior density of the log parameters, and its gradient."""
        pairs = zip(self.parameter_priors, log_parameters, strict=True)
        value, derivative = np.array([prior.negative_log_density(t) for prior, t in pairs]).T
        return value.sum(), derivative

    @property
    def log_medians(self) -> FloatArray:
        """Initial log parameters."""
        return np.array([prior.log_median for prior in self.parameter_priors])

    @property
    def parameter_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the log parameters."""
        low, high = np.array([prior.bounds for prior in self.parameter_priors]).T
        return low, high

    def bounds(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of an optimisation vector of that size; only log parameters are bounded."""
        low, high = self.parameter_bounds
        free = np.full(size - len(low), np.inf)
        return np.concatenate([-free, low]), np.concatenate([free, high])


@dataclass(frozen=True, slots=True, kw_only=True)
class WellPosedObjective(Objective):
    """That of the recommended model.

    The ``known`` samples are whitened. The density is that of the ``modelled`` ones, of which
    ``gram`` is, to the power ``temper``, tau, times their number over that of all. The ``root``
    (N, N) times raw coordinates are the latent ones before whitening, A.
    """

    parameter_priors: Sequence[LogNormal]
    root: FloatArray
    known: IntArray
    temper: float
    modelled: IntArray | slice = slice(None)

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Whitened latent coordinates (N, R) of raw ones, and the map of gradients back."""
        latent, to_image = whiten(self.root @ raw, self.known)
        return latent, lambda gradient: self.root.T @ to_image(gradient)

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector of latent coordinates (N, R), before whitening."""
        return np.concatenate([np.linalg.solve(self.root, latent).ravel(), log_parameters])

    def conditioned(self, latent: FloatArray) -> "WellPosedObjective":
        """The same function of raw coordinates in which its curvature is about uniform.

        In A, near latent coordinates (N, R), that of mapping and criterion is c M + (2 w / n) I,
        c the precision of the mapping; it is divided by the information on the log noise.
        """
        square, _ = self.mapping.energy(latent)
        precision = ((len(latent) - 1) * latent.shape[1] + MAP_DOF) / (MAP_DOF + square)
        curvature = precision * self.mapping.inverse
        curvature[np.diag_indices_from(curvature)] += 2.0 * self.weight / len(self.known)
        information = 0.5 * len(latent) * self.gram.n_effective
        factor = cholesky(curvature / information, name="curvature of the objective")
        inverse, _ = lapack.dtrtri(factor, lower=1)
        return replace(self, root=inverse.T)

    def likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Density of the modelled samples to a power, with the means of the features integrated."""
        density = evaluate(latent[self.modelled], log_kernel, self.gram)
        gradient = np.zeros(latent.shape)
        gradient[self.modelled] = self.temper * density.latent
        return Evaluation(
            value=self.temper * density.value,
            latent=gradient,
            log_parameters=self.temper * density.log_parameters,
        )

    def mapping_terms(self, latent: FloatArray) -> dict[str, tuple[float, FloatArray]]:
        """Negative log prior of the mapping, its scale integrated out."""
        size = (len(latent) - 1) * latent.shape[1] + MAP_DOF
        square, product = self.mapping.energy(latent)
        value = 0.5 * size * float(np.log1p(square / MAP_DOF))
        return {"map": (value, size / (MAP_DOF + square) * product)}


def whiten(raw: FloatArray, known: IntArray) -> tuple[FloatArray, Gradient]:
    """Transform (N, R) linearly so that labelled samples have mean 0 and covariance I.

    The second result maps gradients with respect to whitened coordinates to those with respect to
    raw ones.
    """
    centred = raw - raw[known].mean(axis=0)
    _, r, axes = np.linalg.svd(centred[known], full_matrices=False)
    if len(r) < raw.shape[1] or not r[-1] > 1e-12 * r[0]:
        raise np.linalg.LinAlgError("labelled samples do not span all components")
    V = axes.T
    n = len(known)
    transform = np.sqrt(n) * (V / r) @ V.T

    def gradient_to_raw(gradient: FloatArray) -> FloatArray:
        # With A_c' A_c = V diag(r^2) V' the derivative of (A_c' A_c)^(-1/2) has, in the axes V,
        # the factors -1 / (r_k r_l (r_k + r_l)).
        factors = -np.sqrt(n) / (np.outer(r, r) * np.add.outer(r, r))
        Z = V @ (factors * (V.T @ (centred.T @ gradient) @ V)) @ V.T
        by_raw = gradient @ transform
        by_raw[known] += centred[known] @ (Z + Z.T)
        by_raw[known] -= by_raw.sum(axis=0) / n
        return by_raw

    return centred @ transform, gradient_to_raw
