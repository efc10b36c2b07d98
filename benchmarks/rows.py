"""Lines of results as rows, of one code of every method."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.methods import METHODS
from benchmarks.tables import Table, Task

# Of the file, and its task, method, seed and result.
Line = dict[str, Any]
Row = dict[str, Any]
# Task, method and seed.
Fit = tuple[Task, str, int]

# Each score from a row, in displayed units.
VALUES: dict[str, Callable[[Row], float]] = {
    "accuracy": lambda row: 100.0 * row["accuracy"],
    "error": lambda row: 1.0 - row["accuracy"],
    "map": lambda row: row.get("map", np.nan),
}
NAMES = {
    "accuracy": "accuracy, %",
    "error": "error",
    "log_loss": "log loss",
    "ece": "expected calibration error",
    "map": "mean average precision",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a table shows: lines of one code of each method, as rows, of its complete splits."""

    lines: list[Line]
    rows: list[Row]
    seeds: range

    @property
    def splits(self) -> str:
        """Number of splits, and the version of the package that recorded each method."""
        by: dict[str, list[str]] = {}
        newest = {line["key"]["method"]: line["by"] for line in self.lines}
        for method, version in newest.items():
            by.setdefault(version, []).append(method)
        first, *others = sorted(by, key=lambda version: -len(by[version]))
        number = f"{len(self.seeds)} split{'s' if len(self.seeds) > 1 else ''}"
        parts = [f"{number}, recorded by version {first}"]
        parts += [f"{', '.join(by[version])} by version {version}" for version in others]
        return f"*{'; '.join(parts)}.*"


def recorded(table: Table, lines: Iterable[Line]) -> Recorded:
    """The newest code of each method; what was recorded before if its first split has a gap.

    Code is not mixed within a method.
    """
    wanted = {(*pair, seed) for pair in table.pairs() for seed in range(*table.seeds)}
    own = [line for line in lines if _fit(line) in wanted]
    while own:
        newest = {line["key"]["method"]: line["key"]["code"] for line in own}
        kept = {
            _fit(line): line for line in own if line["key"]["code"] == newest[line["key"]["method"]]
        }
        whole = complete(table, kept)
        if whole:
            found = [line for line in kept.values() if line["key"]["seed"] in whole]
            return Recorded(lines=found, rows=[_row(line) for line in found], seeds=whole)
        own = [line for line in own if line["by"] != own[-1]["by"]]
    raise ValueError("fits of the first split are missing")


def _fit(line: Line) -> Fit:
    """Which fit a line is of."""
    part = line["key"]
    task = Task(
        source=part["source"],
        scheme=part["scheme"],
        sizes=tuple(part["sizes"]),
        n_components=part["n_components"],
    )
    return task, part["method"], part["seed"]


def _row(line: Line) -> Row:
    """Task, method, seed and result of a line."""
    return dict(zip(("task", "method", "seed"), _fit(line), strict=True)) | line["result"]


def of(rows: Sequence[Row], task: Task, method: str) -> list[Row]:
    """Rows of one task and method that have scores, by seed."""
    task = task.asked_of(method)
    found = [r for r in rows if r["task"] == task and r["method"] == method and "accuracy" in r]
    return sorted(found, key=lambda row: row["seed"])


def values(rows: Sequence[Row], task: Task, method: str, score: str) -> np.ndarray:
    """A score on every split, (S,)."""
    found = of(rows, task, method)
    return np.array([VALUES[score](row) if score in VALUES else row[score] for row in found])


def spread(found: np.ndarray) -> float:
    """Standard deviation over splits; 0 for a single one."""
    return float(found.std(ddof=min(1, len(found) - 1)))


def place(table: Table, task: Task, method: str) -> float | None:
    """Abscissa of a task and method on the curve of a table, or None."""
    if table.curve == "n_components":
        return float(task.n_components)
    if table.curve == "samples":
        return float(task.sizes[0])
    at = (METHODS[method].configuration or {}).get(table.curve)  # the argument of that name
    return None if at is None else float(at)


def series(table: Table, task: Task, method: str) -> str:
    """Name of the line that a task and method belong to."""
    return method if table.curve in ("n_components", "samples") else f"R = {task.n_components}"


def complete(table: Table, fits: Collection[Fit]) -> range:
    """Seeds from the first of a table up to one for which a fit is not among these."""
    seeds = range(*table.seeds)
    pairs = table.pairs()
    gaps = (n for n, seed in enumerate(seeds) if any((*pair, seed) not in fits for pair in pairs))
    return seeds[: next(gaps, len(seeds))]
