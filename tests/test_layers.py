"""Imports go one way, and the table below says which.

It is by module name; the first pattern that matches counts, and a module that none
matches has no place yet. ``inside`` are patterns of this package's own modules, ``outside`` are
libraries beside the standard one. Both hold for every import, wherever it stands; ``lazy`` ones
may stand in a function only, so that what they load is loaded when it is asked for.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

import bsdr_models

ROOT = Path(bsdr_models.__file__).parent
PAPERS = ("bsdr", "bm2pca", "dgplvm")
BASE = ("arrays", "dims", "rng", "spec", "metrics", "inputs")
# Modules of a paper that hold its mathematics: NumPy and SciPy, and each other.
STEPS = ("posterior", "paper.posterior", "paper.predict", "probit_*")
STEPS += tuple(
    f"paper.{name}"
    for name in (
        "mean_field",
        "joint_lbfgs",
        "data",
        "probit_*",
        "initial_values",
        "loss_augmentation",
        "views",
        "factor_model",
        "rotation",
        "gibbs",
        "*_draws",
        "sample_covariances",
    )
)
STEPS += ("*_metric", "subspace", "smooth_hinge", "wishart_evidence")
STEPS += ("starts",)
STEPS += ("likelihood", "criteria", "dynamics", "back_constraint")
STEPS += ("objective", "paper.objective", "paper.laplace", "gp_classifier", "decoder")
STEPS += ("latent_inference", "leave_one_out")
NUMERICS = ("numerics.*",)
CHECKS = ("checks", "frames", "unlabeled")
# Samples that are not an array in memory, and predictions of them.
SOURCES = ("dask_arrays",)
# What all estimators offer: saving, reporting, citing.
ESTIMATORS = ("base", "summary", "options")
DRIVERS = tuple(
    f"inference.{name}"
    for name in (
        "coordinate_ascent",
        "gibbs",
        "callbacks",
        "optimise",
        "parallel",
        "chunks",
        "sampling",
        "result",
    )
)


@dataclass(frozen=True, kw_only=True)
class Layer:
    modules: tuple[str, ...]
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ("numpy",)
    lazy: tuple[str, ...] = ()


def paper_layers(paper):
    """Ranks 3 and 4: a paper sees its own folder and what lies below, never another paper."""
    return (
        Layer(modules=(f"{paper}.spec", f"{paper}.priors"), inside=BASE),
        Layer(
            modules=tuple(f"{paper}.{name}" for name in STEPS),
            inside=(*(f"{paper}.{name}" for name in ("priors", *STEPS)), *BASE, *NUMERICS),
            outside=("numpy", "scipy"),
        ),
        Layer(
            modules=(f"{paper}.model", f"{paper}.paper.model"),
            inside=(
                *(f"{paper}.{name}" for name in ("priors", "posterior", "views", "model")),
                *(f"{paper}.{name}" for name in ("back_constraint", "likelihood", "starts")),
                *BASE,
                *NUMERICS,
            ),
            outside=("numpy", "pymc", "pytensor"),
        ),
        Layer(
            modules=(f"{paper}", f"{paper}.*"),
            inside=(
                f"{paper}.*",
                *ESTIMATORS,
                *CHECKS,
                *SOURCES,
                *BASE,
                *NUMERICS,
                *DRIVERS,
                "inference.datatree",
                "tasks",
            ),
            outside=("numpy", "scipy", "sklearn", "xarray"),
            lazy=(f"{paper}.model", f"{paper}.paper.model", "inference.engines", "arviz_stats"),
        ),
    )


LAYERS = (
    Layer(modules=BASE, inside=BASE),
    Layer(
        modules=(*NUMERICS, "numerics"),
        inside=(*BASE, *NUMERICS),
        outside=("numpy", "scipy", "numba", "llvmlite"),
    ),
    Layer(
        modules=(*DRIVERS, "inference"),
        inside=(*BASE, *NUMERICS, *DRIVERS),
        outside=("numpy", "scipy", "rich", "joblib", "threadpoolctl", "xarray"),
        lazy=("inference.engines", "dask"),
    ),
    Layer(modules=("latent_grid", "tasks"), inside=BASE, outside=("numpy", "xarray")),
    Layer(modules=("effects",), inside=(*BASE, *NUMERICS, "tasks"), outside=("numpy", "xarray")),
    Layer(
        modules=("inference.datatree",),
        inside=(*BASE, *NUMERICS, "latent_grid", "tasks"),
        outside=("numpy", "scipy", "xarray", "arviz_base"),
    ),
    Layer(
        modules=("inference.engines",),
        inside=(*BASE, *NUMERICS, "inference.*"),
        outside=("numpy", "scipy", "xarray", "arviz_base", "pymc", "pytensor", "nutpie"),
    ),
    Layer(
        modules=CHECKS,
        inside=(*CHECKS, *BASE, *NUMERICS),
        outside=("numpy", "scipy", "sklearn", "threadpoolctl", "xarray"),
        lazy=("arviz_stats",),
    ),
    Layer(
        modules=SOURCES,
        inside=(*SOURCES, *CHECKS, *BASE, *NUMERICS),
        outside=("numpy", "scipy", "sklearn"),
        lazy=("dask", "dask.array", "distributed"),
    ),
    Layer(
        modules=ESTIMATORS,
        inside=(
            *ESTIMATORS,
            *CHECKS,
            *BASE,
            *NUMERICS,
            "dask_arrays",
            "latent_grid",
            "inference.datatree",
            "inference.result",
            "inference.sampling",
        ),
        outside=("numpy", "pandas", "scipy", "sklearn", "xarray"),
        lazy=("persistence", "plots", "matplotlib"),
    ),
    Layer(  # finds the classes that it stores by their names, when it is asked to
        modules=("persistence",),
        inside=("base",),
        outside=("sklearn", "skops", "xarray"),
    ),
    *(layer for paper in PAPERS for layer in paper_layers(paper)),
    Layer(
        modules=("plots", "plots.*"),
        inside=(
            "arrays",
            "dims",
            "latent_grid",
            "tasks",
            "effects",
            "metrics",
            "numerics.*",
            "plots.*",
        ),
        outside=("numpy", "scipy", "matplotlib", "sklearn", "xarray"),
    ),
    Layer(
        modules=("cross_validation",),
        inside=(*BASE, *CHECKS, "latent_grid"),
        outside=("numpy", "scipy", "sklearn", "xarray"),
    ),
    Layer(modules=("baselines",), inside=BASE, outside=("numpy", "sklearn")),
    Layer(
        modules=("comparison",),
        inside=(
            *BASE,
            *CHECKS,
            *DRIVERS,
            "options",
            "cross_validation",
            "baselines",
            *(f"{paper}.estimator" for paper in PAPERS),
        ),
        outside=("numpy", "pandas", "sklearn"),
        lazy=("plots",),
    ),
    Layer(
        modules=("stability",),
        inside=(*BASE, *CHECKS, *DRIVERS, "effects", "options"),
        outside=("numpy", "sklearn", "xarray"),
    ),
    Layer(
        modules=("alignment",),
        inside=(*BASE, "numerics.align"),
        outside=("numpy", "xarray"),
    ),
    Layer(
        modules=("diagnosis",),
        inside=(*BASE, "alignment", "registry"),
        outside=("numpy", "pandas", "xarray", "arviz_stats"),
    ),
    Layer(modules=("papers",), inside=tuple(f"{paper}.paper.estimator" for paper in PAPERS)),
    Layer(modules=("registry",), inside=("spec", *(f"{paper}.spec" for paper in PAPERS))),
    Layer(modules=("",)),  # the package itself imports when a name is asked for
)
NEVER_BELOW_THE_MODEL = {"pymc", "pytensor", "arviz", "arviz_base", "sklearn", "matplotlib"}


def module_name(path):
    """Name below the package; empty for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(path):
    """(name of the module, whether inside a function) for every import of a file."""
    tree = ast.parse(path.read_text())
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            # `from package import module` names a module, `from module import thing` does not.
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if _is_module(name) else node.module for name in whole]
        else:
            continue
        yield from ((name, id(node) in inner) for name in names)


def _is_module(name):
    return name.removeprefix("bsdr_models.") in MODULES and name.startswith("bsdr_models.")


def matches(name, patterns):
    return any(fnmatch(name, pattern) for pattern in patterns)


def layer_of(name):
    found = [layer for layer in LAYERS if matches(name, layer.modules)]
    assert found, f"{name} has no layer: give it one in this table"
    return found[0]


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_only_from_its_layers(name):
    layer = layer_of(name)
    for target, inner in imports(MODULES[name]):
        top, _, rest = target.partition(".")
        if top in sys.stdlib_module_names:
            continue
        short, allowed = (rest, layer.inside) if top == "bsdr_models" else (top, layer.outside)
        if matches(short, layer.lazy):
            assert inner, f"{name} loads {target} at its import"
        else:
            assert matches(short, allowed), f"{name} imports {target}"


def test_imports_are_found_wherever_they_stand(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        "import numpy as np\n"
        "from bsdr_models.numerics import orthant\n"
        "from bsdr_models.numerics.orthant import moments\n"
        "class A:\n"
        "    import os.path\n"
        "    def f(self):\n"
        "        import pymc, scipy.linalg\n"
    )
    assert list(imports(file)) == [
        ("numpy", False),
        ("bsdr_models.numerics.orthant", False),
        ("bsdr_models.numerics.orthant", False),
        ("os.path", False),
        ("pymc", True),
        ("scipy.linalg", True),
    ]


def test_the_table_reaches_every_layer():
    """A pattern that matches nothing guards nothing; those of rank 5 may be still to come."""
    for layer in LAYERS[:-1]:
        assert any(layer_of(name) is layer for name in MODULES), layer.modules


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
    assert not set(loaded) & (NEVER_BELOW_THE_MODEL | {"scipy", "numba", "xarray", "rich"})
    assert float(seconds) < 1.0


def test_a_mean_field_fit_needs_neither_pymc_nor_scikit_learn():
    code = """
import sys
import numpy as np
from bsdr_models.bsdr.paper.mean_field_fit import fit_mean_field
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.paper.data import make_data

rng = np.random.default_rng(0)
y = np.arange(30) % 3
data = make_data(rng.standard_normal((30, 4)) + y[:, None], y, n_labels=3)
result = fit_mean_field(
    data, Priors(), n_components=2, rng=rng
)
assert result.converged
print(*{name.partition(".")[0] for name in sys.modules})
"""
    loaded = run_fresh(code).split()
    assert "scipy" in loaded
    assert not set(loaded) & (NEVER_BELOW_THE_MODEL | {"xarray"})
