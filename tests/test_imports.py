"""What importing the package and its mathematics loads."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Packages that another one brings; packages of an optional extra.
BROUGHT_BY = {
    "sklearn": "scikit-learn",
    "arviz_base": "arviz",
    "arviz_stats": "arviz",
    "llvmlite": "numba",
    "pytensor": "pymc",
}
OPTIONAL = {"dask", "distributed", "nutpie", "polars", "zarr"}
HEAVY = {"pymc", "pytensor", "arviz", "arviz_base", "sklearn", "matplotlib"}


def run_fresh(code):
    """Run code in a new interpreter; what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_importing_the_package_is_quick_and_loads_little():
    """Under a second of processor time, counted from an interpreter that has done nothing."""
    code = """
import sys, time
import bsdr_models
print(time.process_time(), *{name.partition(".")[0] for name in sys.modules})
"""
    seconds, *loaded = run_fresh(code).split()
    assert "bsdr_models" in loaded
    assert not set(loaded) & (HEAVY | {"scipy", "numba", "xarray", "rich"})
    assert float(seconds) < 1.0


def test_every_package_that_is_imported_is_declared():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    declared = {line.partition(">")[0] for line in declared}
    imported = set()
    for path in (ROOT / "bsdr_models").rglob("*.py"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    others = imported - sys.stdlib_module_names - {"bsdr_models"} - OPTIONAL
    missing = {BROUGHT_BY.get(name, name) for name in others} - declared
    assert missing == set()


@pytest.mark.slow
def test_a_mean_field_fit_needs_no_pymc_and_an_array_no_dask():
    code = """
import sys
import numpy as np
from bsdr_models.papers.bsdr import mean_field
from bsdr_models.papers.bsdr.priors import Priors
from bsdr_models.papers.coordinate_ascent import maximise

rng = np.random.default_rng(0)
y = np.arange(30) % 3
data = mean_field.make_data(rng.standard_normal((30, 4)) + y[:, None], y, n_labels=3)
result = maximise(
    lambda rng: mean_field.init(data, Priors(), n_components=2, rng=rng),
    lambda state: mean_field.step(state, data, Priors()),
    rng=rng,
)
assert result.converged
print(*{name.partition(".")[0] for name in sys.modules})
from bsdr_models.large.dask_arrays import is_dask
assert not is_dask(np.zeros((3, 2)))
print(*{"dask", "distributed"} & set(sys.modules))
"""
    loaded, of_dask = run_fresh(code).splitlines()
    assert "scipy" in loaded.split()
    assert not set(loaded.split()) & ((HEAVY | {"xarray"}) - {"sklearn"})
    assert not of_dask


# Folders of the models.
MODELS = {"bsdr", "bm2pca", "dgplvm"}
# What the core does not import: its public names are loaded when they are used.
ANNEXES = {"papers", "compare", "large", "transformers"}
# Modules of the root: what a user imports.
MOST_MODULES = 12
# Lines of the core, which a newcomer should be able to hold in mind.
MOST_LINES = 20_000


def module_of(path):
    """Name of the module in a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if path.stem == "__init__" else parts)


MODULES = {module_of(path): path for path in (ROOT / "bsdr_models").rglob("*.py")}


@cache
def parse(path):
    return ast.parse(path.read_text())


def is_for_types(node):
    """Whether what is below ``if TYPE_CHECKING`` is never run."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


@cache
def imports(path, *, anywhere=True):
    """Modules of the package that a file imports: wherever it does, or when it is loaded."""
    tree = parse(path)
    tree.body = [node for node in tree.body if not is_for_types(node)]
    found = set()
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("bsdr_models"):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in MODULES else node.module for name in names}
    return found & MODULES.keys()


def room(module):
    """Folder of the package in which a module is, or the module's own name in the root."""
    return module.split(".")[1] if "." in module else ""


CORE = {name: path for name, path in MODULES.items() if room(name) not in ANNEXES}


def test_the_core_imports_no_annex():
    for name, path in CORE.items():
        assert not {room(each) for each in imports(path)} & ANNEXES, name


def test_no_model_imports_another():
    for name, path in MODULES.items():
        if room(name) in MODELS:
            assert not {room(each) for each in imports(path)} & (MODELS - {room(name)}), name


def test_modules_import_each_other_in_one_direction():
    graph = {name: imports(path, anywhere=False) - {name} for name, path in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_root_holds_what_a_user_imports():
    assert len(list((ROOT / "bsdr_models").glob("*.py"))) <= MOST_MODULES


def test_the_core_has_few_lines():
    assert sum(len(path.read_text().splitlines()) for path in CORE.values()) <= MOST_LINES


def test_no_circle_of_more_than_two_files_by_imports_inside_functions():
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    for name, others in graph.items():
        for other in others:
            graph[other] -= {name}  # two files may know each other
    TopologicalSorter(graph).prepare()


def test_no_class_name_exists_twice():
    classes = [
        node.name
        for path in MODULES.values()
        for node in parse(path).body
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(classes) == sorted(set(classes))
