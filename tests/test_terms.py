"""Package, README, documentation and notebooks avoid the terms that docs/terms.md rules out."""

import json
import re
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


def name_pattern(names, after=""):
    """Whole identifiers, before what marks code in a page."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b{after}")


def find(text, *patterns):
    """(line, term) of each occurrence."""
    matches = [match for pattern in patterns for match in pattern.finditer(text)]
    return [(text.count("\n", 0, m.start()) + 1, " ".join(m[0].split())) for m in matches]


def blank(text):
    """``text`` without what benchmarks write, all line breaks kept."""
    return GENERATED.sub(lambda match: "\n" * match[0].count("\n"), text)


def prose(path):
    """Text of a notebook without code and outputs."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


WORDS, NAMES = read_terms((DOCS / "terms.md").read_text())
IN_PAGES = word_pattern(WORDS), name_pattern(NAMES, r"(?=[`(.])")
IN_CODE = word_pattern(WORDS), name_pattern(NAMES)


def violations(path):
    text = prose(path) if path.suffix == ".ipynb" else path.read_text()
    code = path.suffix == ".py"
    found = find(text, *IN_CODE) if code else find(blank(text), *IN_PAGES)
    return [f"{path.relative_to(ROOT)}:{line}: {term}" for line, term in sorted(found)]


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
    found = [line for path in paths for line in violations(path)]
    assert not found, "\n" + "\n".join(found)
