"""Markdown tables of results."""

from collections.abc import Sequence

import numpy as np

from benchmarks import datasets
from benchmarks.comparison import paired
from benchmarks.evidence.page import table as as_markdown
from benchmarks.rows import NAMES, Row, of, spread, value, values
from benchmarks.tables import Table, Task


def accuracy_and_loss(rows: Sequence[Row], table: Table) -> str:
    """A line per task, a column per method; mean ± standard deviation over splits."""
    lines = []
    for task in table.tasks:
        if reason := _missing(task):
            lines.append([str(task), reason, *["-"] * (len(table.methods) - 1)])
            continue
        cells = [_both(of(rows, task, method)) for method in table.methods]
        lines.append([str(task), *cells])
    return as_markdown(["accuracy %, log loss", *table.methods], lines)


def _missing(task: Task) -> str:
    known = datasets.SETS.get(task.source)
    return f"could not be had: {known.missing}" if known and known.missing else ""


def _both(found: Sequence[Row]) -> str:
    if not found:
        return "-"
    accuracy = 100.0 * np.array([row["accuracy"] for row in found])
    loss = np.array([row["log_loss"] for row in found])
    return f"{_mean(accuracy, 1)}, {_mean(loss, 3)}"


def _mean(found: np.ndarray, digits: int) -> str:
    """Mean and, for several splits, standard deviation."""
    text = f"{found.mean():.{digits}f}"
    return text if len(found) == 1 else f"{text} ± {spread(found):.{min(digits, 3)}f}"


def by_method(
    rows: Sequence[Row],
    tasks: Sequence[Task],
    methods: Sequence[str],
    score: str,
    heads: Sequence[str] | None = None,
) -> str:
    """A table of one score: tasks as columns, methods as lines.

    ``heads`` are the text before the name of the score, and a name for each task.
    """
    group, *names = heads or ("", *map(str, tasks))
    shown = [index for index, task in enumerate(tasks) if not _missing(task)]
    lines = [[m, *(_score(rows, tasks[index], m, score) for index in shown)] for m in methods]
    notes = [f"{task.source}: {_missing(task)}." for task in tasks if _missing(task)]
    text = as_markdown([group + NAMES[score], *(names[index] for index in shown)], lines)
    return "\n\n".join([text, *dict.fromkeys(notes)])


def _score(rows: Sequence[Row], task: Task, method: str, score: str) -> str:
    found = values(rows, task, method, "error" if score == "worst" else score)
    if not len(found) or np.isnan(found).any():
        return "-"
    if score == "worst":
        return f"{found.max():.3f}"
    digits = 1 if score == "accuracy" else 4 if score == "error" else 3
    return _mean(found, digits)


def differences(rows: Sequence[Row], table: Table, score: str) -> str:
    """Methods of this package less each other one, by split: mean and 95 % t interval."""
    others = [method for method in table.methods if method not in table.ours]
    lines = []
    for task in table.tasks:
        for ours in table.ours:
            cells = [_difference(rows, task, ours, other, score) for other in others]
            if any(cell != "-" for cell in cells):
                lines.append([str(task), ours, *cells])
    return as_markdown([f"{NAMES[score]}: difference", "of", *others], lines)


def _difference(rows: Sequence[Row], task: Task, ours: str, other: str, score: str) -> str:
    a, b = (
        {row["seed"]: value(row, score) for row in of(rows, task, method)}
        for method in (ours, other)
    )
    common = sorted(set(a) & set(b))
    if not common:
        return "-"
    found = paired(np.array([a[seed] - b[seed] for seed in common]))
    digits = 1 if score == "accuracy" else 3
    text = f"{found.mean:+.{digits}f}"
    if found.n > 1:
        text += f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    return f"{text}, {found.above}/{found.n}"


def costs(rows: Sequence[Row], table: Table) -> str:
    """Median CPU seconds of a fit and of predictions, and memory above the data, per method."""
    shown = [task for task in table.tasks if not _missing(task)]
    lines = [
        [method, *(_cost(of(rows, task, method)) for task in shown)] for method in table.methods
    ]
    return as_markdown(["fit s, predict s, MiB", *map(str, shown)], lines)


def _cost(found: Sequence[Row]) -> str:
    found = [row for row in found if "fit_seconds" in row]
    if not found:
        return "-"
    fit, predict = (
        np.median([row[name] for row in found]) for name in ("fit_seconds", "predict_seconds")
    )
    memory = [row["mib"] for row in found if row["mib"] is not None]
    size = f"{max(np.median(memory), 0.0):.0f}" if memory else "-"
    return f"{fit:.2g}, {predict:.2g}, {size}"


def fits(rows: Sequence[Row], table: Table) -> str:
    """Remarks of the fits of BSDR; empty if there are none."""
    head = ["task", "method", "seeds", "ECE", "Brier", "converged", "live columns", "by norm"]
    lines = []
    for task in table.tasks:
        for method in table.methods:
            found = [row for row in of(rows, task, method) if "live" in row]
            if found:
                means = [
                    f"{np.mean([row[name] for row in found]):.3g}"
                    for name in ("ece", "brier", "converged", "live", "live_by_norm")
                ]
                worst = max(row["log_loss"] for row in found)
                lines.append([str(task), method, str(len(found)), *means, f"{worst:.3f}"])
    return as_markdown([*head, "worst log loss"], lines) if lines else ""


def left_out(rows: Sequence[Row], table: Table) -> str:
    """Why a method has no result, one line per reason."""
    reasons: dict[str, list[str]] = {}
    asked = {(task.asked_of(method), method) for task in table.tasks for method in table.methods}
    for row in rows:
        reason = row.get("skipped") or row.get("failed")
        if reason and (row["task"], row["method"]) in asked:
            name = f"{row['method']} ({row['task'].source})"
            reasons.setdefault(reason, []).append(name)
    return "\n".join(
        f"- {', '.join(dict.fromkeys(names))}: {reason.rstrip('.')}."
        for reason, names in reasons.items()
    )
