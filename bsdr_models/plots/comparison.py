"""Plot of a comparison of models by cross-validation."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bsdr_models.plots._style import (
    GREY,
    INK,
    NOTE_SIZE,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)

# Models whose interval ends beyond this multiple of the median are drawn at the edge.
FAR = 4.0


@styled
def plot_comparison(comparison: Any, *, ax: Axes | None = None) -> Axes:
    """Plot differences of log loss from the lowest with their intervals, accuracy beside.

    The recommended model is in colour and bold. An arrow stands for a model beyond the edge.

    Parameters
    ----------
    comparison : bsdr_models.comparison.Comparison
        What :func:`bsdr_models.compare_models` returns.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    bsdr_models.compare_models : makes the comparison.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import compare_models, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> found = compare_models(X[::3], y[::3], cv=3, random_state=0, progressbar=False)
    >>> ax = plots.plot_comparison(found)
    """
    table = comparison.table
    names = table.index.to_numpy().astype(str)
    difference, low, high = (
        table[name].to_numpy(dtype=float) for name in ("difference", "low", "high")
    )
    known = np.isfinite(difference)
    near = high[known & (high <= FAR * np.nanmedian(high))]
    limit = 1.06 * float(near.max()) or 1.0
    ax = axes_or_new(ax, width=7.8, height=1.9 + 0.36 * len(names))
    ax.axvline(0.0, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    for row in np.flatnonzero(known):
        shade = POSITIVE if names[row] == comparison.recommended else GREY
        if difference[row] > limit:
            ax.plot(limit, row, marker=">", color=shade, markersize=7.0, clip_on=False)
            continue
        ends = [low[row], min(high[row], limit)]
        ax.plot(ends, [row, row], color=shade, linewidth=2.2, solid_capstyle="butt")
        ax.plot(difference[row], row, marker="o", color=shade, markersize=7.0, markeredgecolor="w")
    ax.set_xlim(min(0.0, float(np.nanmin(low))) - 0.04 * limit, limit)
    name_features(ax, names)
    ax.set(xlabel="log loss above the lowest, nats per sample")
    columns = {
        "log loss": [f"{value:.3f}" for value in table["log_loss"]],
        "accuracy": [f"{value:.1%}" for value in table["accuracy"]],
    }
    ax.set_ylim(top=-1.3)
    for place, (head, cells) in zip((50.0, 106.0), columns.items(), strict=True):
        _write(ax, place, -0.9, head, color=GREY)
        for line, cell in enumerate(cells):
            _write(ax, place, line, cell if known[line] else "failed")
    ax.get_yticklabels()[names.tolist().index(comparison.recommended)].set_fontweight("bold")
    note = f"Lines: {comparison.prob:.0%} intervals over held-out samples. Blue: recommended."
    set_title(ax, f"Held-out log loss, difference from {names[0]}", note)
    return ax


def _write(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write beside the Axes, to the left of x points from the edge, in row y."""
    ax.annotate(
        text,
        xy=(1.0, y),
        xycoords=ax.get_yaxis_transform(),
        xytext=(x, 0.0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=NOTE_SIZE,
        annotation_clip=False,
        **style,
    )
