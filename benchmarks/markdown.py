"""Markdown tables of results: methods as lines, tasks as columns."""

from collections.abc import Sequence

import numpy as np

from benchmarks.evidence.page import table as as_markdown
from benchmarks.rows import NAMES, Row, spread, values
from benchmarks.tables import Table, Task

DIGITS = {"accuracy": 1}
# Columns up to which cells have a standard deviation.
FEW = 5


def by_method(rows: Sequence[Row], table: Table) -> str:
    """Mean over splits of the score of a table; ± standard deviation unless the table is wide."""
    head = [NAMES[table.score], *(_head(task, table.tasks) for task in table.tasks)]
    lines = [
        [method, *(_cell(rows, task, method, table) for task in table.tasks)]
        for method in table.methods
    ]
    return as_markdown(head, [*lines, *([name, *of] for name, of in table.published.items())])


def _head(task: Task, tasks: Sequence[Task]) -> str:
    """What distinguishes a task from the others of its table."""
    parts = [task.source] if len({other.source for other in tasks}) > 1 else []
    if len({other.sizes for other in tasks if other.source == task.source}) > 1:
        kind = "samples" if task.scheme == "first samples" else "per class"
        parts.append(f"{task.sizes[0]} {kind}")
    if len({other.n_components for other in tasks}) > 1:
        parts.append(f"R = {task.n_components}")
    return ", ".join(parts or [task.source])


def _cell(rows: Sequence[Row], task: Task, method: str, table: Table) -> str:
    found = values(rows, task, method, table.score)
    if not len(found) or np.isnan(found).any():
        return "-"
    digits = DIGITS.get(table.score, 3)
    text = f"{found.mean():.{digits}f}"
    return (
        f"{text} ± {spread(found):.{digits}f}"
        if len(found) > 1 and len(table.tasks) <= FEW
        else text
    )


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
