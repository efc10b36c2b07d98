"""Package, README, documentation and notebooks avoid the terms that docs/terms.md rules out."""

import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages that may name former terms: the table itself, and the history of the package.
EXEMPT = {DOCS / "terms.md", DOCS / "changelog.md", *(DOCS / "decisions").glob("*.md")}
# Tables and captions that benchmarks write between markers.
GENERATED = re.compile(r"<!-- ([\w-]+): begin -->.*?<!-- \1: end -->", re.DOTALL)


def read_terms(page):
    """Words and identifiers (in code font) of the table's last column."""
    table = page.split("<!-- terms: begin -->")[1].split("<!-- terms: end -->")[0]
    cells = [line.strip("| ").split(" | ")[-1] for line in table.strip().splitlines()[2:]]
    terms = [term.strip() for cell in cells for term in cell.split(",")]
    names = {term.strip("`") for term in terms if term.startswith("`")}
    return [term for term in terms if not term.startswith("`")], names


def word_pattern(words):
    """Whole words, in any case; an underscore ends a word, a line break may divide a phrase."""
    longest_first = sorted(words, key=len, reverse=True)
    phrases = "|".join(r"[\s#]+".join(map(re.escape, word.split())) for word in longest_first)
    return re.compile(rf"(?<![a-z0-9])(?:{phrases})(?![a-z0-9])", re.IGNORECASE)


def blank(text, pattern):
    """``text`` with matches of ``pattern`` removed and all line breaks kept."""
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text)


def find_words(text, words):
    """(line, term) of each whole-word occurrence."""
    matches = word_pattern(words).finditer(text)
    return [(text.count("\n", 0, m.start()) + 1, " ".join(m[0].split())) for m in matches]


def find_names(text, names):
    """(line, name) of each Python identifier among ``names``."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(t.start[0], t.string) for t in tokens if t.type == tokenize.NAME and t.string in names]


def find_code(text, names):
    """(line, name) of each of ``names`` in a page, as a whole identifier."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b(?=[`(.])")
    return [(text.count("\n", 0, m.start()) + 1, m[0]) for m in pattern.finditer(text)]


def prose(path):
    """Text of a notebook without code and outputs."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def violations(path, words, names):
    text = prose(path) if path.suffix == ".ipynb" else path.read_text()
    where = path.relative_to(ROOT).as_posix()
    if path.suffix == ".py":
        found = find_words(text, words) + find_names(text, names)
    else:
        text = blank(text, GENERATED)
        found = find_words(text, words) + find_code(text, names)
    return [f"{where}:{line}: {term}" for line, term in sorted(found)]


WORDS, NAMES = read_terms((DOCS / "terms.md").read_text())
PACKAGE = sorted((ROOT / "bsdr_models").rglob("*.py"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted(DOCS.rglob("*.md")) if p not in EXEMPT),
    *sorted((DOCS / "reference").glob("*.rst")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]


@pytest.mark.parametrize("paths", [PACKAGE, PAGES], ids=["package", "docs"])
def test_former_terms_do_not_occur(paths):
    found = [line for path in paths for line in violations(path, WORDS, NAMES)]
    assert not found, "\n" + "\n".join(found)


def test_terms_are_found_as_whole_words_and_across_lines():
    text = "# The new\n# rows of a first_climb\nleapfrog = Card\n"
    assert find_words(text, ["climb", "leap", "new rows"]) == [(1, "new # rows"), (2, "climb")]
    assert find_names(text, {"Card", "rows"}) == [(3, "Card")]
    page = "a model card, `CARD` and `card(x)`\n<!-- t: begin -->\nclimb\n<!-- t: end -->\nclimb\n"
    assert find_code(page, {"card", "CARD"}) == [(1, "CARD"), (1, "card")]
    assert find_words(blank(page, GENERATED), ["climb"]) == [(5, "climb")]


def test_table_is_read():
    assert {"zoo", "climb", "new rows"} <= set(WORDS)
    assert {"CARD", "block_rows", "plot_scores"} <= NAMES
