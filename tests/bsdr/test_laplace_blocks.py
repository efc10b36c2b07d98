"""Laplace's method for samples in blocks and streams."""

import copy
import pickle
import re
from copy import deepcopy

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models import BSDRClassifier, BSDRRegressor, OutOfCore, load, plots
from bsdr_models.bsdr import laplace, laplace_blocks, partial_fit
from bsdr_models.inference.sample_blocks import InProcess

R = 2


@pytest.fixture(scope="module")
def data():
    """Three overlapping classes in 13 features on several scales."""
    rng = np.random.default_rng(5)
    scale = 10.0 ** rng.uniform(-2, 2, 13)
    standard = rng.standard_normal((400, 13))
    eta = standard[:, :4] @ rng.standard_normal((4, 3)) + rng.standard_normal((400, 3))
    return scale * (standard + 5.0), np.array(["a", "b", "c"])[eta.argmax(axis=1)]


def fit(X, y, **more):
    return (
        BSDRClassifier()
        .set_params(**{"n_components": R, "random_state": 0, "sampling__draws": 200, **more})
        .fit(X, y)
    )


@pytest.fixture(scope="module")
def whole(data):
    return fit(*data, out_of_core__block_size=len(data[1]))


# ---------------------------------------------------------------- blocks

SOURCES = {
    "array": {"out_of_core__block_size": 33},
    "sparse": {"out_of_core__block_size": 33},
    "memory-mapped": {"out_of_core__block_size": 100},
    "zarr": {"out_of_core__block_size": 60},
    "dask": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_fit_does_not_depend_on_the_source_of_the_samples(put, name, data, whole, tmp_path):
    model = fit(put[name](data[0], tmp_path), data[1], **SOURCES[name])
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-6)
    np.testing.assert_allclose(
        model.predict_proba(data[0]), whole.predict_proba(data[0]), atol=1e-6
    )
    pairs = zip(*(m.transform(data[0], return_cov=True) for m in (model, whole)), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_posterior_is_that_of_samples_in_memory(data, whole):
    memory = fit(*data, inference="laplace")
    assert whole.idata_.attrs["inference_method"] == "laplace"
    assert whole.log_evidence_ == pytest.approx(memory.log_evidence_, abs=0.3)
    assert whole.log_bayes_factor_ == pytest.approx(memory.log_bayes_factor_, abs=0.5)
    difference = whole.predict_proba(data[0]) - memory.predict_proba(data[0])
    assert np.abs(difference).max() < 0.05  # 200 draws each
    assert np.sqrt(np.mean(difference**2)) < 0.012


@pytest.mark.parametrize("name", ["dask", "zarr"])
@pytest.mark.parametrize(
    "method", ["transform", "predict", "predict_proba", "predict_log_proba", "decision_function"]
)
def test_predictions_by_blocks(put, name, method, data, whole, tmp_path):
    rows = put[name](data[0], tmp_path)
    answer = getattr(whole, method)(rows)
    assert (type(answer) is np.ndarray) == (name == "zarr")
    expected = getattr(whole, method)(data[0])
    assert answer.shape == expected.shape
    assert answer.dtype == expected.dtype
    if method == "predict":
        np.testing.assert_array_equal(np.asarray(answer), expected)
    else:
        np.testing.assert_allclose(np.asarray(answer), expected, rtol=1e-9, atol=1e-12)


def test_decision_function_of_two_classes_has_one_axis(put, data, tmp_path):
    X, y = data[0][data[1] != "c"], data[1][data[1] != "c"]
    model = fit(put["dask"](X, tmp_path), y)
    scores = model.decision_function(put["dask"](X, tmp_path))
    assert scores.shape == (len(X),)
    assert model.n_components_ == 1
    np.testing.assert_allclose(np.asarray(scores), model.decision_function(X), rtol=1e-9)


def test_covariances_need_one_block_of_a_dask_array_at_a_time(put, data, whole, tmp_path):
    expected = whole.transform(data[0], return_cov=True)
    model = deepcopy(whole).set_params(out_of_core__block_size=33)
    found = model.transform(csr_array(data[0]), return_cov=True)
    for answer, each in zip(found, expected, strict=True):
        np.testing.assert_allclose(answer, each, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="X has no samples"):
        model.transform(csr_array(data[0])[:0])
    with pytest.raises(ValueError, match="one block at a time"):
        whole.transform(put["dask"](data[0], tmp_path), return_cov=True)
    with pytest.raises(ValueError, match="12 features"):
        whole.transform(put["dask"](data[0][:, :12], tmp_path))


def test_trees_have_a_subsample(data, monkeypatch):
    monkeypatch.setattr("bsdr_models.block_checks.N_KEPT", 60)
    model = fit(*data, out_of_core__block_size=33)
    tree = model.idata_
    kept = tree["fit"]["obs"].to_numpy()
    assert (len(kept), kept[0], kept[-1]) == (60, 0, len(data[1]) - 1)
    assert list(tree["observed_data"]["y"].to_numpy()) == list(data[1][kept])
    assert "log_likelihood" not in tree.children  # that of a subsample would be misleading
    shown = tree["fit"]["latent_mean"].to_numpy()
    np.testing.assert_allclose(shown, model.transform(data[0][kept]), rtol=1e-9, atol=1e-12)
    plots.plot_map(tree)
    assert "400" in str(model.summary())
    assert "a subsample of 60" in str(model.summary())
    with pytest.raises(AttributeError, match="in memory"):
        _ = model.model_


def test_fit_in_blocks_can_be_saved(data, whole, tmp_path):
    whole.save(tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict_proba(data[0]), whole.predict_proba(data[0]))
    assert again.idata_.identical(whole.idata_)


def test_fit_resumes_from_its_checkpoint(data, tmp_path, monkeypatch):
    more = {"out_of_core__block_size": 33, "out_of_core__checkpoint": tmp_path / "fit"}
    calls = {"n": 0}
    reduce = InProcess.reduce

    def stop(self, *arguments, **options):
        calls["n"] += 1
        if calls["n"] == 25:
            raise KeyboardInterrupt
        return reduce(self, *arguments, **options)

    whole = fit(*data, out_of_core__block_size=33)
    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "reduce", stop)
        interrupted = fit(*data, **more)
    assert interrupted.interrupted_
    assert not interrupted.converged_
    resumed = fit(*data, **more)
    assert resumed.n_iter_ < whole.n_iter_
    np.testing.assert_allclose(
        resumed.predict_proba(data[0]), whole.predict_proba(data[0]), atol=1e-5
    )
    with pytest.raises(ValueError, match="another fit: n_components was 2 and is 1"):
        fit(*data, **more, n_components=1)
    with pytest.raises(ValueError, match="checkpoint is for samples in blocks"):
        fit(*data, out_of_core__checkpoint=tmp_path)


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
        (lambda X, y: (X, y, {"inference": "smc"}), "samples in blocks needs inference='laplace'"),
        (lambda X, y: (X, y, {"n_components": "auto"}), "needs a number of components"),
        (lambda X, y: (X, y, {"variant": "paper"}), "samples in blocks needs variant='hier"),
    ],
)
def test_invalid_input_of_fits_in_blocks_raises(change, message, data):
    X, y, more = change(*data)
    model = BSDRClassifier().set_params(**{"out_of_core__block_size": 33, **more})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not model.__sklearn_is_fitted__()


def test_too_many_loadings_raise_before_the_fit(data, monkeypatch):
    monkeypatch.setattr(laplace, "MOST_LOADINGS", 20)
    with pytest.raises(ValueError, match="13 features times 2 components"):
        fit(*data, out_of_core__block_size=33)
    with pytest.raises(ValueError, match="13 features times 2 components"):
        BSDRClassifier(2).partial_fit(*data, classes=["a", "b", "c"])


def test_real_targets_in_blocks_raise(data):
    with pytest.raises(ValueError, match="block_size is for BSDRClassifier"):
        BSDRRegressor(out_of_core=OutOfCore(block_size=10)).fit(data[0], data[0][:, 0])


# ---------------------------------------------------------------- streams


@pytest.fixture
def chunk(monkeypatch):
    """Sets the number of samples of an update and of the subsample."""

    def set_to(n):
        monkeypatch.setattr(laplace_blocks, "CHUNK", n)
        monkeypatch.setattr(laplace_blocks, "N_SUBSAMPLE", n)

    return set_to


def fit_stream(X, y, *, sizes, ask=lambda model: None, **more):
    options = {"random_state": 0, "sampling__draws": 40, "inference": "laplace", **more}
    model = BSDRClassifier(R).set_params(**options)
    for part in np.split(np.arange(len(y)), np.cumsum(sizes)[:-1]):
        model.partial_fit(X[part], y[part], classes=["a", "b", "c"])
        ask(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 100])
def test_stream_has_the_posterior_of_all_samples(n, data, whole, chunk):
    chunk(n)
    model = fit_stream(*data, sizes=(400,), sampling__draws=200)
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, abs=3.0)
    difference = model.predict_proba(data[0]) - whole.predict_proba(data[0])
    assert np.sqrt(np.mean(difference**2)) < 0.03
    widths = [
        np.trace(m.transform(data[0], return_cov=True)[1].mean(axis=0)) for m in (model, whole)
    ]
    assert widths[0] == pytest.approx(widths[1], rel=0.25)
    assert "400" in str(model.summary())


@pytest.mark.slow
@pytest.mark.parametrize("n", [2000, 90])
@pytest.mark.parametrize("sizes", [(1,) * 3 + (17, 380), (250, 1, 149)])
def test_stream_does_not_depend_on_its_batches(n, sizes, data, chunk):
    chunk(n)
    cut, once = (fit_stream(*data, sizes=each) for each in (sizes, (400,)))
    np.testing.assert_array_equal(cut.predict_proba(data[0]), once.predict_proba(data[0]))
    assert cut.idata_["fit"].identical(once.idata_["fit"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted")
@pytest.mark.parametrize("n", [2000, 90])
def test_reading_attributes_does_not_change_the_stream(n, data, chunk):
    chunk(n)
    found = [
        fit_stream(*data, sizes=(160, 60, 180), ask=ask).predict_proba(data[0])
        for ask in (lambda model: None, lambda model: model.idata_)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("few_particles")
def test_stream_of_few_samples_is_their_fit(data):
    sizes, more = (
        (60, 60, 280),
        {"inference": None, "sampling__chains": 2, "sampling__draws": 32, "pooling": 0.5},
    )
    model = fit_stream(*data, sizes=sizes, **more)
    fitted = BSDRClassifier(R, random_state=model._stream.seed).set_params(**more).fit(*data)
    assert model.idata_.attrs["inference_method"] == "smc"
    np.testing.assert_array_equal(model.predict_proba(data[0]), fitted.predict_proba(data[0]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 15])
def test_one_class_first(n, data, whole, chunk):
    chunk(n)
    order = np.argsort(data[1], kind="stable")
    X, y = data[0][order], data[1][order]
    if n == 15:  # all of the first 75 samples are of one class
        with pytest.warns(UserWarning, match="first 75 samples have none of 2 classes"):
            model = fit_stream(X, y, sizes=(400,))
    else:
        model = fit_stream(X, y, sizes=(100, 100, 100, 100))
        assert model.score(*data) > whole.score(*data) - 0.03
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_subsample_of_a_stream_is_uniform(chunk):
    chunk(40)
    model = laplace_blocks.Model(
        n_labels=2, n_components=1, priors=laplace_blocks.HierarchicalPriors()
    )
    counts = np.zeros(200)
    for seed in range(200):
        stream = laplace_blocks.Stream.begin(model, 1, standardize=True, seed=seed)
        for begin in range(0, 200, 40):
            number = np.arange(begin, begin + 40)
            X, y, key = stream._draw_subsample(number[:, None].astype(float), number)
            counts_of = laplace_blocks.replace(
                stream, subsample_X=X, subsample_y=y, subsample_key=key
            )
            stream = laplace_blocks.replace(counts_of, counts=np.array([begin + 40, 0]))
        np.testing.assert_array_equal(stream.subsample_X[:, 0], stream.subsample_y)
        counts[stream.subsample_y] += 1.0
    # 40 of 200 in each of 200 runs: 40 expected, standard deviation 5.7.
    assert counts.sum() == 40 * 200
    assert abs(counts[:100].mean() - 40.0) < 3.0
    assert counts.min() > 15.0
    assert counts.max() < 65.0


@pytest.fixture
def fits(monkeypatch):
    """Records each computation of the lazy attributes."""
    calls, made = [], partial_fit.PartialFit._lazy_attributes
    monkeypatch.setattr(
        partial_fit.PartialFit, "_lazy_attributes", lambda self: calls.append(1) or made(self)
    )
    return calls


def test_lazy_attributes_are_computed_once_on_first_access(data, fits):
    model = fit_stream(*data, sizes=(60, 60, 280))
    assert model.n_features_in_ == 13
    assert list(model.classes_) == ["a", "b", "c"]
    assert model.__sklearn_is_fitted__()
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "y_mean_")
    assert not fits
    for ask in (model.transform, model.predict_proba, model.predict):
        ask(data[0])
    assert len(model.get_feature_names_out()) == 2
    assert model.idata_["fit"].sizes["obs"] == 400
    assert len(fits) == 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [2000, 300])
def test_every_lazy_attribute_can_be_read_first(n, data, chunk, fits):
    chunk(n)
    model = fit_stream(*data, sizes=(200, 200))
    for name in sorted(partial_fit.LAZY_ATTRIBUTES):
        asked = copy.copy(model)
        assert name not in vars(asked)
        getattr(asked, name)
        assert vars(asked).keys() >= partial_fit.LAZY_ATTRIBUTES
    asked.partial_fit(data[0][:1], data[1][:1])
    assert not partial_fit.LAZY_ATTRIBUTES & vars(asked).keys()


def test_all_other_fitted_attributes_are_lazy(data):
    fitted = fit(*data, inference="laplace")
    left = vars(fitted).keys() - fitted.get_params().keys()
    assert left == partial_fit.LAZY_ATTRIBUTES | {"classes_", "n_features_in_"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "store", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_before_and_after_reading_attributes_are_equal(store, data, chunk):
    chunk(150)
    model = fit_stream(data[0][:300], data[1][:300], sizes=(160, 140))
    before = store(model)
    answer = model.predict_proba(data[0])
    after = store(model)
    for each in (before, after):
        np.testing.assert_array_equal(each.predict_proba(data[0]), answer)
        each.partial_fit(data[0][300:], data[1][300:])
    np.testing.assert_array_equal(before.predict_proba(data[0]), after.predict_proba(data[0]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [2000, 150])
def test_saved_stream_can_be_continued(n, data, chunk, tmp_path):
    chunk(n)
    model = fit_stream(data[0][:300], data[1][:300], sizes=(300,), sampling__draws=200)
    model.save(tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    for each in (model, again):
        each.partial_fit(data[0][300:], data[1][300:])
    np.testing.assert_array_equal(again.predict_proba(data[0]), model.predict_proba(data[0]))


def test_fit_ends_the_stream(data):
    model = fit_stream(*data, sizes=(400,))
    model.fit(*data)
    assert not hasattr(model, "_stream")
    model.partial_fit(*data)  # with the classes of the fit
    assert model._stream.n_samples == 400


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
def test_invalid_input_of_a_first_batch_raises(change, message, data):
    X, y, classes = change(*data)
    model = BSDRClassifier(2)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes)
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize(
    "arguments", [{"variant": "paper"}, {"inference": "smc"}, {"inference": "nuts"}]
)
def test_partial_fit_needs_laplace(arguments):
    assert not hasattr(BSDRClassifier().set_params(**arguments), "partial_fit")


def test_partial_fit_needs_a_number_of_components(data):
    with pytest.raises(ValueError, match=re.escape("partial_fit needs a number of components")):
        BSDRClassifier("auto").partial_fit(*data, classes=["a", "b", "c"])


def test_later_batches_with_other_classes_or_columns_raise(data):
    X, y = data
    model = fit_stream(X, y, sizes=(400,))
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="classes are"):
        model.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(ValueError, match="label 'd'"):
        model.partial_fit(X[:1], ["d"])
    with pytest.raises(ValueError, match="12 features"):
        model.partial_fit(X[:, :12], y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
