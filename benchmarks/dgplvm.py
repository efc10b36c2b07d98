"""D-GPLVM, and the classifiers that it is measured against.

Every method sees the same rows. Settings are chosen on training rows alone: by D-GPLVM in closed
form, by Gaussian process classification through its evidence, by the support vector machine that
chooses its cost through the log loss of held-out rows.
"""

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.special import expit, softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.svm import LinearSVC

from benchmarks import margin
from benchmarks.datasets import Split
from bsdr_models import BSDRClassifier, DGPLVMClassifier
from bsdr_models.bm2pca import selection

# Arguments of DGPLVMClassifier besides n_components and random_state.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "D-GPLVM": {},
    "D-GPLVM, weight 3": {"weight": 3.0},
    "D-GPLVM, infinite weight": {"weight": np.inf},
    "D-GPLVM, by likelihood": {"placement": "likelihood"},
    "D-GPLVM, Laplace": {"approximation": "laplace"},
    "D-GPLVM, EP": {"approximation": "ep"},
    "D-GPLVM, paper": {"variant": "paper"},
}
# Cost of the support vector machine that chooses none, on rows of mean square length one.
FIXED_COST = 100.0
# Variance of the latent functions of the classifier whose kernel is not fitted.
AMPLITUDE = 100.0


def probabilities(
    method: str, split: Split, n_components: int, seed: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """Class probabilities of the test rows, (M, K), and what the fit says of itself.

    A class without training rows has probability 0, unless the method says otherwise.
    """
    X, y, new = split.X_train, split.y_train, split.X_test
    n_classes = int(max(y.max(), split.y_test.max())) + 1
    record: dict[str, Any] = {}
    if method in CONFIGURATIONS:
        model = DGPLVMClassifier(n_components, random_state=seed, **CONFIGURATIONS[method])
        model.fit(X, y)
        record = {
            "converged": bool(model.converged_),
            "n_iter": int(model.n_iter_),
            "map_width": float(getattr(model, "map_width_", np.nan)),
            "map_noise": float(getattr(model, "map_noise_", np.nan)),
            "standardized": bool(model.standardized_),
        }
    elif method == "linear SVM, C = 100":
        return support_vectors(split, seed)
    elif method == "linear SVM, C chosen":
        return margin.probabilities("linear SVM", split, n_components, seed)
    elif method == "BM2PCA":
        return margin.probabilities("label-free, one-vs-rest", split, n_components, seed)
    elif method == "BSDR":
        model = BSDRClassifier(n_components, random_state=seed).fit(X, y)
    elif method == "LDA, Ledoit-Wolf":
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X, y)
    else:
        model = gaussian_process(X, fitted=method == "GPC").fit(X, y)
    found = np.zeros((len(new), n_classes))
    found[:, model.classes_] = model.predict_proba(new)
    return found, record


def gaussian_process(X: np.ndarray, *, fitted: bool) -> GaussianProcessClassifier:
    """Classifier of the features that starts at the median distance between rows.

    Unscaled, with a length-scale of 1, nearly all rows are uncorrelated and it is at chance.
    """
    length = float(np.median(pdist(X)))
    amplitude = ConstantKernel(1.0 if fitted else AMPLITUDE, (1e-3, 1e5))
    kernel = amplitude * RBF(length, (1e-2 * length, 1e2 * length))
    optimizer = "fmin_l_bfgs_b" if fitted else None
    return GaussianProcessClassifier(kernel, optimizer=optimizer, max_iter_predict=100)


def support_vectors(split: Split, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """A linear support vector machine of one cost; its temperature is that of held-out scores."""
    y, mean = split.y_train, split.X_train.mean(axis=0)
    rows, new = split.X_train - mean, split.X_test - mean
    length = np.sqrt(np.mean(np.sum(rows**2, axis=1)))
    rows, new = rows / length, new / length

    def scores(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        model = LinearSVC(C=FIXED_COST, dual=True, max_iter=20_000, random_state=seed)
        found = model.fit(rows[train], y[train]).decision_function(test)
        return found[:, None] if found.ndim == 1 else found

    fold = selection.deal_folds(y, np.random.default_rng(seed))
    chosen = selection.select(
        lambda train, test: scores(train, rows[test])[None],
        margin.signs(y),
        fold,
        exclusive=True,
    )
    found = scores(np.arange(len(y)), new) / chosen.temperature
    record = {"temperature_": chosen.temperature}
    if found.shape[1] == 1:
        return np.column_stack([expit(-found), expit(found)]), record
    return softmax(found, axis=1), record
