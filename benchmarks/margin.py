"""BM2PCA, and the linear support vector machines that it is measured against.

All methods choose their settings by the log loss of held-out rows, five folds, and turn scores
into probabilities by the temperature that suited the held-out scores of the chosen setting.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.svm import LinearSVC

from benchmarks.datasets import Split
from bsdr_models.bm2pca import selection
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bm2pca.metric import Spectrum
from bsdr_models.bm2pca.settings import SCALES

# Arguments of BM2PCAClassifier; the others are its defaults.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "paper, one-vs-rest": {"variant": "paper", "strategy": "one_vs_rest"},
    "paper, shared": {"variant": "paper"},
    "label-free, one-vs-rest": {"strategy": "one_vs_rest"},
    "label-free, shared": {},
}
SVM_COSTS = (0.1, 1.0, 10.0, 100.0)

# A rival with all its settings: training rows, their classes, new rows -> scores (M, K) or (M,).
Rival = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def probabilities(
    method: str, split: Split, n_components: int, seed: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """Class probabilities of the test rows, (M, K), and what was chosen."""
    if method in CONFIGURATIONS:
        model = BM2PCAClassifier(
            n_components, standardize=False, random_state=seed, **CONFIGURATIONS[method]
        ).fit(split.X_train, split.y_train)
        names = ("C_", "metric_scale_", "n_sweeps_", "temperature_", "n_iter_")
        record = {name: float(getattr(model, name)) for name in names if hasattr(model, name)}
        return model.predict_proba(split.X_test), record
    y, d = split.y_train, split.X_train.shape[1]
    # All of them are linear and see centred rows, so that coordinates of the span do; the
    # Euclidean metric also scales them by one number, to mean square length one.
    span = Spectrum.fit(split.X_train, signs(y)).metric(np.inf)
    rows, settings = span.A, rivals(method, n_components, d)
    fold = selection.deal_folds(y, np.random.default_rng(seed))

    def scorer(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        found = [_column(rival(rows[train], y[train], rows[test])) for rival in settings]
        return np.stack(found)

    chosen = selection.select(scorer, signs(y), fold, exclusive=True)
    scores = _column(settings[chosen.best](rows, y, span.transform(split.X_test)))
    scores = scores / chosen.temperature
    record = {"setting": chosen.best, "temperature_": chosen.temperature}
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores), expit(scores)]), record
    return softmax(scores, axis=1), record


def rivals(method: str, n_components: int, n_features: int) -> list[Rival]:
    """One for each of the settings that are compared."""
    if method == "linear SVM in the metric":
        grid = product(SCALES, SVM_COSTS)
        return [partial(_in_metric, n_features=n_features, scale=s, cost=c) for s, c in grid]
    if method == "linear SVM":
        return [partial(_svm, cost=c) for c in SVM_COSTS]
    reduce = {"PCA + SVM": _principal, "PLS + SVM": _least_squares}[method]
    return [partial(_reduced, reduce=reduce, size=n_components, cost=c) for c in SVM_COSTS]


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
    reduce: Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]],
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
