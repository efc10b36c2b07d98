"""Lines of results as rows: the newest of every task, method and seed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.methods import METHODS
from benchmarks.tables import Table, Task

Row = dict[str, Any]

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


def newest(lines: Iterable[dict[str, Any]], seeds: Iterable[int] | None = None) -> list[Row]:
    """Rows with ``task``, ``method``, ``seed`` and the result; of all seeds if None.

    Lines of removed methods do not count.
    """
    found: dict[tuple[Any, ...], Row] = {}
    wanted = None if seeds is None else set(seeds)
    for line in lines:
        part = line["key"]
        if part["method"] not in METHODS or (wanted is not None and part["seed"] not in wanted):
            continue
        task = Task(
            source=part["source"],
            scheme=part["scheme"],
            sizes=tuple(part["sizes"]),
            n_components=part["n_components"],
        )
        row = {"task": task.asked_of(part["method"])}
        row |= {"method": part["method"], "seed": part["seed"]}
        found[tuple(row.values())] = {**row, **line["result"]}
    return list(found.values())


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
    argument = {"C": "loss__C", "weight": "weight"}[table.curve]
    at = (METHODS[method].configuration or {}).get(argument)
    return None if at is None else float(at)


def series(table: Table, task: Task, method: str) -> str:
    """Name of the line that a task and method belong to."""
    return method if table.curve in ("n_components", "samples") else f"R = {task.n_components}"


def lacking(table: Table, rows: Sequence[Row], seeds: Iterable[int]) -> int:
    """Number of fits of a table that have no line, unavailable sets excluded."""
    have = {(row["task"], row["method"], row["seed"]) for row in rows}
    wanted = {
        (task, method, seed)
        for task, method in table.pairs()
        if not datasets.is_lost(task.source)
        for seed in seeds
    }
    return len(wanted - have)


def complete(table: Table, rows: Sequence[Row]) -> range:
    """Seeds from the first of a table up to one for which a fit has no line."""
    seeds = range(*table.seeds)
    gaps = (n for n, seed in enumerate(seeds) if lacking(table, rows, [seed]))
    return seeds[: next(gaps, len(seeds))]
