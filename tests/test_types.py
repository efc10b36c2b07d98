"""Static types of the public names, as a user's type checker sees them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bsdr_models

ROOT = Path(__file__).parents[1]
# Lines that are right, and lines with one error each, marked by a comment.
PROGRAM = """
import numpy as np
from bsdr_models import BM2PCAClassifier, BSDRClassifier, BSDRRegressor, HingeLoss, Sampling
from bsdr_models import compare_models, cross_validated_map, load, plots

X = np.zeros((30, 4))
y = np.arange(30) % 3
model: BSDRClassifier = BSDRClassifier(2, sampling=Sampling(draws=100), random_state=0).fit(X, y)
labels: np.ndarray = model.predict(X)
tree = cross_validated_map(model, X, y, cv=5)
plots.plot_map(tree)
table = compare_models(X, y, random_state=0).table
again = load("model.skops")
size = model.transform(X).shape[1] + model.intercept_.size
mean = BSDRRegressor().fit(X, X[:, 0]).predict(X).mean()
BSDRClassifier(n_components="two")  # wrong
BM2PCAClassifier(loss=HingeLoss(cost=1.0))  # wrong
compare_models(X, y, groups=5, progress=True)  # wrong
compare_models(X, y).best  # wrong
model.transform(X).rows  # wrong
from bsdr_models import BSDRClasifier  # wrong
"""


def test_the_stub_has_the_public_names():
    stub = ast.parse((ROOT / "bsdr_models" / "__init__.pyi").read_text())
    found = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname] = (node.module, alias.name)
    assert found.pop("plots") == ("bsdr_models", "plots")
    assert found == {name: (module, name) for name, module in bsdr_models._PUBLIC.items()}


@pytest.mark.slow
def test_errors_in_a_users_program_are_found_and_nothing_else(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(path)],  # with the settings and the cache of make lint
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=500,
    )
    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    # Whatever the folder: mypy repeats what it knows of the same program in another one.
    errors = re.findall(r"program\.py:(\d+): error:", run.stdout)
    assert set(map(int, errors)) == wrong, run.stdout
