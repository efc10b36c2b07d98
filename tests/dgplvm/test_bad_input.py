"""Invalid and extreme input of D-GPLVM; tests/contract/test_bad_input.py has the common cases.

Warnings are errors here, except expected ones.
"""

import warnings

import numpy as np
import pytest

from bsdr_models import DGPLVMClassifier
from bsdr_models.dgplvm import map_search
from bsdr_models.inference.optimise import run_map
from bsdr_models.papers import PaperDGPLVMClassifier

MODELS = {
    "default": {},
    "limit": {"priors__weight": np.inf},
    "paper": {"optimization__max_iter": 25},
}
each_model = pytest.mark.parametrize("name", ["default", "paper"])

# Expected warnings: labels without signal, one sample of a class, few iterations.
EXPLAINED = (
    "no evidence that the targets depend on X",
    "class .* has a single sample",
    "every class has collapsed to a point",
    "the latent coordinates explain almost nothing",
    "the search stopped after max_iter",
    ".* ended at a bound",
)
SHORT = EXPLAINED[-2:]  # of the paper's model, on any data


def make(name="default", **more):
    kind = PaperDGPLVMClassifier if name == "paper" else DGPLVMClassifier
    return kind().set_params(**{"random_state": 0} | MODELS[name] | more)


def fit(model, X, y, explained=SHORT, **more):
    """Fit, with expected warnings ignored."""
    with warnings.catch_warnings():
        for message in explained:
            warnings.filterwarnings("ignore", message)
        return model.fit(X, y, **more)


@pytest.fixture(scope="module")
def fitted(iris):
    """Every model, fitted once; not to be fitted again."""
    cache = {}

    def get(name):
        if name not in cache:
            cache[name] = fit(make(name), *iris)
        return cache[name]

    return get


@pytest.fixture
def assert_finite(assert_finite):
    """All predictions, and the tree; NaN are the probabilities of a class without other samples."""

    def check(model, X):
        assert_finite(model, X)
        for path, group in model.idata_.subtree_with_keys:
            for name, values in group.data_vars.items():
                if values.dtype.kind == "f" and path != "observed_data" and name != "probability":
                    assert np.isfinite(values).all(), (path, name)

    return check


def test_unlabelled_marker_that_leaves_too_few_labels_raises(iris):
    X, y = iris
    with pytest.raises(ValueError, match="every y equals unlabeled=-1: no row has a label"):
        make(unlabeled=-1).fit(X, np.full(45, -1))
    with pytest.raises(ValueError, match="one class only, 0"):
        make(unlabeled=-1).fit(X, np.where(y == 0, 0, -1))
    with pytest.raises(ValueError, match="unlabeled must be a single value"):
        make(unlabeled=[0, 1]).fit(X, y)


REFUSED = [
    (PaperDGPLVMClassifier, {"weight": np.inf}, "The 'weight' parameter"),
    (PaperDGPLVMClassifier, {"n_components": 3, "criterion": "trace_ratio"}, "n_components <= 2"),
    (DGPLVMClassifier, {"n_components": 3, "priors__criterion": "trace_ratio"}, "needs n_comp"),
    (DGPLVMClassifier, {"n_components": 3, "priors__criterion": "inverse_trace"}, "needs n_comp"),
]


@pytest.mark.parametrize(("kind", "arguments", "match"), REFUSED)
def test_incompatible_arguments_raise(iris, monkeypatch, kind, arguments, match):
    monkeypatch.setattr(map_search, "run_map", None)  # before any work
    with pytest.raises(ValueError, match=match):
        kind().set_params(**arguments).fit(*iris)


@pytest.mark.parametrize(
    ("name", "n_components"), [("default", 1), ("default", 6), ("limit", 6), ("paper", 1)]
)
def test_other_numbers_of_components(iris, assert_finite, name, n_components):
    model = fit(make(name, n_components=n_components, optimization__max_iter=15), *iris, EXPLAINED)
    assert model.transform(iris[0]).shape == (45, n_components)
    assert_finite(model, iris[0])


def test_classes_of_one_sample_each_give_no_collapse_warning(iris):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(iris[0][[0, 20, 40]], [0, 1, 2])
    said = [str(w.message) for w in caught]
    assert any("has a single sample" in message for message in said)
    assert not any("collapsed" in message for message in said)


REPEATED = {
    "a_point_for_each_class": lambda X, y: (np.repeat(X[[0, 20, 40]], 5, axis=0), y[::3]),
    "most_rows_equal": lambda X, y: (
        np.r_[np.tile(X[:1], (20, 1)), X[20:25]],
        y[[0] * 20 + [20] * 5],
    ),
    "two_points_of_mixed_labels": lambda X, y: (
        np.repeat(X[[0, 20]], 6, axis=0),
        np.arange(12) % 2,
    ),
    "two_points_of_three_labels": lambda X, y: (
        np.repeat(X[[0, 20]], 6, axis=0),
        np.arange(12) % 3,
    ),
}


@pytest.mark.parametrize("kind", REPEATED)
@each_model
def test_repeated_samples(iris, assert_finite, name, kind):
    X, y = REPEATED[kind](*iris)
    if name == "paper" and kind.startswith("two_points"):
        with pytest.raises(ValueError, match="centroids of all classes coincide"):
            make(name).fit(X, y)
        return
    model = fit(make(name), X, y, EXPLAINED)
    assert_finite(model, X)
    p = model.predict_proba(X)
    if kind.startswith("two_points") and name == "default":
        assert p.max() < 0.75


@pytest.mark.parametrize(
    ("name", "marker"),
    [("default", -1), ("default", None), ("default", "?"), ("paper", "?")],
)
def test_unlabelled_samples(iris, assert_finite, name, marker):
    """Half of the labels are enough here; None and NA are as NaN."""
    X, y = iris
    given = y.astype(object) if marker in (None, "?") else y.astype(float)
    given[::2] = marker
    unlabeled = np.nan if marker is None else marker
    model = fit(make(name, unlabeled=unlabeled), X, given)
    assert model.classes_.tolist() == [0, 1, 2]
    assert_finite(model, X)
    assert model.score(X, y.astype(model.classes_.dtype)) > 0.85


@each_model
def test_one_label_for_each_class(iris, assert_finite, name):
    X, y = iris
    given = np.full(45, -1)
    given[[2, 17, 33]] = y[[2, 17, 33]]
    model = fit(make(name, unlabeled=-1), X, given, EXPLAINED)
    assert_finite(model, X)
    two = np.where(given == 2, -1, given)
    assert_finite(fit(make(name, unlabeled=-1), X, two, EXPLAINED), X)


def interrupt_after(monkeypatch, calls):
    """Interrupt either objective after some calls."""

    def interrupted_run(objective, starts, **options):
        left = [calls]

        def inner(x):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return objective(x)

        return run_map(inner, starts, **options)

    monkeypatch.setattr(map_search, "run_map", interrupted_run)


@pytest.mark.parametrize("calls", [1, 4])
@each_model
def test_an_interrupt_keeps_the_current_iterate(iris, assert_finite, monkeypatch, name, calls):
    interrupt_after(monkeypatch, calls)
    model = fit(make(name, optimization__n_restarts=3), *iris, explained=EXPLAINED[:4])
    assert model.interrupted_
    assert not model.converged_
    assert model.idata_.attrs["interrupted"] == 1
    assert_finite(model, iris[0])
