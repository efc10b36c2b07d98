"""Pages of results from the output of ``python -m benchmarks accuracy``.

    python -m benchmarks report --table people                # print
    python -m benchmarks report --write                       # into the pages, with pictures

A cell is a mean ± standard deviation over splits. Differences are paired, split by split, with 95 %
t intervals. A table has as many splits, from the first, as have a line for every fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from benchmarks import charts, people
from benchmarks.accuracy import RESULTS, read
from benchmarks.page import command, write
from benchmarks.page import table as as_markdown
from benchmarks.rows import NAMES, Row, complete, newest, spread, values
from benchmarks.tables import SINGLE, TABLES, Table, Task

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
# Folder of pictures and further pages.
FOLDER = DOCS / "benchmarks"
PAPERS_PAGE = FOLDER / "papers.md"
# The page with the summary of all methods.
CHOICE = DOCS / "how_to" / "choose_a_model.md"
# The lines behind the pages.
LINES = Path(__file__).parent / "lines.jsonl.gz"
DIGITS = {"accuracy": 1}
# Columns up to which cells have a standard deviation.
FEW = 5


def by_method(rows: Sequence[Row], table: Table) -> str:
    """Mean over splits of the score of a table; ± standard deviation unless the table is wide.

    A score that is ranked is a loss.
    """
    head = [NAMES[table.score], *(_head(task, table.tasks) for task in table.tasks)]
    own = [replace(task, n_components=0) for task in table.tasks]
    asked = dict.fromkeys(table.defaults, own)
    asked |= {method: list(table.tasks) for method in table.methods}
    cells = {
        method: [_cell(rows, task, method, table) for task in tasks]
        for method, tasks in asked.items()
    }
    if table.ranked:
        head.append("mean rank")
        found = {
            method: [values(rows, task, method, table.score) for task in tasks]
            for method, tasks in asked.items()
        }
        known = {
            method: [each.mean() for each in scores]
            for method, scores in found.items()
            if all(len(each) for each in scores)
        }
        ranks = rankdata(np.array(list(known.values())), axis=0).mean(axis=1)
        rank = dict(zip(known, ranks, strict=True))
        cells = {
            method: [*cells[method], f"{rank[method]:.1f}" if method in rank else "-"]
            for method in sorted(cells, key=lambda name: rank.get(name, np.inf))
        }
    lines = [[method, *each] for method, each in cells.items()]
    published = table.published.items()
    lines += [[f"*in the paper:* {name}", *each.split(", ")] for name, each in published]
    return as_markdown(head, lines)


def _head(task: Task, tasks: Sequence[Task]) -> str:
    """What distinguishes a task from the others of its table."""
    parts = [task.source] if len({other.source for other in tasks}) > 1 else []
    if len({other.sizes for other in tasks if other.source == task.source}) > 1:
        kind = "samples" if task.scheme == "first samples" else "per class"
        parts.append(f"{task.sizes[0]} {kind}")
    if len({other.scheme for other in tasks if other.source == task.source}) > 1:
        parts.append(task.scheme)
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
    asked = set(table.pairs())
    for row in rows:
        reason = row.get("skipped") or row.get("failed")
        if reason and (row["task"], row["method"]) in asked:
            name = f"{row['method']} ({row['task'].source})"
            reasons.setdefault(reason, []).append(name)
    return "\n".join(
        f"- {', '.join(dict.fromkeys(names))}: {reason.rstrip('.')}."
        for reason, names in reasons.items()
    )


def people_of(lines: Sequence[dict], seeds: range | None = None) -> people.People:
    """The comparison of all methods, of the complete splits if not of given ones."""
    table = TABLES["people"]
    rows = newest(lines, seeds or range(*table.seeds))
    return people.People.of(rows, seeds or complete(table, rows), table)


def single_text(name: str, rows: Sequence[Row], seeds: range) -> str:
    """Number of splits, then the table of an experiment, or its picture."""
    table = TABLES[name]
    shown = f"![{name}]({name}.png)" if table.curve else by_method(rows, table)
    return "\n\n".join(part for part in (head(seeds), shown, left_out(rows, table)) if part)


def head(seeds: range) -> str:
    """Splits that a table has."""
    return f"*{len(seeds)} split{'s' if len(seeds) > 1 else ''}.*"


def parts(lines: Sequence[dict], names: Sequence[str]) -> Iterator[tuple[Path, str, str]]:
    """Yield the page, the marks and the text of each part of the given tables."""
    for name in names:
        if name == "people":
            found = people_of(lines)
            yield from ((PAGE, part, text(found)) for part, text in people.PARTS.items())
            yield CHOICE, "summary", people.summary(found)
            continue
        rows, seeds = _rows(TABLES[name], lines)
        yield DOCS / f"{TABLES[name].page}.md", name, single_text(name, rows, seeds)


def _rows(table: Table, lines: Sequence[dict]) -> tuple[list[Row], range]:
    """Rows of the complete splits of a table."""
    seeds = complete(table, newest(lines, range(*table.seeds)))
    if not seeds:
        raise ValueError("fits of the first split are missing")
    return newest(lines, seeds), seeds


def draw(lines: Sequence[dict], names: Sequence[str]) -> None:
    """Write the pictures of the given tables, and the means of all methods as a CSV file."""
    for name in names:
        if name == "people":
            found = people_of(lines)
            people.draw(found, FOLDER)
            people.write_csv(found, FOLDER / "people.csv")
        elif TABLES[name].curve:
            rows, _ = _rows(TABLES[name], lines)
            charts.save(charts.curves(rows, TABLES[name]), FOLDER / f"{name}.png")


def main() -> None:
    parser = command("benchmarks report", __doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="put into the pages")
    arguments = parser.parse_args()
    names = arguments.table or ["people", *SINGLE]
    lines = read(arguments.results)
    for page, name, text in parts(lines, names):
        if arguments.write:
            write(page, name, text)
        else:
            print(f"### {name}\n\n{text}\n")
    if arguments.write:
        draw(lines, names)


if __name__ == "__main__":
    main()
