"""Small data, models and helpers that tests of several folders share."""

import subprocess
import sys
from functools import partial, wraps

import numpy as np
from pytensor.compile.mode import Mode
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    bm2pca,
    bsdr,
    dgplvm,
    papers,
)

RECOMMENDED = {
    "BSDR": BSDRClassifier(random_state=0),
    "BM2PCA": BM2PCAClassifier(random_state=0),
    "D-GPLVM": DGPLVMClassifier(random_state=0),
}

# How to compile what is evaluated a few times: by Python, and without rewriting.
FAST = {"mode": Mode("py", None)}
# Functions that declare a model of samples and classes.
BUILDS = {
    "bsdr": bsdr.build_model,
    "paper's bsdr": partial(papers.bsdr.build_model, n_components=2),
    "bm2pca": bm2pca.build_model,
    "paper's bm2pca": partial(papers.bm2pca.build_model, n_components=2),
    "dgplvm": partial(dgplvm.build_model, n_components=2),
    "paper's dgplvm": partial(papers.dgplvm.build_model, n_components=2, weight=100.0),
}


def scaled_iris(start=0, step=5):
    """Some samples of iris, scaled by all, and their classes."""
    X, y = load_iris(return_X_y=True)
    return scale(X)[start::step], y[start::step]


def random_point(model, rng):
    """Values of every free variable, on the scale of the model."""
    sizes = {name: len(values) for name, values in model.coords.items()}
    point = {}
    for variable in model.free_RVs:
        shape = tuple(sizes[axis] for axis in model.named_vars_to_dims.get(variable.name, ()))
        positive = "precision" in variable.name or "scale" in variable.name
        point[variable.name] = rng.gamma(3.0, size=shape) if positive else rng.normal(size=shape)
    return point


def on_value_scale(model, point):
    """A point as PyMC samples it: of precisions the logarithms."""
    return {
        name: np.log(point[name[: -len("_log__")]]) if name.endswith("_log__") else point[name]
        for name in (variable.name for variable in model.continuous_value_vars)
    }


def random_values(model, seed, size=0.4):
    """Values of all free variables as PyMC samples them, of some size."""
    rng = np.random.default_rng(seed)
    start = model.initial_point()
    return {name: size * rng.standard_normal(value.shape) for name, value in start.items()}


def with_value(X, value):
    """Samples with another value in one place."""
    X = X.copy()
    X[3, 1] = value
    return X


def run_fresh(code, *arguments):
    """Run code in a new interpreter; what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def stopped(function, call, calls=None):
    """The function, stopped by the user at one of its calls; the list ``calls`` grows with them."""
    calls = [] if calls is None else calls

    @wraps(function)
    def tired(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return tired
