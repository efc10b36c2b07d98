"""What importing the package and its mathematics loads."""

import ast
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

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
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    others = imported - sys.stdlib_module_names - {"bsdr_models"} - OPTIONAL
    missing = {BROUGHT_BY.get(name, name) for name in others} - declared
    assert missing == set()


def test_a_mean_field_fit_needs_neither_pymc_nor_scikit_learn():
    code = """
import sys
import numpy as np
from bsdr_models.bsdr.paper import mean_field
from bsdr_models.bsdr.priors import Priors
from bsdr_models.inference.coordinate_ascent import run_coordinate_ascent

rng = np.random.default_rng(0)
y = np.arange(30) % 3
data = mean_field.make_data(rng.standard_normal((30, 4)) + y[:, None], y, n_labels=3)
result = run_coordinate_ascent(
    lambda rng, restart: mean_field.init(data, Priors(), n_components=2, rng=rng),
    lambda state: mean_field.step(state, data, Priors()),
    rng=rng,
)
assert result.converged
print(*{name.partition(".")[0] for name in sys.modules})
"""
    loaded = run_fresh(code).split()
    assert "scipy" in loaded
    assert not set(loaded) & (HEAVY | {"xarray"})


# Folders of models, the files that each has, and those of its paper's model, if it has one.
FOLDERS = {path.parent.name for path in (ROOT / "bsdr_models").glob("*/spec.py")}
PLAN = {"engines", "estimator", "model", "posterior", "priors", "problem", "spec", "trees"}
PAPER_PLAN = {"engines", "estimator", "model"}


def imports(path):
    """Modules of the package that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("bsdr_models"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_the_folders_of_the_models_have_the_same_plan():
    assert {"bsdr", "bm2pca", "dgplvm"} <= FOLDERS
    for name in FOLDERS:
        folder = ROOT / "bsdr_models" / name
        assert {path.stem for path in folder.glob("*.py")} >= PLAN, name
        assert (folder / "base.py").exists() == (folder / "paper").exists(), name
        if (folder / "paper").exists():
            assert {path.stem for path in (folder / "paper").glob("*.py")} >= PAPER_PLAN, name


def test_nothing_imports_the_models_of_the_papers():
    """But the module of papers; public names of the package are loaded by name when used."""
    for path in (ROOT / "bsdr_models").rglob("*.py"):
        if path.parent.name != "paper" and path.name != "papers.py":
            assert not {name for name in imports(path) if ".paper." in name}, path


def test_no_model_imports_another():
    for name in FOLDERS:
        for path in (ROOT / "bsdr_models" / name).rglob("*.py"):
            others = {each.split(".")[1] for each in imports(path) if each.count(".")}
            assert not others & (FOLDERS - {name}), path


def test_modules_import_each_other_in_one_direction():
    modules = {}
    for path in (ROOT / "bsdr_models").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        modules[".".join(parts[:-1] if path.stem == "__init__" else parts)] = path
    graph = {}
    for name, path in modules.items():
        found = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    own = f"{node.module}.{alias.name}"
                    found.add(own if own in modules else node.module)
        graph[name] = found & modules.keys()
    TopologicalSorter(graph).prepare()  # raises CycleError
