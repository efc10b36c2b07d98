"""Classifiers by class scores, with a temperature fitted to held-out scores for probabilities.

Scaling and settings are chosen by the log loss of five folds, each at its best temperature.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from scipy.special import expit, softmax
from sklearn.covariance import OAS, LedoitWolf
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.svm import SVC, LinearSVC

from benchmarks.methods.base import Fitted, Method, UnitSize, scalers, spread
from benchmarks.methods.temperature import fit_temperature
from benchmarks.protocols import Training
from bsdr_models.compare.baselines import PLSScores
from bsdr_models.metrics import log_losses
from bsdr_models.numerics.folds import make_folds, random_keys

COSTS = (0.1, 1.0, 10.0, 100.0)
# Gaussian kernels of samples of mean square length one, and costs for them.
GAMMAS, KERNEL_COSTS = (0.03, 0.1, 0.3, 1.0), (1.0, 10.0, 100.0)
# Thresholds of shrunken centroids, as shares of the least one that removes all features.
THRESHOLDS = tuple(np.linspace(0.0, 0.95, 20))
# Shares of features tried at a split.
SHARES = ("sqrt", 0.1)
N_TREES = 100
# Held-out samples after which folds are skipped.
ENOUGH_SAMPLES = 500

# Machine with fixed settings: training samples, classes, new samples -> scores (M, K) or (M,).
Machine = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# Number of components, and of discriminants that there are -> transformer.
Reduction = Callable[[int, int], Any]
# Number of components and seed -> one machine for each setting.
Settings = Callable[[int, int], list[Machine]]
# Share of the largest variance below which coordinates are left out.
NO_VARIANCE = 1e-12


def fit(
    training: Training,
    n_components: int,
    seed: int,
    *,
    settings: Settings,
    rotated: bool = True,
) -> Fitted:
    """Choose a scaling and a setting, then fit their machine to all training samples.

    Machines that rotations of the features would change get one scaling, which does not matter to
    them.
    """
    classes, y = np.unique(training.y, return_inverse=True)
    scalings = scalers(training)[: None if rotated else 1]
    prepared = [Prepared(scaler, training.X, rotated) for scaler in scalings]
    choices = list(product(prepared, settings(n_components, seed)))
    scores, best, temperature = [], 0, 1.0
    rows = _held_out(training, prepared[0].samples, y)
    for test in rows:
        train = np.setdiff1d(np.arange(len(y)), test)
        parts = product([each.samples for each in prepared], settings(n_components, seed))
        found = [_column(machine(A[train], y[train], A[test])) for A, machine in parts]
        scores.append(np.stack(found))
    if rows:
        truth = y[np.concatenate(rows)]
        held_out = np.concatenate(scores, axis=1)
        temperatures = [fit_temperature(each, truth) for each in held_out]
        losses = [
            log_losses(_probabilities(each / t), truth).mean()
            for each, t in zip(held_out, temperatures, strict=True)
        ]
        best = int(np.argmin(losses))
        temperature = temperatures[best]
    data, machine = choices[best]

    def predict(new: Any) -> np.ndarray:
        scores = _column(machine(data.samples, y, data.transform(new)))
        return spread(_probabilities(scores / temperature), classes, training.n_classes)

    return Fitted(predict=predict, record={"setting": best, "temperature_": temperature})


def _held_out(training: Training, samples: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Held-out samples of each fold, of as many folds as there have to be."""
    keys = random_keys(samples, y, np.random.default_rng(0))
    fold = make_folds(keys, y, training.groups)
    rows: list[np.ndarray] = []
    for number in np.unique(fold[fold >= 0]):
        rows.append(np.flatnonzero(fold == number))
        if sum(map(len, rows)) >= ENOUGH_SAMPLES:
            break
    return rows


def _probabilities(scores: np.ndarray) -> np.ndarray:
    """Class probabilities (M, K) from scores, of which there is a single column of two classes."""
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1))


class Prepared:
    """Scaled training samples of mean square length one, and the same map of new samples.

    Machines to which a rotation of the features makes no difference get coordinates of the
    samples' span.
    """

    def __init__(self, scaler: Any, X: Any, rotated: bool) -> None:
        # Counts of words are not centred; the protocol has scaled them.
        scale = (lambda rows: rows) if issparse(X) else scaler.fit(X).transform
        if rotated:
            mean, axes = _span(scale(X))
            self.transform = lambda new: scale(new) @ axes - mean @ axes
        else:
            size = UnitSize().fit(scale(X))
            self.transform = lambda new: size.transform(scale(new))
        self.samples = self.transform(X)


def _span(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,), and axes (D, B) of the span of samples whose mean square length is then one."""
    mean = np.asarray(rows.mean(axis=0)).reshape(-1)
    inner = rows @ rows.T
    gram = inner.toarray() if issparse(inner) else inner
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
    value, vector = eigh(gram)
    kept = value > NO_VARIANCE * value[-1]
    vector = vector[:, kept] / np.sqrt(value[kept] * value.sum() / len(value))
    return mean, rows.T @ vector - np.outer(mean, vector.sum(axis=0))


def signs(y: np.ndarray) -> np.ndarray:
    """Targets in {-1, 1}, (N, K), a single column for two classes."""
    k = int(y.max()) + 1
    return (2.0 * y - 1.0)[:, None] if k == 2 else 2.0 * np.eye(k)[y] - 1.0


def _column(scores: np.ndarray) -> np.ndarray:
    return scores[:, None] if scores.ndim == 1 else scores


def _svm(rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, cost: float) -> np.ndarray:
    model = LinearSVC(C=cost, dual=False, max_iter=5000).fit(rows, y)
    return model.decision_function(new)


def _gaussian(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, cost: float, gamma: float
) -> np.ndarray:
    """One machine for each class against the others; a single one of two classes."""
    columns = [
        SVC(C=cost, gamma=gamma).fit(rows, sign).decision_function(new) for sign in signs(y).T
    ]
    return np.stack(columns, axis=1)


def nearest_centroids(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, threshold: float
) -> np.ndarray:
    """Nearest shrunken centroids of Tibshirani et al. (2002), Eqs. (1) to (8).

    Every standard deviation within classes has their median added, so that features that vary
    little do not decide. Features that vary in no class are left out: their distance is undefined.
    """
    n = len(y)
    member = np.eye(int(y.max()) + 1)[y]
    count = member.sum(axis=0)
    centre = rows.mean(axis=0)
    centroids = member.T @ rows / count[:, None]
    within = np.sqrt(np.sum((rows - centroids[y]) ** 2, axis=0) / max(n - len(count), 1))
    scale = within + np.median(within)
    if not scale.any():  # one sample per class
        scale = rows.std(axis=0)
    kept = scale > 0.0
    scale = scale[kept]
    error = np.sqrt(1.0 / count - 1.0 / n)[:, None] * scale
    contrast = (centroids - centre)[:, kept] / error
    least = threshold * np.abs(contrast).max(initial=0.0)
    contrast = np.sign(contrast) * np.maximum(np.abs(contrast) - least, 0.0)
    shrunken = centre[kept] / scale + contrast * error / scale
    distance = cdist(new[:, kept] / scale, shrunken, "sqeuclidean")
    return _log_odds(np.log(count / n) - distance / 2.0)


def _forest(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, kind: Any, share: Any, seed: int
) -> np.ndarray:
    """One tree votes for all classes alike, so that no probability is 0."""
    model = kind(N_TREES, max_features=share, random_state=seed).fit(rows, y)
    probability = model.predict_proba(new)
    smoothed = (N_TREES * probability + 1.0 / len(model.classes_)) / (N_TREES + 1.0)
    return _log_odds(np.log(smoothed))


def _log_odds(log_probability: np.ndarray) -> np.ndarray:
    """Of the second of two classes; unchanged for more."""
    two = log_probability.shape[1] == 2
    return log_probability[:, 1] - log_probability[:, 0] if two else log_probability


def _reduced(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, reduce: Reduction, size: int, cost: float
) -> np.ndarray:
    model = reduce(min(size, *rows.shape), int(y.max())).fit(rows, y)
    Z, Z_new = model.transform(rows), model.transform(new)
    length = np.sqrt(np.mean(np.sum(Z**2, axis=1)))
    return _svm(Z / length, y, Z_new / length, cost=cost)


def plain(r: int, seed: int) -> list[Machine]:
    """One for each cost."""
    return [partial(_svm, cost=cost) for cost in COSTS]


def gaussian(r: int, seed: int) -> list[Machine]:
    """One for each cost and width."""
    grid = product(KERNEL_COSTS, GAMMAS)
    return [partial(_gaussian, cost=cost, gamma=gamma) for cost, gamma in grid]


def centroids(r: int, seed: int) -> list[Machine]:
    """One for each threshold."""
    return [partial(nearest_centroids, threshold=threshold) for threshold in THRESHOLDS]


def forests(r: int, seed: int, *, kind: Any) -> list[Machine]:
    """One for each share of the features."""
    return [partial(_forest, kind=kind, share=share, seed=seed) for share in SHARES]


def reduced(r: int, seed: int, *, reduce: Reduction) -> list[Machine]:
    """One for each cost, on R components."""
    return [partial(_reduced, reduce=reduce, size=r, cost=c) for c in COSTS]


class Shrunk(LedoitWolf):
    """Ledoit and Wolf's covariance; of two samples, which it does not shrink, that of OAS."""

    def fit(self, X: np.ndarray, y: None = None) -> "Shrunk":
        """Of samples (N, D)."""
        if len(X) > 2:
            super().fit(X)
        else:
            self.covariance_ = OAS(store_precision=False).fit(X).covariance_
        return self


def _discriminants(size: int, most: int) -> LinearDiscriminantAnalysis:
    """Linear discriminants of a shrunk covariance: at most one fewer than there are classes.

    ``shrinkage="auto"`` would give each axis of the samples' span unit variance before it shrinks.
    """
    return LinearDiscriminantAnalysis(
        solver="eigen",
        covariance_estimator=Shrunk(store_precision=False),
        n_components=min(size, most),
    )


REDUCTIONS: dict[str, Reduction] = {
    "PCA": lambda size, _: PCA(size, svd_solver="full"),
    "PLS": lambda size, _: PLSScores(size, scale=False),
    "LDA": _discriminants,
}
FORESTS = {"random forest": RandomForestClassifier, "extra trees": ExtraTreesClassifier}
_FITS: dict[str, Any] = {
    "linear SVM": partial(fit, settings=plain),
    "RBF support vectors": partial(fit, settings=gaussian),
    "nearest shrunken centroids": partial(fit, settings=centroids, rotated=False),
    **{
        name: partial(fit, settings=partial(forests, kind=kind), rotated=False)
        for name, kind in FORESTS.items()
    },
    **{
        f"{name} + SVM": partial(fit, settings=partial(reduced, reduce=reduce))
        for name, reduce in REDUCTIONS.items()
    },
}
METHODS = {
    name: Method(
        fit=each, modules=("benchmarks.methods.tempered",), full=not name.endswith("+ SVM")
    )
    for name, each in _FITS.items()
}
