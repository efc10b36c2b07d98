"""Public names are documented, their examples run, and figures agree."""

import doctest
import json
import re
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import bsdr_models

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


@pytest.mark.parametrize("module", [bsdr_models, bsdr_models.plots], ids=lambda m: m.__name__)
def test_public_names_stand_in_the_api(module):
    pages = "\n".join(path.read_text() for path in REFERENCE.glob("*.rst"))
    assert set(module.__all__) - {"plots"} <= set(re.findall(r"\w+", pages))


def listed():
    """Names of the reference, with their objects."""
    found = {}
    for page in sorted(REFERENCE.glob("*.rst")):
        module = ""
        for line in page.read_text().splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.match(r"   ([A-Za-z_][\w.]*)$", line):
                found[f"{module}.{match[1]}"] = resolve(module, match[1])
    return found


def resolve(module, name):
    """The object of a dotted name, whose first parts may be modules."""
    there = import_module(module)
    for part in name.split("."):
        try:
            there = getattr(there, part)
        except AttributeError:
            there = import_module(f"{there.__name__}.{part}")
    return there


NAMES = listed()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name, request):
    if not name.endswith("diagnose"):  # which says whether the chains are long enough
        request.getfixturevalue("short_runs")
    examples = doctest.DocTestFinder(recurse=False).find(NAMES[name], name, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in examples:
        runner.run(example)
    plt.close("all")
    assert runner.tries > 0
    assert runner.failures == 0


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLAIN = ("plain", "html")
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d{2,}(?![\w.]*\d)")

# The same figure, as a group of a pattern, in several pages.
FIGURES = {
    "lapse": {
        "docs/how_to/choose_priors_and_engine.md": r"`lapse` \| (0\.\d+)",
        "bsdr_models/bsdr/priors.py": r"lapse: float = (0\.\d+)",
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
