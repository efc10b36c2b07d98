r"""The objective of latent coordinates and log parameters, and its criterion of class separation.

docs/derivations/dgplvm.md has that of the recommended model, of whitened latent coordinates
:math:`X = \sqrt n\,(A - 1 \bar a^\top)\,(A_c^\top A_c)^{-1/2}`, :math:`A = L_b U`:

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.priors import MAP_DOF, CriterionName, LogNormal, ParameterPrior
from bsdr_models.dgplvm.problem import Evaluation, FeatureGram, evaluate
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.options import StrOptions, check_parameters

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
        {"criterion": [StrOptions(get_args(CriterionName))]}, {"criterion": name}, "D-GPLVM"
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
    ``gram`` is, to the power ``temper``, tau, times their number over that of all.
    """

    parameter_priors: Sequence[LogNormal]
    known: IntArray
    temper: float
    modelled: IntArray | slice = slice(None)

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Whitened latent coordinates (N, R) of raw ones, and the map of gradients back."""
        latent, to_image = whiten(self.mapping.root(raw), self.known)
        return latent, lambda gradient: self.mapping.root_transposed(to_image(gradient))

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
