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
