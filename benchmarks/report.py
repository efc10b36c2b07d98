"""Pages of results from the output of ``python -m benchmarks accuracy``.

    python -m benchmarks report --table people                # print
    python -m benchmarks report --write                       # into the pages, with pictures

A cell is a mean ± standard deviation over splits. Differences are paired, split by split, with 95 %
t intervals. A table has as many splits, from the first, as have a line of the newest code for every
fit, and says which version recorded them. Writing all tables also writes the lines behind them.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks import charts, model_choice, people
from benchmarks.accuracy import RESULTS, read
from benchmarks.page import command, write
from benchmarks.page import table as as_markdown
from benchmarks.rows import NAMES, Line, Recorded, Row, of, recorded, spread, values
from benchmarks.tables import TABLES, Table, Task

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
# Folder of pictures and further pages.
FOLDER = DOCS / "benchmarks"
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
    cells = {
        method: [_cell(rows, task, method, table) for task in tasks]
        for method, tasks in _asked(table).items()
    }
    if table.ranked:
        head.append("mean rank")
        ranks = mean_ranks(rows, table)
        cells = {
            method: [*cells[method], people.number(ranks[method]) if method in ranks else "-"]
            for method in sorted(cells, key=lambda name: getattr(ranks.get(name), "mean", np.inf))
        }
    lines = [[method, *each] for method, each in cells.items()]
    published = table.published.items()
    lines += [[f"*in the paper:* {name}", *each.split(", ")] for name, each in published]
    return as_markdown(head, lines)


def mean_ranks(rows: Sequence[Row], table: Table) -> dict[str, people.Interval]:
    """Mean ranks over the tasks of a table of the methods that have all scores, best first."""
    means = {
        method: [values(rows, task, method, table.score).mean() for task in tasks]
        for method, tasks in _asked(table).items()
        if all(of(rows, task, method) for task in tasks)
    }
    found = zip(means, people.mean_ranks(np.transpose(list(means.values()))), strict=True)
    return dict(sorted(found, key=lambda item: item[1].mean))


def of_ranks(rows: Sequence[Row], table: Table) -> str:
    """Mean ranks of the models of the package and of the best other method."""
    ranks = {(method, 0): rank for method, rank in mean_ranks(rows, table).items()}
    return (
        f"Mean ranks by {NAMES[table.score]} among {len(ranks)} methods, over "
        f"the {len(table.tasks)} columns: {people.places(ranks)}."
    )


def of_groups(rows: Sequence[Row], table: Table) -> str:
    """What it changes that groups are given, of the models of the package."""
    known = {task.source: task for task in table.tasks if task.scheme == "groups given"}
    unknown = {task.source: task for task in table.tasks if task.scheme == "groups unknown"}
    parts = []
    for source in known:
        gains = []
        for method, _ in people.PACKAGE:
            given = values(rows, known[source], method, table.score)
            without = values(rows, unknown[source], method, table.score)
            gains.append(f"{method} {people.paired(given - without)}")
        parts.append(f"on {source} {', '.join(gains)}")
    return f"{NAMES[table.score].capitalize()} with groups less that without: {'; '.join(parts)}."


def _asked(table: Table) -> dict[str, list[Task]]:
    """Tasks of each method of a table."""
    own = [replace(task, n_components=0) for task in table.tasks]
    asked = dict.fromkeys(table.defaults, own)
    return asked | {method: list(table.tasks) for method in table.methods}


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


def people_of(found: Recorded) -> people.People:
    """The comparison of all methods."""
    return people.People.of(found.rows, TABLES["people"])


def single_text(name: str, found: Recorded) -> str:
    """Splits and version, sentences, then the table of an experiment, or its picture."""
    table = TABLES[name]
    shown = f"![{name}]({name}.png)" if table.curve else by_method(found.rows, table)
    ranks = of_ranks(found.rows, table) if table.ranked else ""
    grouped = any(task.scheme == "groups given" for task in table.tasks)
    groups = of_groups(found.rows, table) if grouped else ""
    told = (found.splits, ranks, groups, shown, left_out(found.rows, table))
    return "\n\n".join(part for part in told if part)


def parts(name: str, found: Recorded) -> Iterator[tuple[Path, str, str]]:
    """Yield the page, the marks and the text of each part of a table."""
    if name != "people":
        yield DOCS / f"{TABLES[name].page}.md", name, single_text(name, found)
        return
    all_methods = people_of(found)
    for part, text in people.PARTS.items():
        head = f"{found.splits}\n\n" if part in people.TABLES else ""
        yield PAGE, part, head + text(all_methods)
    yield CHOICE, "summary", people.summary(all_methods)


def draw(name: str, found: Recorded) -> None:
    """Write the pictures of a table; of all methods the means as a CSV file, too."""
    if name == "people":
        people.draw(people_of(found), FOLDER)
        people.write_csv(people_of(found), FOLDER / "people.csv")
    elif TABLES[name].curve:
        charts.save(charts.curves(found.rows, TABLES[name]), FOLDER / f"{name}.png")


def store(lines: Sequence[Line], shown: Iterable[Recorded], path: Path = LINES) -> None:
    """Write the lines behind the pages, and the newest of each fit, with which a run goes on."""
    newest = {json.dumps([*islice(line["key"].values(), 6)]): line for line in lines}
    kept = {id(line) for line in newest.values()}
    kept |= {id(line) for found in shown for line in found.lines}
    text = "".join(json.dumps(line) + "\n" for line in lines if id(line) in kept)
    # Without the time, equal lines are equal files.
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    parser = command("benchmarks report", __doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="put into the pages")
    arguments = parser.parse_args()
    lines = read(arguments.results)
    shown = {name: recorded(TABLES[name], lines) for name in arguments.table or TABLES}
    for name, found in shown.items():
        for page, part, text in parts(name, found):
            if arguments.write:
                write(page, part, text)
            else:
                print(f"### {part}\n\n{text}\n")
        if arguments.write:
            draw(name, found)
    if arguments.write and not arguments.table:
        write(PAGE, "choice", model_choice.text(model_choice.read()))
        store(lines, shown.values())


if __name__ == "__main__":
    main()
