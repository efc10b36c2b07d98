"""Class probabilities of single samples."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.dims import LABEL, OBS
from bsdr_models.plots._read import Classes, label_values, read, read_target
from bsdr_models.plots._style import (
    MAX_NAMES,
    add_legend,
    axes_or_new,
    color,
    ink_on,
    marker,
    set_title,
    styled,
)

MAX_SAMPLES = 25  # samples shown by default
MIN_WRITTEN = 0.12  # smallest probability written into its bar


@styled
def plot_certainty(
    tree: xr.DataTree, rows: Sequence[int] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Plot class probabilities of single samples as stacked bars, the most certain on top.

    If true labels are known, a marker at the end of the bar shows the true class.

    Parameters
    ----------
    tree
        Needs `probability` (obs, outcome) in group "predictions"; its rows sum to one.
    rows
        Indices of the samples, shown in the order given. By default all samples or, of more than
        25, 25 that are spread evenly from the most to the least certain.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    plot_reliability : whether the probabilities are right.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> ax = plots.plot_certainty(tree)
    """
    predictions = read(tree, "predictions", "probability")
    probability = predictions["probability"].transpose(OBS, LABEL).values
    if not np.allclose(probability.sum(axis=1), 1.0):
        raise ValueError("'probability' in group 'predictions' does not sum to one over classes")
    names = [str(name) for name in label_values(tree, "predictions")]
    title, chosen = _choose(probability, rows)
    pieces = probability[chosen]
    height = np.arange(len(chosen))

    tall = max(1.5 + 0.22 * len(chosen), 1.1 + 0.21 * min(len(names), MAX_NAMES))
    ax = axes_or_new(ax, width=6.8, height=tall)
    left = np.zeros(len(chosen))
    for c, name in enumerate(names):
        bars = ax.barh(height, pieces[:, c], left=left, color=color(c), height=0.78, label=name)
        text = [f"{p:.0%}" if p >= MIN_WRITTEN else "" for p in pieces[:, c]]
        ax.bar_label(bars, text, label_type="center", fontsize=8, color=ink_on(color(c)))
        left += pieces[:, c]
    note = ""
    if "y" in predictions:
        target = read_target(tree, "predictions")
        assert isinstance(target, Classes)
        truth = target.index[chosen]
        for c in np.unique(truth):
            at = height[truth == c]
            ax.scatter(np.full(len(at), 1.03), at, color=color(c), marker=marker(c), s=30)
        wrong = int(np.sum(truth != pieces.argmax(axis=1)))
        note = f"Marker: true class; {wrong} of these {len(chosen)} are wrong."
    ax.set_yticks(height, [str(name) for name in predictions[OBS].values[chosen]])
    ax.set(xlim=(0.0, 1.06), xlabel="probability", ylabel="sample")
    ax.set_xticks(np.linspace(0.0, 1.0, 6))
    ax.set_ylim(len(chosen) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    add_legend(ax, title="class")
    set_title(ax, title, note)
    return ax


def _choose(probability: np.ndarray, rows: Sequence[int] | None) -> tuple[str, np.ndarray]:
    n_samples = len(probability)
    if rows is not None:
        chosen = np.asarray(rows, dtype=np.int64)
        if chosen.size == 0 or np.any((chosen < 0) | (chosen >= n_samples)):
            raise ValueError(f"rows must be indices in 0..{n_samples - 1}, and at least one")
        return "Class probabilities", chosen
    order = np.argsort(-probability.max(axis=1), kind="stable")
    if n_samples <= MAX_SAMPLES:
        return "Class probabilities of all samples", order
    spread = order[np.linspace(0, n_samples - 1, MAX_SAMPLES).astype(np.int64)]
    return f"Class probabilities of {MAX_SAMPLES} of {n_samples} samples", spread
