"""Command lines, and Markdown tables, written between the marks of a page."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
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


def write(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of a part."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{page} has no marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
