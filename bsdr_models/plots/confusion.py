"""Confusion matrix."""

from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from bsdr_models.plots._read import check_prob, known_classes, label_values
from bsdr_models.plots._style import INK, NOTE_SIZE, axes_or_new, ink_on, set_title, styled

WIDE = 32  # letters that fit on one line below a matrix
MAX_WRITTEN = 26  # largest number of classes with numbers in the cells
MAX_NAMED = 3  # confusions in the caption
RIGHT = LinearSegmentedColormap.from_list("right", ["#eef0f2", "#5d6878"])
WRONG = LinearSegmentedColormap.from_list("wrong", ["#fdece6", "#bd1f01"])


def confusion_table(
    tree: xr.DataTree, *, normalize: Literal["true", "pred", "all"] | None = None
) -> xr.DataArray:
    """Counts (or shares) of samples by true and predicted class; see `plot_confusion`.

    Returns
    -------
    DataArray
        (true, predicted), with the classes as coordinates.

    See Also
    --------
    plot_confusion : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> int(plots.confusion_table(tree).sum())
    89
    """
    probability, y, names = known_classes(tree)
    predicted = probability.argmax(axis=1)
    table = confusion_matrix(y, predicted, labels=range(len(names)), normalize=normalize)
    classes = label_values(tree, "predictions")
    axes = {"true": classes, "predicted": classes}
    return xr.DataArray(table, coords=axes, name="count" if normalize is None else "share")


@styled
def plot_confusion(
    tree: xr.DataTree,
    *,
    normalize: Literal["true", "pred", "all"] | None = None,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot true against predicted classes, and the recall of each class beside its line.

    Grey cells are right, red ones wrong; the darker, the larger the share of the true class. The
    title gives the accuracy, the caption its Wilson interval, the balanced error (the mean over
    classes of their error rates) and the most frequent confusions.

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

    See Also
    --------
    confusion_table : the numbers.
    plot_reliability : the probabilities.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> ax = plots.plot_confusion(tree)
    """
    check_prob(prob)
    _, y, names = known_classes(tree)
    table = confusion_table(tree, normalize=normalize)
    count = confusion_table(tree).values
    n_true = count.sum(axis=1)
    right, n_classes = int(np.trace(count)), len(names)
    share = count / np.maximum(n_true, 1)[:, None]
    side = float(np.clip(1.9 + 0.5 * n_classes, 4.2, 9.0))
    longest = max(len(name) for name in names)
    side += 0.07 * max(longest - 8, 0)
    ax = axes_or_new(ax, width=side + 0.9, height=side + 0.4)
    shades = np.where(np.eye(n_classes, dtype=bool)[..., None], RIGHT(share), WRONG(share))
    shades[count == 0] = 1.0
    ax.imshow(shades, aspect="auto")
    if n_classes <= MAX_WRITTEN:
        for i, j in np.argwhere(count > 0).tolist():
            text = str(count[i, j]) if normalize is None else f"{table.values[i, j]:.2f}"
            size = float(np.clip(150.0 / n_classes, 6.0 if normalize is None else 4.5, 9.5))
            ink = ink_on(to_hex(shades[i, j]))
            ax.text(j, i, text, ha="center", va="center", color=ink, fontsize=size)
    for c in np.flatnonzero(n_true):
        ax.annotate(
            f"{share[c, c]:.0%}",
            xy=(1.0, c),
            xycoords=("axes fraction", "data"),
            xytext=(5.0, 0.0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=NOTE_SIZE,
            gid="recall",
            annotation_clip=False,
        )
    turn = 90.0 if longest > WIDE // n_classes else 0.0
    ax.set_xticks(range(n_classes), names, rotation=turn)
    ax.set_yticks(range(n_classes), names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    ax.set(xlabel="predicted class", ylabel="true class")
    low, high = binomtest(right, len(y)).proportion_ci(prob, method="wilson")
    present = n_true > 0
    balanced = 1.0 - np.diag(share)[present].mean()
    note = (
        f"{right} of {len(y)} correct ({prob:.0%} interval {low:.1%} to {high:.1%}); balanced "
        f"error {balanced:.1%}. Right of the matrix: recall."
    )
    wrong = count - np.diag(np.diag(count))
    worst = np.argsort(-wrong, axis=None, kind="stable")[:MAX_NAMED]
    pairs = [np.unravel_index(w, wrong.shape) for w in worst if wrong.flat[w]]
    if pairs:
        said = ", ".join(f"{names[i]} as {names[j]} ({wrong[i, j]})" for i, j in pairs)
        note += f" Most often: {said}."
    set_title(ax, f"{right / len(y):.1%} correct", note)
    return ax
