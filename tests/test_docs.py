"""Words that readers search for stand in a heading, or are a term of the glossary."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "install": "get_started",
    "Windows": "get_started",
    "cite": "get_started",
    "choose a model": "how_to/choose_a_model",
    "priors": "how_to/choose_priors_and_engine",
    "PLS-DA": "how_to/compare_with_plsda",
    "classify": "how_to/classify",
    "unbalanced": "how_to/classify",
    "calibration": "how_to/classify",
    "threshold": "how_to/classify",
    "select features": "how_to/select_features",
    "importance": "how_to/select_features",
    "number of dimensions": "how_to/choose_dimensions",
    "cross-validated": "how_to/choose_dimensions",
    "missing values": "how_to/missing_values",
    "impute": "how_to/missing_values",
    "unlabelled": "how_to/missing_values",
    "sparse": "how_to/many_features",
    "memory": "how_to/large_data",
    "streams": "how_to/large_data",
    "few samples": "how_to/few_samples",
    "permuting": "how_to/few_samples",
    "save": "how_to/save",
    "maps": "pictures",
    "outlier": "glossary",
    "R-hat": "glossary",
    "credible interval": "glossary",
    "when not to": "explanation/when_not_to",
}


def headings(page: str) -> list[str]:
    """Headings of a page outside code, or the terms of its glossary."""
    text = (DOCS / f"{page}.md").read_text()
    glossary = re.search(r"```\{glossary\}\n(.*?)```", text, re.S)
    if glossary:
        return [line for line in glossary[1].splitlines() if re.match(r"\S", line)]
    return re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)


@pytest.mark.parametrize(("word", "page"), PAGES.items())
def test_words_lead_to_a_page(word, page):
    assert any(word.lower() in heading.lower() for heading in headings(page)), headings(page)
