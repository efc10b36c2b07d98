"""The averaged sampler of BSDR piece by piece: its density, its free moves, its points."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import BSDRClassifier, BSDRRegressor
from bsdr_models.bsdr import averaged, averaged_target, gibbs
from bsdr_models.bsdr.priors import SAMPLING, Priors
from bsdr_models.bsdr.settings import MAX_WORK, default_sampler, work
from bsdr_models.data import Data
from bsdr_models.numerics.design import DenseDesign

PRIORS = Priors(
    projection_shape=1.0,
    projection_rate=2.0,
    weight_shape=1.5,
    weight_rate=0.8,
    bias_shape=0.8,
    bias_rate=3.0,
    latent_scale=0.6,
)
C, N, D, R, K, M = 2, 7, 5, 3, 4, 6
KINDS = ("entrywise", "columnwise", "rowwise")


def make_data(target="multiclass"):
    rng = np.random.default_rng(101)
    y = np.arange(N) % K if target == "multiclass" else rng.random((N, K)) < 0.5
    return Data(design=DenseDesign(rng.standard_normal((N, D))), y=y, n_labels=K, target=target)


def make(kind="entrywise", n_points=M):
    """A problem and a state that has nothing special."""
    problem = averaged_target.pose(make_data(), PRIORS, n_components=R, projection_prior=kind)
    rng = np.random.default_rng(102)
    start = gibbs.init(
        make_data(), PRIORS, n_components=R, projection_prior=kind, n_chains=C, rng=rng
    )
    state = averaged.init(problem, start, rng=rng)
    points = rng.standard_normal((C, n_points, R + 1, N))
    return problem, replace(state, points=points)


def log_student(values, shape, rate):
    """Multivariate t of the vector that shares a precision, with SciPy."""
    law = stats.multivariate_t(shape=np.eye(len(values)) * rate / shape, df=2.0 * shape)
    return law.logpdf(values)


@pytest.mark.parametrize("kind", KINDS)
def test_prior_is_student_t_of_each_group(kind):
    """Up to a constant, so differences between two states."""
    problem, state = make(kind)
    values = np.stack([state.entries[0], 3.0 * state.entries[1] - 1.0])
    found, _ = averaged_target.log_prior(values, problem)
    expected = []
    for Q, W, b in zip(*averaged_target.split(values * problem.unit, problem), strict=True):
        groups = {"entrywise": Q.reshape(-1, 1), "columnwise": Q.T, "rowwise": Q}[kind]
        p = PRIORS
        expected.append(
            sum(log_student(q, p.projection_shape, p.projection_rate) for q in groups)
            + sum(log_student(w, p.weight_shape, p.weight_rate) for w in W.reshape(-1, 1))
            + sum(log_student(x, p.bias_shape, p.bias_rate) for x in b.reshape(-1, 1))
        )
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-12)


def gradient_error(kind):
    """Largest error of the gradient against differences of fourth order, relative to its size."""
    problem, state = make(kind)
    x, h = np.arcsinh(state.entries), 2e-3
    _, slope = averaged_target.log_density(x, state.points, problem)

    def value(p, shift):
        moved = x.copy()
        moved[:, p] += shift
        return averaged_target.log_density(moved, state.points, problem)[0]

    expected = np.column_stack(
        [
            (8.0 * (value(p, h) - value(p, -h)) - (value(p, 2 * h) - value(p, -2 * h))) / (12.0 * h)
            for p in range(x.shape[1])
        ]
    )
    return np.abs(slope - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_fourth_order_differences(kind):
    assert gradient_error(kind) < 1e-8


def slope_without_jacobian(monkeypatch):
    jacobian = averaged_target.log_jacobian
    monkeypatch.setattr(averaged_target, "log_jacobian", lambda x: (jacobian(x)[0], 0.0 * x))


def prior_slope_of_one_degree_less(monkeypatch):
    prior = averaged_target.log_prior

    def wrong(entries, problem):
        value, slope = prior(entries, problem)
        power = problem.dof + problem.n_tied
        return value, slope * (power - 1.0) / power

    monkeypatch.setattr(averaged_target, "log_prior", wrong)


def likelihood_slope_in_wrong_units(monkeypatch):
    likelihood = averaged_target.log_likelihood

    def wrong(entries, points, problem, *, with_gradient=True):
        value, slope, share = likelihood(entries, points, problem, with_gradient=with_gradient)
        return value, slope / problem.unit, share

    monkeypatch.setattr(averaged_target, "log_likelihood", wrong)


@pytest.mark.parametrize(
    "plant",
    [slope_without_jacobian, prior_slope_of_one_degree_less, likelihood_slope_in_wrong_units],
    ids=lambda plant: plant.__name__,
)
def test_wrong_gradient_is_found(plant, monkeypatch):
    plant(monkeypatch)
    assert gradient_error("columnwise") > 1e-3


def test_density_ends_at_the_limit():
    problem, state = make()
    x = np.arcsinh(state.entries)
    x[0, 3] = 30.1
    value, slope = averaged_target.log_density(x, state.points, problem)
    assert value[0] == -np.inf
    assert np.isfinite(value[1])
    assert np.isfinite(slope).all()
    edge = x.clip(-30.0, 30.0)
    np.testing.assert_array_equal(
        slope, averaged_target.log_density(edge, state.points, problem)[1]
    )


@pytest.mark.parametrize("move", [averaged.rotate, averaged.translate])
def test_free_move_changes_much_and_the_likelihood_not(move):
    problem, state = make()
    before = averaged_target.log_likelihood(state.entries, state.points, problem)
    moved = move(state, problem, rng=np.random.default_rng(103))
    after = averaged_target.log_likelihood(moved.entries, moved.points, problem)
    assert np.abs(moved.entries - state.entries).max() > 0.1
    np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
    np.testing.assert_allclose(after[2], before[2], atol=1e-12)


def test_one_component_is_not_turned():
    problem = averaged_target.pose(
        make_data(), PRIORS, n_components=1, projection_prior="entrywise"
    )
    start = gibbs.init(
        make_data(),
        PRIORS,
        n_components=1,
        projection_prior="entrywise",
        n_chains=C,
        rng=np.random.default_rng(104),
    )
    rng = np.random.default_rng(105)
    state = averaged.init(problem, start, rng=rng)
    assert averaged.rotate(state, problem, rng=rng) is state
    assert np.isfinite(averaged.step(state, problem, tune=1, rng=rng).entries).all()


def test_refresh_keeps_points_as_often_as_their_share_says():
    """4000 copies of one chain: frequencies of the kept point within 5 standard errors."""
    problem, state = make()
    copies = 4000
    state = replace(
        state,
        entries=np.repeat(state.entries[:1], copies, axis=0),
        points=np.repeat(state.points[:1], copies, axis=0),
    )
    rng = np.random.default_rng(106)
    fresh = averaged.refresh_points(state, problem, rng=rng).points
    _, _, share = averaged_target.log_likelihood(state.entries[:1], state.points[:1], problem)
    same = (fresh[:, :1] == state.points).all(axis=2)  # (copies, M, N)
    np.testing.assert_array_equal(same.sum(axis=1), 1)
    error = np.sqrt(share[0] * (1.0 - share[0]) / copies)
    assert (np.abs(same.mean(axis=0) - share[0]) < 5.0 * error + 1e-3).all()
    others = fresh[:, 1:]
    assert abs(others.mean()) < 5.0 / np.sqrt(others.size)
    assert abs(others.var() - 1.0) < 5.0 * np.sqrt(2.0 / others.size)
    assert not (others == state.points[:, 1:]).any()


def test_step_size_is_fixed_after_the_warm_up():
    problem, state = make()
    rng = np.random.default_rng(107)
    seen = []
    for _ in range(6):
        state = averaged.step(state, problem, tune=4, rng=rng)
        seen.append(state.search)
    assert [search.count for search in seen] == [1, 2, 3, 4, 4, 4]
    assert seen[3] is seen[5]


@pytest.mark.parametrize("kind", KINDS)
def test_variables_are_those_of_gibbs(kind):
    """Names and shapes, and precisions with the mean of their Gamma given the entries."""
    problem, state = make(kind)
    copies = 20_000
    state = replace(
        state,
        entries=np.repeat(state.entries[:1], copies, axis=0),
        points=np.repeat(state.points[:1, :1], copies, axis=0),
    )
    values = averaged.to_variables(state, problem, PRIORS, rng=np.random.default_rng(108))
    whole = gibbs.init(
        make_data(),
        PRIORS,
        n_components=R,
        projection_prior=kind,
        n_chains=copies,
        rng=np.random.default_rng(109),
    )
    expected = gibbs.to_variables(whole, kind)
    assert {name: value.shape for name, value in values.items()} == {
        name: value.shape for name, value in expected.items() if name != "scores"
    }
    Q = values["projection"][0]
    shared = {"entrywise": (), "columnwise": (0,), "rowwise": (1,)}[kind]
    count = {"entrywise": 1, "columnwise": D, "rowwise": R}[kind]
    shape, rate = PRIORS.projection_shape + count / 2, PRIORS.projection_rate
    mean = shape / (rate + np.sum(Q**2, axis=shared) / 2)
    found = values["projection_precision"]
    assert (np.abs(found.mean(axis=0) / mean - 1.0) < 5.0 / np.sqrt(shape * copies)).all()
    eps = state.points[0, 0, :R].T
    np.testing.assert_allclose(
        values["latent"][0], make_data().design.X @ Q + PRIORS.latent_scale * eps, rtol=1e-12
    )


def test_other_targets_are_refused():
    with pytest.raises(ValueError, match="multilabel"):
        averaged_target.pose(
            make_data("multilabel"), PRIORS, n_components=R, projection_prior="entrywise"
        )
    data = replace(make_data(), design=None)
    with pytest.raises(TypeError, match="DenseDesign"):
        averaged_target.pose(data, PRIORS, n_components=R, projection_prior="entrywise")


# The estimator


def rows(n=40):
    """Two features that separate three classes, and one of noise."""
    rng = np.random.default_rng(121)
    y = np.arange(n) % 3
    return rng.standard_normal((n, 3)) + 4.0 * np.eye(3)[y] * [1.0, 1.0, 0.0], y


def test_it_is_the_default_for_classes_unless_there_are_too_many_rows():
    iris, digits = {"n_labels": 3, "r": 2}, {"n_labels": 10, "r": 2}
    for target, size, labels, expected in (
        ("multiclass", (150, 4), iris, "averaged"),
        ("multiclass", (300, 64), digits, "averaged"),
        ("multiclass", (1797, 64), digits, "joint"),
        ("multiclass", (100, 20_000), iris, "joint"),
        ("multilabel", (150, 4), iris, "joint"),
        ("regression", (150, 4), iris, "joint"),
    ):
        assert default_sampler(target, size=size, **labels) == expected
        assert (work(size, **labels) <= MAX_WORK) == (size in ((150, 4), (300, 64)))


def test_the_warning_names_the_averaged_sampler_where_another_was_used():
    X, y = rows()
    options = {
        "variant": "paper",
        "priors": SAMPLING,
        "inference": "gibbs",
        "draws": 20,
        "tune": 2,
        "random_state": 0,
    }
    with pytest.warns(ConvergenceWarning, match='sampler="averaged"'):
        model = BSDRClassifier(sampler="joint", **options).fit(X, y)
    assert not model.converged_
    with pytest.warns(ConvergenceWarning, match="or use another n_components$"):
        model = BSDRClassifier(**options).fit(X, y)
    assert model.idata_.attrs["sampler"] == "averaged"


@pytest.mark.filterwarnings("ignore:R-hat")
@pytest.mark.parametrize("kind", KINDS)
def test_classifier_by_the_averaged_sampler(kind):
    """Same variables and dims as by the joint sweep, and what a fit is used for."""
    X, y = rows()
    trees = {}
    for sampler in ("averaged", "joint"):
        model = BSDRClassifier(
            variant="paper",
            inference="gibbs",
            sampler=sampler,
            projection_prior=kind,
            draws=60,
            tune=60,
            chains=2,
            random_state=0,
        ).fit(X, y)
        trees[sampler] = model.idata_
        assert model.score(X, y) > 0.85
        assert model.transform(X).shape == (len(X), 2)
        assert model.idata_.attrs["sampler"] == sampler
    first, second = (trees[name]["posterior"].dataset for name in ("averaged", "joint"))
    assert {n: (v.dims, v.shape) for n, v in first.items()} == {
        n: (v.dims, v.shape) for n, v in second.items()
    }
    coef = first["coef"].to_numpy()
    product = first["projection"].to_numpy() @ first["weights"].to_numpy()
    np.testing.assert_allclose(coef, product - product.mean(-1, keepdims=True), atol=1e-9)


@pytest.mark.filterwarnings("ignore:R-hat")
def test_same_seed_same_draws():
    X, y = rows()
    options = {"variant": "paper", "inference": "gibbs", "draws": 10, "tune": 5, "chains": 2}
    first, second = (
        BSDRClassifier(random_state=3, **options).fit(X, y).predict_proba(X) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_what_has_no_classes_is_refused():
    X, y = rows()
    model = BSDRRegressor(variant="paper", inference="gibbs", sampler="averaged", draws=5, tune=5)
    with pytest.raises(ValueError, match="sampler is for classes"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="sampler must be one of"):
        BSDRClassifier(variant="paper", inference="gibbs", sampler="exact").fit(X, y)
