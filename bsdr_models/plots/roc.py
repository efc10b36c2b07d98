"""ROC curves, and areas under them."""

from collections.abc import Hashable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sklearn.metrics import roc_curve

from bsdr_models.arrays import BoolArray, FloatArray
from bsdr_models.dims import LABEL
from bsdr_models.metrics import Estimate, area_under_curve
from bsdr_models.plots._read import check_label, check_prob, known_labels
from bsdr_models.plots._style import (
    GREY,
    PALETTE,
    add_legend,
    axes_or_new,
    color,
    set_title,
    styled,
)

STROKES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))  # each for ten classes


def roc_table(tree: xr.DataTree, *, prob: float = 0.9) -> xr.Dataset:
    """Area under the ROC curve of every class (one-vs-rest) or label.

    Parameters
    ----------
    tree
        As for `plot_roc`.
    prob
        Probability of an interval.

    Returns
    -------
    Dataset
        `auc` with its interval `low` to `high`, and `n_samples` of the class, (outcome,). A class
        that no sample or every sample has is left out.
    """
    check_prob(prob)
    stated, happened, labels = known_labels(tree)
    areas = _areas(stated, happened, range(len(labels)), prob)
    return xr.Dataset(
        {
            "auc": (LABEL, [area.value for area in areas.values()]),
            "low": (LABEL, [area.low for area in areas.values()]),
            "high": (LABEL, [area.high for area in areas.values()]),
            "n_samples": (LABEL, happened.sum(axis=0)[list(areas)]),
        },
        coords={LABEL: [labels[c] for c in areas]},
    )


@styled
def plot_roc(
    tree: xr.DataTree,
    *,
    label: Hashable | None = None,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot ROC curves: true positive rate against false positive rate.

    One curve per class (one-vs-rest); of two classes only the second, since the other curve is its
    mirror image. The area is the probability that a sample of the class has a larger predicted
    probability than a sample of the rest.

    Parameters
    ----------
    tree
        Needs `probability` (obs, outcome) and the true `y` in group "predictions": classes (obs,),
        or yes and no (obs, outcome).
    label
        Show only this class or label.
    prob
        Probability of the interval of an area.
    ax
        Axes to draw on; a new figure by default.
    """
    check_prob(prob)
    stated, happened, labels = known_labels(tree)
    shown = list(range(len(labels)))
    if label is not None:
        shown = [check_label(label, labels)]
    elif tree["predictions/y"].ndim == 1 and len(labels) == 2:
        shown = [1]
    areas = _areas(stated, happened, shown, prob)
    if not areas:
        raise ValueError("a ROC curve needs samples of the class and samples of the rest")
    ax = axes_or_new(ax, width=5.4 if len(areas) == 1 else 7.8, height=5.2, n_names=len(areas))
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=1.0, linestyle="--", zorder=1)
    for c, area in areas.items():
        wrong, found, _ = roc_curve(happened[:, c], stated[:, c], drop_intermediate=False)
        stroke = STROKES[c // len(PALETTE) % len(STROKES)]
        text = f"{labels[c]}  {area.value:.3f}"
        ax.plot(wrong, found, color=color(c), linewidth=1.8, linestyle=stroke, label=text)
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    left_out = len(shown) - len(areas)
    note = f"Not drawn: {left_out} without samples of both kinds. " * bool(left_out)
    if len(areas) == 1:
        ((c, area),) = areas.items()
        title = f"Area under the curve {area}"
        note += f"{labels[c]!s} against the rest; {prob:.0%} interval."
    else:
        title = "One-vs-rest ROC curves"
        if tree["predictions/y"].ndim == 2:
            title = "ROC curves of the labels"
        mean = np.mean([area.value for area in areas.values()])
        widest = max(area.high - area.low for area in areas.values())
        note += f"Mean area {mean:.3f}; {prob:.0%} intervals are at most {widest:.3f} wide."
        add_legend(ax, title="label, area" if tree["predictions/y"].ndim == 2 else "class, area")
    set_title(ax, title, note)
    return ax


def _areas(
    stated: FloatArray, happened: BoolArray, shown: list[int] | range, prob: float
) -> dict[int, Estimate]:
    """Areas of the columns that have samples of both kinds."""
    both = happened.any(axis=0) & ~happened.all(axis=0)
    return {c: area_under_curve(stated[:, c], happened[:, c], prob=prob) for c in shown if both[c]}
