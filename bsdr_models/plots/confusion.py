"""Confusion matrix."""

from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.stats import binomtest
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

from bsdr_models.plots._read import check_prob, known_classes, label_values
from bsdr_models.plots._style import axes_or_new, set_title, styled

WIDE = 32  # letters that fit on one line below a matrix
MAX_WRITTEN = 15  # largest number of classes with numbers in the cells


def confusion_table(
    tree: xr.DataTree, *, normalize: Literal["true", "pred", "all"] | None = None
) -> xr.DataArray:
    """Counts (or shares) of samples by true and predicted class; see `plot_confusion`.

    Returns
    -------
    DataArray
        (true, predicted), with the classes as coordinates.
    """
    probability, y, names = known_classes(tree)
    predicted = probability.argmax(axis=1)
    table = confusion_matrix(y, predicted, labels=range(len(names)), normalize=normalize)
    classes = label_values(tree, "predictions")
    axes = {"true": classes, "predicted": classes}
    return xr.DataArray(table, coords=axes, name="rows" if normalize is None else "share")


@styled
def plot_confusion(
    tree: xr.DataTree,
    *,
    normalize: Literal["true", "pred", "all"] | None = None,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot true against predicted classes.

    The caption gives the accuracy with its Wilson interval, and the balanced error, the mean over
    classes of their error rates.

    Parameters
    ----------
    tree
        Needs `probability` (obs, outcome) and the true `y` (obs,) in group "predictions".
    normalize
        Shares instead of counts, as in scikit-learn's `confusion_matrix`.
    prob
        Probability of the interval.
    ax
        Axes to draw on; a new figure by default.
    """
    check_prob(prob)
    probability, y, names = known_classes(tree)
    table = confusion_table(tree, normalize=normalize)
    right = probability.argmax(axis=1) == y
    side = float(np.clip(1.9 + 0.5 * len(names), 4.2, 9.0))
    longest = max(len(name) for name in names)
    side += 0.07 * max(longest - 8, 0)
    ax = axes_or_new(ax, width=side + 0.4, height=side)
    display = ConfusionMatrixDisplay(table.values, display_labels=names)
    display.plot(
        ax=ax,
        cmap="Blues",
        colorbar=False,
        include_values=len(names) <= MAX_WRITTEN,
        values_format="d" if normalize is None else ".2f",
        xticks_rotation="vertical" if longest > WIDE // len(names) else "horizontal",
    )
    ax.grid(visible=False)
    ax.set(xlabel="predicted class", ylabel="true class")
    low, high = binomtest(int(right.sum()), len(y)).proportion_ci(prob, method="wilson")
    note = f"{right.sum()} of {len(y)} correct: {right.mean():.1%} ({low:.1%} to {high:.1%})."
    note += f" Balanced error {1.0 - np.mean([right[y == c].mean() for c in np.unique(y)]):.1%}."
    set_title(ax, "Confusion matrix", note)
    return ax
