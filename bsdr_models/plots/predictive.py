"""Posterior predictive check: replicated targets against observed ones."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, DRAW, LABEL, OBS
from bsdr_models.plots._read import TOO_NARROW, caveats, check_label, check_prob, read
from bsdr_models.plots._style import (
    INK,
    PALE,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)

N_GRID = 200  # grid points of a cumulative distribution
STATISTICS: dict[str, Any] = {"mean": np.mean, "sd": np.std, "smallest": np.min, "largest": np.max}


def predictive_check_table(tree: xr.DataTree, *, prob: float = 0.9) -> xr.Dataset:
    """Statistics of observed and of replicated targets.

    For classes and labels, the number of samples of each; for real targets, the mean, the standard
    deviation and the extremes of each output.

    Parameters
    ----------
    tree
        As for `plot_predictive_check`.
    prob
        Probability of an interval.

    Returns
    -------
    Dataset
        Over `statistic`: `observed`, the mean `replicated`, the ends `low` and `high` of the
        central interval, and the two-sided posterior predictive `p_value`, which counts the
        observed value as a replicate.

    See Also
    --------
    plot_predictive_check : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> import numpy as np
    >>> from bsdr_models.bsdr.predictive_check import predictive_check
    >>> check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    >>> table = plots.predictive_check_table(check)
    """
    check_prob(prob)
    replicated, observed, labels, kind = _targets(tree)
    if kind == "class":
        found = np.stack([np.bincount(row, minlength=len(labels)) for row in replicated])
        seen, names = np.bincount(observed, minlength=len(labels)), [str(n) for n in labels]
    elif kind == "label":
        found, seen, names = replicated.sum(axis=1), observed.sum(axis=0), [str(n) for n in labels]
    else:
        found = np.concatenate([of(replicated, axis=1) for of in STATISTICS.values()], axis=1)
        seen = np.concatenate([of(observed, axis=0) for of in STATISTICS.values()])
        names = [f"{name} of {label}" for name in STATISTICS for label in labels]
    low, high = np.quantile(found, [0.5 - prob / 2.0, 0.5 + prob / 2.0], axis=0)
    above, below = (found >= seen).sum(axis=0), (found <= seen).sum(axis=0)
    p_value = np.minimum(2.0 * (1.0 + np.minimum(above, below)) / (1.0 + len(found)), 1.0)
    columns = {"observed": seen, "replicated": found.mean(axis=0), "low": low, "high": high}
    columns["p_value"] = p_value
    return xr.Dataset(
        {name: ("statistic", values) for name, values in columns.items()},
        coords={"statistic": names},
    )


@styled
def plot_predictive_check(
    tree: xr.DataTree,
    *,
    label: Hashable | None = None,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot replicated targets beside the observed ones.

    For classes and labels the numbers of samples, for a real output its cumulative distribution.

    Parameters
    ----------
    tree
        Needs `y` in the groups "posterior_predictive" (chain, draw, obs[, outcome]) and
        "observed_data", as :func:`bsdr_models.bsdr.predictive_check.predictive_check` makes them.
    label
        Which of several real outputs to show; the first by default.
    prob
        Probability of a (pointwise) interval.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    predictive_check_table : the numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> import numpy as np
    >>> from bsdr_models.bsdr.predictive_check import predictive_check
    >>> check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    >>> ax = plots.plot_predictive_check(check)
    """
    check_prob(prob)
    replicated, observed, labels, kind = _targets(tree)
    caveat = caveats(tree, TOO_NARROW.format("intervals"))
    if kind == "real":
        output = 0 if label is None else check_label(label, labels)
        ax = axes_or_new(ax, width=6.8, height=4.4)
        _draw_distribution(ax, replicated[..., output], observed[:, output], prob)
        ax.set(xlabel=f"{labels[output]} (scaled)", ylabel="cumulative share of samples")
        note = (
            f"Line: observed; band: pointwise {prob:.0%} of {len(replicated)} replicates." + caveat
        )
        set_title(ax, "Replicated and observed outputs", note)
        return ax
    table = predictive_check_table(tree, prob=prob)
    place = np.arange(len(labels))
    ax = axes_or_new(ax, width=6.4, height=1.9 + 0.26 * len(labels))
    ax.hlines(place, table["low"], table["high"], color=PALE, linewidth=7.0)
    ax.scatter(table["replicated"], place, marker="|", s=150, color=INK, zorder=2.5)
    ax.scatter(table["observed"], place, s=36, color=POSITIVE, zorder=3)
    name_features(ax, np.array([str(name) for name in labels]))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"samples with the {kind}")
    outside = int(np.sum((table["observed"] < table["low"]) | (table["observed"] > table["high"])))
    note = f"Points: observed; bars: {prob:.0%} of {len(replicated)} replicates, with their mean."
    title = f"{outside} of {len(labels)} counts outside the bars"
    set_title(ax, title, note + caveat)
    return ax


def _draw_distribution(ax: Axes, replicated: FloatArray, observed: FloatArray, prob: float) -> None:
    """Cumulative distributions of (S, N) and (N,)."""
    both = np.concatenate([replicated.ravel(), observed])
    low, high = np.quantile(both, [0.001, 0.999])
    grid = np.linspace(low, high, N_GRID)
    share = np.stack([np.searchsorted(np.sort(row), grid, side="right") for row in replicated])
    ends = np.quantile(share / len(observed), [0.5 - prob / 2.0, 0.5 + prob / 2.0], axis=0)
    ax.fill_between(grid, *ends, color=PALE, linewidth=0.0)
    seen = np.searchsorted(np.sort(observed), grid, side="right") / len(observed)
    ax.step(grid, seen, where="post", color=POSITIVE, linewidth=1.8)
    ax.set_ylim(0.0, 1.0)


def _targets(tree: xr.DataTree) -> tuple[np.ndarray, np.ndarray, list[Hashable], str]:
    """Replicates (S, N[, K]), observed (N[, K]), names of the K labels, and the kind of target."""
    replicated = read(tree, "posterior_predictive", "y")["y"]
    observed = read(tree, "observed_data", "y")["y"]
    axes = (OBS, LABEL)[: observed.ndim]
    drawn = replicated.transpose(CHAIN, DRAW, *axes).values
    drawn, seen = drawn.reshape(-1, *drawn.shape[2:]), observed.transpose(*axes).values
    if observed.ndim == 1:
        n_labels = int(max(drawn.max(), seen.max())) + 1
        return drawn, seen, list(tree.attrs.get("labels", range(n_labels))), "class"
    labels: list[Hashable] = observed[LABEL].values.tolist()
    return drawn, seen, labels, "real" if seen.dtype.kind == "f" else "label"
