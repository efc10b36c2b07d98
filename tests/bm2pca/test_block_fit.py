"""The paper's model fitted to rows in blocks: the numbers of the fit in memory, and answers."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models import BM2PCAClassifier, load, plots
from bsdr_models.bm2pca import blocks as row_blocks

METHODS = ["transform", "predict", "predict_proba", "predict_log_proba", "decision_function"]
PLAIN = {"C": 10.0, "n_sweeps": 5, "calibrate": False}


def fit(X, y, n_components=2, **more):
    arguments = {"variant": "paper", "random_state": 0, **more}
    return BM2PCAClassifier(n_components, **arguments).fit(X, y)


@pytest.fixture(scope="module")
def blocks(wine):
    return fit(*wine, block_rows=33, **PLAIN)


def same(model, other, X):
    assert model.lower_bounds_ == pytest.approx(other.lower_bounds_, rel=1e-9)
    for method in METHODS[2:]:
        mine, theirs = (getattr(each, method)(X) for each in (model, other))
        assert mine == pytest.approx(theirs, abs=1e-6)


# Rows of a block.
SOURCES = {
    "array": {"block_rows": 33},
    "memory-mapped": {"block_rows": 100},
    "zarr": {"block_rows": 60},
    "dask": {},
}


@pytest.mark.parametrize("name", SOURCES)
def test_wherever_rows_are_the_fit_is_that_in_memory(put, name, wine, tmp_path):
    model = fit(put[name](wine[0], tmp_path), wine[1], **PLAIN, **SOURCES[name])
    same(model, fit(*wine, **PLAIN), wine[0])


@pytest.mark.parametrize(
    ("n_components", "more"),
    [
        (1, {"strategy": "one_vs_rest", **PLAIN}),
        (2, {"C": 10.0, "n_sweeps": "converged", "start": "pca", "calibrate": False}),
        (2, {"standardize": False, **PLAIN}),
        (2, {}),  # settings and temperature from the rows that are kept, here all
    ],
)
def test_settings_mean_what_they_do_in_memory(n_components, more, wine):
    model, other = (fit(*wine, n_components, **more, block_rows=rows) for rows in (50, None))
    for name in ("C_", "n_sweeps_", "temperature_", "converged_", "mean_", "scale_"):
        assert getattr(model, name) == pytest.approx(getattr(other, name))
    same(model, other, wine[0])


def test_two_classes_have_one_score(wine):
    X, y = wine[0][wine[1] != "c"], wine[1][wine[1] != "c"]
    model = fit(X, y, 1, block_rows=30, **PLAIN)
    same(model, fit(X, y, 1, **PLAIN), X)
    assert model.decision_function(X).shape == (len(X),)


def test_sparse_rows_stay_as_they_are(put, wine, tmp_path):
    X = csr_array(np.maximum(wine[0] / wine[0].max(axis=0) - 0.5, 0.0))
    expected = fit(X, wine[1], **PLAIN)
    same(fit(X, wine[1], block_rows=33, **PLAIN), expected, X)
    in_dask = put["dask"](X.toarray(), tmp_path).rechunk((50, 13)).map_blocks(csr_array)
    model = fit(in_dask, wine[1], **PLAIN)
    assert model.scale_.tolist() == [1.0] * 13
    same(model, expected, X)


@pytest.mark.parametrize(("marker", "share"), [(float("nan"), 0.9), ("none", 0.2)])
def test_rows_without_a_label_take_part(marker, share, wine):
    """Many of them are sums alone in both fits, few are rows."""
    X, y = wine[0], wine[1].astype(object)
    y[np.random.default_rng(1).random(len(y)) < share] = marker
    more = {"unlabeled": marker, **PLAIN}
    model, other = fit(X, y, block_rows=33, **more), fit(X, y, **more)
    same(model, other, X)
    given = [m.idata_["observed_data"]["y"].to_numpy().astype(str).tolist() for m in (model, other)]
    assert given[0] == given[1]
    known = int(np.isin(y, ["a", "b", "c"]).sum())
    assert f"{len(y) - known} of them without a target" in str(model.summary())


def test_many_rows_without_a_label_take_part_in_the_choice(wine, monkeypatch):
    """As they do in memory, though not one of them is kept there."""
    known = np.random.default_rng(1).random(len(wine[1])) < 0.3
    monkeypatch.setattr("bsdr_models.kept_rows.N_KEPT", int(known.sum()))
    monkeypatch.setattr("bsdr_models.kept_rows.LEAST", 1.0)
    y, more = np.where(known, wine[1], "?"), {"unlabeled": "?", "C": 10.0}
    model, other = fit(wine[0], y, block_rows=33, **more), fit(wine[0], y, **more)
    assert model.n_sweeps_ == other.n_sweeps_
    assert model.temperature_ == pytest.approx(other.temperature_)
    assert model.cv_results_["log_loss"] == pytest.approx(other.cv_results_["log_loss"])
    same(model, other, wine[0])


def test_half_of_the_kept_rows_have_a_label(wine, monkeypatch):
    monkeypatch.setattr("bsdr_models.kept_rows.N_KEPT", 40)
    y = np.where(np.arange(len(wine[1])) % 4 == 3, wine[1], "?")
    model = fit(wine[0], y, block_rows=33, unlabeled="?")
    kept = model.idata_["fit"]["obs"].to_numpy()
    assert np.count_nonzero(y[kept] != "?") == 20
    assert np.array_equal(model.idata_["observed_data"]["y"], y[kept])
    assert model.temperature_ != 1.0
    assert np.mean(model.predict(wine[0]) == wine[1]) > 0.9


def test_some_rows_are_kept_to_look_at(wine, monkeypatch):
    monkeypatch.setattr("bsdr_models.kept_rows.N_KEPT", 20)
    model = fit(*wine, block_rows=33, **PLAIN)
    tree = model.idata_
    kept = tree["fit"]["obs"].to_numpy()
    assert (len(kept), kept[0], kept[-1]) == (20, 0, len(wine[1]) - 1)
    assert list(tree["observed_data"]["y"].to_numpy()) == list(wine[1][kept])
    assert tree["fit"]["latent_mean"].to_numpy() == pytest.approx(model.transform(wine[0][kept]))
    assert model.predict_idata(wine[0])["predictions"].sizes["obs"] == len(wine[1])
    plots.plot_scores(tree)
    summary = str(model.summary())
    assert "rows         178" in summary
    assert "20 rows, evenly spaced" in summary
    assert "b (71)" in summary
    with pytest.raises(AttributeError, match="in memory"):
        _ = model.model_


@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_it_is_saved_as_others_are(strategy, wine, tmp_path):
    y = np.where(np.arange(len(wine[1])) % 9 > 0, "?", wine[1])
    model = fit(wine[0], y, block_rows=33, strategy=strategy, unlabeled="?", **PLAIN)
    model.save(tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict_proba(wine[0]), model.predict_proba(wine[0]))
    assert again.idata_.identical(model.idata_)
    assert str(again.summary()) == str(model.summary())


@pytest.mark.parametrize("variant", ["paper", "label_free"])
@pytest.mark.parametrize("name", ["dask", "zarr"])
def test_answers_come_by_blocks(put, name, variant, wine, blocks, tmp_path):
    model = blocks
    if variant == "label_free":
        model = fit(*wine, variant=variant, C=10.0, metric_scale=10.0, calibrate=False)
    rows = put[name](wine[0], tmp_path)
    for method in METHODS:
        answer, expected = getattr(model, method)(rows), getattr(model, method)(wine[0])
        assert (type(answer) is np.ndarray) == (name == "zarr")
        assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(np.asarray(answer), expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(np.asarray(answer), expected)
    if name == "dask":
        with pytest.raises(ValueError, match="one block of rows at a time"):
            model.decision_function(rows, return_std=True)
        return
    pairs = zip(
        model.decision_function(rows, return_std=True),
        model.decision_function(wine[0], return_std=True),
        strict=True,
    )
    for answer, expected in pairs:
        np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-12)


def changed(X, row, value):
    X = X.copy()
    X[row, 3] = value
    return X


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y, {"variant": "label_free"}), "need variant='paper' and inf"),
        (lambda X, y: (X, y, {"inference": "nuts"}), "need variant='paper' and inference='mean_f"),
        (lambda X, y: (X, y, {"views": [0, 1] * 6 + [0]}), "one view"),
        (lambda X, y: (changed(X, 70, np.nan), y, {}), "block 2, row 70: X contains nan.*gaps are"),
        (
            lambda X, y: (csr_array(changed(X, 70, np.inf)), y, {}),
            "block 2, row 70: X contains inf",
        ),
        (lambda X, y: (X, y[:-1], {}), "inconsistent numbers of samples"),
        (lambda X, y: (X, np.full(len(y), "a"), {}), "one class only"),
        (lambda X, y: (X, np.full(len(y), "a"), {"unlabeled": "a"}), "no row has a label"),
        (lambda X, y: (X, np.eye(3)[np.unique(y, return_inverse=True)[1]], {}), "1d array"),
        (lambda X, y: (np.ones_like(X), y, {}), "no variation"),
        (lambda X, y: (csr_array(np.ones_like(X)), y, {}), "no variation"),
        (lambda X, y: (X, y, {"block_rows": 0}), "block_rows must be"),
        (lambda X, y: (X, y, {"block_rows": None, "checkpoint": "."}), "checkpoint is for rows in"),
    ],
)
def test_what_cannot_be_fitted_says_why(change, message, wine):
    X, y, more = change(*wine)
    model = BM2PCAClassifier(2, **{"variant": "paper", "block_rows": 33, **more})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not model.__sklearn_is_fitted__()


def test_the_default_variant_says_what_takes_a_dask_array(put, wine, tmp_path):
    with pytest.raises(ValueError, match=r"need variant='paper'.*BSDRClassifier"):
        BM2PCAClassifier().fit(put["dask"](wine[0], tmp_path), wine[1])


class StoppedError(Exception):
    """What stops a fit."""


def stopped_after(monkeypatch, n_sweeps):
    step, count = row_blocks.step, iter(range(n_sweeps))

    def counted(*arguments):
        if next(count, None) is None:
            raise StoppedError
        return step(*arguments)

    monkeypatch.setattr(row_blocks, "step", counted)


def test_so_many_sweeps_are_so_many_with_a_stop_between(wine, tmp_path, monkeypatch):
    more = {"block_rows": 33, **PLAIN, "n_sweeps": 40, "checkpoint": str(tmp_path)}
    with monkeypatch.context() as patch:
        stopped_after(patch, 27)
        with pytest.raises(StoppedError):
            fit(*wine, **more)
    with monkeypatch.context() as patch:
        stopped_after(patch, 20)  # no more than those after the checkpoint
        model = fit(*wine, **more)
    expected = fit(*wine, **{**more, "checkpoint": None})
    assert model.lower_bounds_ == pytest.approx(expected.lower_bounds_[20:], rel=1e-12)
    again = fit(*wine, **more)  # a fit that has ended is done again from the last checkpoint
    for each in (model, again):
        proba = each.predict_proba(wine[0])
        assert proba == pytest.approx(expected.predict_proba(wine[0]), abs=1e-12)
    with pytest.raises(ValueError, match="another fit: n_sweeps was 40 and is 30"):
        fit(*wine, **{**more, "n_sweeps": 30})


def test_a_climb_goes_on_from_its_checkpoint(wine, tmp_path):
    more = {"block_rows": 33, "C": 10.0, "n_sweeps": "converged", "calibrate": False}
    more |= {"start": "pca", "checkpoint": tmp_path / "fit"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations
        begun = fit(*wine, **more, max_iter=21)
        ended = fit(*wine, **more, max_iter=23)
    assert len(ended.lower_bounds_) == 3
    assert ended.lower_bounds_[0] > begun.lower_bounds_[-2]
    ended.save(tmp_path / "model.skops")
    assert load(tmp_path / "model.skops").checkpoint == tmp_path / "fit"
