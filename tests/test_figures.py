"""Figures in several places agree, and the text of notebooks agrees with its outputs."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLAIN = ("plain", "html")
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d{2,}(?![\w.]*\d)")

# The same figure, as a group of a pattern, in several pages.
FIGURES = {
    "coverage of mean-field ellipses": {
        "docs/models/bsdr.md": r"mean field have a coverage of (\d+) %",
        "docs/evidence.md": r"Ellipses of mean field cover (\d+) %",
        "docs/decisions/0003-positions.md": r"those of q cover (\d+) %",
    },
    "samples at which Laplace's method replaces sampling": {
        "docs/models/bsdr.md": r"Beyond about (\d+) samples Laplace's",
        "docs/explanation/when_not_to.md": r"Beyond about (\d+) a normal approximation",
    },
    "samples of the likelihood of D-GPLVM": {
        "docs/models/dgplvm.md": r"per step up to (\d+) samples",
        "docs/models/index.md": r"N² from (\d+) samples on",
        "docs/explanation/when_not_to.md": r"D-GPLVM is exact up to (\d+) samples",
        "CHANGELOG.md": r"evenly spaced samples from (\d+) samples on",
    },
    "samples of D-GPLVM in a minute": {
        "docs/models/dgplvm.md": r"(\d+ 000) × 256: about a minute",
        "docs/explanation/when_not_to.md": r"(\d+ 000) x 256 take about a minute",
    },
    "R² of BM2PCARegressor with independent features": {
        "docs/models/bm2pca.md": r"R² \.80 for (\.\d+) with 20 independent features",
        "docs/derivations/bm2pca.md": r"R² is (\.\d+) and the mean log density of new samples",
    },
    "lapse": {
        "docs/how_to/choose_priors_and_engine.md": r"`lapse` \| (0\.\d+)",
        "bsdr_models/bsdr/priors.py": r"lapse: float = (0\.\d+)",
        "notebooks/07_change_the_model.ipynb": r"LAPSE = (0\.\d+)",
    },
    "version": {
        "pyproject.toml": r'(?m)^version = "([\d.]+)"',
        "CITATION.cff": r"(?m)^version: ([\d.]+)",
        "CHANGELOG.md": r"(?m)^## ([\d.]+) - \d{4}",
    },
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_in_several_places_agree(name):
    found = {}
    for page, pattern in FIGURES[name].items():
        match = re.search(pattern.replace(" ", r"\s+"), (ROOT / page).read_text())
        assert match, f"{page}: no {pattern}"
        found[page] = match[1].strip()
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_decimals_in_the_text_of_a_notebook_stand_in_its_code_or_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            shown.append("".join(cell["source"]))
            for output in cell["outputs"]:
                shown.append("".join(output.get("text", "")))
                shown += ["".join(output.get("data", {}).get(f"text/{k}", "")) for k in PLAIN]
    values = [float(value) for text in shown for value in re.findall(r"\d*\.\d+|\d+", text)]
    prose = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    figures = DECIMAL.findall(re.sub(r"`[^`]*`", "", prose))
    assert not [figure for figure in figures if not any_near(figure, values)]


def any_near(figure, values):
    """Whether a value, or per cent, rounds to a figure."""
    half = 0.5 * 10.0 ** -len(figure.split(".")[1]) + 1e-12
    return any(abs(v - float(figure)) < half or abs(v / 100 - float(figure)) < 1e-9 for v in values)


def test_a_figure_that_stands_nowhere_is_found():
    assert any_near("0.52", [0.516])
    assert not any_near("0.53", [0.516, 5.3])
