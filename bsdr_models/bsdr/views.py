r"""Whitened features of several views: groups of features, or kernels, each with its own scale.

The latent coordinates are :math:`z = \sum_v \lambda_v P_v^\top \phi_v(x_v)`, with whitened features
:math:`\phi_v` of view v (:class:`Metric` or :class:`KernelMap`) and its relative scale
:math:`\lambda_v`, so that a view that does not help is switched off.

A new sample that lacks a view has the normal distribution of :math:`\phi_v` given the whitened
features of its other views: a ridge regression on the training samples, whose penalty minimises the
squared leave-one-out residuals, and the second moments of these residuals as covariance.

If every training sample has exactly one view, views are instruments that measure the same classes,
each with its own projection to one latent space [1]_. A constant feature of each view then allows
for another mean.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction. IEEE Transactions on
       Cybernetics 43(6), Section V.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bsdr.kernels import WIDTHS, AnyKernel, Kernel, KernelMap, as_kernel
from bsdr_models.bsdr.posterior import Metric, Parameters
from bsdr_models.numerics.scaling import Scaler

# Penalties of the regression of a view on others, relative to the largest singular value squared.
_PENALTIES = np.logspace(-6.0, 2.0, 25)
# Relative size of a singular value that is a rounding error.
_RANK = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Whitened features of several views, or of several kernels of the same features.

    names
        Of the views.
    columns
        Features of each.
    maps
        Whitened features of each.
    exclusive
        Whether every sample has exactly one view.
    training
        Whitened features of the training samples, (N, B); empty if ``exclusive``.
    """

    names: tuple[str, ...]
    columns: tuple[IntArray, ...]
    maps: tuple[Metric | KernelMap, ...]
    exclusive: bool
    training: FloatArray

    @classmethod
    def learn(
        cls,
        X: FloatArray,
        names: Sequence[str],
        columns: Sequence[IntArray],
        kernels: Sequence[AnyKernel],
        exponent: float = 0.0,
    ) -> "Views":
        """From scaled samples (N, D), and the features and the kernel of each view.

        NaN marks the views that a sample does not have.
        """
        lacking = lacking_views(X, columns)
        found = cls(
            names=tuple(names),
            columns=tuple(columns),
            maps=tuple(
                learn_one(X[np.ix_(~out, own)], kernel, exponent)
                for out, own, kernel in zip(lacking.T, columns, kernels, strict=True)
            ),
            exclusive=bool(lacking.any()),
            training=np.empty((0, 0)),
        )
        return found if found.exclusive else replace(found, training=found.whiten(X))

    @property
    def index(self) -> IntArray:
        """View of each whitened feature, (B,)."""
        return np.repeat(np.arange(len(self.maps)), [self._width(each) for each in self.maps])

    @property
    def width(self) -> int:
        """B."""
        return sum(self._width(each) for each in self.maps)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features of complete samples."""
        return not self.exclusive and all(isinstance(each, Metric) for each in self.maps)

    @property
    def slopes(self) -> FloatArray | None:
        """Mean gradients of whitened features, (D, B); None if unknown."""
        parts = [each.slopes for each in self.maps]
        out = np.zeros((1 + max(int(own.max()) for own in self.columns), self.width))
        for own, slopes, place in zip(self.columns, parts, self._places(), strict=True):
            if slopes is None:
                return None
            out[own, place.start : place.start + slopes.shape[1]] = slopes
        return out

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        lacking = lacking_views(X, self.columns)
        out = np.zeros((len(X), self.width))
        for v, place in enumerate(self._places()):
            here = ~lacking[:, v]
            part = self.maps[v].whiten(X[np.ix_(here, self.columns[v])])
            if self.exclusive:
                part = np.hstack([part, np.ones((len(part), 1))])
            out[here, place] = part
        if not self.exclusive:
            for samples, known in self._patterns(lacking):
                coefficients, _ = self._regress(known)
                out[np.ix_(samples, ~known)] = out[np.ix_(samples, known)] @ coefficients
        return out

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Of each map, (M, V); 0 for views without values."""
        lacking = lacking_views(X, self.columns)
        out = np.zeros(lacking.shape)
        for v, own in enumerate(self.columns):
            here = ~lacking[:, v]
            out[here, v] = self.maps[v].outside_sd(X[np.ix_(here, own)])
        return out

    def residuals(self, X: FloatArray) -> Iterator[tuple[IntArray, FloatArray | None]]:
        """Samples with the same views, and residuals (N, B) of the whitened features they lack.

        The residuals are those of the training samples, each left out; None for complete samples.
        """
        lacking = lacking_views(X, self.columns)
        complete = np.flatnonzero(self.exclusive | ~lacking.any(axis=1))
        if complete.size:
            yield complete, None
        if not self.exclusive:
            for samples, known in self._patterns(lacking):
                out = np.zeros_like(self.training)
                out[:, ~known] = self._regress(known)[1]
                yield samples, out

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None
    ) -> FloatArray | None:
        """See :meth:`Metric.loadings`; (S, R, D), None if gradients are unknown."""
        assert view_scale is not None
        out = np.zeros_like(outside)
        for v, (own, place) in enumerate(zip(self.columns, self._places(), strict=True)):
            width = self.maps[v].width
            part = self.maps[v].loadings(
                inside[..., place.start : place.start + width],
                view_scale[:, v, None, None] * outside[..., own],
            )
            if part is None:
                return None
            out[..., own] += part
        return out

    def gradient(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Gradients of one combination (B,) of whitened features at samples (M, D), (M, D)."""
        out = np.zeros_like(X)
        for own, each, place in zip(self.columns, self.maps, self._places(), strict=True):
            here = ~np.isnan(X[:, own]).any(axis=1)
            part = coefficients[place.start : place.start + each.width]
            out[np.ix_(here, own)] += each.gradient(X[np.ix_(here, own)], part)
        return out

    def shares(self, draws: Parameters, whitened: FloatArray) -> FloatArray:
        """Share of each view in the sum of variances of their parts of eta, (S, V)."""
        parts = []
        for place in self._places():
            centred = whitened[:, place] - whitened[:, place].mean(axis=0)
            factor = np.linalg.qr(centred, mode="r")
            flat = draws.projection[..., place] @ factor.T  # (S, R, .)
            effect = np.swapaxes(flat, 1, 2) @ draws.weights
            parts.append(np.sum(effect**2, axis=(1, 2)))
        variance = np.stack(parts, axis=1)
        total = variance.sum(axis=1, keepdims=True)
        return np.asarray(
            np.where(total > 0.0, variance, 1.0) / np.where(total > 0, total, len(parts))
        )

    def _width(self, each: Metric | KernelMap) -> int:
        return each.width + self.exclusive

    def _places(self) -> list[slice]:
        """Whitened features of each view."""
        ends = np.cumsum([0, *(self._width(each) for each in self.maps)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    def _patterns(self, lacking: BoolArray) -> Iterator[tuple[IntArray, BoolArray]]:
        """Samples that lack the same views, and the mask of their whitened features, (B,)."""
        for pattern in np.unique(lacking[lacking.any(axis=1)], axis=0):
            yield np.flatnonzero((lacking == pattern).all(axis=1)), ~pattern[self.index]

    def _regress(self, known: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Ridge regression on some whitened features: coefficients, and leave-one-out residuals.

        Whitened features have mean zero, and so have the columns of U. The residual of a sample is
        divided by one less its leverage, which is summed without cancellation: with as many
        features as samples both are nearly zero.
        """
        given, wanted = self.training[:, known], self.training[:, ~known]
        U, size, V = np.linalg.svd(given, full_matrices=False)
        rank = int(np.sum(size > _RANK * size[0]))
        U, size, V = U[:, :rank], size[:rank], V[:rank]
        along = U.T @ wanted
        rest = wanted - U @ along
        rest_share = np.maximum(1.0 - 1.0 / len(U) - np.sum(U**2, axis=1), 0.0)
        best: tuple[float, FloatArray, FloatArray] | None = None
        for penalty in _PENALTIES * size[0] ** 2:
            left = penalty / (size**2 + penalty)
            error = (rest + U @ (left[:, None] * along)) / (U**2 @ left + rest_share)[:, None]
            total = float(np.sum(error**2))
            if best is None or total < best[0]:
                best = total, V.T @ (((1.0 - left) / size)[:, None] * along), error
        assert best is not None
        return best[1], best[2]


type FeatureMap = Metric | KernelMap | Views


def lacking_views(X: FloatArray, columns: Sequence[IntArray]) -> BoolArray:
    """Which views each sample has no values of, (N, V)."""
    return np.stack([np.isnan(X[:, own]).all(axis=1) for own in columns], axis=1)


def check_views(
    X: FloatArray, scaler: Scaler, views: Sequence[tuple[str, IntArray]] | None
) -> None:
    """Raise ValueError unless every view varies, and training samples have all or one each."""
    if views is None:
        return
    for name, own in views:
        if scaler.constant[own].all():
            raise ValueError(f"view {name!r} has no feature that varies")
    check_missing_views(X, views, exclusive=bool(np.isnan(X).any()), training=True)


def check_missing_views(
    X: FloatArray,
    views: Sequence[tuple[str, IntArray]],
    *,
    exclusive: bool,
    training: bool = False,
) -> None:
    """Raise ValueError unless the missing values of samples (M, D) are those of whole views.

    If ``exclusive``, each sample must have exactly one view, otherwise at least one.
    """
    columns = [own for _, own in views]
    lacking = lacking_views(X, columns)
    for (name, own), out in zip(views, lacking.T, strict=True):
        some = np.isnan(X[:, own]).any(axis=1) & ~out
        if some.any():
            raise ValueError(
                f"sample {int(some.argmax())} has NaN in some features of view {name!r}: only "
                "whole views may be missing; BM2PCAClassifier takes any missing values"
            )
    present = (~lacking).sum(axis=1)
    wrong = present != 1 if exclusive else present == 0
    if not wrong.any():
        return
    if (empty := present == 0).any():
        raise ValueError(f"sample {int(empty.argmax())} has no view: all its values are NaN")
    if not training:
        sample = int(wrong.argmax())
        raise ValueError(
            f"sample {sample} has {present[sample]} views: new samples must have exactly one, as "
            "the training samples have"
        )
    incomplete = lacking.any(axis=1)
    sample = int(incomplete.argmax())
    absent = [name for (name, _), out in zip(views, lacking[sample], strict=True) if out]
    raise ValueError(
        f"{int(incomplete.sum())} of {len(X)} training samples lack views, sample {sample} "
        f"{absent}: training samples must have all views, or exactly one each. Leave out the "
        "incomplete samples or these views, or use BM2PCAClassifier, whose training samples may "
        "lack views"
    )


def check_kernel_matrix(X: FloatArray) -> None:
    """Raise ValueError unless X is a symmetric matrix."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f"kernel='precomputed' needs the kernel matrix of the training samples, got shape "
            f"{X.shape}"
        )
    if not np.allclose(X, X.T, atol=1e-8 * float(np.abs(X).max())):
        raise ValueError("X is not symmetric, as kernel='precomputed' needs it")


def learn_one(X: FloatArray, kernel: AnyKernel, exponent: float = 0.0) -> Metric | KernelMap:
    """Whitened features of one view from its scaled samples."""
    return Metric.learn(X, exponent) if kernel.name == "linear" else KernelMap.learn(X, kernel)


def learn_map(
    X: FloatArray,
    kernel: Any,
    views: Sequence[tuple[str, IntArray]] | None,
    exponent: float = 0.0,
) -> FeatureMap:
    """Whitened features from scaled samples (N, D).

    Parameters
    ----------
    kernel : str, Kernel, callable or sequence of these
        For every view; each of a sequence gets its own scale.
    views : sequence of (str, (D_v,)), optional
        Names and features of the views.
    exponent : float
        Of the prior covariance of linear kernels, see :class:`Metric`.
    """
    kernels = [as_kernel(each) for each in (kernel if is_several(kernel) else [kernel])]
    names, columns, chosen = [], [], []
    for view, own in views or [("", np.arange(X.shape[1]))]:
        for each in kernels:
            parts = [view, each.label if len(kernels) > 1 else ""]
            names.append(", ".join(part for part in parts if part))
            columns.append(own)
            chosen.append(each)
    if len(chosen) == 1:
        return learn_one(X, chosen[0], exponent)
    return Views.learn(X, names, columns, chosen, exponent)


def is_several(kernel: Any) -> bool:
    """Whether an argument is a sequence of kernels."""
    return isinstance(kernel, list | tuple)


def compared_kernels(kernel: Any) -> list[Any]:
    """Kernels of which one is chosen by held-out samples."""
    if isinstance(kernel, str) and kernel == "auto":
        return [Kernel("linear"), *(Kernel("matern", width) for width in WIDTHS)]
    return [kernel]
