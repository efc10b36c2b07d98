"""Declared models: names, dims and coordinates, and what they refuse."""

import numpy as np
import pandas as pd
import pytest

from bsdr_models import HierarchicalPriors, bm2pca, bsdr, papers
from tests.toys import BUILDS, FAST

X = np.random.default_rng(3).standard_normal((9, 4)) + 3.0
# Labels unsorted and not contiguous; some unlabelled samples.
TWO = np.array([7, 2, 7, 7, 2, 2, 7, 2, 2])
THREE = np.array(["b", "?", "a", "b", "c", "a", "?", "b", "a"])
INDEX = np.array([1, -1, 0, 1, 2, 0, -1, 1, 0])


@pytest.mark.parametrize("name", BUILDS)
def test_names_dims_and_coordinates(name):
    kind = name.split()[-1]
    given = THREE != "?" if kind == "bsdr" else np.full(9, True)
    options = {} if kind == "bsdr" else {"unlabeled": "?"}
    table = pd.DataFrame(X[given], columns=list("pqrs"))
    model = BUILDS[name](table, THREE[given], **options)
    assert model.coords["feature"] == tuple("pqrs")
    assert model.coords["outcome"] == ("a", "b", "c")
    expected = INDEX[given]
    if kind == "bm2pca":
        signs = np.where(expected[:, None] == np.arange(3), 1, -1)
        expected = np.where(expected[:, None] < 0, 0, signs)
    np.testing.assert_array_equal(model["y_data"].eval(**FAST), expected)
    np.testing.assert_array_equal(model["X"].eval(**FAST), X[given])
    free = [each.name for each in model.free_RVs]
    if name == "dgplvm":
        assert free == ["latent_raw", "signal_variance", "lengthscale", "noise_variance"]
    if name == "paper's bm2pca":
        assert set(bm2pca.SPEC.identified) <= {*free, *(each.name for each in model.deterministics)}
    if kind == "dgplvm":
        assert model.named_vars_to_dims["latent"] == ("obs", "component")
    else:
        assert model.named_vars_to_dims["coef"] == ("feature", "outcome")


def test_a_single_output_has_a_name():
    model = bsdr.build_model(X, X[:, 0], target="regression")
    assert model.coords["outcome"] == ("y0",)


COMMON = [
    ({"X": np.ones(5)}, "Expected 2D array"),
    ({"X": np.full((9, 4), np.nan)}, "X contains NaN"),
    ({"y": TWO[:-1]}, "X has 9 samples and y has shape"),
    ({"y": np.zeros(9)}, "at least two classes"),
    ({"y": [np.inf, *TWO[1:]]}, "infinity"),
    ({"target": "ordinal"}, "target must be one of|has the targets"),
    *(({"n_components": r}, "n_components") for r in (0, 5, 1.5)),
]
REFUSED = {
    "bsdr": [
        ({"y": TWO[:, None]}, "vector"),
        ({"target": "multilabel"}, "matrix"),
        ({"y": TWO[:, None], "target": "multilabel"}, "0 and 1"),
        ({"priors": papers.bsdr.Priors()}, "must be a HierarchicalPriors"),
    ],
    "paper's bsdr": [({"priors": HierarchicalPriors()}, "must be a Priors")],
    "bm2pca": [],
    "paper's bm2pca": [
        ({"y": 1.0}, "samples"),
        ({"y": np.eye(9, 2, dtype=int)}, "target='multilabel'"),
        ({"target": "multilabel"}, "target='multilabel'"),
        ({"y": np.arange(9) % 3, "target": "binary"}, "two classes"),
        ({"epsilon": -1.0, "target": "regression"}, "epsilon must be"),
        ({"augmented": True, "target": "regression"}, "of signs"),
        *(({"C": C}, "C must be a float in the range") for C in (0.0, np.inf, "cv")),
    ],
    "dgplvm": [
        ({"n_components": 2, "priors": {"criterion": "trace_ratio"}}, "needs n_components <= 1"),
        ({"n_components": 2, "priors": {"criterion": "inverse_trace"}}, "needs n_components <= 1"),
        ({"n_components": 5}, "integer from 1 to 4"),
        ({"priors": {"criterion": "best"}}, "'criterion' parameter of DGPLVMPriors must be"),
        ({"priors": {"weight": np.inf}}, "weight must be"),
        ({"priors": {"weight": -1.0}}, "'weight' parameter of DGPLVMPriors must be"),
        ({"width": 0.0}, "width must be"),
        ({"map_noise": 0.0}, "map_noise must be"),
        ({"target": "regression"}, "'multiclass' and 'binary' only"),
        ({"y": np.arange(9) % 3, "target": "binary"}, "needs two classes"),
        ({"unlabeled": 7}, "at least two classes"),
        ({"X": np.ones((9, 4))}, "all samples of X are equal"),
        ({"X": X[:3], "y": TWO[:3], "n_components": 3, "priors": {"criterion": "total"}}, "2 at"),
    ],
    "paper's dgplvm": [
        ({"X_new": np.ones((2, 3))}, "X_new has 3 features"),
        ({"y": np.arange(9) % 3, "classifier": True, "unlabeled": 2}, "a label of every sample"),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [(name, *case) for name, own in REFUSED.items() for case in [*COMMON, *own]],
)
def test_bad_input_raises(name, change, message):
    arguments = {"X": X, "y": TWO, "n_components": 1} | change
    with pytest.raises(ValueError, match=message):
        BUILDS[name](**arguments)
