"""Pictures of the predictions of any classifier, and of features by class, for reports."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.special import betaincinv
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay

from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.association import FOUND
from bsdr_models.plots._read import Classes, read_target
from bsdr_models.plots._style import INK, POSITIVE, axes_or_new, color, literal, styled
from bsdr_models.plots.map import Shown, draw_map

# With a name and a caption.
type Picture = tuple[Axes, str, str]

# Most classes whose counts are written into the confusion matrix, and that box plots show.
MOST_CLASSES = 12
N_BOXES = 4  # features with box plots
ROUNDING = 1e-6  # of the mean of centred features
N_BINS = 5  # of the reliability: groups of equally many samples
PROB = 0.9  # of the intervals of the reliability
WIDTH = 4.0  # of pictures in inches, readable on a phone
HEIGHT = 3.6
MAP = (
    "Each point is a sample. Samples with similar predictions are near each other, those between "
    "two classes are doubtful. Colour and marker are the true class, the background is the "
    "predicted one, in steps from a probability of 50, 70 and 90%. Hollow points are predicted "
    "with less than 70%, ringed ones wrongly."
)
CONFUSION = "Numbers of samples by their true class, and by the predicted one."
RELIABILITY = (
    "How far probabilities can be trusted: of predictions made with 80%, eight in ten should be "
    f"right, so that points lie on the diagonal. Lines are intervals of {PROB:.0%}."
)
ROC = "The area under the curve (AUC) is 1 if the classes separate, and 0.5 by chance."


def draw_predictions(shown: Shown) -> Iterator[Picture]:
    """Map of samples and, of those with a known class, confusion, reliability and ROC curve."""
    yield _map(shown), "Map", MAP
    samples = shown.samples
    known = samples.truth >= 0
    if samples.probability is None or not known.any() or not isinstance(samples.target, Classes):
        return
    p = samples.probability[known]
    index = samples.target.index[known]
    names = [literal(name) for name in samples.target.names]
    yield _confusion(p.argmax(axis=1), index, names), "Confusion matrix", CONFUSION
    yield _reliability(p.max(axis=1), p.argmax(axis=1) == index), "Reliability", RELIABILITY
    if len(names) == 2 and len(np.unique(index)) == 2:
        yield _roc(p[:, 1], index, names), "ROC curve", ROC


@styled
def _map(shown: Shown) -> Axes:
    """Map without header, and without a legend if classes are named in it."""
    ax = axes_or_new(None, width=5.2, height=4.6)
    draw_map(replace(shown, header="", verdict=None), ax=ax)
    ax.set_title("", loc="left")
    if shown.convinced and (legend := ax.get_legend()) is not None:
        legend.remove()
    return ax


@styled
def _confusion(predicted: IntArray, index: IntArray, names: list[str]) -> Axes:
    """Counts of predicted classes (M,) by true ones (M,)."""
    ax = axes_or_new(None, width=WIDTH, height=HEIGHT)
    ConfusionMatrixDisplay.from_predictions(
        index,
        predicted,
        labels=np.arange(len(names)),
        display_labels=names,
        include_values=len(names) <= MOST_CLASSES,
        xticks_rotation=_rotation(names, 36),
        cmap="Blues",
        colorbar=False,
        ax=ax,
    )
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.grid(visible=False)
    ax.tick_params(labelsize=float(np.clip(160.0 / len(names), 4.0, 10.0)))
    return ax


@styled
def _reliability(stated: FloatArray, right: BoolArray) -> Axes:
    """Share of right predictions by their probability, (M,) each, in groups of samples."""
    ax = axes_or_new(None, width=WIDTH, height=HEIGHT)
    parts = np.array_split(np.argsort(stated, kind="stable"), min(N_BINS, len(stated)))
    n = np.array([len(part) for part in parts])
    hits = np.array([right[part].sum() for part in parts])
    x = np.array([stated[part].mean() for part in parts])
    # Jeffreys intervals, which have a width also where all predictions are right.
    low, high = betaincinv(hits + 0.5, n - hits + 0.5, [[0.5 - PROB / 2.0], [0.5 + PROB / 2.0]])
    ax.plot([0.0, 1.0], [0.0, 1.0], color=INK, linestyle=":", zorder=1)
    ax.vlines(x, low, high, color=POSITIVE)
    ax.plot(x, hits / n, color=POSITIVE, marker="s")
    ends = (np.floor(10.0 * min(low.min(), x.min())) / 10.0, 1.02)
    ax.set(xlim=ends, ylim=ends, xlabel="probability of the predicted class", ylabel="share right")
    count = f"{n.min()}" if n.min() == n.max() else f"{n.min()} or {n.max()}"
    ax.set_title(f"{count} samples a point", fontsize=9.5, fontweight="normal")
    return ax


@styled
def _roc(p: FloatArray, index: IntArray, names: list[str]) -> Axes:
    """ROC curve of the probability (M,) of the second of two classes."""
    ax = axes_or_new(None, width=WIDTH, height=HEIGHT)
    curve = RocCurveDisplay.from_predictions(index, p, ax=ax, plot_chance_level=True)
    curve.line_.set(color=POSITIVE, label=f"AUC {curve.roc_auc:.2f}")
    ax.set(xlabel=f"share of {names[0]} called {names[1]}", ylabel=f"share of {names[1]} found")
    ax.legend(loc="lower right")
    return ax


def draw_boxes(tree: xr.DataTree) -> Iterator[Picture]:
    """Values of the first features that are found, by class; boxes hold the middle half."""
    if not {"fit", "constant_data"} <= set(tree.children) or "explained" not in tree["fit"]:
        return
    fit = tree["fit"].to_dataset()
    classes = read_target(tree, "fit")
    if not isinstance(classes, Classes) or len(classes.names) > MOST_CLASSES:
        return
    first = fit.isel({FEATURE: np.argsort(-fit["explained"].values, kind="stable")[:N_BOXES]})
    X = tree["constant_data"].to_dataset()["X"]
    unit = "SD from the mean" if abs(X.mean()) < ROUNDING else ""
    for name in first[FEATURE][first["false_discovery_rate"].values <= FOUND].values:
        yield _boxes(X.sel({FEATURE: name}).values, classes, unit), "Box plots", str(name)


@styled
def _boxes(values: FloatArray, classes: Classes, unit: str) -> Axes:
    """Box plots of a feature (N,), one for each class; without missing values."""
    ax = axes_or_new(None, width=2.4, height=2.2)
    names = [literal(each) for each in classes.names]
    known = np.isfinite(values)
    parts = [values[known & (classes.index == c)] for c in range(len(names))]
    boxes = ax.boxplot(parts, patch_artist=True, widths=0.6, medianprops={"color": INK})
    for c, box in enumerate(boxes["boxes"]):
        box.set_facecolor(color(c))
    ax.set_xticks(ax.get_xticks(), names, rotation=_rotation(names, 24))
    ax.set_ylabel(unit)
    return ax


def _rotation(names: list[str], room: int) -> float:
    """Rotation of names that have room for so many letters."""
    return 90.0 if len(names) * max(map(len, names)) > room else 0.0
