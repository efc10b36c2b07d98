"""Plots of scikit-learn's parameter searches and permutation tests."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bsdr_models.arrays import FloatArray
from bsdr_models.plots._style import (
    INK,
    PALE,
    POSITIVE,
    axes_or_new,
    color,
    marker,
    name_lines,
    set_title,
    styled,
)

LOGARITHMIC = 30.0  # ratio of the largest to the smallest value beyond which an axis is logarithmic
MAX_LINES = 12


def cross_validation_table(
    search: Any, parameter: str = "n_components", *, measure: str | None = None
) -> xr.Dataset:
    """Held-out score of every setting of a search.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or mapping
        Fitted, or its ``cv_results_``.
    parameter : str
        The parameter to compare; for a pipeline, with or without the name of the step.
    measure : str, optional
        Which of several scores; for a mapping, the name of its only score. The sign of scores named
        ``neg_...`` is flipped, which makes them losses.

    Returns
    -------
    Dataset
        Over `setting`: `value` of the parameter, the other parameters as text `others`, the `mean`
        over folds and its `standard_error`, from the spread between folds; too small, since folds
        share training samples. Attributes `parameter`, `measure` and `larger_is_better`.

    Raises
    ------
    ValueError
        If the search is not fitted or has no such parameter or score.

    See Also
    --------
    plot_cross_validation : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import GridSearchCV
    >>> from bsdr_models import BM2PCAClassifier, plots
    >>> grid = {"n_components": [1, 2]}
    >>> search = GridSearchCV(BM2PCAClassifier(random_state=0), grid, cv=2)
    >>> table = plots.cross_validation_table(search.fit(*load_wine(return_X_y=True)))
    """
    results = search if isinstance(search, Mapping) else getattr(search, "cv_results_", None)
    if results is None:
        raise ValueError("the search is not fitted: it has no cv_results_")
    names = {key.removeprefix("param_"): key for key in results if key.startswith("param_")}
    found = [name for name in names if name == parameter or name.endswith(f"__{parameter}")]
    if len(found) != 1:
        raise ValueError(f"parameter must be one of {sorted(names)}, got {parameter!r}")
    key, name = _score(results, search, measure)
    folds = sorted(k for k in results if k.startswith("split") and k.endswith(key))
    scores = np.stack([np.asarray(results[k], dtype=np.float64) for k in folds], axis=1)
    loss = name.startswith("neg_")
    scores = -scores if loss else scores
    values = np.ma.getdata(results[names[found[0]]])
    others = [other for other in names if other != found[0]]
    words = [
        ", ".join(f"{other.split('__')[-1]}={setting.get(other)}" for other in others)
        for setting in results["params"]
    ]
    number = np.array([isinstance(v, int | float | np.number) for v in values]).all()
    error = (
        scores.std(axis=1, ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else 0.0 * scores[:, 0]
    )
    return xr.Dataset(
        {
            "value": ("setting", values.astype(float) if number else values.astype(str)),
            "others": ("setting", words),
            "mean": ("setting", scores.mean(axis=1)),
            "standard_error": ("setting", error),
        },
        attrs={
            "parameter": found[0].split("__")[-1],
            "measure": name.removeprefix("neg_").replace("_", " "),
            "larger_is_better": int(not loss),
            "n_folds": len(folds),
        },
    )


@styled
def plot_cross_validation(
    search: Any,
    parameter: str = "n_components",
    *,
    measure: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot held-out score against a parameter, with bars of one standard error over the folds.

    Each setting of the other parameters has a line. The dashed line is one standard error from the
    best mean (one-standard-error rule).

    Parameters
    ----------
    search, parameter, measure
        As for :func:`cross_validation_table`.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    cross_validation_table : the numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from bsdr_models import plots
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PaperBSDRClassifier(random_state=0)
    >>> search = GridSearchCV(model, {"n_components": [1, 2]}, scoring="neg_log_loss")
    >>> ax = plots.plot_cross_validation(search.fit(X, y))
    """
    table = cross_validation_table(search, parameter, measure=measure)
    table = table.isel(setting=np.isfinite(table["mean"].values))
    if not table.sizes["setting"]:
        raise ValueError("every setting of the search failed: its scores are NaN")
    value, mean = table["value"].values, table["mean"].values
    error, others = table["standard_error"].values, table["others"].values
    lines = list(dict.fromkeys(others.tolist()))
    drawn = {}
    if len(lines) > MAX_LINES:
        raise ValueError(
            f"the other parameters have {len(lines)} settings, more than {MAX_LINES} lines: "
            "search fewer of them"
        )
    numbers = value.dtype.kind == "f"
    ticks = np.unique(value) if numbers else np.array(list(dict.fromkeys(value.tolist())))
    at = value if numbers else np.array([ticks.tolist().index(v) for v in value], dtype=float)

    ax = axes_or_new(ax, width=6.2 if len(lines) == 1 else 7.8, height=4.2)
    for i, line in enumerate(lines):
        on = np.flatnonzero(others == line)
        on = on[np.argsort(at[on], kind="stable")]
        shade = POSITIVE if len(lines) == 1 else color(i)
        bars = ax.errorbar(
            at[on],
            mean[on],
            yerr=error[on],
            color=shade,
            marker=marker(i),
            markersize=6.0,
            markeredgecolor="white",
            linewidth=1.6,
            elinewidth=1.0,
            capsize=2.5,
        )
        drawn[bars.lines[0]] = line
    larger = bool(table.attrs["larger_is_better"])
    best = int(np.argmax(mean) if larger else np.argmin(mean))
    near = mean[best] - error[best] if larger else mean[best] + error[best]
    ax.axhline(near, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1, gid="near-best")
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": 1.3, "zorder": 4}
    ax.scatter(at[[best]], mean[[best]], s=130, gid="best", **ring)
    _set_axis(ax, ticks, numbers)
    name = table.attrs["measure"]
    ax.set(xlabel=table.attrs["parameter"].replace("_", " "), ylabel=name)
    if len(lines) > 1:
        name_lines(ax, drawn)
    chosen = f"{value[best]:g}" if numbers else value[best]
    note = (
        f"Ring: best, {mean[best]:.3g} at {chosen}; dashed: one standard error from it. Bars: one "
        f"standard error over {table.attrs['n_folds']} folds, underestimated (shared samples)."
    )
    set_title(ax, f"Held-out {name}", note)
    return ax


@styled
def plot_permutation(
    result: tuple[float, FloatArray, float], *, measure: str = "score", ax: Axes | None = None
) -> Axes:
    """Plot the distribution of scores of permuted labels, and the score of the true labels.

    Parameters
    ----------
    result
        Return value of scikit-learn's ``permutation_test_score``: the score, those of permuted
        labels, and the p-value.
    measure
        Name of the score. The sign of scores named ``neg_...`` is flipped.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    bsdr_models.cross_validated_map : the map of held-out samples.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import permutation_test_score
    >>> from bsdr_models import plots
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PaperBSDRClassifier(random_state=0)
    >>> options = {"scoring": "neg_log_loss", "n_permutations": 10, "cv": 2, "random_state": 0}
    >>> found = permutation_test_score(model, X, y, **options)
    >>> ax = plots.plot_permutation(found, measure="neg_log_loss")
    """
    score, permuted, p_value = result
    null = np.asarray(permuted, dtype=np.float64)
    if null.ndim != 1 or not null.size or not np.isfinite([score, *null]).all():
        raise ValueError("the scores of permuted labels must be finite numbers, and at least one")
    as_good = int(np.sum(null >= score))
    loss = measure.startswith("neg_")
    name = measure.removeprefix("neg_").replace("_", " ")
    score, null = (-score, -null) if loss else (score, null)
    ax = axes_or_new(ax, width=6.4, height=4.0)
    bins = "auto" if np.ptp(null) > 0.0 else 1
    ax.hist(null, bins=bins, color=PALE, edgecolor="white")
    ax.axvline(score, color=POSITIVE, linewidth=2.2, gid="observed")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=f"held-out {name}", ylabel="permutations")
    note = (
        f"Grey: permuted labels; blue: true labels, {score:.3g}. {as_good} of {len(null)} "
        "permutations are as good."
    )
    if not as_good:
        note += f" The smallest possible p is {1.0 / (len(null) + 1.0):.2g}."
    set_title(ax, f"Permutation test, p = {p_value:.2g}", note)
    return ax


def _score(results: Mapping[str, Any], search: Any, measure: str | None) -> tuple[str, str]:
    """Suffix of the keys of a score, and its name."""
    known = [key.removeprefix("mean_test_") for key in results if key.startswith("mean_test_")]
    if known == ["score"]:
        scoring = getattr(search, "scoring", None)
        name = measure or (scoring if isinstance(scoring, str) else "score")
        return "_test_score", name
    if measure is None and len(known) > 1 and isinstance(getattr(search, "refit", None), str):
        measure = search.refit
    if measure not in known:
        raise ValueError(f"measure must be one of {sorted(known)}, got {measure!r}")
    return f"_test_{measure}", measure


def _set_axis(ax: Axes, ticks: np.ndarray, numbers: bool) -> None:
    """Put ticks at the values tried."""
    if not numbers:
        ax.set_xticks(range(len(ticks)), ticks.tolist())
        ax.set_xlim(-0.5, len(ticks) - 0.5)
        return
    if ticks.min() > 0.0 and ticks.max() > LOGARITHMIC * ticks.min():
        ax.set_xscale("log")
        return
    if len(ticks) <= 12:
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
