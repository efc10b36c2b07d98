"""Tables and curves of ``docs/benchmarks.md`` from the output of ``python -m benchmarks accuracy``.

    python -m benchmarks report --table few-samples           # print
    python -m benchmarks report --write                       # into the page, complete tables only

A cell is a mean ± standard deviation over splits. Differences are paired, split by split, with 95 %
t intervals over splits and the number of splits on which they are above zero. A table has as many
splits, from the first, as have a line for every fit; its head says how many, and of how many.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import charts, markdown
from benchmarks.accuracy import RESULTS, read
from benchmarks.evidence.page import write
from benchmarks.protocols import TUNING_SEEDS, seed_range
from benchmarks.rows import Row, complete, lacking, newest, of
from benchmarks.tables import TABLES, Table, Task

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
# Folder of plots, relative to the page.
PICTURES = "benchmarks"


def text(name: str, rows: Sequence[Row]) -> str:
    """Markdown of one table, without plots."""
    whole = TABLES[name]
    table = _with_results(whole, rows)
    if not table.methods:
        return "Nothing yet."
    if table.curve:
        parts = _curve_tables(rows, table)
    elif table.measures:
        parts = [markdown.by_method(rows, table.tasks, table.methods, m) for m in table.measures]
    else:
        parts = [markdown.accuracy_and_loss(rows, table), markdown.fits(rows, table)]
    if table.ours and not table.curve:
        parts += [markdown.differences(rows, table, score) for score in ("accuracy", "log_loss")]
    if not table.curve:
        parts += [markdown.costs(rows, table)]
    return "\n\n".join(part for part in (*parts, markdown.left_out(rows, whole)) if part)


def _with_results(table: Table, rows: Sequence[Row]) -> Table:
    """The table without the methods that have no result; a line says why."""
    methods = tuple(m for m in table.methods if any(of(rows, task, m) for task in table.tasks))
    return replace(table, methods=methods, ours=tuple(m for m in table.ours if m in methods))


def _curve_tables(rows: Sequence[Row], table: Table) -> list[str]:
    groups: dict[tuple[str, int], list[Task]] = {}
    for task in table.tasks:
        size = task.n_components if table.curve == "rows" else 0
        groups.setdefault((task.source, size), []).append(task)
    return [
        markdown.by_method(rows, tasks, table.methods, score, _heads(table, tasks))
        for tasks in groups.values()
        for score in table.measures or (table.score, "log_loss")
    ]


def _heads(table: Table, tasks: Sequence[Task]) -> list[str]:
    """Headings that distinguish the tasks of a set, after the name of the set."""
    first = tasks[0]
    if table.curve == "rows":
        return [
            f"{first.source}, R = {first.n_components}: ",
            *(f"N = {task.sizes[0]}" for task in tasks),
        ]
    return [f"{first.source}: ", *(f"R = {task.n_components}" for task in tasks)]


def draw(name: str, rows: Sequence[Row], folder: Path) -> list[str]:
    """Write the plots of a table; return Markdown that shows them."""
    table, shown = TABLES[name], []
    if table.curve and _with_results(table, rows).methods:
        charts.save(charts.curves(rows, table), folder / f"{name}.png")
        shown.append(f"![{name}: curves]({PICTURES}/{name}.png)")
    if table.dots and _with_results(table, rows).methods:
        charts.save(charts.dots(rows, _with_results(table, rows)), folder / f"{name}.png")
        shown.append(f"![{name}: every method]({PICTURES}/{name}.png)")
    ranked = charts.ranking_of(rows, table) if table.ranks else None
    if ranked:
        ranking, methods, n_sets = ranked
        note = (
            f"{n_sets} sets by {table.ranks.replace('_', ' ')}; Friedman p = {ranking.p_value:.2g}"
        )
        figure = charts.critical_difference(ranking, methods, note)
        charts.save(figure, folder / f"{name}-ranks.png")
        shown.append(f"![{name}: mean ranks]({PICTURES}/{name}-ranks.png)")
    return shown


def head(table: Table, seeds: range) -> str:
    """Splits that a table has, and their planned number."""
    first, last, n = seeds[0], seeds[-1], len(seeds)
    named = f"Seed {first}" if n == 1 else f"Seeds {first} to {last}"
    planned = len(range(*table.seeds))
    count = f"{n} of {planned}" if n < planned else f"{n}"
    return f"{named}: {count} splits."


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated")
    parser.add_argument(
        "--seeds", type=seed_range, help="first:past the last; those that all fits have"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help=f"put into {PAGE.name}")
    parser.add_argument("--partial", action="store_true", help="write tables with gaps as well")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    if arguments.write and set(arguments.seeds or ()) & set(TUNING_SEEDS):
        parser.error("tuning seeds are not reported")
    lines = read(arguments.results)
    for name in arguments.table or TABLES:
        table = TABLES[name]
        whole = range(*table.seeds)
        found = whole if arguments.partial else complete(table, newest(lines, whole)) or whole
        seeds = arguments.seeds or found
        rows = newest(lines, seeds)
        gaps = lacking(table, rows, seeds)
        content = text(name, rows)
        if not arguments.write:
            print(f"### {name}\n\n{content}\n\n{gaps} fits are missing.\n")
        elif gaps and not arguments.partial:
            print(f"{name}: left as it is, {gaps} fits are missing")
        else:
            folder = arguments.page.parent / PICTURES
            parts = [head(table, seeds), *draw(name, rows, folder), content]
            write(arguments.page, name, "\n\n".join(parts))
            print(f"{name}: written, {gaps} fits are missing")


if __name__ == "__main__":
    main()
