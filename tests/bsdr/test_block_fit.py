"""Classifiers fitted to rows in blocks: the same model as in memory, and answers in blocks."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models import BSDRClassifier, BSDRRegressor, load, plots

ARGUMENTS = {
    "latent_scale": 0.3,
    "projection_prior": "rowwise",
    "max_iter": 40,
    "tol": 1e-12,
    "random_state": 0,
}


def fit(X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forty iterations
        return BSDRClassifier(2, **{**ARGUMENTS, **more}).fit(X, y)


@pytest.fixture(scope="module")
def whole(wine):
    return fit(*wine, block_rows=len(wine[1]))


def same(model, other, X):
    assert model.lower_bounds_ == pytest.approx(other.lower_bounds_, rel=1e-7)
    assert model.predict_proba(X) == pytest.approx(other.predict_proba(X), abs=1e-6)
    for mine, theirs in zip(
        *(m.transform(X, return_cov=True) for m in (model, other)), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-5)


# Rows of a block.
SOURCES = {
    "array": {"block_rows": 33},
    "sparse": {"block_rows": 33},
    "memory-mapped": {"block_rows": 100},
    "zarr": {"block_rows": 60},
    "dask": {},
}


@pytest.mark.parametrize("name", SOURCES)
def test_wherever_rows_are_the_fit_is_the_same(put, name, wine, whole, tmp_path):
    same(fit(put[name](wine[0], tmp_path), wine[1], **SOURCES[name]), whole, wine[0])


def test_it_is_the_model_in_memory(wine, whole):
    """Another road to the same top: L-BFGS with free positions, and with settled ones."""
    top = fit(*wine, block_rows=50, max_iter=2000, tol=1e-4)
    memory = fit(*wine, max_iter=2000, tol=1e-4)
    assert top.lower_bounds_[-1] == pytest.approx(memory.lower_bounds_[-1], abs=0.05)
    assert top.predict_proba(wine[0]) == pytest.approx(memory.predict_proba(wine[0]), abs=0.01)


@pytest.mark.parametrize("name", ["dask", "zarr"])
@pytest.mark.parametrize(
    "method", ["transform", "predict", "predict_proba", "predict_log_proba", "decision_function"]
)
def test_answers_come_by_blocks(put, name, method, wine, whole, tmp_path):
    rows = put[name](wine[0], tmp_path)
    answer = getattr(whole, method)(rows)
    assert (type(answer) is np.ndarray) == (name == "zarr")
    expected = getattr(whole, method)(wine[0])
    assert answer.shape == expected.shape
    assert answer.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(answer), expected)


def test_two_classes_have_one_score_a_row(put, wine, tmp_path):
    X, y = wine[0][wine[1] != "c"], wine[1][wine[1] != "c"]
    model = fit(put["dask"](X, tmp_path), y)
    scores = model.decision_function(put["dask"](X, tmp_path))
    assert scores.shape == (len(X),)
    np.testing.assert_array_equal(np.asarray(scores), model.decision_function(X))


def test_covariances_of_a_dask_array_are_asked_for_one_block_at_a_time(put, wine, whole, tmp_path):
    expected = whole.transform(wine[0], return_cov=True)
    model = deepcopy(whole).set_params(block_rows=33)
    for answer, each in zip(
        model.transform(csr_array(wine[0]), return_cov=True), expected, strict=True
    ):
        np.testing.assert_allclose(answer, each, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="X has no rows"):
        model.transform(csr_array(wine[0])[:0])
    with pytest.raises(ValueError, match="one block of rows at a time"):
        whole.transform(put["dask"](wine[0], tmp_path), return_cov=True)
    with pytest.raises(ValueError, match="12 features"):
        whole.transform(put["dask"](wine[0][:, :12], tmp_path))


def test_some_rows_are_kept_to_look_at(wine, monkeypatch):
    monkeypatch.setattr("bsdr_models.kept_rows.N_KEPT", 20)
    model = fit(*wine, block_rows=33)
    tree = model.idata_
    assert tree["fit"].sizes["obs"] == 20
    kept = tree["fit"]["obs"].to_numpy()
    assert (kept[0], kept[-1]) == (0, len(wine[1]) - 1)
    assert list(tree["observed_data"]["y"].to_numpy()) == list(wine[1][kept])
    assert "log_likelihood" not in tree.children
    shown = tree["fit"]["latent_mean"].to_numpy()
    gap = shown - model.transform(wine[0][kept])
    assert np.abs(gap).max() < 3.0 * model.latent_scale_  # these know their labels besides
    plots.plot_scores(tree)
    assert "178" in str(model.summary())
    assert "20 rows, to look at" in str(model.summary())
    with pytest.raises(AttributeError, match="in memory"):
        _ = model.model_


def test_it_is_saved_as_others_are(wine, whole, tmp_path):
    whole.save(tmp_path / "model.nc")
    again = load(tmp_path / "model.nc")
    np.testing.assert_array_equal(again.predict_proba(wine[0]), whole.predict_proba(wine[0]))
    assert again.idata_.identical(whole.idata_)


def test_the_latent_scale_is_chosen_on_kept_rows(wine):
    model = fit(*wine, latent_scale=None, projection_prior=None, block_rows=60)
    assert model.latent_scale_ in (0.03, 0.1, 0.3, 1.0)
    assert model.score(*wine) > 0.97


def spoiled(X, row):
    X = X.copy()
    X[row, 3] = np.nan
    return X


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (csr_array(spoiled(X, 70)), y, {}), "block 2, row 70: X contains nan"),
        (lambda X, y: (X, y[:-1], {}), "inconsistent numbers of samples"),
        (lambda X, y: (X, np.full(len(y), "a"), {}), "one class only"),
        (lambda X, y: (np.ones_like(X), y, {}), "no variation"),
        (lambda X, y: (X, y, {"block_rows": 0}), "block_rows must be"),
        (lambda X, y: (X, y, {"inference": "nuts"}), "block_rows needs inference='mean_field'"),
    ],
)
def test_what_cannot_be_fitted_says_why(change, message, wine):
    X, y, more = change(*wine)
    model = BSDRClassifier(2, **{"block_rows": 33, "latent_scale": 1.0, **more})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not model.__sklearn_is_fitted__()


def test_real_targets_are_fitted_in_memory(wine):
    with pytest.raises(ValueError, match="block_rows is for BSDRClassifier"):
        BSDRRegressor(1, block_rows=10).fit(wine[0], wine[0][:, 0])


def test_a_fit_goes_on_from_its_checkpoint(wine, tmp_path):
    more = {"block_rows": 33, "checkpoint": tmp_path / "fit"}
    begun = fit(*wine, **more, max_iter=21)
    ended = fit(*wine, **more, max_iter=23)
    assert len(ended.lower_bounds_) == 3
    assert ended.lower_bounds_[0] > begun.lower_bounds_[-2]  # the next sweep, not the first
    assert fit(*wine, block_rows=33).lower_bounds_[0] < begun.lower_bounds_[5]
    with pytest.raises(ValueError, match="another fit: n_components was 2 and is 1"):
        BSDRClassifier(1, **ARGUMENTS, **more).fit(*wine)
    with pytest.raises(ValueError, match="checkpoint is for rows in blocks"):
        fit(*wine, checkpoint=tmp_path)


@pytest.fixture(scope="module")
def streamed(wine):
    X, y = wine
    model = BSDRClassifier(2, latent_scale=0.3, random_state=0)
    for begin in range(0, len(y), 50):
        part = slice(begin, begin + 50)
        model.partial_fit(X[part], y[part], classes=["c", "b", "a"])
    return model


def test_a_stream_is_learned_from(wine, streamed):
    X, y = wine
    assert list(streamed.classes_) == ["a", "b", "c"]
    assert streamed.score(X, y) > 0.97
    assert streamed.idata_["fit"].sizes["obs"] == len(y)
    assert "178" in str(streamed.summary())
    assert "all rows of a stream" in str(streamed.summary())
    assert streamed.fit(X, y).latent_scale_ == 0.3
    assert not hasattr(streamed, "_stream")


def test_a_stream_is_saved_and_goes_on(wine, tmp_path):
    X, y = wine
    model = BSDRClassifier(2, random_state=0).partial_fit(X[:60], y[:60], classes=["a", "b", "c"])
    model.save(tmp_path / "model.nc")
    again = load(tmp_path / "model.nc")
    for each in (model, again):
        each.partial_fit(X[60:], y[60:])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y, None), "classes must be passed on the first call"),
        (lambda X, y: (X, y, ["a", "b"]), "label 'c', which is not among the classes"),
        (lambda X, y: (X, y, ["a"]), "one class only"),
        (lambda X, y: (spoiled(X, 3), y, ["a", "b", "c"]), "NaN"),
        (lambda X, y: (X, y[:-1], ["a", "b", "c"]), "inconsistent numbers"),
    ],
)
def test_what_no_stream_begins_with_says_why(change, message, wine):
    X, y, classes = change(*wine)
    model = BSDRClassifier(2)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes)
    assert not model.__sklearn_is_fitted__()


def test_a_stream_keeps_its_classes_and_columns(wine):
    X, y = wine
    model = BSDRClassifier(2, random_state=0).partial_fit(X, y, classes=["a", "b", "c"])
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="classes are"):
        model.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(ValueError, match="label 'd'"):
        model.partial_fit(X[:1], ["d"])
    with pytest.raises(ValueError, match="12 features"):
        model.partial_fit(X[:, :12], y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
