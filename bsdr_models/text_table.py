"""Rows of words and numbers in columns, for a terminal and for a notebook."""

import textwrap
from collections.abc import Sequence
from html import escape

# Longest line of a text form.
WIDTH = 100
# Narrowest column that the last cells are wrapped to.
MIN_LAST = 30

type Row = Sequence[str]


def text_rows(rows: Sequence[Row], *, indent: int = 0) -> list[str]:
    """Lines of a table: the first column to the left, numbers to the right, the last wrapped.

    Parameters
    ----------
    rows : sequence of rows
        All of one length, two at least.
    indent : int
        Blanks in front of each line.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    margin = indent + sum(sizes) + 2 * len(sizes)
    lines = []
    for row in rows:
        first, *numbers = row[:-1]
        left = [" " * indent + first.ljust(sizes[0])]
        left += [text.rjust(size) for text, size in zip(numbers, sizes[1:], strict=True)]
        wrapped = textwrap.wrap(row[-1], max(WIDTH - margin, MIN_LAST)) or [""]
        lines.append("  ".join([*left, wrapped[0]]))
        lines += [" " * margin + rest for rest in wrapped[1:]]
    return lines


def text_notes(notes: Sequence[str], *, indent: int = 0) -> list[str]:
    """Lines of sentences below a table."""
    lines = [line for note in notes for line in textwrap.wrap(note, WIDTH - indent)]
    return [" " * indent + line for line in lines]


def html_row(row: Row, *, tags: Sequence[str]) -> str:
    """A row of a table: words (first and last) to the left, numbers to the right.

    Parameters
    ----------
    row : sequence of str
        Plain text; it is escaped here.
    tags : sequence of str
        ``th`` or ``td`` of each cell.
    """
    sides = ["left", *["right"] * (len(row) - 2), "left"]
    inner = [
        f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
        for tag, side, text in zip(tags, sides, row, strict=True)
    ]
    return f"<tr>{''.join(inner)}</tr>"


def html_notes(notes: Sequence[str]) -> str:
    """Sentences below a table."""
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
