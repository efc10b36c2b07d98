"""Docstrings of everything the API lists: what it does, related names, and an example that runs."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


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


def test_the_reference_lists_names():
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_docstring_says_what_with_an_example_and_related_names(name):
    text = inspect.getdoc(NAMES[name])
    assert re.match(r"[A-Z].+\.( .+)?$", text.splitlines()[0])
    for section in ("Examples",) if name.endswith("Kernel") else ("See Also", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, section


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
