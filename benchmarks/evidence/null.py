"""The models on noise and on weak signals.

A supervised map of training samples shows classes of pure noise, and predictions of a weak signal
may be worse than the class frequencies.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.page import table
from benchmarks.pictures import scatter
from bsdr_models import BM2PCAClassifier, BSDRClassifier, DGPLVMClassifier
from bsdr_models.compare.baselines import Folds, logistic_regression
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.plots._style import STYLE

N_SEEDS, N_CLASSES, R, NEIGHBOURS = 10, 3, 2, 3
# Differences of class means, in standard deviations of a feature.
EFFECTS = (0.0, 1.0, 1.5, 2.0, 3.0)
# Largest log loss that counts as noise; uniform probabilities have 1.099.
AIM = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Training samples, features, new samples, repetitions, and differences of class means."""

    n_train: int = 60
    n_features: int = 200
    n_new: int = 2000
    n_seeds: int = N_SEEDS
    effect: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Normal features and labels, on which a feature of each class may depend."""

    X: FloatArray
    y: IntArray
    X_new: FloatArray
    y_new: IntArray


def lda() -> Any:
    """Shrinkage LDA with its own probabilities and discriminants."""
    discriminant = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=R)
    return make_pipeline(StandardScaler(), discriminant)


METHODS: dict[str, Callable[[int], Any]] = {
    "BSDR": lambda seed: BSDRClassifier(n_components=R, random_state=seed),
    "BM2PCA": lambda seed: BM2PCAClassifier(n_components=R, random_state=seed),
    "D-GPLVM": lambda seed: DGPLVMClassifier(n_components=R, random_state=seed),
    "shrinkage LDA": lambda seed: lda(),
}

# Beside them where there is a signal.
PENALISED = {"logistic regression": lambda seed: logistic_regression(Folds(random_state=seed))}


def report(pictures: Path, size: Size | None = None) -> str:
    """Table of scores; writes ``null.png``, the maps of the first seed."""
    size = size or Size()
    rows, shown = [], {}
    for name, make in METHODS.items():
        found = []
        for seed in range(size.n_seeds):
            data = noise(size, seed)
            begin = time.process_time()
            model = make(seed).fit(data.X, data.y)
            seconds = time.process_time() - begin
            placed = maps(model, data)
            found.append((*measure(model, *placed, data), seconds))
            if seed == 0:
                shown[name] = list(zip(placed, (data.y, data.y_new), strict=True))
        loss, train, new, seconds = np.array(found).T
        rows.append(
            [
                name,
                f"{loss.mean():.3f}",
                f"{loss.max():.3f}",
                f"{np.sum(loss > AIM)} of {len(loss)}",
                f"{train.mean():.2f}",
                f"{new.mean():.3f}",
                f"{np.median(seconds):.2f}",
            ]
        )
    draw(shown).savefig(pictures / "null.png", dpi=72)
    head = ["method", "log loss, mean", "worst", f"above {AIM}", "3-NN, training map"]
    head += ["3-NN, new samples", "fit s"]
    return (
        f"{size.n_train} samples, {size.n_features} features, {N_CLASSES} arbitrary labels, "
        f"{size.n_new} new samples, {size.n_seeds} seeds.\n\n" + table(head, rows)
    )


def report_weak(pictures: Path, size: Size | None = None) -> str:
    """Table of log losses by the strength of the signal, and of warnings that there is none."""
    size = size or Size()
    rows = []
    for name, make in (METHODS | PENALISED).items():
        cells = []
        for effect in EFFECTS:
            losses, doubted = [], 0
            for seed in range(size.n_seeds):
                data = noise(replace(size, effect=effect), seed)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model = make(seed).fit(data.X, data.y)
                doubted += any("no evidence" in str(each.message) for each in caught)
                losses.append(log_loss(data.y_new, model.predict_proba(data.X_new)))
            cells.append(f"{np.mean(losses):.3f}, {max(losses):.3f}, {doubted} of {len(losses)}")
        rows.append([name, *cells])
    return (
        f"{size.n_train} samples, {size.n_features} features, {N_CLASSES} classes, {size.n_new} "
        f"new samples, {size.n_seeds} seeds. Mean log loss, the worst, and fits that warn.\n\n"
        + table(["method", *(f"effect {effect:g}" for effect in EFFECTS)], rows)
    )


def noise(size: Size, seed: int) -> Noise:
    """One data set, its labels balanced."""
    rng = np.random.default_rng([7, seed])
    X = rng.standard_normal((size.n_train + size.n_new, size.n_features))
    y, y_new = (rng.permutation(np.arange(n) % N_CLASSES) for n in (size.n_train, size.n_new))
    X[:, :N_CLASSES] += size.effect * np.eye(N_CLASSES)[np.concatenate([y, y_new])]
    return Noise(X=X[: size.n_train], y=y, X_new=X[size.n_train :], y_new=y_new)


def maps(model: Any, data: Noise) -> tuple[FloatArray, FloatArray]:
    """Latent coordinates of the training samples and of new ones."""
    own = hasattr(model, "idata_")
    train = model.idata_["fit/latent_mean"].values if own else model.transform(data.X)
    return train, model.transform(data.X_new)


def measure(
    model: Any, train: FloatArray, new: FloatArray, data: Noise
) -> tuple[float, float, float]:
    """Log loss on new samples; accuracy of 3-NN in the map, leave-one-out and on new samples."""
    probability = model.predict_proba(data.X_new)
    own = np.maximum(probability[np.arange(len(data.y_new)), data.y_new], 1e-300)
    neighbours = KNeighborsClassifier(NEIGHBOURS)
    seen = cross_val_score(neighbours, train, data.y, cv=LeaveOneOut()).mean()
    unseen = neighbours.fit(train, data.y).score(new, data.y_new)
    return float(-np.log(own).mean()), float(seen), float(unseen)


def draw(shown: dict[str, list[tuple[FloatArray, IntArray]]]) -> Figure:
    """Training samples above, new samples below, a column for each method."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            2, len(shown), figsize=(2.5 * len(shown), 5.0), sharex="col", sharey="col",
            layout="constrained",
        )  # fmt: skip
        for (name, parts), column in zip(shown.items(), axes.T, strict=True):
            for ax, (Z, y) in zip(column, parts, strict=True):
                scatter(ax, Z, y)
            column[0].set_title(name, fontsize=10)
        axes[0, 0].set_ylabel("training samples")
        axes[1, 0].set_ylabel("new samples")
    return figure
