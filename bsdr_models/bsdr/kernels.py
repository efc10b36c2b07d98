r"""Kernels of BSDR: latent functions with a Gaussian process prior in the place of linear maps.

A projection :math:`q_r \sim N(0, \tau^2 \Lambda / D)` makes the latent coordinate
:math:`z_r(x) = q_r^\top x` a Gaussian process with the linear kernel
:math:`\tau^2 x^\top \Lambda x' / D`. Any other kernel takes its place by other whitened features
(:class:`bsdr_models.bsdr.feature_map.KernelMap`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics.pairwise import euclidean_distances

from bsdr_models.arrays import FloatArray
from bsdr_models.options import POSITIVE, Options, StrOptions

# Names of kernels of features.
KERNELS = ("linear", "rbf", "matern", "polynomial")


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
        square = self._distances(A, B)
        if self.name == "rbf":
            return np.exp(-0.5 * square)
        a = np.sqrt(5.0 * square)
        return np.asarray((1.0 + a + a**2 / 3.0) * np.exp(-a))

    def variance(self, A: FloatArray) -> FloatArray:
        """k(x, x) of samples (M, D), (M,)."""
        if self.name == "polynomial":
            return np.asarray((1.0 + np.mean(A**2, axis=1)) ** 3)
        return np.ones(len(A))

    def _distances(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """Squared distances in units of the length scale."""
        return np.asarray(euclidean_distances(A, B, squared=True) / (self.width**2 * A.shape[1]))


@dataclass(frozen=True, slots=True)
class UserKernel:
    """A function of the user, such as a kernel of scikit-learn's Gaussian processes."""

    function: Callable[[FloatArray, FloatArray], ArrayLike]
    name = "callable"
    label = "callable"

    def matrix(self, A: FloatArray, B: FloatArray) -> FloatArray:
        """See :meth:`Kernel.matrix`; ValueError unless of this shape, of finite real numbers."""
        return _real(self.function(A, B), (len(A), len(B)), "kernel")

    def variance(self, A: FloatArray) -> FloatArray:
        """See :meth:`Kernel.variance`."""
        if not hasattr(self.function, "diag"):
            return np.array([self.matrix(x[None], x[None])[0, 0] for x in A])
        found = _real(self.function.diag(A), (len(A),), "kernel.diag")
        if (found < 0.0).any():
            raise ValueError(f"kernel.diag must not return negative values, got {found.min():.3g}")
        return found


type AnyKernel = Kernel | UserKernel
# What a user gives: a name, a kernel, or a function.
type KernelLike = str | AnyKernel | Callable[[FloatArray, FloatArray], ArrayLike]


def _real(values: ArrayLike, shape: tuple[int, ...], what: str) -> FloatArray:
    """Values of a function of the user, checked."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"{what} must return an array of shape {shape}, got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must return real numbers, got {array.dtype}")
    if not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{what} must return finite numbers, got {array[tuple(place)]} at {place.tolist()}"
        )
    return array.astype(np.float64)


def as_kernel(kernel: KernelLike) -> AnyKernel:
    """Kernel of an argument: a name, a :class:`Kernel` or a function."""
    if isinstance(kernel, Kernel | UserKernel):
        return kernel
    if isinstance(kernel, str):
        return Kernel(kernel)
    if isinstance(kernel, type):
        raise ValueError(
            f"kernel is the class {kernel.__name__}: give an object, {kernel.__name__}()"
        )
    return UserKernel(kernel)
