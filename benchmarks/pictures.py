"""Plots of single fits, as in the papers, on one split of each set.

    python -m benchmarks pictures --only vowel-maps
    python -m benchmarks pictures --folder pictures

Unavailable sets are left out. Every plot is a PNG of less than 60 kB.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.charts import name_ends, save
from benchmarks.methods import METHODS, models
from benchmarks.methods.base import Fitted
from benchmarks.page import command
from benchmarks.protocols import Split, first_samples, per_class
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier
from bsdr_models.plots._style import INK, STYLE, color, marker

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
# Test samples of a class that a map shows.
N_SHOWN = 30
MAPS = ("PCA", "LDA", "NCA", "mean field", "BSDR")
# The split that is drawn.
SEED = 300


def fit(method: str, split: Split, n_components: int) -> Fitted:
    """A fit with seed 0."""
    return METHODS[method].fit(split.training, n_components, 0)


def scatter(ax: Axes, Z: np.ndarray, y: np.ndarray) -> None:
    """Latent coordinates (M, 2), a colour and a marker for each class."""
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)[:N_SHOWN]
        x, y_axis = Z[rows].T
        ax.scatter(
            x, y_axis, s=9, color=color(label), marker=marker(label), linewidths=0, alpha=0.8
        )
    ax.set(xticks=[], yticks=[])


def maps(source: str) -> Figure:
    """Maps of test samples and confusion matrices, as in Figs. 4 and 5 of Gönen (2013)."""
    split = per_class(source, (100,), SEED)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            2, len(MAPS), figsize=(2.5 * len(MAPS), 5.2), layout="constrained"
        )
        for (above, below), method in zip(axes.T, MAPS, strict=True):
            fitted = fit(method, split, 2)
            assert fitted.transform is not None
            found = fitted.predict(split.X_test).argmax(axis=1)
            scatter(above, fitted.transform(split.X_test), split.y_test)
            right = 100.0 * np.mean(found == split.y_test)
            above.set_title(f"{method}, {right:.1f} %", fontsize=10)
            _matrix(below, confusion_matrix(split.y_test, found, normalize="true"))
        axes[1, 0].set_ylabel("true class")
    return figure


def _matrix(ax: Axes, share: np.ndarray) -> None:
    """Shares of each true class by predicted class, in per cent where at least one."""
    shown = ConfusionMatrixDisplay(100.0 * share).plot(
        ax=ax,
        cmap="Blues",
        colorbar=False,
        values_format=".0f",
        text_kw={"fontsize": 5.5},
        im_kw={"vmin": 0.0, "vmax": 100.0},
    )
    for text, part in zip(shown.text_.flat, share.flat, strict=True):
        text.set_visible(part >= 0.01)
    ax.tick_params(labelsize=7, length=0)
    ax.set_xlabel("predicted", fontsize=9)
    ax.set_ylabel("")
    ax.grid(visible=False)


def projections() -> Figure:
    """Projections of Vowel under three priors, as in Fig. 6 of Gönen (2013)."""
    split = per_class("vowel", (100,), SEED)
    with mpl.rc_context(STYLE):
        names = ("mean field", "ARD", "ARD, 160 iterations")
        figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.8), layout="constrained")
        for ax, name in zip(axes, names, strict=True):
            model = models.fit(split.training, 8, 0, method=name)
            live = models.record(model)["live_by_norm"]
            Q = model.components_.T[:, np.argsort(-np.linalg.norm(model.components_, axis=1))]
            limit = np.abs(Q).max()
            ax.imshow(Q, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
            ax.set_title(f"{name}: {live} of 8", fontsize=10)
            ax.set(xlabel="component, longest first", xticks=range(8), xticklabels=range(1, 9))
            ax.grid(visible=False)
        axes[0].set_ylabel("feature")
    return figure


def bounds() -> Figure:
    """The bound by iteration, as in Fig. 7 of Gönen (2013); Flickr is not available."""
    cases = {"vowel": (100,), "mfeat": (100,), "usps": (100, 100)}
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), layout="constrained")
        for ax, (source, sizes) in zip(axes, cases.items(), strict=True):
            split = per_class(source, sizes, SEED)
            for index, r in enumerate((5, 10)):
                model = PaperBSDRClassifier(r, random_state=0)
                bound = model.fit(split.X_train, split.y_train).lower_bounds_
                iteration = np.arange(1, len(bound) + 1)
                ax.plot(iteration, bound, color=color(index), label=f"R = {r}")
            ax.set(title=source, xlabel="iteration", xscale="log")
        axes[0].set_ylabel("bound, nats")
        name_ends(axes)
    return figure


def two_clusters(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two clusters of 50 points in the plane, and three features of correlated noise."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], 50)
    plane = rng.standard_normal((100, 2)) + np.array([[-2.0, 0.0], [2.0, 0.0]])[y]
    root = 2.0 * rng.standard_normal((3, 3))
    return np.column_stack([plane, 5.0 * rng.standard_normal((100, 3)) @ root]), y


def synthetic() -> Figure:
    """PCA, BM2PCA and the paper's BM2PCA on simulated data, as in Fig. 1 of Du et al. (2015)."""
    X, y = two_clusters()
    order = np.random.default_rng(1).permutation(100)
    train = order[:50]
    test = np.setdiff1d(np.arange(100), train)
    models: dict[str, Any] = {
        "PCA of all samples": PCA(2).fit(X),
        "BM2PCA, paper": PaperBM2PCAClassifier(2, standardize=False, random_state=0),
        "BM2PCA": BM2PCAClassifier(1, random_state=0),
    }
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.2), layout="constrained")
        for ax, (name, model) in zip(axes, models.items(), strict=True):
            title = name
            if not isinstance(model, PCA):
                model.fit(X[train], y[train])
                title = f"{name}: {100 * model.score(X[test], y[test]):.0f} % of test samples"
            Z = model.transform(X)
            if Z.shape[1] == 1:  # one direction separates two classes; strips for the halves
                height = np.isin(np.arange(100), train) + np.linspace(-0.2, 0.2, 100)[order]
                Z = np.column_stack([Z, height])
                ax.set_yticks([0.0, 1.0], ["test", "training"])
                ax.set_ylim(-1.0, 2.0)
            for rows, filled in ((train, True), (test, False)):
                for label in (0, 1):
                    chosen = rows[y[rows] == label]
                    face = color(label) if filled else "none"
                    ax.scatter(*Z[chosen].T, s=20, facecolor=face, edgecolor=color(label))
            ax.set_title(title, fontsize=10)
        axes[0].annotate(
            "filled: training samples",
            (0.02, 0.02),
            xycoords="axes fraction",
            fontsize=8.5,
            color=INK,
        )
    return figure


def oil() -> Figure:
    """Oil flow, test samples by weight of the prior; Fig. 1 of Urtasun and Darrell (2007)."""
    split = first_samples("oil", (100,), SEED)
    names = ["D-GPLVM, paper, weight 100", "D-GPLVM, paper", "D-GPLVM, paper, weight 1e+07"]
    names += ["D-GPLVM, weight 0.03", "D-GPLVM", "D-GPLVM, infinite weight"]
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(2, 3, figsize=(9.0, 5.6), layout="constrained")
        for ax, name in zip(axes.ravel(), names, strict=True):
            fitted = fit(name, split, 2)
            assert fitted.transform is not None
            wrong = np.mean(fitted.predict(split.X_test).argmax(axis=1) != split.y_test)
            scatter(ax, fitted.transform(split.X_test), split.y_test)
            title = name.removeprefix("D-GPLVM, ").replace("D-GPLVM", "default")
            ax.set_title(f"{title}: error {wrong:.3f}", fontsize=10)
    return figure


# Data sets that a plot needs, and its function.
PICTURES: dict[str, tuple[tuple[str, ...], Callable[[], Figure]]] = {
    "vowel-maps": (("vowel",), partial(maps, "vowel")),
    "mfeat-maps": (("mfeat",), partial(maps, "mfeat")),
    "projections": (("vowel",), projections),
    "bounds": (("vowel", "mfeat", "usps"), bounds),
    "synthetic": ((), synthetic),
    "oil-maps": (("oil",), oil),
}


def main() -> None:
    parser = command("benchmarks pictures", __doc__)
    parser.add_argument("--only", choices=PICTURES, nargs="+", default=list(PICTURES))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    for name in arguments.only:
        needs, draw = PICTURES[name]
        reasons = [f"{source}: {datasets.why_not(source)}" for source in needs]
        if any(datasets.why_not(source) for source in needs):
            print(f"{name}: left out; {', '.join(reasons)}")
            continue
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that stop at their limit are part of the picture
            save(draw(), arguments.folder / f"{name}.png")
        print(f"{name}: drawn", flush=True)


if __name__ == "__main__":
    main()
