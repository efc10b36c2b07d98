"""The picture of a comparison of models."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bsdr_models.plots._style import (
    GREY,
    INK,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)

# Models whose interval ends beyond this multiple of the median are drawn at the edge.
WIDE = 4.0
DASHED: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2))}


@styled
def plot_comparison(comparison: Any, *, ax: Axes | None = None) -> Axes:
    """Plot differences of log loss from the lowest with their intervals.

    The recommended model is in colour and bold. An arrow stands for a model beyond the edge.

    Parameters
    ----------
    comparison : bsdr_models.compare.comparison.Comparison
        What :func:`bsdr_models.compare_models` returns.
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    TypeError
        If it is anything else.

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
    if not hasattr(comparison, "recommended"):
        kind = type(comparison).__name__
        raise TypeError(f"comparison must be what compare_models returns, got {kind}")
    table = comparison.table
    best = comparison.recommended
    names = table.index.to_numpy().astype(str)
    difference, low, high = table[["difference", "low", "high"]].to_numpy(dtype=float).T
    limit = 1.06 * float(np.max(high, where=high <= WIDE * np.nanmedian(high), initial=0.0)) or 1.0
    near = difference <= limit
    far = difference > limit  # a model that failed is neither
    rows = np.arange(len(names))
    shades = np.where(names == best, POSITIVE, GREY)
    ax = axes_or_new(ax, width=7.8, height=1.9 + 0.36 * len(names))
    ax.axvline(0.0, color=INK, zorder=1, **DASHED)
    ends = low[near], np.minimum(high[near], limit)
    ax.hlines(rows[near], *ends, colors=shades[near].tolist(), linewidth=2.2)
    ax.scatter(difference[near], rows[near], s=49.0, c=shades[near], edgecolors="w", zorder=3)
    style: dict[str, Any] = {"s": 49.0, "marker": ">", "clip_on": False, "zorder": 3}
    ax.scatter(np.full(far.sum(), limit), rows[far], c=shades[far], **style)
    ax.set_xlim(min(0.0, float(np.nanmin(low))) - 0.04 * limit, 1.03 * limit)
    scores = [
        f"{loss:.3f}, {accuracy:.1%}" if np.isfinite(loss) else "failed"
        for loss, accuracy in table[["log_loss", "accuracy"]].to_numpy(dtype=float)
    ]
    named = zip(names, scores, strict=True)
    name_features(ax, np.array([f"{name}: {score}" for name, score in named]))
    ax.get_yticklabels()[names.tolist().index(best)].set_fontweight("bold")
    ax.set(xlabel="log loss above the lowest, nats per sample", ylabel="log loss, accuracy")
    note = f"Lines: {comparison.prob:.0%} intervals over held-out samples. Blue: recommended."
    set_title(ax, "Held-out log loss of models", note)
    return ax
