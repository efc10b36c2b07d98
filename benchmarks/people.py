"""The comparison of ``docs/benchmarks.md``: sentences, a table and pictures from the lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.charts import save
from benchmarks.page import table as as_markdown
from benchmarks.rows import Row, of
from benchmarks.tables import CLASSIFIERS, OURS, PROJECTIONS, Table
from bsdr_models.plots._names import Names
from bsdr_models.plots._style import GREY, INK, PALETTE, STYLE

SCORES = ("accuracy", "log_loss", "ece", "seconds")
SHADE = dict(zip(OURS, (PALETTE[0], PALETTE[1], PALETTE[2]), strict=True))
# Nats by which a mean log loss has to differ to be called lower or higher.
EQUAL = 0.01
# Of intervals, and bootstrap samples.
LEVEL, N_RESAMPLES = 0.95, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired(differences: np.ndarray) -> Interval:
    """Mean of differences on the same splits, (S,), and its t interval; none for a single split.

    Splits share samples, so that the interval is somewhat too narrow.
    """
    low = high = np.nan
    if len(differences) > 1:
        low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(LEVEL)
    return Interval(mean=float(np.mean(differences)), low=float(low), high=float(high))


def mean_ranks(losses: np.ndarray) -> list[Interval]:
    """Mean rank of each of L methods over B data sets, 1 the best, ties shared.

    Losses are (B, L) or (B, T, L); the T tasks of a set stay together. Intervals are percentiles of
    the bootstrap over data sets.
    """
    ranks = stats.rankdata(losses, axis=-1)
    ranks = ranks.reshape(len(ranks), -1, ranks.shape[-1]).mean(axis=1)  # (B, L)
    drawn = np.random.default_rng(0).integers(len(ranks), size=(N_RESAMPLES, len(ranks)))
    low, high = np.quantile(
        ranks[drawn].mean(axis=1), [0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0], axis=0
    )
    return [
        Interval(mean=float(m), low=float(a), high=float(b))
        for m, a, b in zip(ranks.mean(axis=0), low, high, strict=True)
    ]


@dataclass(frozen=True)
class People:
    """Scores of a line for each set, R, method and seed; methods of all features are in every R."""

    scores: pd.DataFrame

    @classmethod
    def of(cls, rows: Sequence[Row], seeds: range, table: Table) -> "People":
        """From rows of results, of the given splits."""
        lines = [
            {
                "set": task.source,
                "R": task.n_components,
                "method": method,
                "seed": row["seed"],
                "seconds": row["fit_seconds"] + row["predict_seconds"],
                **{score: row[score] for score in SCORES[:3]},
            }
            for task in table.tasks
            for method in table.methods
            for row in of(rows, task, method)
            if row["seed"] in seeds
        ]
        return cls(pd.DataFrame(lines))

    @cached_property
    def means(self) -> pd.DataFrame:
        """Means over splits by (R, set, method)."""
        grouped = self.scores.groupby(["R", "set", "method"], sort=False)
        return grouped[list(SCORES)].mean()

    @property
    def sets(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(self.scores["set"]))

    @property
    def n_splits(self) -> int:
        """Number of splits of each set."""
        return int(self.scores["seed"].nunique())

    def losses(self, methods: Sequence[str], R: Sequence[int] = (2, 5)) -> np.ndarray:
        """Mean log losses, (B, T, L): sets, numbers of components, methods."""
        mean = self.means["log_loss"]
        return np.array([[[mean[r, s, m] for m in methods] for r in R] for s in self.sets])

    def ranks(self, methods: Sequence[str], R: Sequence[int] = (2, 5)) -> dict[str, Interval]:
        """Mean ranks by log loss."""
        return dict(zip(methods, mean_ranks(self.losses(methods, R)), strict=True))

    def difference(self, method: str, rival: str, name: str, R: int) -> Interval:
        """Log loss of a method less that of a rival on the splits of a set."""
        at = self.scores[(self.scores["set"] == name) & (self.scores["R"] == R)]
        losses = at.pivot(index="seed", columns="method", values="log_loss")
        return paired((losses[method] - losses[rival]).to_numpy())

    def best(self, methods: Sequence[str], name: str, R: int) -> str:
        """The method of the lowest mean log loss on a set."""
        return min(methods, key=lambda method: self.means["log_loss"][R, name, method])


def _number(interval: Interval) -> str:
    return f"{interval.mean:.1f} [{interval.low:.1f}, {interval.high:.1f}]"


def _join(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def summary(people: People) -> str:
    """Mean ranks of ours and of the best other method."""
    methods = (*OURS, *PROJECTIONS)
    ranks = people.ranks(methods)
    order = sorted(methods, key=lambda method: ranks[method].mean)
    rival = next(method for method in order if method in PROJECTIONS)
    return (
        f"Over {len(people.sets)} data sets, two and five components and {people.n_splits} splits, "
        f"the lowest mean rank by log loss of {len(methods)} methods is that of **{order[0]}**, "
        f"{_number(ranks[order[0]])}; "
        + _join([f"{m} has {_number(ranks[m])}" for m in order if m in OURS and m != order[0]])
        + f", the best other method, {rival}, {_number(ranks[rival])}."
    )


def of_projections(people: People) -> str:
    """Which method predicts best, where each of ours wins, and where it loses."""
    methods = (*OURS, *PROJECTIONS)
    n = len(people.sets) * 2
    lines = [summary(people), ""]
    for method in OURS:
        wins, losses, behind = 0, [], []
        for r in (2, 5):
            for name in people.sets:
                rival = people.best(PROJECTIONS, name, r)
                found = people.difference(method, rival, name, r)
                wins += people.best(methods, name, r) == method
                if found.mean > EQUAL:
                    losses.append((found.mean, name, r, rival, found))
                if found.low > 0.0:
                    behind.append(name)
        text = (
            f"- **{method}** has the lowest log loss of all in {wins} of {n} comparisons, and a "
            f"higher one than the best rival of that set in {len(losses)}, with an interval above "
            f"zero in {len(behind)}"
        )
        if losses:
            _, name, r, rival, found = max(losses)
            text += f"; most on {name} with R = {r}, {found} nats against {rival}"
        lines.append(text + ".")
    return "\n".join(lines)


def _table(ranks: dict[str, Interval], means: pd.DataFrame, suffix: str = "") -> str:
    """Mean rank, accuracy, log loss, calibration and time of each method, best first."""
    body = []
    for method in sorted(ranks, key=lambda method: ranks[method].mean):
        own = means.xs(method, level="method")
        body.append(
            [
                f"**{method}**{suffix}" if method in OURS else method,
                _number(ranks[method]),
                f"{100 * own['accuracy'].mean():.1f}",
                f"{own['log_loss'].mean():.2f}",
                f"{own['ece'].mean():.3f}",
                f"{own['seconds'].median():.2g}",
            ]
        )
    return as_markdown(["", "mean rank", "accuracy, %", "log loss", "ECE", "CPU s"], body)


def table(people: People) -> str:
    """Ranks, accuracy, calibration and time of the methods of R dimensions."""
    return _table(people.ranks((*OURS, *PROJECTIONS)), people.means)


def of_all_features(people: People) -> str:
    """What few dimensions cost against classifiers of all features."""
    lines = []
    for r in (2, 5):
        ranks = people.ranks((*OURS, *CLASSIFIERS), (r,))
        order = sorted(ranks, key=lambda method: ranks[method].mean)
        own = min(OURS, key=lambda method: ranks[method].mean)
        better = [
            name for name in people.sets if people.best((*OURS, *CLASSIFIERS), name, r) in OURS
        ]
        lines.append(
            f"With R = {r} against {len(CLASSIFIERS)} classifiers of all features: the lowest mean "
            f"rank is that of {order[0]}, {_number(ranks[order[0]])}; the best of the three models "
            f"is {own}, {_number(ranks[own])}, and one of the three has the lowest log loss of all "
            f"on {len(better)} of {len(people.sets)} sets"
            + (f" ({_join(better)})." if better else ".")
        )
    ranks = people.ranks((*OURS, *CLASSIFIERS), (5,))
    return "\n\n".join([*lines, _table(ranks, people.means.loc[5], ", R = 5")])


def of_stack(people: People) -> str:
    """The three models stacked, among classifiers of all features."""
    ranks = people.ranks((*OURS, "stack", *CLASSIFIERS), (5,))
    head = f"{len(people.sets)} sets, {people.n_splits} splits."
    return f"{head}\n\n{_table(ranks, people.means.loc[5], ', R = 5')}"


def of_calibration(people: People) -> str:
    """Calibration errors of ours, by set."""
    parts = []
    for method in OURS:
        own = people.means["ece"].xs(method, level="method")
        r, name = own.idxmax()
        parts.append(
            f"{method} has a mean error of {own.mean():.3f}, at most .05 in {(own <= 0.05).sum()} "
            f"of {len(own)} comparisons, and the largest, {own.max():.3f}, on {name} with R = {r}"
        )
    return "; ".join(parts) + "."


def of_cost(people: People) -> str:
    """CPU seconds of ours."""
    parts = []
    for method in OURS:
        own = people.means["seconds"].xs(method, level="method")
        r, name = own.idxmax()
        parts.append(
            f"{method} takes {own.median():.2g} CPU seconds (median; at most {own.max():.2g}, "
            f"{name} with R = {r})"
        )
    return _join(parts) + ", the choice of all settings and the predictions included."


PARTS = {
    "projections": of_projections,
    "ranks": table,
    "all-features": of_all_features,
    "calibration": of_calibration,
    "cost": of_cost,
}


def _shade(method: str) -> str:
    return SHADE.get(method, GREY)


def _plot_ranks(ax: Axes, ranks: dict[str, Interval], order: Sequence[str]) -> None:
    """A line for each method, the best above."""
    for height, method in enumerate(order):
        own = ranks[method]
        ax.plot([own.low, own.high], [height] * 2, color=_shade(method), lw=2.0)
        ax.plot(own.mean, height, "o", color=_shade(method), ms=6.0)
    ax.set_xlabel("mean rank by log loss, 1 is best")
    ax.grid(visible=False, axis="y")


def draw_ranks(people: People) -> Figure:
    """Mean ranks and their intervals."""
    methods = (*OURS, *PROJECTIONS)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.6), layout="constrained", sharey=True)
        both = people.ranks(methods)
        order = sorted(methods, key=lambda method: both[method].mean, reverse=True)
        for ax, r in zip(axes, (2, 5), strict=True):
            ranks = people.ranks(methods, (r,))
            _plot_ranks(ax, ranks, order)
            ax.set_title(f"R = {r}")
            ax.set_xlim(0.5, len(methods) + 0.5)
        axes[0].set_yticks(range(len(order)), order)
    return figure


def draw_sets(people: People) -> Figure:
    """Log loss of ours less that of the best rival of each set."""
    names = people.sets
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(7.6, 4.4), layout="constrained", sharey=True)
        for ax, r in zip(axes, (2, 5), strict=True):
            for row, name in enumerate(names):
                rival = people.best(PROJECTIONS, name, r)
                for index, method in enumerate(OURS):
                    found = people.difference(method, rival, name, r)
                    height = row + 0.22 * (index - 1)
                    ax.plot([found.low, found.high], [height] * 2, color=SHADE[method], lw=1.4)
                    label = method if row == 0 else None
                    ax.plot(found.mean, height, "o", color=SHADE[method], ms=4.5, label=label)
            ax.axvline(0.0, color=INK, lw=0.9)
            ax.set_title(f"R = {r}")
            ax.set_xlabel("log loss less that of the best rival")
            ax.grid(visible=False, axis="y")
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _name_points(ax: Axes, points: dict[str, tuple[float, float]]) -> None:
    for method, at in points.items():
        ax.plot(*at, "o", color=_shade(method), ms=6.5 if method in OURS else 4.5)
    at = np.array(list(points.values()))
    Names(ax, at, list(points), centre=at.mean(axis=0))


def draw_calibration(people: People) -> Figure:
    """Calibration error against accuracy, means over sets."""
    methods = (*OURS, *PROJECTIONS)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.8), layout="constrained", sharey=True)
        for ax, r in zip(axes, (2, 5), strict=True):
            means = people.means.loc[r].groupby("method")[["accuracy", "ece"]].mean()
            ax.margins(0.18, 0.1)
            _name_points(ax, {m: (100 * means["accuracy"][m], means["ece"][m]) for m in methods})
            ax.set(title=f"R = {r}", xlabel="accuracy, %")
        axes[0].set_ylabel("expected calibration error")
        axes[0].set_ylim(bottom=0.0)
    return figure


def draw_cost(people: People) -> Figure:
    """Mean rank against CPU seconds."""
    methods = (*OURS, *PROJECTIONS)
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
        ranks = people.ranks(methods)
        seconds = people.means["seconds"].groupby("method").median()
        ax.margins(0.15, 0.08)
        ax.set_xscale("log")
        _name_points(ax, {m: (seconds[m], ranks[m].mean) for m in methods})
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel="CPU seconds of a fit, median", ylabel="mean rank by log loss")
    return figure


def draw_all_features(people: People) -> Figure:
    """Mean ranks of ours, R = 5, among classifiers of all features."""
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
        ranks = people.ranks((*OURS, *CLASSIFIERS), (5,))
        order = sorted(ranks, key=lambda method: ranks[method].mean, reverse=True)
        _plot_ranks(ax, ranks, order)
        names = [f"{method}, R = 5" if method in OURS else method for method in order]
        ax.set_yticks(range(len(order)), names)
    return figure


PICTURES = {
    "ranks": draw_ranks,
    "sets": draw_sets,
    "all-features": draw_all_features,
    "calibration": draw_calibration,
    "cost": draw_cost,
}


def draw(people: People, folder: Path) -> None:
    """Write all pictures."""
    for name, picture in PICTURES.items():
        save(picture(people), folder / f"{name}.png")


def write_csv(people: People, path: Path) -> None:
    """Write the means over splits, a line for each set, R and method."""
    people.means.reset_index().round(4).to_csv(path, index=False, lineterminator="\n")
