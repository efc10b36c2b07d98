"""Linear support vector machines, on all features or on few, with probabilities.

Settings are chosen by the log loss of five folds; a temperature fitted to the held-out scores
of the chosen setting gives probabilities.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.svm import LinearSVC

from benchmarks.methods.base import Fitted, Method, scaler_of, spread
from benchmarks.protocols import Training
from bsdr_models.bm2pca import selection
from bsdr_models.bm2pca.label_free.within_class_metric import Spectrum
from bsdr_models.bm2pca.settings import SCALES
from bsdr_models.numerics.folds import assign_folds, sample_keys

COSTS = (0.1, 1.0, 10.0, 100.0)
# Cost C of the machine with a fixed one, on samples of mean square length one.
FIXED_COST = 100.0

# Machine with fixed settings: training samples, classes, new samples -> scores (M, K) or (M,).
Machine = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# Training samples, classes, new samples, size -> latent coordinates of both.
Reduction = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
# Number of components, of features, of classes -> one machine for each setting.
Settings = Callable[[int, int], list[Machine]]


def fit(
    training: Training, n_components: int, seed: int, *, settings: Settings, scaled: bool = True
) -> Fitted:
    """Choose a setting, then fit its machine to all training samples."""
    scale = scaler_of(training) if scaled else lambda rows: rows
    X = scale(training.X)
    classes, y = np.unique(training.y, return_inverse=True)
    # All are linear with centred samples, so that coordinates of their span suffice; the
    # Euclidean metric also scales them by one number, to mean square length one.
    span = Spectrum.fit(X, signs(y)).metric(np.inf)
    rows, machines = span.A, settings(n_components, X.shape[1])
    fold = assign_folds(y, sample_keys(X), n_folds=selection.N_FOLDS)

    def scorer(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        found = [_column(machine(rows[train], y[train], rows[test])) for machine in machines]
        return np.stack(found)

    encoded = signs(y)
    chosen = selection.select(scorer, encoded, fold, sizes=(encoded.shape[1],))
    best, temperature = (0, 1.0) if chosen is None else (chosen.best, chosen.temperature)

    def predict(new: Any) -> np.ndarray:
        scores = _column(machines[best](rows, y, span.transform(scale(new)))) / temperature
        if scores.shape[1] == 1:
            found = np.column_stack([expit(-scores), expit(scores)])
        else:
            found = softmax(scores, axis=1)
        return spread(found, classes, training.n_classes)

    return Fitted(predict=predict, record={"setting": best, "temperature_": temperature})


def signs(y: np.ndarray) -> np.ndarray:
    """Targets in {-1, 1}, (N, K), a single column for two classes."""
    k = int(y.max()) + 1
    return (2.0 * y - 1.0)[:, None] if k == 2 else 2.0 * np.eye(k)[y] - 1.0


def _column(scores: np.ndarray) -> np.ndarray:
    return scores[:, None] if scores.ndim == 1 else scores


def _svm(rows: np.ndarray, y: np.ndarray, new: np.ndarray, *, cost: float) -> np.ndarray:
    model = LinearSVC(C=cost, dual=False, max_iter=5000).fit(rows, y)
    return model.decision_function(new)


def _in_metric(
    rows: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    *,
    n_features: int,
    scale: float,
    cost: float,
) -> np.ndarray:
    spectrum = Spectrum.fit(rows, signs(y), n_features=n_features)
    metric = spectrum.metric(scale if spectrum.varies else np.inf)
    return _svm(metric.A, y, metric.transform(new), cost=cost)


def _reduced(
    rows: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    *,
    reduce: Reduction,
    size: int,
    cost: float,
) -> np.ndarray:
    Z, Z_new = reduce(rows, y, new, min(size, *rows.shape))
    length = np.sqrt(np.mean(np.sum(Z**2, axis=1)))
    return _svm(Z / length, y, Z_new / length, cost=cost)


def _principal(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    model = PCA(size, svd_solver="full").fit(rows)
    return model.transform(rows), model.transform(new)


def _least_squares(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    model = PLSRegression(size, scale=False).fit(rows, np.eye(int(y.max()) + 1)[y])
    return model.transform(rows), model.transform(new)


def _discriminants(
    rows: np.ndarray, y: np.ndarray, new: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """As many as there are, if fewer than asked for."""
    model = LinearDiscriminantAnalysis(n_components=min(size, int(y.max()))).fit(rows, y)
    return model.transform(rows), model.transform(new)


def plain(r: int, d: int) -> list[Machine]:
    """One for each cost."""
    return [partial(_svm, cost=cost) for cost in COSTS]


def in_metric(r: int, d: int) -> list[Machine]:
    """One for each cost and each scale of the within-class metric."""
    grid = product(SCALES, COSTS)
    return [partial(_in_metric, n_features=d, scale=s, cost=c) for s, c in grid]


def reduced(r: int, d: int, *, reduce: Reduction) -> list[Machine]:
    """One for each cost, on R components."""
    return [partial(_reduced, reduce=reduce, size=r, cost=c) for c in COSTS]


def fixed(r: int, d: int) -> list[Machine]:
    """A single one."""
    return [partial(_svm, cost=FIXED_COST)]


_FITS: dict[str, Any] = {
    "linear SVM": partial(fit, settings=plain),
    "linear SVM in the metric": partial(fit, settings=in_metric),
    "PCA + SVM": partial(fit, settings=partial(reduced, reduce=_principal)),
    "PLS + SVM": partial(fit, settings=partial(reduced, reduce=_least_squares)),
    "LDA + SVM": partial(fit, settings=partial(reduced, reduce=_discriminants)),
    "linear SVM, C chosen": partial(fit, settings=plain, scaled=False),
    "linear SVM, C = 100": partial(fit, settings=fixed, scaled=False),
}
METHODS = {
    name: Method(
        fit=each,
        modules=("benchmarks.methods.support_vectors",),
        full=name.startswith("linear SVM"),
    )
    for name, each in _FITS.items()
}
