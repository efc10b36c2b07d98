"""The comparison of ``docs/benchmarks.md``: sentences, tables and pictures from the lines."""

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
from benchmarks.tables import CLASSIFIERS, OURS, PROJECTIONS, STACK, Table
from bsdr_models.plots._layers import Names
from bsdr_models.plots._style import GREY, INK, PALETTE, STYLE

SCORES = ("accuracy", "log_loss", "ece", "neighbours", "linear", "linear_ece")
CHANGES = ("labels_changed", "variation", "map_changed")
# A method and its number of components R; 0 is its default, or all features.
Entry = tuple[str, int]
PACKAGE: tuple[Entry, ...] = tuple((method, 0) for method in (STACK, *OURS))
FULL: tuple[Entry, ...] = tuple((method, 0) for method in CLASSIFIERS)
PREDICTIONS = (*PACKAGE, *FULL, *((method, 5) for method in PROJECTIONS))
# Models with a limit of R components; predictions of BSDR do not depend on R.
LIMITED = ("BM2PCA", "D-GPLVM", *PROJECTIONS)
MAPS = (*PACKAGE, *FULL, *((method, 2) for method in LIMITED))
SHADE = dict(zip((*OURS, STACK), PALETTE, strict=False))
# Nats by which a mean log loss has to differ to be called lower or higher.
EQUAL = 0.01
# Of intervals, and bootstrap samples.
LEVEL, N_RESAMPLES = 0.95, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % interval, which a single split does not have."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        known = f" [{self.low:+.3f}, {self.high:+.3f}]" if np.isfinite(self.low) else ""
        return f"{self.mean:+.3f}{known}"


def paired(differences: np.ndarray) -> Interval:
    """Mean of differences on the same splits, (S,), and its t interval; none for a single split.

    Splits share samples, so that the interval is somewhat too narrow.
    """
    low = high = np.nan
    if len(differences) > 1:
        low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(LEVEL)
    return Interval(mean=float(np.mean(differences)), low=float(low), high=float(high))


def mean_ranks(losses: np.ndarray) -> list[Interval]:
    """Mean rank of each of L methods over B data sets, losses (B, L); 1 the best, ties shared.

    Intervals are percentiles of the bootstrap over data sets.
    """
    ranks = stats.rankdata(losses, axis=-1)
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
    """A line of scores for each set, R, method and seed."""

    scores: pd.DataFrame

    @classmethod
    def of(cls, rows: Sequence[Row], table: Table) -> "People":
        """From rows of results."""
        lines = [
            {
                "set": task.source,
                "R": task.n_components,
                "method": method,
                "seed": row["seed"],
                "seconds": row["fit_seconds"] + row["predict_seconds"],
                **{score: row.get(score, np.nan) for score in (*SCORES, *CHANGES)},
            }
            for task, method in table.pairs()
            for row in of(rows, task, method)
        ]
        return cls(pd.DataFrame(lines))

    @cached_property
    def means(self) -> pd.DataFrame:
        """Means over splits by (method, R, set); changes are of one split."""
        grouped = self.scores.groupby(["method", "R", "set"])
        return grouped[[*SCORES, "seconds", *CHANGES]].mean()

    @property
    def sets(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(self.scores["set"]))

    @property
    def n_splits(self) -> int:
        """Number of splits of each set."""
        return int(self.scores["seed"].nunique())

    def ranks(
        self, entries: Sequence[Entry], score: str = "log_loss", sign: float = 1.0
    ) -> dict[Entry, Interval]:
        """Mean ranks by a score, of which lower values times `sign` are better; best first."""
        values = self.means[score]
        losses = np.array([[sign * values[(*entry, s)] for entry in entries] for s in self.sets])
        found = dict(zip(entries, mean_ranks(losses), strict=True))
        return dict(sorted(found.items(), key=lambda item: item[1].mean))

    def difference(self, entry: Entry, rival: Entry, name: str) -> Interval:
        """Log loss of a method less that of a rival on the splits of a set."""
        at = self.scores[self.scores["set"] == name]
        losses = at.pivot(index="seed", columns=["method", "R"], values="log_loss")
        return paired((losses[entry] - losses[rival]).to_numpy())

    def best(self, entries: Sequence[Entry], name: str) -> Entry:
        """The method of the lowest mean log loss on a set."""
        return min(entries, key=lambda entry: self.means["log_loss"][(*entry, name)])


def _label(entry: Entry, *, bold: bool = False) -> str:
    method, r = entry
    shown = f"**{method}**" if bold and method in (*OURS, STACK) else method
    return f"{shown}, R = {r}" if r else shown


def number(interval: Interval) -> str:
    """A mean rank and its interval."""
    return f"{interval.mean:.1f} [{interval.low:.1f}, {interval.high:.1f}]"


def _join(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def places(ranks: dict[Entry, Interval]) -> str:
    """Mean ranks of the models of the package and of the best other method."""
    rival = next(entry for entry in ranks if entry not in PACKAGE)
    named = [entry for entry in ranks if entry in PACKAGE or entry == rival]
    return _join([f"{_label(entry)} {number(ranks[entry])}" for entry in named])


def summary(people: People) -> str:
    """Mean ranks of ours and of the best other method."""
    ranks = people.ranks(PREDICTIONS)
    return (
        f"Mean ranks by log loss among {len(ranks)} methods, over {len(people.sets)} data sets and "
        f"{people.n_splits} splits, of the models of this package with their defaults and of the "
        f"best other method: {places(ranks)}."
    )


def of_predictions(people: People) -> str:
    """Which method predicts best, where each of ours wins, and where it loses."""
    rivals = [entry for entry in PREDICTIONS if entry not in PACKAGE]
    lines = [summary(people), ""]
    for own in PACKAGE:
        wins, losses, behind = [], [], 0
        for name in people.sets:
            rival = people.best(rivals, name)
            found = people.difference(own, rival, name)
            if people.best([own, *rivals], name) == own:
                wins.append(name)
            if found.mean > EQUAL:
                losses.append((found.mean, name, rival, found))
            behind += found.low > 0.0
        text = (
            f"- **{own[0]}** has a lower log loss than all {len(rivals)} other methods on "
            f"{len(wins)} of {len(people.sets)} sets, and a higher one than the best of them, by "
            f"more than {EQUAL}, on {len(losses)}"
        )
        if losses:
            _, name, rival, found = max(losses)
            text += f" ({behind} with an interval above zero): "
            text += f"{_join([each for _, each, *_ in losses])}; most on {name}, "
            text += f"{found} nats against {_label(rival)}"
        lines.append(text + ".")
    return "\n".join(lines)


def predictions_table(people: People) -> str:
    """Ranks, accuracy, calibration, change with the seed and time, best first."""
    ranks = people.ranks(PREDICTIONS)
    body = []
    for entry, rank in ranks.items():
        own = people.means.loc[entry]
        body.append(
            [
                _label(entry, bold=True),
                number(rank),
                f"{100 * own['accuracy'].mean():.1f}",
                f"{own['log_loss'].mean():.2f}",
                f"{own['ece'].mean():.3f}",
                f"{100 * own['labels_changed'].mean():.1f}",
                f"{100 * own['variation'].mean():.1f}",
                f"{own['seconds'].median():.2g}",
            ]
        )
    head = ["", "mean rank", "accuracy", "log loss", "ECE", "labels", "probabilities", "CPU s"]
    return as_markdown(head, body)


def of_maps(people: People) -> str:
    """Which maps show the classes best, by neighbours."""
    ranks = people.ranks(MAPS, "neighbours", -1.0)
    projected = next(entry for entry in ranks if entry[1])
    return (
        f"Mean ranks by neighbours among {len(ranks)} maps: {places(ranks)}; the best map of two "
        f"fitted dimensions is that of {_label(projected)}, {number(ranks[projected])}."
    )


def maps_table(people: People) -> str:
    """Ranks by neighbours, means of the scores, change with the seed and time, best first."""
    ranks = people.ranks(MAPS, "neighbours", -1.0)
    body = []
    for entry, rank in ranks.items():
        own = people.means.loc[entry]
        body.append(
            [
                _label(entry, bold=True),
                number(rank),
                f"{100 * own['neighbours'].mean():.1f}",
                f"{100 * own['linear'].mean():.1f}",
                f"{own['linear_ece'].mean():.3f}",
                f"{own['map_changed'].mean():.2f}",
                f"{own['seconds'].median():.2g}",
            ]
        )
    head = ["", "mean rank", "neighbours", "linear", "ECE", "change", "CPU s"]
    return as_markdown(head, body)


def of_components(people: People) -> str:
    """Mean ranks and log loss of the methods that are limited to R components."""
    both = {r: people.ranks([(method, r) for method in LIMITED]) for r in (2, 5)}
    body = []
    for method, _ in both[2]:
        cells = []
        for r in (2, 5):
            own = people.means.loc[(method, r)]
            cells += [number(both[r][method, r]), f"{100 * own['accuracy'].mean():.1f}"]
            cells.append(f"{own['log_loss'].mean():.2f}")
        body.append([_label((method, 0), bold=True), *cells])
    head = [name for r in (2, 5) for name in (f"mean rank, R = {r}", "accuracy", "log loss")]
    return as_markdown(["", *head], body)


def of_calibration(people: People) -> str:
    """Calibration errors of ours, by set."""
    parts = []
    for entry in PACKAGE:
        own = people.means["ece"].loc[entry]
        parts.append(
            f"{entry[0]} has a mean error of {own.mean():.3f}, at most .05 on "
            f"{(own <= 0.05).sum()} of {len(own)} sets, and the largest, {own.max():.3f}, on "
            f"{own.idxmax()}"
        )
    return "; ".join(parts) + "."


def of_cost(people: People) -> str:
    """CPU seconds of ours."""
    parts = []
    for entry in PACKAGE:
        own = people.means["seconds"].loc[entry]
        parts.append(
            f"{entry[0]} takes {own.median():.2g} CPU seconds (median; at most {own.max():.2g}, "
            f"{own.idxmax()})"
        )
    return _join(parts) + ", the choice of all settings and the predictions included."


PARTS = {
    "predictions": of_predictions,
    "predictions-table": predictions_table,
    "maps": of_maps,
    "maps-table": maps_table,
    "components": of_components,
    "calibration": of_calibration,
    "cost": of_cost,
}
# Those that are tables.
TABLES = ("predictions-table", "maps-table", "components")


def _shade(entry: Entry) -> str:
    return SHADE.get(entry[0], GREY)


def _draw_ranks(ranks: dict[Entry, Interval], score: str) -> Figure:
    """A line for each method, the best above."""
    with mpl.rc_context(STYLE):
        height = 0.7 + 0.21 * len(ranks)
        figure, ax = plt.subplots(figsize=(6.8, height), layout="constrained")
        order = list(ranks)[::-1]
        for place, entry in enumerate(order):
            own = ranks[entry]
            ax.plot([own.low, own.high], [place] * 2, color=_shade(entry), lw=2.0)
            ax.plot(own.mean, place, "o", color=_shade(entry), ms=6.0)
        ax.set_yticks(range(len(order)), [_label(entry) for entry in order])
        ax.set_ylim(-0.8, len(order) - 0.2)
        ax.set_xlabel(f"mean rank by {score}, 1 is best")
        ax.grid(visible=False, axis="y")
    return figure


def draw_predictions(people: People) -> Figure:
    """Mean ranks of predictions and their intervals."""
    return _draw_ranks(people.ranks(PREDICTIONS), "log loss")


def draw_maps(people: People) -> Figure:
    """Mean ranks of maps and their intervals."""
    return _draw_ranks(people.ranks(MAPS, "neighbours", -1.0), "accuracy of neighbours")


def draw_sets(people: People) -> Figure:
    """Log loss of ours less that of the best rival of each set."""
    names, rivals = people.sets, [entry for entry in PREDICTIONS if entry not in PACKAGE]
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.8, 5.0), layout="constrained")
        for row, name in enumerate(names):
            rival = people.best(rivals, name)
            for index, own in enumerate(PACKAGE):
                found = people.difference(own, rival, name)
                height, color = row + 0.2 * (index - 1.5), _shade(own)
                ax.plot([found.low, found.high], [height] * 2, color=color, lw=1.4)
                label = own[0] if row == 0 else None
                ax.plot(found.mean, height, "o", color=color, ms=4.5, label=label)
        ax.axvline(0.0, color=INK, lw=0.9)
        ax.set_xlabel("log loss less that of the best of the other methods")
        ax.grid(visible=False, axis="y")
        named = [f"{name} ({_label(people.best(rivals, name))})" for name in names]
        ax.set_yticks(range(len(names)), named)
        ax.set_ylim(len(names) - 0.5, -0.5)
        figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _name_points(ax: Axes, points: dict[Entry, tuple[float, float]]) -> None:
    for entry, at in points.items():
        ax.plot(*at, "o", color=_shade(entry), ms=6.5 if entry in PACKAGE else 4.5)
    at = np.array(list(points.values()))
    names = [_label(entry) for entry in points]
    Names(ax, at, names, avoid=at, required=len(names))


def draw_calibration(people: People) -> Figure:
    """Calibration error against accuracy, means over sets."""
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.8, 5.2), layout="constrained")
        means = people.means.groupby(["method", "R"])[["accuracy", "ece"]].mean()
        ax.margins(0.14, 0.1)
        ax.set_yscale("log")
        ax.set_yticks((0.04, 0.06, 0.1, 0.2, 0.4), ("0.04", "0.06", "0.1", "0.2", "0.4"))
        ax.set_yticks([], minor=True)
        points = {e: (100 * means["accuracy"][e], means["ece"][e]) for e in PREDICTIONS}
        _name_points(ax, points)
        ax.set(xlabel="accuracy, %", ylabel="expected calibration error")
    return figure


def draw_cost(people: People) -> Figure:
    """Mean rank against CPU seconds."""
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.8, 4.6), layout="constrained")
        ranks = people.ranks(PREDICTIONS)
        seconds = people.means["seconds"].groupby(["method", "R"]).median()
        ax.margins(0.14, 0.08)
        ax.set_xscale("log")
        _name_points(ax, {entry: (seconds[entry], ranks[entry].mean) for entry in ranks})
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel="CPU seconds of a fit, median", ylabel="mean rank by log loss")
    return figure


PICTURES = {
    "ranks": draw_predictions,
    "sets": draw_sets,
    "map-ranks": draw_maps,
    "calibration": draw_calibration,
    "cost": draw_cost,
}


def draw(people: People, folder: Path) -> None:
    """Write all pictures."""
    for name, picture in PICTURES.items():
        save(picture(people), folder / f"{name}.png")


def write_csv(people: People, path: Path) -> None:
    """Write the means over splits, a line for each set, R and method."""
    means = people.means.reset_index().sort_values(["R", "set"], kind="stable")
    columns = ["R", "set", "method", *people.means.columns]
    means[columns].round(4).to_csv(path, index=False, lineterminator="\n")
