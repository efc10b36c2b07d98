r"""Kernels of BSDR: latent functions with a Gaussian process prior in the place of linear maps.

A projection :math:`q_r \sim N(0, \tau^2 \Lambda)` makes the latent coordinate
:math:`z_r(x) = q_r^\top x` a Gaussian process with the linear kernel
:math:`\tau^2 x^\top \Lambda x'`. Any other kernel takes its place by other whitened features
(:class:`KernelMap`).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import lstsq

from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.folds import random_keys
from bsdr_models.options import POSITIVE, Options, StrOptions

# Names of kernels of features.
KERNELS = ("linear", "rbf", "matern", "polynomial")
# Number of training samples up to which all are landmarks.
MOST_EXACT = 1500
# Number of landmarks of more samples.
N_LANDMARKS = 500
# Share of the variance of the components that are left out together.
NEGLIGIBLE = 1e-4
# Most components, which have 99 % of the variance of a thousand digits or vowels.
MOST_COMPONENTS = 250
# Relative size below which an eigenvalue is a rounding error.
_TINY = 1e-10


@dataclass(frozen=True, slots=True)
class Kernel(Options):
    r"""A kernel of D scaled features.

    Parameters
    ----------
    name : {"linear", "rbf", "matern", "polynomial"}, default="rbf"
        ``"matern"`` has the smoothness 5/2, ``"polynomial"`` is :math:`(1 + a^\top b / D)^3`, and
        ``"linear"`` the model without a kernel, with its own prior covariance.
    width : float, default=4.0
        Length scale of ``"rbf"`` and ``"matern"`` in units of the square root of D, the typical
        distance of a sample from the mean.

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

    _constraints: ClassVar[dict[str, list[object]]] = {
        "name": [StrOptions(set(KERNELS))],
        "width": [POSITIVE],
    }

    name: str = "rbf"
    width: float = 4.0

    @property
    def label(self) -> str:
        """The name, with the width if it has one."""
        return f"{self.name} {self.width:g}" if self.name in ("rbf", "matern") else self.name

    def matrix(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """Kernel of samples (M, D) and (P, D), (M, P)."""
        if self.name == "polynomial":
            return np.asarray((1.0 + A @ B.T / A.shape[1]) ** 3)
        from sklearn.metrics.pairwise import euclidean_distances  # takes .15 s to load

        square = euclidean_distances(A, B, squared=True) / (self.width**2 * A.shape[1])
        if self.name == "rbf":
            return np.exp(-0.5 * square)
        a = np.sqrt(5.0 * square)
        return np.asarray((1.0 + a + a**2 / 3.0) * np.exp(-a))

    def variance(self, A: FloatArray) -> FloatArray:
        """k(x, x) of samples (M, D), (M,)."""
        if self.name == "polynomial":
            return np.asarray((1.0 + np.mean(A**2, axis=1)) ** 3)
        return np.ones(len(A))


def as_kernel(kernel: str | Kernel) -> Kernel:
    """Kernel of an argument, a name or a :class:`Kernel`."""
    if isinstance(kernel, str):
        return Kernel(kernel)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a name or a bsdr_models.bsdr.Kernel, got {kernel!r}")
    return kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMap:
    r"""Whitened features of a kernel, :math:`\phi(x)^\top \phi(x') = k_c(x, x')`.

    The kernel k_c is centred over the training samples, since the model has biases, and has a mean
    variance of one there, as the linear one has. With landmarks L,
    :math:`K_{LL} = V \operatorname{diag}(\kappa) V^\top` and
    :math:`\psi(x) = \kappa^{-1/2} V^\top k(L, x)` [1]_, the whitened features are the principal
    components of :math:`\psi` over the training samples, exact if all samples are landmarks, but
    without the smallest components. What they do not determine of a new sample has the prior
    variance :math:`k_c(x, x) - |\phi(x)|^2`.

    References
    ----------
    .. [1] C. Williams, M. Seeger (2001). Using the Nyström method to speed up kernel machines.
           Advances in Neural Information Processing Systems 13.
    """

    kernel: Kernel
    metric: Metric  # in which the kernel sees samples
    landmarks: FloatArray  # (P, D)
    weights: FloatArray  # whitened features are k(x, L) times these, less shift, (P, B)
    shift: FloatArray  # (B,)
    to_landmarks: FloatArray  # k(x, L) times these is psi, (P, P')
    centre: FloatArray  # mean of psi over the training samples, (P',)
    size: float  # factor of the kernel
    effects: FloatArray  # of features, by least squares, (D, B)

    @classmethod
    def learn(cls, X: FloatArray, kernel: Kernel, metric: Metric) -> "KernelMap":
        """From scaled samples (N, D); ValueError if the kernel does not vary over them."""
        given = X - X.mean(axis=0)
        X = _in_metric(X, metric)
        index = np.arange(len(X))
        if len(X) > MOST_EXACT:  # as if drawn at random, but the same in any order of the samples
            index = np.sort(
                np.argsort(random_keys(X, None, np.random.default_rng(0)))[:N_LANDMARKS]
            )
        landmarks = X[index]
        inner = kernel.matrix(landmarks, landmarks)
        value, vector = np.linalg.eigh(0.5 * (inner + inner.T))
        kept = value > _TINY * value[-1]
        to_landmarks = vector[:, kept] / np.sqrt(value[kept])
        variance = kernel.variance(X)
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
        return cls(
            kernel=kernel,
            metric=metric,
            landmarks=landmarks,
            weights=to_landmarks @ axes,
            shift=centre @ axes,
            to_landmarks=to_landmarks,
            centre=centre,
            size=1.0 / total,
            effects=lstsq(given, centred @ axes, lapack_driver="gelsy")[0],
        )

    @property
    def width(self) -> int:
        """Number of whitened features, B."""
        return len(self.shift)

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of samples (M, D)."""
        X = _in_metric(X, self.metric)
        return self.kernel.matrix(X, self.landmarks) @ self.weights - self.shift

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior standard deviation for tau = 1 of what whitened features do not determine, (M,)."""
        X = _in_metric(X, self.metric)
        cross = self.kernel.matrix(X, self.landmarks)
        psi = cross @ self.to_landmarks
        variance = self.kernel.variance(X)
        rest = np.maximum(variance - np.sum(psi**2, axis=1), 0.0)
        around = np.sum((psi - self.centre) ** 2, axis=1)
        white = cross @ self.weights - self.shift
        square = self.size * (rest + around) - np.sum(white**2, axis=1)
        return np.sqrt(np.where(square < _TINY * self.size * (variance + around), 0.0, square))


def _in_metric(X: FloatArray, metric: Metric) -> FloatArray:
    """Scaled samples (M, D) as kernels see them, of unit variance on average."""
    return np.sqrt(X.shape[1]) * metric.map(X)
