"""Random bad input: a clear error or finite output, for every estimator.

An example is a small table to which a few accidents have happened, with labels of some kind and
settings of some kind, in one of many containers; the examples are always the same. Others are
made by ``FUZZ_SEED=1 FUZZ_CASES=100 pytest tests/contract/test_fuzz.py``, 100 per estimator.
"""

import os
import re
import traceback
from dataclasses import dataclass, field
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bsdr_models import plots

pytestmark = [
    pytest.mark.usefixtures("short_runs", "explained"),
    pytest.mark.filterwarnings("ignore:.*samples that resemble each other"),
    pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples"),
    pytest.mark.filterwarnings("ignore:the .* columns of y are read as independent labels"),
]

# How the errors begin that an example may end in.
OPENINGS = (
    r"Input [Xy] contains (NaN|infinity)",
    r"X has no variation: all rows are equal",
    r"y has one class only, ",
    r"y has labels of type ",
    r"Unknown label type: continuous",
    r"Found array with \d+ (sample|feature)\(s\)",
    r"Found input variables with inconsistent numbers of samples",
    r"sample \d+ of X has no observed value",
    r"column \d+ holds values too large to compute with",
    r"output \d+ of y (is constant|has no target at all)",
    r"n_components(=\d+)? (must be|is too large)",
    r"The 'n_components' parameter of ",
    r"X is not standardised, and ",
    r"\d+ components need more labelled samples",
    r"the centroids of all classes coincide",
    r"Sparse data was passed for X",
    r"X is sparse, so never scaled, and ",
    r"y should be a 1d array, got an array of shape",
    r"label \d of y is the same in every sample",
    r"criterion=.inverse_trace. needs n_components",
)
SHORT = {"priors__weight": 10.0, "optimization__max_iter": 3}
UNSCALED = {"standardize": False}
PAPER = (
    {"priors__latent_scale": 30.0, "priors__projection_prior": "rowwise"},
    {"priors__latent_scale": 0.3, "priors__projection_prior": "columnwise", **UNSCALED},
)
CHOICES = {
    "BSDRClassifier": ({"temperature": "auto"}, {"temperature": 1.0, "metric": "identity"}),
    "PaperBSDRClassifier": PAPER,
    "BM2PCAClassifier": (
        {"metric": "identity", "loss__C": None, "max_iter": 20},
        {"metric": "unit", "max_iter": 20},
    ),
    "PaperBM2PCAClassifier": (
        {"max_iter": 3, **UNSCALED},
        {"max_iter": 3, "C": 1e-3},
    ),
    "DGPLVMClassifier": (
        {"priors__weight": np.inf},
        {"priors__weight": np.inf, "metric": "identity"},
        {**SHORT, "mapping__width": 1.0, "mapping__noise": 0.1},
        {**SHORT, "priors__criterion": "total"},
        {**SHORT, "priors__criterion": "inverse_trace"},
    ),
    "PaperDGPLVMClassifier": ({"optimization__max_iter": 3},),
    "BSDRRegressor": ({}, {"metric": "identity"}),
    "BM2PCARegressor": (
        {"max_iter": 4},
        {"max_iter": 4, **UNSCALED},
        {"max_iter": 4, "loss__C": 1e3, "loss__epsilon": 0.0},
    ),
}
ACCIDENTS = {
    "constant_column": lambda X, rng: _put(X, np.s_[:, rng.integers(X.shape[1])], X[0, 0]),
    "constant_columns": lambda X, rng: np.insert(X, rng.integers(X.shape[1] + 1, size=9), 0.1, 1),
    "zero_column": lambda X, rng: _put(X, np.s_[:, rng.integers(X.shape[1])], 0.0),
    "equal_columns": lambda X, rng: X[:, rng.integers(X.shape[1], size=X.shape[1])],
    "equal_rows": lambda X, rng: X[rng.integers(len(X), size=len(X))],
    "all_rows_equal": lambda X, rng: np.repeat(X[:1], len(X), axis=0),
    "rank_one": lambda X, rng: X[:, :1] * np.sign(X[:1]),
    "whole_numbers": lambda X, rng: np.round(X),
    "truth_values": lambda X, rng: (X > 0).astype(float),
    "outlier": lambda X, rng: _put(X, _entry(X, rng), 1e8),
    "gross_reading": lambda X, rng: _put(X, at := _entry(X, rng), 1e3 * X[at]),
    "code_of_missing": lambda X, rng: np.where(rng.random(X.shape) < 0.1, -999.0, X),
    "far_away": lambda X, rng: X + 1e7,
    "large_mean": lambda X, rng: X + 1e9,
    "nearly_constant": lambda X, rng: 1.0 + 1e-9 * X,
    "gap": lambda X, rng: _put(X, _entry(X, rng), np.nan),
    "many_gaps": lambda X, rng: np.where(rng.random(X.shape) < 0.4, np.nan, X),
    "empty_column": lambda X, rng: _put(X, np.s_[:, rng.integers(X.shape[1])], np.nan),
    "empty_row": lambda X, rng: _put(X, rng.integers(len(X)), np.nan),
    "infinite": lambda X, rng: _put(X, _entry(X, rng), -np.inf),
}
# Forms of a table.
CONTAINERS = {
    "array": lambda X: X,
    "single": lambda X: X.astype(np.float32) if np.nanmax(np.abs(X), initial=0.0) < 1e30 else X,
    "columns first": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "read only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    "list": lambda X: X.tolist(),
    "frame": lambda X: pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])]),
    "wavelengths": lambda X: pd.DataFrame(X, columns=1000.0 + 10.0 * np.arange(X.shape[1])),
    "nullable": lambda X: pd.DataFrame(X).add_prefix("f").convert_dtypes(),
    "labelled": lambda X: xr.DataArray(X, dims=("sample", "feature")),
    "masked": np.ma.masked_invalid,
    "sparse": lambda X: csr_array(np.nan_to_num(X, posinf=1.0, neginf=1.0)),
}
LABELS = (
    "blocks", "random", "own", "text", "truth", "floats", "table", "whole", "dummies", "unsigned"
)  # fmt: skip
# Label sets, and classes that look like them.
SETS = ("table", "dummies", "unsigned")
# Those that most estimators refuse, and so for a smaller share of the examples.
DOUBTFUL = ("one", "halves", "missing", "mixed")


def _put(X, where, value):
    X = X.copy()
    X[where] = value
    return X


def _entry(X, rng):
    return rng.integers(len(X)), rng.integers(X.shape[1])


@dataclass(frozen=True)
class Example:
    """What one example gives to an estimator; its repr makes it again."""

    n: int
    d: int
    seed: int
    labels: str
    n_classes: int = 2
    accidents: list[str] = field(default_factory=list)
    exponent: int = 0
    spread: int = 0
    new: str = "same"
    choice: int = 0
    n_components: int = 1
    container: str = "array"

    def rows(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        X = rng.standard_normal((self.n, self.d)) + 2.0 * self._index(rng)[:, None]
        for accident in self.accidents:
            X = ACCIDENTS[accident](X, rng)
        exponents = self.exponent + rng.integers(-self.spread, self.spread + 1, X.shape[1])
        return X * 10.0 ** np.clip(exponents, -300, 300)

    def new_rows(self, X) -> np.ndarray:
        rng = np.random.default_rng([self.seed, 1])
        far = X * (1e9 if np.nanmax(np.abs(X), initial=0.0) < 1e290 else 1e-9)
        return {"same": X, "zeros": np.zeros_like(X), "far": far, "mixed": rng.permuted(X)}[
            self.new
        ]

    def _index(self, rng):
        return np.arange(self.n) % self.n_classes

    def targets(self, *, real: bool) -> Any:
        rng = np.random.default_rng([self.seed, 2])
        index = self._index(rng)
        if real:
            values = index + rng.standard_normal(self.n)
            table = {
                "one": np.ones(self.n),
                "halves": np.column_stack([values, -values]),
                "floats": values * 10.0 ** (self.exponent // 2),
                "missing": np.where(rng.random(self.n) < 0.3, np.nan, values),
                "truth": values > 0,
                "own": np.arange(self.n),
                "table": pd.DataFrame({"b": values, "a": -values}),
            }
            return table.get(self.labels, values)
        if self.labels == "random":
            index = rng.integers(self.n_classes, size=self.n)
        return {
            "one": np.zeros(self.n),
            "own": np.arange(self.n),
            "text": np.array(["b", "a", "", "ä", "c d"])[index],
            "truth": index > 0,
            "floats": index * 1e10 - 3.0,
            "halves": index + 0.5,
            "whole": 2**53 + index,
            "dummies": np.eye(self.n_classes, dtype=int)[index],
            "unsigned": (rng.random((self.n, 2)) < 0.5).astype(np.uint8),
            "missing": np.where(rng.random(self.n) < 0.3, np.nan, index),
            "mixed": [("x", 1, "y", 2, "z")[i] for i in index],
            "table": pd.DataFrame({"b": index > 0, "a": rng.random(self.n) < 0.5}).astype(int),
        }.get(self.labels, index)


@st.composite
def examples(draw):
    spread = draw(st.sampled_from([0, 0, 0, 3, 12, 200]))
    return Example(
        n=draw(st.sampled_from([6, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 1])),
        d=draw(st.integers(1, 8)),
        seed=draw(st.integers(0, 10**6)),
        labels=draw(st.sampled_from(3 * LABELS + DOUBTFUL)),
        n_classes=draw(st.integers(2, 5)),
        accidents=draw(st.lists(st.sampled_from(sorted(ACCIDENTS)), max_size=3)),
        exponent=draw(st.sampled_from([0, 0, 0, 1, -1, 8, -8])) or draw(st.integers(-200, 200)),
        spread=spread,
        new=draw(st.sampled_from(["same", "zeros", "far", "mixed"])),
        choice=draw(st.integers(0, 20)),
        n_components=draw(st.sampled_from([1, 1, 1, 2, 2, 3, 8, 0])),
        container=draw(st.sampled_from(sorted(CONTAINERS))),
    )


def assert_explained(error):
    """Raised here or by scikit-learn's checks, in words that are known."""
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    assert "bsdr_models" in where or "sklearn" in where, where
    assert re.match("|".join(OPENINGS), str(error)), error


def check(zoo, kind, example, *, picture=True):
    """Fit, predict, summarise and plot, or be refused for a reason that is known.

    Columns in another order are refused.
    """
    choices = CHOICES.get(kind, ({},))
    model = zoo.make(kind, **choices[example.choice % len(choices)])
    if "n_components" in model.get_params():
        model.set_params(n_components=example.n_components)
    X, y = example.rows(), example.targets(real=kind.endswith("Regressor"))
    wrap = CONTAINERS[example.container]
    new = example.new_rows(X)
    try:
        model.fit(wrap(X), y)
        model.predict(wrap(new))
    except (ValueError, TypeError) as error:
        assert_explained(error)
        return
    if example.labels not in SETS or kind.endswith("Regressor"):
        zoo.assert_finite(model, wrap(X))
        zoo.assert_finite(model, wrap(new))
    if example.container in ("frame", "wavelengths") and X.shape[1] > 1:
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(wrap(X).iloc[:, ::-1])
    if example.labels == "table":
        np.testing.assert_equal(model.score(wrap(X), y), model.score(wrap(X), y[["a", "b"]]))
    assert len(model.summary())
    if picture:
        plots.plot_map(model.idata_)
        plt.close("all")


# What random seeds have found, before it was mended.
FOUND = {
    "an identity that is lost beside huge features": (
        "PaperBSDRClassifier",
        Example(n=2, d=3, seed=0, labels="blocks", exponent=8, choice=1),
    ),
    "a variance that is a negative rounding error": (
        "PaperBSDRClassifier",
        Example(n=6, d=3, seed=0, labels="blocks", exponent=8, choice=1),
    ),
    "a fold of one sample": (
        "BM2PCAClassifier",
        Example(n=3, d=1, seed=0, labels="blocks"),
    ),
    "scatter within classes that is a rounding error": (
        "DGPLVMClassifier",
        Example(n=3, d=4, seed=999998, labels="blocks"),
    ),
    "squares that underflow without scaling": (
        "PaperBSDRClassifier",
        Example(
            n=10, d=5, seed=30353, labels="own", accidents=["outlier"], exponent=-176, choice=1
        ),
    ),
    "temperatures that never rise without scaling": (
        "BSDRRegressor",
        Example(n=4, d=1, seed=33, labels="halves", n_classes=5, exponent=1, spread=200, choice=1),
    ),
    "distances that underflow without scaling": (
        "PaperBM2PCAClassifier",
        Example(n=8, d=1, seed=0, labels="blocks", exponent=-154, choice=0),
    ),
    "a common scale beside features that are nothing": (
        "BM2PCARegressor",
        Example(
            n=7,
            d=8,
            seed=15637,
            labels="missing",
            accidents=["equal_rows", "zero_column", "zero_column"],
            exponent=-174,
            spread=200,
            new="zeros",
            choice=4,
        ),
    ),
    "covariances of rows without any bound": (
        "DGPLVMClassifier",
        Example(
            n=4, d=4, seed=12677, labels="missing", exponent=8, new="far", choice=3, n_components=2
        ),
    ),
    "a unit taken from a feature that is ignored": (
        "DGPLVMClassifier",
        Example(
            n=6,
            d=3,
            seed=1570,
            labels="blocks",
            accidents=["constant_column", "equal_rows"],
            exponent=1,
            spread=200,
        ),
    ),
    "scatter within the classes of a fold that underflows": (
        "DGPLVMClassifier",
        Example(
            n=6,
            d=4,
            seed=6,
            labels="blocks",
            n_classes=5,
            exponent=-1,
            spread=200,
            container="columns first",
        ),
    ),
    "a sample that alone determines the slope": (
        "BSDRRegressor",
        Example(n=3, d=1, seed=598215, labels="truth", n_classes=3, accidents=["truth_values"]),
    ),
    "a fold without a feature that varies": (
        "BSDRClassifier",
        Example(n=6, d=3, seed=6, labels="blocks", accidents=["truth_values"]),
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_stays_mended(zoo, case):
    check(zoo, *FOUND[case], picture=False)


def random_input(n_examples):
    return settings(
        max_examples=int(os.environ.get("FUZZ_CASES", n_examples)),
        derandomize="FUZZ_SEED" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@random_input(4)
@seed(int(os.environ.get("FUZZ_SEED", "0")))
@given(example=examples())
def test_random_input(zoo, kind, example):
    check(zoo, kind, example)
