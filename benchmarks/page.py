"""Command lines, and Markdown tables, written between the marks of a page."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def command(name: str, description: str | None) -> ArgumentParser:
    """Parser of the arguments of a benchmark."""
    return ArgumentParser(
        prog=f"python -m {name}",
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown of a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def read(page: Path, name: str) -> str:
    """What stands between the marks of a part."""
    return _parts(page, name)[1].strip("\n")


def write(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of a part."""
    before, _, after = _parts(page, name)
    page.write_text(f"{before}\n{text}\n{after}")


def _parts(page: Path, name: str) -> tuple[str, str, str]:
    """The page up to the first mark of a part, between its marks, and from the second one."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, opened, rest = page.read_text().partition(begin)
    inside, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{page} has no marks {begin} and {end}")
    return before + begin, inside, end + after


def ratios(text: str) -> dict[str, float]:
    """Ratios in Markdown tables, whose columns have a slash, by column, first cell and line."""
    found: dict[str, float] = {}
    head: list[str] = []
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if "|" in line else []
        head = (head or cells) if cells else []
        for name, cell in zip(head, cells, strict=True):
            if " / " in name:
                with suppress(ValueError):  # of a dash
                    found[f"{name}, {cells[0]}, line {number}"] = float(cell)
    return found
