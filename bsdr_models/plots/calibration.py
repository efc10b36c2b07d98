"""Reliability diagram and calibration error of predicted probabilities."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.stats import binomtest

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.metrics import (
    Estimate,
    brier_scores,
    calibration_error,
    log_losses,
    mean_of_samples,
)
from bsdr_models.plots._read import check_label, check_prob, known_classes, known_labels
from bsdr_models.plots._style import (
    GREY,
    HALO,
    POSITIVE,
    axes_or_new,
    set_title,
    styled,
)

WRONG = "#bd1f01"
SEED = 0  # of the bootstrap, so that plots are reproducible
NARROW = 0.04  # width of the narrowest quantile bin


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Predicted probabilities in B bins, F of them filled.

    edges, count
        Edges (B + 1,) and counts (B,) of the bins.
    mean, share
        Mean predicted probability and observed frequency, (F,).
    index
        Bin of every prediction, shaped as these.
    error, floor
        Expected calibration error, and its approximate mean for perfectly calibrated probabilities.
    """

    edges: FloatArray
    count: IntArray
    mean: FloatArray
    share: FloatArray
    index: IntArray
    error: float
    floor: float

    def intervals(self, prob: float) -> FloatArray:
        """Wilson intervals of the frequencies, low and high ends (2, F)."""
        filled = self.count[self.count > 0].tolist()
        ends = [
            binomtest(round(share * n), n).proportion_ci(prob, method="wilson")
            for share, n in zip(self.share, filled, strict=True)
        ]
        return np.array(ends).T


def reliability_table(
    tree: xr.DataTree,
    *,
    label: Hashable | None = None,
    n_bins: int = 8,
    strategy: Literal["uniform", "quantile"] = "quantile",
    prob: float = 0.9,
) -> xr.Dataset:
    """Table of what `plot_reliability` draws; its arguments are those of the plot.

    Returns
    -------
    Dataset
        For each filled bin (bin,): the mean predicted `probability`, the observed frequency `share`
        with its interval `low` to `high`, and `count`. The attributes `calibration_error`,
        `log_loss` and `brier` hold a value and the ends of its interval.

    See Also
    --------
    plot_reliability : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> table = plots.reliability_table(tree)
    >>> float(table["count"].sum())
    89.0
    """
    check_prob(prob)
    stated, happened, _ = _predictions(tree, label)
    bins = _calibration(stated, happened, n_bins=n_bins, strategy=strategy)
    rng = np.random.default_rng(SEED)
    error = calibration_error(stated, happened, bins.index, prob=prob, rng=rng)
    scores = [error, *_losses(tree, label, stated, happened, prob, rng)]
    low, high = bins.intervals(prob)
    return xr.Dataset(
        {
            "probability": ("bin", bins.mean),
            "share": ("bin", bins.share),
            "low": ("bin", low),
            "high": ("bin", high),
            "count": ("bin", bins.count[bins.count > 0]),
        },
        attrs={
            name: [score.value, score.low, score.high]
            for name, score in zip(("calibration_error", "log_loss", "brier"), scores, strict=True)
        },
    )


@styled
def plot_reliability(
    tree: xr.DataTree,
    *,
    label: Hashable | None = None,
    n_bins: int = 8,
    strategy: Literal["uniform", "quantile"] = "quantile",
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot observed frequency against predicted probability (reliability diagram).

    Bars are Wilson intervals; ticks at the top are the probabilities of events that happened, those
    at the bottom of events that did not. The title compares the mean predicted probability with the
    frequency. The caption gives the expected calibration error over bins B,

    .. math::
        \mathrm{ECE} = \sum_B \frac{n_B}{N}
            \left| \text{share right}_B - \text{mean probability}_B \right|,

    with an interval, and its mean for perfectly calibrated probabilities and as many samples, which
    is positive; then log loss and Brier score. For their intervals see :mod:`bsdr_models.metrics`.

    Parameters
    ----------
    tree
        Needs `probability` (obs, outcome) and the true `y` in group "predictions": classes (obs,),
        or yes and no (obs, outcome).
    label
        Use the probability of this label. By default that of the predicted class (classes), or all
        labels together (multi-label).
    n_bins, strategy
        Bins of equal counts ("quantile") or of equal width ("uniform"), as in scikit-learn's
        `calibration_curve`. Quantile bins narrower than 0.04, such as those of near-certain
        predictions, are joined.
    prob
        Probability of an interval.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    reliability_table : the numbers.
    plot_certainty : single samples.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> ax = plots.plot_reliability(tree)
    """
    check_prob(prob)
    stated, happened, what = _predictions(tree, label)
    bins = _calibration(stated, happened, n_bins=n_bins, strategy=strategy)
    rng = np.random.default_rng(SEED)
    error = calibration_error(stated, happened, bins.index, prob=prob, rng=rng)

    ax = axes_or_new(ax, width=5.6, height=5.2)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=1.0)
    reach = np.abs(bins.intervals(prob) - bins.share)  # (low and high, filled bins)
    ax.errorbar(
        bins.mean,
        bins.share,
        yerr=reach,
        fmt="o",
        color=POSITIVE,
        ecolor=POSITIVE,
        elinewidth=2.0,
        markersize=6,
        markeredgecolor="white",
    )
    for place, share, n in zip(bins.mean, bins.share, bins.count[bins.count > 0], strict=True):
        ax.annotate(
            str(n), (place, share), (-6.0, -3.0), textcoords="offset points", ha="right", va="top",
            fontsize=7.5, color=GREY, path_effects=HALO,
        )  # fmt: skip
    for place, gid, shown, shade in (
        (1.03, "happened", happened, GREY),
        (-0.06, "not-happened", ~happened, WRONG),
    ):
        ticks = ax.vlines(stated[shown], place, place + 0.03, colors=shade, linewidths=0.8)
        ticks.set(alpha=float(np.clip(150.0 / stated.size, 0.1, 0.8)), gid=gid)
    begin = 0.0 if stated.min() < 0.25 else float(np.floor(10.0 * stated.min()) / 10.0 - 0.05)
    ax.set(xlim=(begin - 0.01, 1.01), ylim=(-0.07, 1.07), xlabel=what, ylabel="observed frequency")
    losses = _losses(tree, label, stated, happened, prob, rng)
    kind = "samples" if stated.shape[1] == 1 else "predictions"
    note = (
        f"Numbers: {kind} in a bin, {stated.size} in all; {prob:.0%} intervals; ticks: single "
        f"{kind}, right above, wrong below. Calibration error {error} (if calibrated "
        f"{bins.floor:.3f}), log loss {losses[0]}, Brier score {losses[1]}."
    )
    title = f"Said {stated.mean():.0%}, right {happened.mean():.0%}"
    if label is not None:
        title = f"Said {stated.mean():.0%}, were {happened.mean():.0%}"
        note = note.replace("right above, wrong below", "others below")
    set_title(ax, title, note)
    return ax


def _losses(
    tree: xr.DataTree,
    label: Hashable | None,
    stated: FloatArray,
    happened: BoolArray,
    prob: float,
    rng: np.random.Generator,
) -> list[Estimate]:
    """Log loss and Brier score, over classes or of binary predictions."""
    if label is None and tree["predictions/y"].ndim == 1:
        probability, y, _ = known_classes(tree)
        losses = [score(probability, y) for score in (log_losses, brier_scores)]
    else:
        both = np.stack([1.0 - stated, stated], axis=-1).reshape(-1, 2)
        each = [score(both, happened.ravel().astype(int)) for score in (log_losses, brier_scores)]
        losses = [values.reshape(stated.shape).mean(axis=1) for values in each]
    return [mean_of_samples(values, prob=prob, rng=rng) for values in losses]


def _predictions(tree: xr.DataTree, label: Hashable | None) -> tuple[FloatArray, BoolArray, str]:
    """Predicted probabilities (M, J), whether each event happened, and the axis label."""
    probability, truth, labels = known_labels(tree)
    if label is not None:
        c = check_label(label, labels)
        return probability[:, [c]], truth[:, [c]], f"probability of {label}"
    if tree["predictions/y"].ndim == 2:
        return probability, truth, "probability of a label"
    best = probability.argmax(axis=1)[:, None]
    return (
        np.take_along_axis(probability, best, axis=1),
        np.take_along_axis(truth, best, axis=1),
        "probability of the predicted class",
    )


def _calibration(
    stated: FloatArray,
    happened: BoolArray,
    *,
    n_bins: int,
    strategy: Literal["uniform", "quantile"],
) -> Calibration:
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    index_shape, stated, happened = stated.shape, stated.ravel(), happened.ravel()
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    if strategy == "quantile":
        low, *rest = np.quantile(stated, edges)
        kept = [low]
        for edge, after in pairwise(rest):
            if max(edge - kept[-1], after - edge) >= NARROW:
                kept.append(edge)
        edges = np.array([*kept, rest[-1]])
    n_bins = len(edges) - 1
    bins = np.searchsorted(edges[1:-1], stated)  # as scikit-learn's `calibration_curve`
    count = np.bincount(bins, minlength=n_bins)
    share, mean = (
        np.bincount(bins, weights=values, minlength=n_bins)[count > 0] / count[count > 0]
        for values in (happened, stated)
    )
    # If calibrated, the count of events in a bin has this variance; the floor is the mean absolute
    # value of a normal of that variance.
    variance = np.bincount(bins, weights=stated * (1.0 - stated), minlength=n_bins)
    return Calibration(
        edges=edges,
        count=count,
        mean=mean,
        share=share,
        index=bins.reshape(index_shape),
        error=float(count[count > 0] @ np.abs(share - mean)) / len(stated),
        floor=float(np.sqrt(2.0 / np.pi * variance).sum()) / len(stated),
    )
