r"""Kernels of BSDR: latent functions with a Gaussian process prior in the place of linear maps.

A projection :math:`q_r \sim N(0, \tau^2 \Lambda / D)` makes the latent coordinate
:math:`z_r(x) = q_r^\top x` a Gaussian process with the linear kernel
:math:`\tau^2 x^\top \Lambda x' / D`. Any other kernel k takes its place by other whitened features
:math:`\phi(x)`, with :math:`\phi(x)^\top \phi(x') = k_c(x, x')`, whose loadings are standard normal
a priori. The kernel is centred over the training samples, since the model has biases, and has a
mean variance of one there, as the linear one has,

.. math::
    k_c(x, x') \propto k(x, x') - \bar k(x) - \bar k(x') + \bar{\bar k} .

With M landmarks :math:`l_m`, :math:`K_{LL} = V \operatorname{diag}(\kappa) V^\top` and
:math:`\psi(x) = \kappa^{-1/2} V^\top k(L, x)` [1]_, the whitened features are the principal
components of :math:`\psi` over the training samples. They are exact if all samples are landmarks,
apart from components that have a share of the variance below :data:`NEGLIGIBLE` together, or are
not among the largest :data:`MOST_COMPONENTS`. What they do not determine of a new sample has the
prior variance :math:`k_c(x, x) - |\phi(x)|^2`.

References
----------
.. [1] C. Williams, M. Seeger (2001). Using the Nyström method to speed up kernel machines. Advances
       in Neural Information Processing Systems 13.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.folds import sample_keys
from bsdr_models.options import COUNT, POSITIVE, Options, StrOptions

# Names of kernels of features.
KERNELS = ("linear", "rbf", "matern", "polynomial", "cosine")
# Widths of ``"matern"`` that ``kernel="auto"`` compares.
WIDTHS = (1.0, 2.0, 4.0)
# Number of training samples up to which all are landmarks, and number of landmarks beyond.
MOST_EXACT, N_LANDMARKS = 1500, 500
# Share of the variance of the components that are left out together, and most components: they
# have 99 % of the variance of a thousand digits or vowels, which take half a minute.
NEGLIGIBLE, MOST_COMPONENTS = 1e-4, 250
# Relative size of an eigenvalue that is a rounding error, and of a negative one that is not.
_TINY, _INDEFINITE = 1e-10, 1e-6
# Entries of a kernel matrix in memory at a time.
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Kernel(Options):
    r"""A kernel of D scaled features.

    Parameters
    ----------
    name : {"linear", "rbf", "matern", "polynomial", "cosine"}, default="rbf"
        ``"matern"`` has the smoothness 5/2, ``"polynomial"`` is :math:`(1 + a^\\top b / D)^p`, and
        ``"linear"`` the model without a kernel, with its own prior covariance.
    width : float, default=4.0
        Length scale of ``"rbf"`` and ``"matern"`` in units of the square root of D, the typical
        distance of a sample from the mean.
    degree : int, default=3
        p of ``"polynomial"``.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> from bsdr_models.bsdr import Kernel
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(kernel=Kernel("rbf", width=2.0), random_state=0).fit(X[::3], y[::3])
    >>> model.transform(X).shape
    (178, 2)
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "name": [StrOptions(set(KERNELS))],
        "width": [POSITIVE],
        "degree": [COUNT],
    }

    name: str = "rbf"
    width: float = 4.0
    degree: int = 3

    @property
    def label(self) -> str:
        """The name, with the width if it has one."""
        return f"{self.name} {self.width:g}" if self.name in ("rbf", "matern") else self.name

    def matrix(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """Kernel of samples (M, D) and (P, D), (M, P)."""
        if self.name == "cosine":
            return np.asarray(cosine_similarity(A, B))
        if self.name == "polynomial":
            return np.asarray((1.0 + A @ B.T / A.shape[1]) ** self.degree)
        square = self._distances(A, B)
        if self.name == "rbf":
            return np.exp(-0.5 * square)
        a = np.sqrt(5.0 * square)
        return np.asarray((1.0 + a + a**2 / 3.0) * np.exp(-a))

    def variance(self, A: FloatArray) -> FloatArray:
        """k(x, x) of samples (M, D), (M,)."""
        if self.name == "polynomial":
            return np.asarray((1.0 + np.mean(A**2, axis=1)) ** self.degree)
        if self.name == "cosine":
            return np.asarray(A.any(axis=1), dtype=np.float64)
        return np.ones(len(A))

    def gradient(self, A: FloatArray, B: FloatArray) -> tuple[FloatArray, FloatArray]:
        r"""Factors of the gradient in the first argument, (M, P) each.

        :math:`\partial k(a, b) / \partial a = \alpha\, a + \beta\, b`.
        """
        d = A.shape[1]
        if self.name == "polynomial":
            beta = self.degree * (1.0 + A @ B.T / d) ** (self.degree - 1) / d
            return np.zeros_like(beta), beta
        if self.name == "cosine":
            one, other = (_reciprocal(np.linalg.norm(each, axis=1)) for each in (A, B))
            return -self.matrix(A, B) * one[:, None] ** 2, np.outer(one, other)
        square = self._distances(A, B)
        if self.name == "rbf":
            slope = -np.exp(-0.5 * square)
        else:
            a = np.sqrt(5.0 * square)
            slope = -(5.0 / 3.0) * (1.0 + a) * np.exp(-a)
        slope /= self.width**2 * d
        return slope, -slope

    def _distances(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """Squared distances in units of the length scale."""
        found = euclidean_distances(A, B, squared=True)
        return np.asarray(found / (self.width**2 * A.shape[1]))


@dataclass(frozen=True, slots=True)
class UserKernel:
    """A function of the user, such as a kernel of scikit-learn's Gaussian processes."""

    function: Callable[..., Any]
    name = "callable"
    label = "callable"

    def matrix(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """See :meth:`Kernel.matrix`.

        Raises
        ------
        ValueError
            If the function does not return a finite matrix of this shape.
        """
        K = np.asarray(self.function(A, B), dtype=np.float64)
        if K.shape != (len(A), len(B)) or not np.isfinite(K).all():
            raise ValueError(
                f"kernel must return a finite matrix of shape {(len(A), len(B))}, got one of shape "
                f"{K.shape}"
            )
        return K

    def variance(self, A: FloatArray) -> FloatArray:
        """See :meth:`Kernel.variance`."""
        if hasattr(self.function, "diag"):
            return np.asarray(self.function.diag(A), dtype=np.float64)
        return np.array([self.matrix(x[None], x[None])[0, 0] for x in A])


@dataclass(frozen=True, slots=True)
class Precomputed:
    """Samples are the rows of a kernel matrix with the training samples."""

    name = "precomputed"
    label = "precomputed"

    def matrix(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """The columns of the landmarks, B their indices (P, 1)."""
        return A[:, B[:, 0]]


type AnyKernel = Kernel | UserKernel | Precomputed


def _reciprocal(values: FloatArray) -> FloatArray:
    """1 / values, 0 for 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0.0)


def as_kernel(kernel: Any) -> AnyKernel:
    """Kernel of an argument: a name, a :class:`Kernel` or a function."""
    if isinstance(kernel, Kernel | UserKernel):
        return kernel
    if isinstance(kernel, str):
        return Precomputed() if kernel == "precomputed" else Kernel(kernel)
    return UserKernel(kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMap:
    """Whitened features of a kernel.

    landmarks
        (P, D); of a precomputed kernel their indices in the training samples, (P, 1).
    weights
        (P, B): whitened features are k(x, L) times these, less ``shift`` (B,).
    to_landmarks
        (P, P'), k(x, L) times these is psi.
    centre
        Mean of psi over the training samples, (P',).
    size
        Factor of the kernel.
    typical
        Mean of k(x, x) over the training samples.
    slopes
        Mean gradients of the whitened features over the training samples, (D, B); None if unknown.
    """

    kernel: AnyKernel
    landmarks: Any
    weights: FloatArray
    shift: FloatArray
    to_landmarks: FloatArray
    centre: FloatArray
    size: float
    typical: float
    slopes: FloatArray | None

    @classmethod
    def learn(cls, X: FloatArray, kernel: AnyKernel) -> "KernelMap":
        """From scaled samples (N, D), or their kernel matrix.

        Raises
        ------
        ValueError
            If the kernel is not positive semi-definite, or does not vary over the samples.
        """
        index = np.arange(len(X))
        if len(X) > MOST_EXACT:  # as if drawn at random, but the same in any order of the samples
            index = np.sort(np.argsort(sample_keys(X), kind="stable")[:N_LANDMARKS])
        precomputed = isinstance(kernel, Precomputed)
        landmarks: Any = index[:, None] if precomputed else X[index]
        inner = kernel.matrix(X[index], landmarks)
        value, vector = np.linalg.eigh(0.5 * (inner + inner.T))
        if value[0] < -_INDEFINITE * max(value[-1], -value[0]) or value[-1] <= 0.0:
            raise ValueError(
                f"kernel must be positive semi-definite: an eigenvalue on the training samples is "
                f"{value[0]:.3g}, the largest {value[-1]:.3g}"
            )
        kept = value > _TINY * value[-1]
        to_landmarks = vector[:, kept] / np.sqrt(value[kept])
        variance = np.diag(X) if isinstance(kernel, Precomputed) else kernel.variance(X)
        psi = kernel.matrix(X, landmarks) @ to_landmarks
        centre = psi.mean(axis=0)
        centred = psi - centre
        rest = np.maximum(variance - np.sum(psi**2, axis=1), 0.0)
        total = float(np.mean(np.sum(centred**2, axis=1) + rest))
        if total <= _TINY * float(variance.mean()):
            raise ValueError("kernel is constant over the training samples")
        spread, axes = np.linalg.eigh(centred.T @ centred / len(X))
        left_out = np.cumsum(np.maximum(spread, 0.0)) > NEGLIGIBLE * spread.sum()
        axes = axes[:, left_out][:, ::-1][:, :MOST_COMPONENTS] / np.sqrt(total)
        weights = to_landmarks @ axes
        found = cls(
            kernel=kernel,
            landmarks=landmarks,
            weights=weights,
            shift=centre @ axes,
            to_landmarks=to_landmarks,
            centre=centre,
            size=1.0 / total,
            typical=float(variance.mean()),
            slopes=None,
        )
        return replace(found, slopes=found._mean_gradient(X))

    @property
    def width(self) -> int:
        """B."""
        return len(self.shift)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features."""
        return False

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features of scaled samples (M, D), or of their kernel with the training samples.

        Returns
        -------
        (M, B)
        """
        out = np.empty((len(X), len(self.shift)))
        for part, cross in self._cross(X):
            out[part] = cross @ self.weights - self.shift
        return out

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior standard deviation for tau = 1 of what whitened features do not determine, (M,)."""
        square = np.empty(len(X))
        for part, cross in self._cross(X):
            psi = cross @ self.to_landmarks
            if isinstance(self.kernel, Precomputed):  # k(x, x) of new samples is unknown
                variance = np.full(len(cross), self.typical)
            else:
                variance = self.kernel.variance(X[part])
            rest = np.maximum(variance - np.sum(psi**2, axis=1), 0.0)
            around = np.sum((psi - self.centre) ** 2, axis=1)
            white = cross @ self.weights - self.shift
            square[part] = self.size * (rest + around) - np.sum(white**2, axis=1)
            floor = _TINY * self.size * (variance + around)
            square[part][square[part] < floor] = 0.0
        return np.sqrt(np.maximum(square, 0.0))

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None = None
    ) -> FloatArray | None:
        """Mean gradients over the training samples, (..., D), of loadings (..., B)."""
        return None if self.slopes is None else inside @ self.slopes.T

    def gradient(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Gradients of one combination (B,) of whitened features at samples (M, D), (M, D)."""
        own, out = self.weights @ coefficients, np.empty_like(X)
        for part, alpha, beta in self._gradients(X):
            out[part] = X[part] * (alpha @ own)[:, None] + (beta * own) @ self.landmarks
        return out

    def _mean_gradient(self, X: FloatArray) -> FloatArray | None:
        if not isinstance(self.kernel, Kernel):
            return None
        total = np.zeros((X.shape[1], self.weights.shape[1]))
        for part, alpha, beta in self._gradients(X):
            total += X[part].T @ (alpha @ self.weights)
            total += self.landmarks.T @ (beta.sum(axis=0)[:, None] * self.weights)
        return total / len(X)

    def _cross(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Blocks of samples, and their kernel with the landmarks."""
        for part in self._blocks(len(X)):
            yield part, self.kernel.matrix(X[part], self.landmarks)

    def _gradients(self, X: FloatArray) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        assert isinstance(self.kernel, Kernel)
        for part in self._blocks(len(X)):
            yield part, *self.kernel.gradient(X[part], self.landmarks)

    def _blocks(self, n: int) -> list[slice]:
        size = max(1, _BLOCK // len(self.landmarks))
        return [slice(begin, begin + size) for begin in range(0, n, size)]
