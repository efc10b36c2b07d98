"""Words that readers search for lead to a page, and public names to one of the API."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytensor
import pytest

import bsdr_models

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "install": "get_started",
    "Windows": "get_started",
    "cite": "get_started",
    "choose a model": "how_to/choose_a_model",
    "priors": "how_to/choose_priors_and_engine",
    "PLS-DA": "how_to/compare_models",
    "classify": "how_to/classify",
    "unbalanced": "how_to/classify",
    "calibration": "how_to/classify",
    "threshold": "how_to/classify",
    "scikit-learn and ArviZ": "how_to/other_plots",
    "nonlinear": "how_to/kernels_and_views",
    "select features": "how_to/select_features",
    "importance": "how_to/select_features",
    "number of dimensions": "how_to/choose_dimensions",
    "cross-validated": "how_to/choose_dimensions",
    "missing values": "how_to/missing_values",
    "impute": "how_to/missing_values",
    "unlabelled": "how_to/missing_values",
    "sparse": "how_to/many_features",
    "memory": "how_to/large_data",
    "a cluster": "how_to/large_data",
    "few samples": "how_to/few_samples",
    "permuting": "how_to/few_samples",
    "ellipse": "how_to/trust",
    "trust": "how_to/trust",
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


def test_the_page_for_pymc_users_runs(monkeypatch):
    monkeypatch.setattr(pytensor.config, "mode", "FAST_COMPILE")  # as the page itself does
    names = {}
    text = (DOCS / "how_to" / "pymc.md").read_text()
    for cell in re.findall(r"```{code-cell} ipython3\n(.*?)```", text, re.DOTALL):
        exec(re.sub(r"^:tags:.*", "", cell), names)
    plt.close("all")
    assert float((names["drawn"] == names["y"][1::2]).mean()) > 0.9
    assert -250.0 < names["bound"] < 0.0
    assert names["info"].elbo > -3400.0  # of the paper's BM2PCA


@pytest.mark.parametrize("module", [bsdr_models, bsdr_models.plots], ids=lambda m: m.__name__)
def test_public_names_stand_in_the_api(module):
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.rst"))
    assert set(module.__all__) - {"plots"} <= set(re.findall(r"\w+", pages))
