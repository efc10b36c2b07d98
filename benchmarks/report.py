"""Markdown tables from the lines that :mod:`benchmarks.accuracy` has written."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


def tables(rows: Sequence[Row], task_order: Sequence[str], methods: Sequence[str]) -> str:
    """Accuracy and log loss, mean and standard deviation over seeds, a column per method."""
    lines = [_line(["accuracy %, log loss", *methods]), _line(["---"] * (1 + len(methods)))]
    for task in task_order:
        cells = [task]
        for method in methods:
            found = [r for r in rows if r["task"] == task and r["method"] == method]
            cells.append(_cell([r for r in found if "accuracy" in r]))
        lines.append(_line(cells))
    return "\n".join(lines)


def fits(rows: Sequence[Row], task_order: Sequence[str], methods: Sequence[str]) -> str:
    """What the fits of BSDR say about themselves."""
    columns: dict[str, Callable[[Row], float]] = {
        "ECE": lambda r: r["ece"],
        "Brier": lambda r: r["brier"],
        "converged": lambda r: r["converged"],
        "live columns": lambda r: r["live"],
        "by norm": lambda r: r["live_by_norm"],
        "no features": lambda r: r["stack"][-1] if "stack" in r else np.nan,
        "worst log loss": lambda r: r["log_loss"],
    }
    lines = [_line(["task", "method", "seeds", *columns]), _line(["---"] * (3 + len(columns)))]
    for task in task_order:
        for method in methods:
            found = [
                r for r in rows if r["task"] == task and r["method"] == method and "converged" in r
            ]
            if not found:
                continue
            values = [np.array([value(r) for r in found], float) for value in columns.values()]
            cells = [f"{v.mean():.3g}" for v in values[:-1]] + [f"{values[-1].max():.3f}"]
            lines.append(_line([task, method, str(len(found)), *cells]))
    return "\n".join(lines)


def measures(
    rows: Sequence[Row], task_order: Sequence[str], methods: Sequence[str], names: Sequence[str]
) -> str:
    """A table per score, tasks as columns and methods as rows; mean and deviation of the error."""
    blocks = []
    for name in names:
        lines = [_line([name.replace("_", " "), *task_order])]
        lines.append(_line(["---"] * (1 + len(task_order))))
        for method in methods:
            cells = [[r for r in rows if _is(r, task, method)] for task in task_order]
            lines.append(_line([method, *(_measure(found, name) for found in cells)]))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _measure(rows: Sequence[Row], name: str) -> str:
    if not rows:
        return "-"
    if name in ("error", "worst"):
        error = 1.0 - np.array([r["accuracy"] for r in rows])
        if name == "worst":
            return f"{error.max():.3f}"
        return f"{error.mean():.4f} ± {error.std(ddof=min(1, len(rows) - 1)):.3f}"
    return f"{np.mean([r[name] for r in rows]):.3f}"


def differences(
    rows: Sequence[Row], task_order: Sequence[str], methods: Sequence[str], ours: Sequence[str]
) -> str:
    """Accuracy of our methods less that of the others on the same splits, and splits won."""
    others = [method for method in methods if method not in ours]
    lines = [_line(["task", "points, splits won", *others])]
    lines.append(_line(["---"] * (2 + len(others))))
    for task in task_order:
        by_seed = {
            method: {r["seed"]: r["accuracy"] for r in rows if _is(r, task, method)}
            for method in methods
        }
        for method in ours:
            cells = [_difference(by_seed[method], by_seed[other]) for other in others]
            lines.append(_line([task, method, *cells]))
    return "\n".join(lines)


def _is(row: Row, task: str, method: str) -> bool:
    return row["task"] == task and row["method"] == method and "accuracy" in row


def _difference(a: dict[int, float], b: dict[int, float]) -> str:
    gain = 100.0 * np.array([a[seed] - b[seed] for seed in sorted(set(a) & set(b))])
    return f"{gain.mean():+.1f}, {np.sum(gain > 0.0)}/{len(gain)}" if len(gain) else "-"


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    accuracy = 100.0 * np.array([r["accuracy"] for r in rows])
    loss = np.array([r["log_loss"] for r in rows])
    ddof = min(1, len(rows) - 1)
    return (
        f"{accuracy.mean():.1f} ± {accuracy.std(ddof=ddof):.1f}, "
        f"{loss.mean():.3f} ± {loss.std(ddof=ddof):.3f}"
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
