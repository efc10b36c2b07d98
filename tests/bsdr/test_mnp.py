"""Multinomial probit without a projection: bound, updates, predictions."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import MNPClassifier, Priors, plots
from bsdr_models.bsdr import build_mnp_model, mnp
from bsdr_models.bsdr.paper.mean_field import make_utilities
from bsdr_models.bsdr.priors import PAPER
from bsdr_models.numerics import orthant
from bsdr_models.numerics.factors import Gamma

# All hyper-parameters differ.
PRIORS = Priors(weight_shape=1.6, weight_rate=2.2, bias_shape=3.1, bias_rate=0.4)
# N, D, K; the wide one uses the dual ridge.
SIZES = {"tall": (11, 5, 4), "wide": (6, 14, 3)}
every_size = pytest.mark.parametrize("size", SIZES)
UPDATES = {
    "weight_precision": lambda s, data: mnp.update_weight_precision(s, PRIORS),
    "weights": lambda s, data: mnp.update_weights(s, data),
    "utilities": lambda s, data: mnp.update_utilities(s, data),
}


def toy(size, seed=0):
    n, d, k = SIZES[size]
    assert len({n, d, 1 + d, k}) == 4
    rng = np.random.default_rng([51, seed])
    data = mnp.make_data(rng.standard_normal((n, d)), rng.permutation(np.arange(n) % k), n_labels=k)
    assert data.design.prefers_rows == (size == "wide")
    return data, rng


def bound(state):
    return sum(mnp.elbo_terms(state, PRIORS).values())


def updated(state, data, name):
    return replace(state, **{name: UPDATES[name](state, data)})


def weight_cov(state, data):
    """Cov(b, w_c) that an update of the weights from this state has, (K, 1 + D, 1 + D)."""
    gram = data.design.X.T @ data.design.X
    return np.array([np.linalg.inv(np.diag(psi) + gram) for psi in state.weight_precision.mean.T])


def unfinished(lab, data, rng):
    """A state whose factors were updated in random order; and Cov(b, W)."""
    k, p = data.n_labels, data.n_features
    root = rng.standard_normal((k, p, p)) / np.sqrt(p)
    cov = 0.3 * root @ root.swapaxes(1, 2) + 0.1 * np.eye(p)
    state = mnp.State(
        weight_precision=Gamma(
            shape=rng.uniform(1.0, 4.0, (p, k)), rate=rng.uniform(0.5, 3.0, (p, k))
        ),
        weights=lab.summaries(0.5 * rng.standard_normal((p, k)), cov, data.design.X),
        utilities=make_utilities(0.7 * rng.standard_normal((data.n_samples, k)), data),
    )
    for name in [*rng.permutation(2 * list(UPDATES)), "utilities", "weight_precision"]:
        if name == "weights":
            cov = weight_cov(state, data)
        state = updated(state, data, name)
    return state, cov


@every_size
def test_bound_is_the_monte_carlo_expectation(lab, size):
    """E_q[log joint - log q], the joint written with SciPy densities, to 4 standard errors."""
    data, rng = toy(size)
    state, cov = unfinished(lab, data, rng)
    n_draws, k, p = 40_000, data.n_labels, data.n_features
    problem = SimpleNamespace(data=data, target="multiclass")
    psi_q = state.weight_precision
    psi = rng.gamma(psi_q.shape, 1.0 / psi_q.rate, size=(n_draws, p, k))
    w = np.empty((n_draws, p, k))
    log_q = stats.gamma.logpdf(psi, psi_q.shape, scale=1.0 / psi_q.rate).sum(axis=(1, 2))
    for c in range(k):
        normal = stats.multivariate_normal(state.weights.mean[:, c], cov[c])
        w[:, :, c] = normal.rvs(n_draws, random_state=rng)
        log_q += normal.logpdf(w[:, :, c])
    origin = state.utilities.origin
    t = lab.draw_utilities(origin, problem, size=n_draws, rng=rng)
    log_q += (
        stats.norm.logpdf(t, origin).sum(axis=(1, 2))
        - lab.truncated_moments(origin, problem)[0].sum()
    )
    assert (t.argmax(axis=2) == data.y).all()
    shape = np.r_[PRIORS.bias_shape, np.full(p - 1, PRIORS.weight_shape)][:, None]
    rate = np.r_[PRIORS.bias_rate, np.full(p - 1, PRIORS.weight_rate)][:, None]
    log_joint = (
        stats.gamma.logpdf(psi, shape, scale=1.0 / rate).sum(axis=(1, 2))
        + stats.norm.logpdf(w, 0.0, psi**-0.5).sum(axis=(1, 2))
        + stats.norm.logpdf(t, data.design.X @ w).sum(axis=(1, 2))
    )
    log_ratio = log_joint - log_q
    error = log_ratio.std() / np.sqrt(n_draws)
    assert error < 0.1
    assert abs(log_ratio.mean() - bound(state)) < 4.0 * error


@pytest.mark.parametrize("seed", range(4))
@every_size
def test_no_single_update_lowers_the_bound(lab, size, seed):
    data, rng = toy(size, seed)
    state, _ = unfinished(lab, data, rng)
    value = bound(state)
    for name in rng.choice(list(UPDATES), 40):
        state = updated(state, data, name)
        before, value = value, bound(state)
        assert value >= before - 1e-9 * abs(before), (name, value - before)


@every_size
def test_every_update_is_stationary(lab, size):
    """No change of an updated factor increases the bound."""
    data, rng = toy(size)
    state, _ = unfinished(lab, data, rng)
    X, eps = data.design.X, 1e-4

    def slope(at):
        up, down = bound(at(eps)), bound(at(-eps))
        return (up - down) / (2.0 * eps)

    best = updated(state, data, "weight_precision")
    for field in ("shape", "rate"):
        for index in np.ndindex(best.weight_precision.shape.shape):

            def moved(step, field=field, index=index):
                values = getattr(best.weight_precision, field).copy()
                values[index] *= 1.0 + step
                return replace(
                    best, weight_precision=replace(best.weight_precision, **{field: values})
                )

            assert abs(slope(moved)) < 1e-5

    cov = weight_cov(state, data)
    best = updated(state, data, "weights")
    np.testing.assert_allclose(best.weights.variance, np.einsum("kpp->pk", cov), rtol=1e-8)
    for index in np.ndindex(best.weights.mean.shape):

        def moved(step, index=index):
            mean = best.weights.mean.copy()
            mean[index] += step
            return replace(best, weights=lab.summaries(mean, cov, X))

        assert abs(slope(moved)) < 1e-5
    root = np.linalg.cholesky(cov)
    for index in zip(*np.tril_indices(root.shape[1]), strict=True):

        def moved(step, index=index):
            stretch = np.eye(root.shape[1])
            stretch[index] += step
            new = root @ stretch
            summary = lab.summaries(best.weights.mean, new @ new.swapaxes(1, 2), X)
            return replace(best, weights=summary)

        assert abs(slope(moved)) < 1e-5


def test_unpacked_state_is_restored_by_a_sweep():
    data, _ = toy("tall")
    state = mnp.init(data)
    for _ in range(4):
        state, _ = mnp.step(state, data, PRIORS)
    expected, info = mnp.step(state, data, PRIORS)
    got, again = mnp.step(mnp.unpack(mnp.pack(state), state), data, PRIORS)
    np.testing.assert_allclose(got.weights.mean, expected.weights.mean, rtol=1e-12)
    np.testing.assert_allclose(again.elbo, info.elbo, rtol=1e-12)


# ------------------------------------------------------------------------------ the estimator


def test_probabilities_are_frequencies_under_q():
    """Closed form against frequencies over draws of weights and utilities."""
    X, y = load_wine(return_X_y=True)
    X = X[:, :4]
    model = MNPClassifier().fit(X[::3], y[::3])
    scaled = (X - model.mean_) / model.scale_
    design = np.column_stack([np.ones(len(scaled)), scaled])
    gram = design[::3].T @ design[::3]
    rows = design[[1, 70, 140]]
    got = model.predict_proba(X[[1, 70, 140]])
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
    rng = np.random.default_rng(52)
    size = 200_000
    psi = model._posterior.state.weight_precision.mean
    mean = np.vstack([model.intercept_, model.coef_.T])
    t = np.stack(
        [
            rng.multivariate_normal(m, np.linalg.inv(np.diag(p) + gram), size=size) @ rows.T
            for m, p in zip(mean.T, psi.T, strict=True)
        ],
        axis=2,
    )
    label = (t + rng.standard_normal(t.shape)).argmax(axis=2)
    for probability, column in zip(got, label.T, strict=True):
        frequency = np.bincount(column, minlength=3) / size
        np.testing.assert_allclose(probability, frequency, atol=4 * 0.5 / size**0.5)


def test_wine():
    X, y = load_wine(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X, y, train_size=60, stratify=y, random_state=0)
    model = MNPClassifier().fit(train, y_train)
    rival = make_pipeline(
        StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    ).fit(train, y_train)
    assert model.score(test, y_test) >= rival.score(test, y_test) - 0.03
    assert log_loss(y_test, model.predict_proba(test)) < 0.2
    assert model.converged_
    assert not model.interrupted_
    assert model.n_iter_ == len(model.lower_bounds_)
    bounds = model.lower_bounds_
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[:-1]))
    tight = MNPClassifier(max_iter=3000, tol=1e-7).fit(train, y_train)
    assert tight.lower_bounds_[-1] - bounds[-1] < 0.05  # it had converged, not stalled


def test_names_of_the_labels_do_not_matter():
    X, y = load_wine(return_X_y=True)
    model = MNPClassifier().fit(X, y)
    other = MNPClassifier().fit(X, np.array(["c", "a", "b"])[y])
    assert other.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(
        other.predict_proba(X), model.predict_proba(X)[:, [1, 2, 0]], rtol=1e-5, atol=1e-8
    )


def test_decision_function():
    X, y = load_wine(return_X_y=True)
    model = MNPClassifier().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), model.predict_log_proba(X))
    binary = MNPClassifier().fit(X, y == 1)
    log_p = binary.predict_log_proba(X)
    np.testing.assert_allclose(binary.decision_function(X), log_p[:, 1] - log_p[:, 0])
    np.testing.assert_array_equal(binary.decision_function(X) > 0.0, binary.predict(X))


def test_memory_is_linear_in_the_number_of_features():
    """D = 5000: no D x D array, which would take 200 MB."""
    rng = np.random.default_rng(53)
    X, y = rng.standard_normal((12, 5000)), np.arange(12) % 3
    X[:, :20] += y[:, None]
    tracemalloc.start()
    try:
        model = MNPClassifier(max_iter=30, tol=0.1).fit(X, y)
        probability = model.predict_proba(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(probability).all()
    assert peak < 50e6


def test_max_iter_warns_and_the_result_is_usable():
    X, y = load_wine(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="max_iter=4"):
        model = MNPClassifier(max_iter=4).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 4
    assert model.score(X, y) > 0.9


def test_interrupted_fit_can_be_used(monkeypatch):
    X, y = load_wine(return_X_y=True)
    step, calls = mnp.step, []

    def interrupting(state, data, priors):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return step(state, data, priors)

    monkeypatch.setattr(mnp, "step", interrupting)
    model = MNPClassifier().fit(X, y)
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 5
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_iter", 0), ("max_iter", 2.5), ("tol", -1.0), ("tol", np.nan), ("priors", {"a": 1})],
)
def test_bad_arguments_raise_at_fit(name, value):
    X, y = load_wine(return_X_y=True)
    model = MNPClassifier(**{name: value})
    with pytest.raises(ValueError, match=name):
        model.fit(X, y)


def test_priors_change_the_fit_and_default_to_the_papers():
    X, y = load_wine(return_X_y=True)
    default = MNPClassifier().fit(X, y).coef_
    np.testing.assert_array_equal(default, MNPClassifier(priors=PAPER).fit(X, y).coef_)
    tight = MNPClassifier(priors=Priors(weight_shape=1e4, weight_rate=1.0)).fit(X, y).coef_
    assert np.abs(tight).max() < 0.1 * np.abs(default).max()


def test_the_declared_model_has_the_joint_density():
    """Student-t weights and biases, and the probability of each label, at random points."""
    rng = np.random.default_rng(31)
    X, y = rng.standard_normal((9, 4)), np.arange(9) % 3
    model = build_mnp_model(X, y, priors=PAPER)
    density = model.compile_logp()
    t = stats.t(2.0 * PAPER.weight_shape, scale=(PAPER.weight_rate / PAPER.weight_shape) ** 0.5)
    for _ in range(3):
        W, b = rng.standard_normal((4, 3)), rng.standard_normal(3)
        choice = orthant.label_log_probs(X @ W + b, np.ones((9, 3)))[np.arange(9), y]
        expected = t.logpdf(W).sum() + t.logpdf(b).sum() + choice.sum()
        np.testing.assert_allclose(density({"weights": W, "bias": b}), expected, rtol=1e-6)


def test_tree_holds_draws_of_the_fit():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = MNPClassifier().fit(X[::2], names[::2])
    posterior = model.idata_["posterior"].dataset
    assert list(posterior["coef"].coords["feature"].values) == list(X.columns)
    w, n = model._posterior.state.weights, posterior.sizes["draw"]
    sd = posterior["weights"].std("draw").to_numpy()[0]
    np.testing.assert_allclose(
        posterior["weights"].mean("draw").to_numpy()[0], w.mean[1:], atol=5 * sd.max() / n**0.5
    )
    variance = w.mean_square - w.mean**2
    np.testing.assert_allclose(sd**2, variance[1:], rtol=0.25)
    new = model.predict_idata(X[1::2], names[1::2])["predictions"].dataset
    np.testing.assert_array_equal(new["probability"], model.predict_proba(X[1::2]))
    assert (new["obs"].to_numpy() == X.index[1::2]).all()
    assert {v.name for v in model.model_.free_RVs} == {"weights", "bias"}


def test_plots_that_need_no_latent_space():
    X, y = load_iris(return_X_y=True)
    model = MNPClassifier().fit(X[::2], y[::2])
    new = model.predict_idata(X[1::2], y[1::2])
    assert plots.plot_bound(model.idata_).has_data()
    model.plot_features()
    with pytest.raises(ValueError, match="latent_mean"):
        plots.plot_map(new)


@pytest.mark.parametrize("standardize", [True, False])
def test_far_out_and_constant_features(standardize):
    """Warnings are errors, except that of constant features."""
    X, y = load_iris(return_X_y=True)
    plain = MNPClassifier(standardize=standardize).fit(X, y).predict_proba(X)
    wide = np.column_stack([X, np.zeros(len(X)), np.full(len(X), 3.0)])
    model = MNPClassifier(standardize=standardize)
    with pytest.warns(UserWarning, match="2 of 6 features are constant"):
        model.fit(wide, y)
    moved = wide + np.array([0.0, 0.0, 0.0, 0.0, 1e50, -1e6])
    for rows in (wide, moved):
        np.testing.assert_allclose(model.predict_proba(rows), plain, atol=1e-5)
    far = wide.copy()
    far[3, :4] += 1e6 * X.std(axis=0)
    for rows in (far, -far):
        probability = model.predict_proba(rows)
        np.testing.assert_allclose(probability.sum(axis=1), 1.0)
        assert probability[3].max() > 0.5
        np.testing.assert_array_equal(
            model.predict_log_proba(rows).argmax(axis=1), model.predict(rows)
        )
    cell = X.copy()
    cell[3, 1] = 1e6
    trained = MNPClassifier(standardize=standardize).fit(cell, y)
    assert trained.score(X[4:], y[4:]) > 0.9
