"""A stream: exact sums in any units, any size of batch, and in the end what a fit would know."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bsdr_models.bsdr import natural_steps, streaming
from bsdr_models.bsdr.fit import fit_mean_field
from bsdr_models.bsdr.predict import MeanFieldPosterior, label_log_probabilities
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.streaming import StreamSettings, advance, begin, posterior
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
    return label_log_probabilities(posterior(stream), stream.scaler.transform(X))


def fit_in_memory(X, y, priors, n_labels, r, kind="columnwise"):
    scaler = Scaler.fit(X)
    data = make_data(scaler.transform(X), y, n_labels=n_labels, projection_prior=kind)
    result = fit_mean_field(
        data, priors, n_components=r, projection_prior=kind, rng=np.random.default_rng(0)
    )
    found = MeanFieldPosterior(state=result.state, data=data, latent_scale=priors.latent_scale)
    return lambda rows: label_log_probabilities(found, scaler.transform(rows))


@pytest.mark.parametrize("sizes", [(700,), (1,) * 3 + (17, 330, 350), (250, 1, 449)])
def test_sums_are_those_of_all_rows_in_their_last_units(sizes):
    X, y = make_rows()
    X[:260, 4] = 5.0  # constant while the stream starts
    X[260:, 2] *= 7.0  # and one that changes its scale
    stream = streamed(X, y, sizes)
    assert stream.n_rows == len(X)
    np.testing.assert_allclose(stream.scaler.scale, X.std(axis=0), rtol=1e-9)
    rows = stream.scaler.transform(X)
    gram = stream.learned.gram
    np.testing.assert_allclose(gram, rows.T @ rows, rtol=1e-8, atol=1e-8 * gram.max())


def test_new_units_change_no_prediction():
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


def test_old_averages_stay_targets_when_the_gram_matrix_changes():
    """Where the gradient is nothing the globals stay, whatever rows have come since."""
    X, y = make_rows()
    stream = streamed(X, y, (300,))
    state, running = stream.learned.state, stream.learned.running
    still = replace(running, anchor=state.projection.mean, pull=np.zeros((5, 2)))
    design = streaming.GramDesign(1e6 * (stream.learned.gram + 100.0 * np.eye(5)), 10**6)
    information = natural_steps.complete_information(state, PRIORS)
    found = natural_steps.update_means(state, still, design, PRIORS, information)
    np.testing.assert_allclose(found.projection.mean, state.projection.mean, rtol=1e-6)


def test_one_row_at_a_time():
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


def test_few_rows_are_kept_and_each_with_the_same_chance(monkeypatch):
    monkeypatch.setattr(streaming, "N_KEPT", 40)
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


@pytest.mark.parametrize(("n_kept", "loss"), [(2000, 0.005), (300, 0.02)])
def test_a_stream_ends_near_the_fit_in_memory(n_kept, loss, monkeypatch):
    """Kept as a whole, and in steps."""
    monkeypatch.setattr(streaming, "N_KEPT", n_kept)
    X, y = make_rows(3000)
    train, test = slice(0, 1500), slice(1500, 3000)
    whole = fit_in_memory(X[train], y[train], PRIORS, 3, 2)(X[test])
    stream = streamed(X[train], y[train], (75,) * 20)
    found = log_prob(stream, X[test])
    pick = np.arange(1500), y[test]
    assert found[pick].mean() > whole[pick].mean() - 0.03
    score = np.mean(whole.argmax(axis=1) == y[test])
    assert np.mean(found.argmax(axis=1) == y[test]) > score - loss


def test_positions_are_as_unsure_as_those_of_a_fit():
    X, y = make_rows(1500)
    stream = streamed(X, y, (300,) * 5)
    found = posterior(stream)
    rows = stream.scaler.transform(X[:50])
    std = found.positions(rows).std
    assert np.all(std > PRIORS.latent_scale)
    assert np.all(std < 3.0 * PRIORS.latent_scale)
    assert found.data.n_rows == 1500
    assert found.state.latent.mean.shape == (1500, 2)


def test_a_step_that_is_too_long_is_not_made(monkeypatch):
    monkeypatch.setattr(streaming, "N_KEPT", 200)
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


def test_the_same_rows_give_the_same_stream_and_none_is_modified():
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
        posterior(begin(SETTINGS))
    with pytest.raises(ValueError, match="forgetting"):
        begin(replace(SETTINGS, forgetting=-1.0))


@pytest.mark.slow
def test_digits_within_a_point_of_the_full_fit():
    X, y = load_digits(return_X_y=True)
    settings = replace(SETTINGS, n_labels=10, n_components=5)
    full, ends = [], []
    for split in range(3):
        rng = np.random.default_rng(split)
        order = rng.permutation(len(X))
        train, test = order[:898], order[898:]
        whole = fit_in_memory(X[train], y[train], PRIORS, 10, 5)
        full.append(np.mean(whole(X[test]).argmax(axis=1) == y[test]))
        stream = begin(settings)
        for _ in range(2):
            for part in np.array_split(rng.permutation(train), 15):
                stream = advance(stream, X[part], y[part])
        ends.append(np.mean(log_prob(stream, X[test]).argmax(axis=1) == y[test]))
    assert np.mean(ends) > np.mean(full) - 0.01
