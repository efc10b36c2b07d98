"""Tables of words and numbers, as text or HTML."""

import textwrap
from collections.abc import Sequence
from html import escape

WIDTH = 100  # longest line
MIN_LAST = 30  # smallest width of the last column

type Row = Sequence[str]


def text_rows(rows: Sequence[Row], *, indent: int = 0) -> list[str]:
    """Lines of a table: first column left-aligned, numbers right-aligned, last column wrapped.

    Parameters
    ----------
    rows : sequence of rows
        All of equal length, at least two.
    indent : int
        Number of leading blanks.
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
    """Wrapped lines of sentences."""
    lines = [line for note in notes for line in textwrap.wrap(note, WIDTH - indent)]
    return [" " * indent + line for line in lines]


def html_row(row: Row, *, tags: Sequence[str]) -> str:
    """HTML row of a table: first and last cell left-aligned, others right-aligned.

    Parameters
    ----------
    row : sequence of str
        Plain text, escaped here.
    tags : sequence of str
        ``th`` or ``td`` for each cell.
    """
    sides = ["left", *["right"] * (len(row) - 2), "left"]
    inner = [
        f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
        for tag, side, text in zip(tags, sides, row, strict=True)
    ]
    return f"<tr>{''.join(inner)}</tr>"


def html_notes(notes: Sequence[str]) -> str:
    """HTML paragraphs of sentences."""
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
