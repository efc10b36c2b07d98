r"""Whitened features, whose loadings are standard normal a priori.

The latent coordinates are :math:`z = \sum_v \lambda_v P_v^\top \phi_v(x_v)`, with whitened features
:math:`\phi_v` of view v, linear (:class:`~bsdr_models.metric.Metric`) or of a kernel
(:class:`KernelMap`), and its relative scale :math:`\lambda_v`, so that each matters alike however
many features it has. Views are groups of features, each with a metric of its own; one of all
features has no relative scale.

If every training sample has exactly one view, views are instruments that measure the same classes,
each with its own projection to one latent space (Gönen 2013, Section V). A constant feature of each
view then allows for another mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lstsq
from sklearn.linear_model import RidgeCV
from sklearn.utils import gen_batches

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bsdr.kernels import AnyKernel, KernelLike, UserKernel, as_kernel
from bsdr_models.metric import Groups, Metric, MetricName, choose_weights
from bsdr_models.numerics.dependence import effective_share
from bsdr_models.numerics.folds import sample_keys

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
# Relative size above which a negative eigenvalue is none.
_INDEFINITE = 1e-6
# Penalties of the regression of a view on others, relative to the largest singular value squared.
_PENALTIES = np.logspace(-6.0, 2.0, 25)


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

    kernel: AnyKernel
    metric: Metric | None  # in which the kernel sees samples; None of a function of the user
    landmarks: FloatArray  # (P, D)
    weights: FloatArray  # whitened features are k(x, L) times these, less shift, (P, B)
    shift: FloatArray  # (B,)
    to_landmarks: FloatArray  # k(x, L) times these is psi, (P, P')
    centre: FloatArray  # mean of psi over the training samples, (P',)
    size: float  # factor of the kernel
    effects: FloatArray  # of features, by least squares, (D, B)

    @classmethod
    def learn(cls, X: FloatArray, kernel: AnyKernel, metric: Metric | None = None) -> "KernelMap":
        """From scaled samples (N, D).

        ValueError if the kernel is not positive semi-definite, or does not vary over the samples.
        """
        given = X - X.mean(axis=0)
        X = _in_metric(X, metric)
        index = np.arange(len(X))
        if len(X) > MOST_EXACT:  # as if drawn at random, but the same in any order of the samples
            index = np.sort(np.argsort(sample_keys(X), kind="stable")[:N_LANDMARKS])
        landmarks = X[index]
        inner = kernel.matrix(landmarks, landmarks)
        value, vector = np.linalg.eigh(0.5 * (inner + inner.T))
        if value[0] < -_INDEFINITE * max(value[-1], -value[0]) or value[-1] <= 0.0:
            raise ValueError(
                f"kernel must be positive semi-definite: an eigenvalue on the training samples is "
                f"{value[0]:.3g}, the largest {value[-1]:.3g}"
            )
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


def _in_metric(X: FloatArray, metric: Metric | None) -> FloatArray:
    """Scaled samples (M, D) as kernels see them, of unit variance on average."""
    return X if metric is None else np.sqrt(X.shape[1]) * metric.map(X)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """Whitened features of one view or several, each with its own scale.

    A new sample that lacks a view has the normal distribution of its whitened features given those
    of its other views: a ridge regression on the training samples, whose penalty minimises the
    squared leave-one-out residuals, and the second moments of these residuals as covariance.
    """

    names: tuple[str, ...]
    columns: tuple[IntArray, ...]  # features of each view
    maps: tuple[Metric | KernelMap, ...]
    exclusive: bool = False  # whether every sample has exactly one view
    training: FloatArray  # whitened (N, B), if samples may lack views

    @classmethod
    def linear(cls, metric: Metric) -> "FeatureMap":
        """Linear in all features."""
        columns = np.arange(len(metric.axes))
        return cls(names=("",), columns=(columns,), maps=(metric,), training=np.empty((0, 0)))

    @property
    def n_views(self) -> int:
        """Number of views, V."""
        return len(self.maps)

    @property
    def metric(self) -> Metric | None:
        """The map, if it is linear in all features."""
        return self.maps[0] if self.n_views == 1 and isinstance(self.maps[0], Metric) else None

    @property
    def metric_weights(self) -> Mapping[str, object]:
        """Weights of the candidates of the metric by name, for several views by view and name."""
        metrics = {
            name: own if isinstance(own, Metric) else own.metric
            for name, own in zip(self.names, self.maps, strict=True)
        }
        shares = {name: metric.shares for name, metric in metrics.items() if metric is not None}
        return shares if self.n_views > 1 else shares.get(self.names[0], {})

    @property
    def index(self) -> IntArray | None:
        """View of each whitened feature, (B,); None for one view."""
        return None if self.n_views == 1 else np.repeat(np.arange(self.n_views), self._widths)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features of complete samples."""
        return not self.exclusive and all(isinstance(each, Metric) for each in self.maps)

    @property
    def effects(self) -> FloatArray:
        """Of the features in those of all maps, (D, B)."""
        n_features = 1 + max(int(columns.max()) for columns in self.columns)
        out = np.zeros((n_features, sum(self._widths)))
        for own, columns, place in zip(self.maps, self.columns, self._places, strict=True):
            out[columns, place] = own.effects
        return out

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        out = np.empty((len(X), sum(self._widths)))
        for samples, whitened, _ in self.blocks(X, len(X)):
            out[samples] = whitened
        return out

    def blocks(
        self, X: FloatArray, size: int
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
        """At most ``size`` samples with the same views, and their whitened features (M, B).

        Also residuals (N, B) of the features that they lack, those of the training samples, each
        left out; None for complete samples.
        """
        lacking = lacking_views(X, self.columns) & (not self.exclusive)
        for pattern in np.unique(lacking, axis=0):
            missing = np.repeat(pattern, self._widths)
            residuals = None
            if missing.any():
                coefficients, left_out = self._regress(~missing)
                residuals = np.zeros_like(self.training)
                residuals[:, missing] = left_out
            samples = np.flatnonzero((lacking == pattern).all(axis=1))
            for block in gen_batches(len(samples), size):
                whitened = self._whiten(X[samples[block]])
                if missing.any():
                    whitened[:, missing] = whitened[:, ~missing] @ coefficients
                yield samples[block], whitened, residuals

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior sd of what each view does not determine, (M, V); 0 for views without values."""
        out = np.zeros((len(X), self.n_views))
        for v, present, part in self._parts(X):
            out[present, v] = self.maps[v].outside_sd(part)
        return out

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None
    ) -> FloatArray:
        """Projection of features (S, R, D) from normals (S, R, B) and, outside, (S, R, D).

        For a kernel, its linear effects.
        """
        out: FloatArray = inside @ self.effects.T
        for v, (own, columns) in enumerate(zip(self.maps, self.columns, strict=True)):
            if isinstance(own, Metric):
                scale = 1.0 if view_scale is None else view_scale[:, v, None, None]
                out[..., columns] += scale * own.outside_loadings(outside[..., columns])
        return out

    def shares(
        self, projection: FloatArray, weights: FloatArray, whitened: FloatArray
    ) -> FloatArray:
        """Share of each view in the sum of variances of their parts of eta, (S, V).

        From draws of the projection (S, R, B) and weights (S, R, K), and whitened features (N, B).
        """
        parts = []
        for v in range(self.n_views):
            own = self.index == v
            factor = np.linalg.qr(whitened[:, own] - whitened[:, own].mean(axis=0), mode="r")
            effect = np.swapaxes(projection[..., own] @ factor.T, 1, 2) @ weights
            parts.append(np.sum(effect**2, axis=(1, 2)))
        variance = np.stack(parts, axis=1)
        total = variance.sum(axis=1, keepdims=True)
        return np.divide(
            variance, total, out=np.full_like(variance, 1 / len(parts)), where=total > 0
        )

    @property
    def _widths(self) -> list[int]:
        """Number of whitened features of each view, with the constant of exclusive ones."""
        return [own.width + self.exclusive for own in self.maps]

    @property
    def _places(self) -> list[slice]:
        """Whitened features of each view, without the constant, which is the next one."""
        starts = np.cumsum([0, *self._widths]).tolist()
        return [slice(i, i + own.width) for i, own in zip(starts, self.maps, strict=False)]

    def _parts(self, X: FloatArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Number of each view, samples that have it, and their features."""
        for v, absent in enumerate(lacking_views(X, self.columns).T):
            present = np.flatnonzero(~absent)
            if present.size:
                yield v, present, X[np.ix_(present, self.columns[v])]

    def _whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B), zero of missing views."""
        out = np.zeros((len(X), sum(self._widths)))
        for v, present, part in self._parts(X):
            place = self._places[v]
            out[present, place] = self.maps[v].whiten(part)
            if self.exclusive:
                out[present, place.stop] = 1.0
        return out

    def _regress(self, known: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Ridge regression on some whitened features: coefficients, and leave-one-out residuals."""
        given = self.training[:, known]
        wanted = self.training[:, ~known]
        penalties = _PENALTIES * np.linalg.norm(given, 2) ** 2
        # With a score it keeps the left-out predictions of every penalty.
        ridge = RidgeCV(penalties, scoring="neg_mean_squared_error", store_cv_results=True)
        ridge.fit(given, wanted)
        best = int(np.flatnonzero(penalties == ridge.alpha_)[0])
        return ridge.coef_.T, wanted - ridge.cv_results_[..., best]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapLearner:
    """Whitened features of the training samples, and of those without a fold.

    X
        Scaled samples (N, D), NaN where they lack views.
    classes
        Of the samples, (N,), or whether they have each label, (N, T); None for real outputs.
    views
        Names and features of the views.
    fold
        Of each sample, (N,), -1 of those that are never held out.
    weights
        For each view, of the candidates of its metric without each fold, (1 + F, J).
    groups
        Of the samples, (N,), if samples of one group are held out together.
    share
        Effective number of samples over their number.
    """

    X: FloatArray
    classes: IntArray | None
    units: FloatArray
    kernel: KernelLike
    views: tuple[tuple[str, IntArray], ...]
    fold: IntArray
    weights: tuple[FloatArray, ...]
    groups: IntArray | None = None
    share: float = 1.0

    @classmethod
    def of(
        cls,
        X: FloatArray,
        classes: IntArray | None,
        units: FloatArray,
        fold: IntArray,
        *,
        metric: MetricName = "auto",
        kernel: KernelLike = "linear",
        views: Sequence[tuple[str, IntArray]] | None = None,
        groups: IntArray | None = None,
    ) -> "MapLearner":
        """With weights from all samples that have a view, and from those of all folds but one."""
        named = tuple(views or [("", np.arange(X.shape[1]))])
        weights = []
        share = 1.0 if classes is None else effective_share(np.nan_to_num(X), classes, groups)
        n_folds = int(fold.max(initial=-1)) + 1
        for columns, absent in zip(*_columns_and_lacking(X, named), strict=True):
            part = X[np.ix_(~absent, columns)]
            known = None if classes is None else classes[~absent]
            own = fold[~absent]
            weights.append(
                choose_weights(metric, part, known, units[columns], own, n_folds, share=share)
            )
        return cls(
            X=X,
            classes=classes,
            units=units,
            kernel=kernel,
            views=named,
            fold=fold,
            weights=tuple(weights),
            groups=groups,
            share=share,
        )

    def learn(self, fold: int | None = None) -> FeatureMap:
        """The map learned from all samples, or from those that are not in a fold."""
        kernel = as_kernel(self.kernel)
        row = 0 if fold is None else 1 + fold
        train = np.ones(len(self.X), bool) if fold is None else self.fold != fold
        all_columns, lacking = _columns_and_lacking(self.X, self.views)
        maps: list[Metric | KernelMap] = []
        for columns, absent, weights in zip(all_columns, lacking, self.weights, strict=True):
            own = train & ~absent
            if not own.any():  # all samples of an instrument are in one fold
                own = ~absent
            part = self.X[np.ix_(own, columns)]
            if isinstance(kernel, UserKernel):
                maps.append(KernelMap.learn(part, kernel))
                continue
            groups = Groups.one(len(part))
            if self.classes is not None:
                groups = Groups.of(self.classes[own], self.share)
            units = self.units[columns]
            metric = Metric.learn(part, groups, weights[row], units, centred=True)
            linear = kernel.name == "linear"
            maps.append(metric if linear else KernelMap.learn(part, kernel, metric))
        learned = FeatureMap(
            names=tuple(name for name, _ in self.views),
            columns=tuple(all_columns),
            maps=tuple(maps),
            exclusive=bool(lacking.any()),
            training=np.empty((0, 0)),
        )
        if learned.exclusive or len(maps) == 1:
            return learned
        return replace(learned, training=learned.whiten(self.X[train]))


def _columns_and_lacking(
    X: FloatArray, views: Sequence[tuple[str, IntArray]]
) -> tuple[list[IntArray], BoolArray]:
    """Features of each view, and which samples lack it, (V, N)."""
    columns = [own for _, own in views]
    return columns, lacking_views(X, columns).T


def lacking_views(X: FloatArray, columns: Sequence[IntArray]) -> BoolArray:
    """Which views each sample has no values of, (N, V)."""
    return np.stack([np.isnan(X[:, own]).all(axis=1) for own in columns], axis=1)


def check_views(
    X: FloatArray, views: Sequence[tuple[str, IntArray]], exclusive: bool | None = None
) -> None:
    """Raise ValueError unless the missing values of samples (M, D) are those of whole views.

    Training samples, with ``exclusive=None``, have all views or exactly one each, and new samples
    exactly one if these are ``exclusive``, otherwise at least one.
    """
    training = exclusive is None
    incomplete = np.isnan(X).any(axis=1)
    lacking = lacking_views(X, [columns for _, columns in views])
    for (name, columns), absent in zip(views, lacking.T, strict=True):
        partial = np.isnan(X[:, columns]).any(axis=1) & ~absent
        if partial.any():
            raise ValueError(
                f"sample {int(partial.argmax())} has NaN in some features of view {name!r}: only "
                "whole views may be missing; BM2PCAClassifier takes any missing values"
            )
    present = (~lacking).sum(axis=1)
    if (present == 0).any():
        raise ValueError(f"sample {int(present.argmin())} has no view: all its values are NaN")
    several = present != 1
    if not several.any() or not (incomplete.any() if training else exclusive):
        return
    if not training:
        sample = int(several.argmax())
        raise ValueError(
            f"sample {sample} has {present[sample]} views: new samples must have exactly one, as "
            "the training samples have"
        )
    sample = int(incomplete.argmax())
    absent = [name for (name, _), out in zip(views, lacking[sample], strict=True) if out]
    raise ValueError(
        f"{int(incomplete.sum())} of {len(X)} training samples lack views, sample {sample} "
        f"{absent}: training samples must have all views, or exactly one each. Leave out the "
        "incomplete samples or these views, or use BM2PCAClassifier, whose training samples may "
        "lack views"
    )
