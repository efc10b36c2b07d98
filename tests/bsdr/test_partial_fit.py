"""A stream: the fit in memory while all rows are kept, then exact sums in any units, and steps."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr import natural_steps, partial_fit, streaming
from bsdr_models.bsdr.fit import fit_mean_field
from bsdr_models.bsdr.predict import MeanFieldPosterior, label_log_probabilities
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.streaming import StreamSettings, advance, begin
from bsdr_models.data import make_data
from bsdr_models.numerics.scaling import Scaler

PRIORS = Priors(latent_scale=0.3)
SETTINGS = StreamSettings(n_labels=3, n_components=2, projection_prior="columnwise", priors=PRIORS)


def make_rows(n=700, *, seed=0):
    rng = np.random.default_rng(seed)
    scale = np.array([0.01, 1.0, 3.0, 100.0, 1.0])
    X = rng.standard_normal((n, 5)) * scale + 50.0 * scale
    eta = (X / scale - 50.0) @ rng.standard_normal((5, 3)) + rng.standard_normal((n, 3))
    return X, eta.argmax(axis=1)


def streamed(X, y, sizes, settings=SETTINGS):
    stream = begin(settings)
    edges = np.cumsum([0, *sizes])
    for a, b in zip(edges[:-1], edges[1:], strict=True):  # noqa: RUF007
        stream = advance(stream, X[a:b], y[a:b])
    return stream


def log_prob(stream, X):
    return label_log_probabilities(streaming.fit(stream).posterior, stream.scaler.transform(X))


def fit_in_memory(X, y, priors, n_labels, r, kind="columnwise"):
    scaler = Scaler.fit(X)
    data = make_data(scaler.transform(X), y, n_labels=n_labels, projection_prior=kind)
    result = fit_mean_field(
        data, priors, n_components=r, projection_prior=kind, rng=np.random.default_rng(0)
    )
    found = MeanFieldPosterior(state=result.state, data=data, latent_scale=priors.latent_scale)
    return lambda rows: label_log_probabilities(found, scaler.transform(rows))


@pytest.mark.parametrize("kind", ["entrywise", "columnwise", "rowwise"])
@pytest.mark.parametrize("sizes", [(700,), (1,) * 3 + (17, 330, 350)])
def test_while_all_rows_are_kept_a_stream_is_the_fit_in_memory(sizes, kind):
    X, y = make_rows()
    stream = streamed(X, y, sizes, replace(SETTINGS, projection_prior=kind))
    whole = fit_in_memory(X, y, PRIORS, 3, 2, kind)
    np.testing.assert_allclose(np.exp(log_prob(stream, X)), np.exp(whole(X)), atol=1e-5)


@pytest.fixture
def room(monkeypatch):
    """How many rows are kept."""
    return lambda n_rows: monkeypatch.setattr(streaming, "N_KEPT", n_rows)


@pytest.mark.parametrize("sizes", [(700,), (1,) * 3 + (17, 330, 350), (250, 1, 449)])
def test_sums_are_those_of_all_rows_in_their_last_units(sizes, room):
    room(240)
    X, y = make_rows()
    X[:260, 4] = 5.0  # constant while the stream starts
    X[260:, 2] *= 7.0  # and one that changes its scale
    stream = streamed(X, y, sizes)
    assert stream.n_rows == len(X)
    np.testing.assert_allclose(stream.scaler.scale, X.std(axis=0), rtol=1e-9)
    rows = stream.scaler.transform(X)
    gram = stream.learned.gram
    np.testing.assert_allclose(gram, rows.T @ rows, rtol=1e-8, atol=1e-8 * gram.max())


def test_new_units_change_no_prediction(room):
    room(300)
    X, y = make_rows()
    stream = streamed(X, y, (300, 50))
    before = stream.learned.state.projection.mean / stream.scaler.scale[:, None]
    moved = streaming._rescaled(streaming._count(stream, X[350:] * 3.0))
    assert not np.allclose(moved.scaler.scale, stream.scaler.scale)
    after = moved.learned.state.projection.mean / moved.scaler.scale[:, None]
    np.testing.assert_allclose(after, before, rtol=1e-12)
    # The precisions of the projection are in the new units only after the next step.
    np.testing.assert_allclose(np.exp(log_prob(moved, X)), np.exp(log_prob(stream, X)), atol=1e-3)
    np.testing.assert_array_equal(moved.scaler.location.round(9), stream.scaler.location.round(9))


def test_old_averages_stay_targets_when_the_gram_matrix_changes(room):
    """Where the gradient is nothing the globals stay, whatever rows have come since."""
    room(200)
    X, y = make_rows()
    stream = streamed(X, y, (300,))
    state, running = stream.learned.state, stream.learned.running
    still = replace(running, anchor=state.projection.mean, pull=np.zeros((5, 2)))
    design = streaming.GramDesign(1e6 * (stream.learned.gram + 100.0 * np.eye(5)), 10**6)
    information = natural_steps.complete_information(state, PRIORS)
    found = natural_steps.update_means(state, still, design, PRIORS, information)
    np.testing.assert_allclose(found.projection.mean, state.projection.mean, rtol=1e-6)


def test_one_row_at_a_time(room):
    room(200)
    X, y = make_rows(230)
    stream = begin(SETTINGS)
    for n in range(230):
        stream = advance(stream, X[n : n + 1], y[n : n + 1])
        if n in (0, 1, 5, 199, 200, 229):
            assert np.isfinite(log_prob(stream, X)).all()
            np.testing.assert_allclose(np.exp(log_prob(stream, X)).sum(axis=1), 1.0)
    assert stream.n_rows == 230
    assert np.mean(log_prob(stream, X).argmax(axis=1) == y) > 0.7


def test_one_class_first():
    X, y = make_rows(400)
    order = np.argsort(y, kind="stable")
    stream = streamed(X[order], y[order], (100, 100, 100, 100))
    assert np.mean(log_prob(stream, X).argmax(axis=1) == y) > 0.5


def test_few_rows_are_kept_and_each_with_the_same_chance(room):
    room(40)
    n, counts = 200, np.zeros(200)
    X = np.arange(n, dtype=np.float64)[:, None]
    for seed in range(200):
        stream = begin(replace(SETTINGS, seed=seed))
        for part in np.array_split(np.arange(n), 9):
            stream = streaming._keep(streaming._count(stream, X[part]), X[part], part)
        assert len(stream.kept_y) == 40
        np.testing.assert_array_equal(stream.kept_X[:, 0], stream.kept_y)
        counts[stream.kept_y] += 1.0
    # 40 of 200 in each of 200 runs: 40 expected, standard deviation 5.7.
    assert abs(counts[:100].mean() - 40.0) < 3.0
    assert counts.min() > 15.0
    assert counts.max() < 65.0


def test_steps_end_near_the_fit_in_memory(room):
    room(300)
    X, y = make_rows(3000)
    train, test = slice(0, 1500), slice(1500, 3000)
    whole = fit_in_memory(X[train], y[train], PRIORS, 3, 2)(X[test])
    stream = streamed(X[train], y[train], (75,) * 20)
    found = log_prob(stream, X[test])
    pick = np.arange(1500), y[test]
    assert found[pick].mean() > whole[pick].mean() - 0.03
    score = np.mean(whole.argmax(axis=1) == y[test])
    assert np.mean(found.argmax(axis=1) == y[test]) > score - 0.02


@pytest.mark.parametrize("n_kept", [2000, 500])
def test_positions_are_as_unsure_as_those_of_a_fit(n_kept, room):
    room(n_kept)
    X, y = make_rows(1500)
    stream = streamed(X, y, (300,) * 5)
    found = streaming.fit(stream).posterior
    rows = stream.scaler.transform(X[:50])
    std = found.positions(rows).std
    assert np.all(std > PRIORS.latent_scale)
    assert np.all(std < 3.0 * PRIORS.latent_scale)
    assert found.data.n_rows == 1500
    assert found.state.latent.mean.shape == (min(n_kept, 1500), 2)


def test_a_step_that_is_too_long_is_not_made(room, monkeypatch):
    room(200)
    X, y = make_rows()
    stream = streamed(X, y, (300,))
    worse = replace(stream.learned.state.weights, mean=-50.0 * stream.learned.state.weights.mean)
    monkeypatch.setattr(
        natural_steps, "update_means", lambda state, *_: replace(state, weights=worse)
    )
    after = advance(stream, X[300:350], y[300:350])
    assert after.learned.floor > stream.learned.floor
    np.testing.assert_array_equal(
        after.learned.state.weights.mean, stream.learned.state.weights.mean
    )
    assert after.n_rows == 350


def test_the_same_rows_give_the_same_stream_and_none_is_modified(room):
    room(250)
    X, y = make_rows(400)
    before = X.copy()
    stream = streamed(X, y, (200, 100))
    kept = pickle.dumps(stream)
    first, second = (advance(stream, X[300:], y[300:]) for _ in range(2))
    assert pickle.dumps(stream) == kept
    np.testing.assert_array_equal(
        first.learned.state.projection.mean, second.learned.state.projection.mean
    )
    np.testing.assert_array_equal(X, before)


def test_labels_are_encoded_and_an_unknown_one_is_named():
    classes = np.array(["a", "b", "d"])
    np.testing.assert_array_equal(streaming.encode(np.array(["d", "a"]), classes), [2, 0])
    for unknown in ("c", "e"):
        with pytest.raises(ValueError, match=f"label.*'{unknown}'"):
            streaming.encode(np.array(["a", unknown]), classes)


def test_nothing_was_seen():
    with pytest.raises(ValueError, match="nothing"):
        streaming.fit(begin(SETTINGS))
    with pytest.raises(ValueError, match="forgetting"):
        begin(replace(SETTINGS, forgetting=-1.0))


# ---------------------------------------------------------------- answers when they are asked for


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def learned_from(X, y, *, sizes, ask=lambda model: None):
    model = BSDRClassifier(2, random_state=0)
    for part in np.split(np.arange(len(y)), np.cumsum(sizes)[:-1]):
        model.partial_fit(X[part], y[part], classes=[0, 1, 2])
        ask(model)
    return model


@pytest.fixture
def fits(monkeypatch):
    """How often a stream was asked for what it knows."""
    calls, fit = [], streaming.fit
    monkeypatch.setattr(streaming, "fit", lambda stream: calls.append(1) or fit(stream))
    return calls


def test_nothing_is_made_before_it_is_asked_for_and_nothing_twice(wine, fits):
    model = learned_from(*wine, sizes=(60, 60, 58))
    assert model.n_features_in_ == 13
    assert list(model.classes_) == [0, 1, 2]
    assert model.__sklearn_is_fitted__()
    assert len(model.get_feature_names_out()) == 2
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "y_mean_")
    clone(model)
    assert not fits
    for ask in (model.transform, model.predict_proba, model.predict):
        ask(wine[0])
    assert model.idata_["fit"].sizes["obs"] == 178
    assert len(fits) == 1


@pytest.mark.parametrize("n_kept", [2000, 100])
@pytest.mark.parametrize("name", sorted(partial_fit.ANSWERS))
def test_every_answer_can_be_the_first(name, n_kept, wine, room, fits):
    room(n_kept)
    model = learned_from(*wine, sizes=(90, 88))
    assert name not in vars(model)
    getattr(model, name)
    assert vars(model).keys() >= partial_fit.ANSWERS
    assert len(fits) == 1
    model.partial_fit(wine[0][:1], wine[1][:1])
    assert not partial_fit.ANSWERS & vars(model).keys()


def test_answers_are_all_that_a_fit_leaves_but_what_is_known_at_once(wine):
    fitted = BSDRClassifier(2, latent_scale=0.3, random_state=0).fit(*wine)
    at_once = {"classes_", "n_features_in_", "_n_features_out"}
    left = vars(fitted).keys() - fitted.get_params().keys()
    assert left == partial_fit.ANSWERS | at_once


def test_it_is_the_fit_to_the_rows_so_far(wine):
    model = learned_from(*wine, sizes=(60, 60, 58))
    fitted = BSDRClassifier(2, latent_scale=0.3, tol=5e-3, random_state=0).fit(*wine)
    assert model.lower_bounds_ == pytest.approx(fitted.lower_bounds_, rel=1e-9)
    np.testing.assert_allclose(model.predict_proba(wine[0]), fitted.predict_proba(wine[0]), 1e-6)
    assert "all rows of a stream" in str(model.summary())


@pytest.mark.parametrize("n_kept", [2000, 100])
def test_to_ask_changes_nothing(n_kept, wine, room):
    room(n_kept)
    found = [
        learned_from(*wine, sizes=(60, 60, 58), ask=ask).predict_proba(wine[0])
        for ask in (lambda model: None, lambda model: model.idata_)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "store", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_copy_knows_the_same_whether_it_was_asked_before(store, wine):
    model = learned_from(*wine, sizes=(60, 60))
    before = store(model)
    answer = model.predict_proba(wine[0])
    after = store(model)
    for each in (before, after):
        np.testing.assert_array_equal(each.predict_proba(wine[0]), answer)
        each.partial_fit(wine[0][120:], wine[1][120:])
    np.testing.assert_array_equal(before.predict_proba(wine[0]), after.predict_proba(wine[0]))


def test_a_call_that_fails_leaves_the_answers(wine, fits):
    model = learned_from(*wine, sizes=(90, 88))
    answer = model.predict_proba(wine[0])
    with pytest.raises(ValueError, match="label 7"):
        model.partial_fit(wine[0][:1], [7])
    np.testing.assert_array_equal(model.predict_proba(wine[0]), answer)
    assert len(fits) == 1


def test_rows_one_by_one_cannot_start_by_steps_over_blocks(wine):
    with pytest.raises(ValueError, match="start='stochastic' is for rows in blocks"):
        BSDRClassifier(2, start="stochastic").partial_fit(*wine, classes=[0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("r", [2, 5])
def test_digits_within_a_point_of_the_full_fit(r):
    X, y = load_digits(return_X_y=True)
    settings = replace(SETTINGS, n_labels=10, n_components=r)
    full, ends = [], {1: [], 2: [], 5: []}
    for split in range(4):
        rng = np.random.default_rng(split)
        order = rng.permutation(len(X))
        train, test = order[:898], order[898:]
        whole = fit_in_memory(X[train], y[train], PRIORS, 10, r)
        full.append(np.mean(whole(X[test]).argmax(axis=1) == y[test]))
        stream = begin(settings)
        for epoch in range(1, 6):
            for part in np.array_split(rng.permutation(train), 18):
                stream = advance(stream, X[part], y[part])
            if epoch in ends:
                found = log_prob(stream, X[test]).argmax(axis=1)
                ends[epoch].append(np.mean(found == y[test]))
    for end in ends.values():
        assert np.mean(end) > np.mean(full) - 0.01
