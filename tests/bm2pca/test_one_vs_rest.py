"""One classifier per label: exact bound, monotone updates, optimisation, prediction."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from bsdr_models.bm2pca.label_free import one_vs_rest as ovr
from bsdr_models.bm2pca.label_free.one_vs_rest_fit import fit_one_vs_rest as fit_labels
from bsdr_models.bm2pca.label_free.one_vs_rest_fit import joint_search
from bsdr_models.bm2pca.label_free.within_class_metric import Spectrum
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.factors import Gamma

PRIORS = Priors(weight_shape=1.6, weight_rate=0.7)
COST = 1.7
# N, R: the first is solved by N x N matrices.
SIZES = {"wide": (9, 12), "tall": (40, 5)}

every_size = pytest.mark.parametrize("size", SIZES)


def make_problem(size, seed=0, k=3, missing=True):
    n, r = SIZES[size]
    rng = np.random.default_rng([37, seed])
    A = rng.standard_normal((n, r)) / np.sqrt(r)
    Y = np.where(rng.random((n, k)) < 0.4, 1.0, -1.0)
    if missing:
        Y[rng.random((n, k)) < 0.2] = 0.0
        Y[0] = 0.0
    data = ovr.make_label_data(A, Y)
    assert data.ridge.prefers_rows == (size == "wide")
    return data, rng


def scrambled(data, rng):
    """A state away from the optimum, except its weights, which a sweep determines."""
    k = data.Y.shape[1]
    state = replace(
        ovr.initial_factors(data, COST),
        weight_precision=Gamma(shape=rng.uniform(1, 5, k), rate=rng.uniform(1, 5, k)),
        slack=np.where(data.labelled, rng.uniform(0.5, 5.0, data.Y.shape), 1.0),
    )
    state = replace(state, weights=ovr.update_classifier_weights(state, data, COST))
    return replace(
        state,
        weight_precision=Gamma(shape=rng.uniform(1, 5, k), rate=rng.uniform(1, 5, k)),
        slack=np.where(data.labelled, rng.uniform(0.5, 5.0, data.Y.shape), 1.0),
    )


def covariance(state, data, c):
    weights, rows = state.weights, data.ridge.rows
    precision = weights.prior_precision[c] * np.eye(rows.shape[1])
    return np.linalg.inv(precision + rows.T @ (weights.row_precision[:, [c]] * rows))


UPDATES = {
    "weights": lambda state, data: replace(
        state, weights=ovr.update_classifier_weights(state, data, COST)
    ),
    "weight_precision": lambda state, data: replace(
        state, weight_precision=ovr.update_classifier_precision(state, PRIORS)
    ),
    "slack": lambda state, data: replace(state, slack=ovr.update_slack(state, data, COST)),
}


@every_size
def test_bound_is_the_monte_carlo_expectation(size):
    """E_q[log joint - log q] from SciPy densities, lambda included: within 4 standard errors."""
    data, rng = make_problem(size)
    state = scrambled(data, rng)
    rows, n_draws = data.ridge.rows, 20_000
    for c in range(3):
        labelled = data.Y[:, c] != 0.0
        y, a, s = data.Y[labelled, c], rows[labelled], state.slack[labelled, c]
        q_g = stats.multivariate_normal(state.weights.mean[:, c], covariance(state, data, c))
        q_nu = stats.gamma(
            state.weight_precision.shape[c], scale=1 / state.weight_precision.rate[c]
        )
        g, nu = q_g.rvs(n_draws, random_state=rng), q_nu.rvs(n_draws, random_state=rng)
        # lambda of GIG(1/2, 1, s**2): one over an inverse Gaussian of mean 1/s and shape 1.
        lam = 1.0 / stats.invgauss(1.0 / s, scale=1.0).rvs((n_draws, len(s)), random_state=rng)
        u = COST * (1.0 - y * (g @ a.T))
        log_q_lam = -0.5 * np.log(2 * np.pi * lam) + s - 0.5 * (lam + s**2 / lam)
        each = (stats.norm.logpdf(lam, -u, np.sqrt(lam)) - log_q_lam).sum(axis=1)
        each += stats.norm.logpdf(g, 0.0, 1.0 / np.sqrt(nu)[:, None]).sum(axis=1)
        each += stats.gamma(PRIORS.weight_shape, scale=1 / PRIORS.weight_rate).logpdf(nu)
        each -= q_g.logpdf(g) + q_nu.logpdf(nu)
        bound = ovr.info(state, data, PRIORS, COST).by_label[c]
        assert abs(each.mean() - bound) < 4.0 * each.std() / np.sqrt(n_draws)
        assert each.std() / np.sqrt(n_draws) < 0.2


@every_size
@pytest.mark.parametrize("seed", range(4))
def test_no_update_lowers_the_bound_of_any_label(size, seed):
    data, rng = make_problem(size, seed)
    state = scrambled(data, rng)
    bound = ovr.info(state, data, PRIORS, COST).by_label
    for name in rng.choice(list(UPDATES), 60):
        state = UPDATES[name](state, data)
        new = ovr.info(state, data, PRIORS, COST).by_label
        assert np.all(new >= bound - 1e-9 * np.abs(bound)), name
        bound = new


@every_size
def test_weights_are_the_exact_posterior_given_the_rest(size):
    """log joint in g is a quadratic: its gradient is zero at the mean, its curvature S."""
    data, rng = make_problem(size)
    state = scrambled(data, rng)
    old, state = state, replace(state, weights=ovr.update_classifier_weights(state, data, COST))
    rows = data.ridge.rows
    for c in range(3):
        w = np.where(data.Y[:, c] != 0.0, 1.0 / old.slack[:, c], 0.0)
        nu = old.weight_precision.mean[c]

        def slope(g, y=data.Y[:, c], w=w, nu=nu):
            u = 1.0 - y * (rows @ g)
            return rows.T @ (COST * y + COST**2 * w * u * y) - nu * g

        g = state.weights.mean[:, c]
        S = covariance(state, data, c)
        np.testing.assert_allclose(slope(g), 0.0, atol=1e-9)
        step = rng.standard_normal(len(g))
        np.testing.assert_allclose(S @ (slope(g) - slope(g + step)), step, atol=1e-9)
        live = data.Y[:, c] != 0.0
        assert state.weights.trace[c] == pytest.approx(np.trace(S), rel=1e-9)
        assert state.weights.log_det[c] == pytest.approx(np.linalg.slogdet(S)[1], rel=1e-9)
        np.testing.assert_allclose(
            state.weights.fitted_variance[live, c], np.diag(rows @ S @ rows.T)[live], atol=1e-12
        )
        np.testing.assert_allclose(state.weights.fitted[:, c], rows @ g, atol=1e-12)


def test_both_ridge_solvers_agree():
    for size in SIZES:
        data, rng = make_problem(size)
        n = len(data.Y)
        weight = np.where(rng.random(n) < 0.3, 0.0, rng.uniform(0.1, 9.0, n))
        linear = np.where(weight > 0.0, rng.standard_normal(n), 0.0)
        one, other = (
            solve(0.7, weight, linear)
            for solve in (data.ridge.solve_by_rows, data.ridge.solve_by_coordinates)
        )
        for name in ("mean", "trace", "log_det", "row_variance"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-11)


def test_bound_never_exceeds_the_evidence():
    """One sample, one coordinate: the evidence of the hinge is a two-dimensional integral."""
    data = ovr.make_label_data(np.array([[0.8]]), np.array([[1.0]]))
    rng = np.random.default_rng(5)
    nu = rng.gamma(PRIORS.weight_shape, 1.0 / PRIORS.weight_rate, 400_000)
    f = rng.standard_normal(400_000) * np.sqrt((1.0 + 0.8**2) / nu)
    evidence = np.log(np.mean(np.exp(-2.0 * COST * np.maximum(0.0, 1.0 - f))))
    fit = fit_labels(data, PRIORS, cost=COST, tol=1e-10)
    assert evidence - 1.0 < fit.elbo[-1] < evidence


# ----------------------------------------------------------------------------------- optimisation


@every_size
def test_fit_ends_where_plain_sweeps_end(size):
    data, _ = make_problem(size)
    state = ovr.initial_factors(data, COST)
    for _ in range(3000):
        state, info = ovr.sweep(state, data, PRIORS, COST)
    fit = fit_labels(data, PRIORS, cost=COST, tol=1e-12)
    assert fit.converged
    assert len(fit.elbo) < 100
    assert np.diff(fit.elbo).min() > -1e-8
    assert fit.elbo[-1] == pytest.approx(info.elbo, abs=1e-6)
    np.testing.assert_allclose(fit.state.weights.mean, state.weights.mean, atol=1e-4)
    assert sum(fit.terms.values()) == pytest.approx(fit.elbo[-1], rel=1e-12)


@every_size
@pytest.mark.parametrize("cost", [COST, 10.0])
def test_joint_search_maximises_the_bound_in_the_means(size, cost):
    """The gradient of the bound in the mean vanishes after a joint search."""
    data, _ = make_problem(size)
    state = ovr.initial_factors(data, cost)
    state, before = ovr.sweep(state, data, PRIORS, cost)
    for labels in (np.array([1]), np.arange(3)):
        end = joint_search(state, data, PRIORS, cost, labels=labels)
        after = ovr.info(end, data, PRIORS, cost)
        assert np.all(after.by_label[labels] > before.by_label[labels])
        np.testing.assert_array_equal(end.weights.trace, state.weights.trace)
        rows, gap = data.ridge.rows, 1.0 - data.Y * end.weights.fitted
        slope = rows.T @ (cost * data.Y * (1.0 + cost * gap / end.slack))
        slope -= end.weight_precision.mean * end.weights.mean
        assert np.abs(slope[:, labels]).max() < 0.05 * cost
    others = np.setdiff1d(np.arange(3), [1])
    alone = joint_search(state, data, PRIORS, cost, labels=np.array([1]))
    np.testing.assert_array_equal(alone.weights.mean[:, others], state.weights.mean[:, others])


def test_labels_are_independent_problems():
    data, _ = make_problem("wide")
    together = fit_labels(data, PRIORS, cost=COST, tol=1e-9)
    for c in range(3):
        alone = fit_labels(
            ovr.make_label_data(data.ridge.rows[:, 1:], data.Y[:, [c]]), PRIORS, cost=COST, tol=1e-9
        )
        np.testing.assert_allclose(
            together.state.weights.mean[:, c], alone.state.weights.mean[:, 0], atol=1e-4
        )


def test_max_iter_limits_the_sweeps():
    data, _ = make_problem("wide")
    for limit in (1, 2, 3, 4):
        fit = fit_labels(data, PRIORS, cost=COST, max_iter=limit)
        assert len(fit.elbo) == limit
        assert not fit.converged


@every_size
def test_unlabelled_samples_change_nothing(size):
    data, rng = make_problem(size, missing=False)
    A = data.ridge.rows[:, 1:]
    more = np.vstack([A, rng.standard_normal((2, A.shape[1]))])
    alone = fit_labels(data, PRIORS, cost=COST)
    beside = fit_labels(
        ovr.make_label_data(more, np.vstack([data.Y, np.zeros((2, 3))])), PRIORS, cost=COST
    )
    assert beside.elbo[-1] == pytest.approx(alone.elbo[-1], rel=1e-9)
    np.testing.assert_allclose(beside.state.weights.mean, alone.state.weights.mean, atol=1e-7)


# ---------------------------------------------------------------------------------- prediction


@every_size
def test_scores_of_new_samples_have_the_moments_of_q(size):
    data, rng = make_problem(size)
    state = fit_labels(data, PRIORS, cost=COST).state
    A = rng.standard_normal((4, SIZES[size][1]))
    mean, variance = ovr.predict(state, data, A, np.zeros(4))
    n_draws = 40_000
    for c in range(3):
        S = covariance(state, data, c)
        g = rng.multivariate_normal(state.weights.mean[:, c], S, size=n_draws)
        f = g @ np.column_stack([np.ones(4), A]).T
        error = 4.0 * np.sqrt(variance[:, c] / n_draws)
        assert np.all(np.abs(f.mean(axis=0) - mean[:, c]) < error)
        np.testing.assert_allclose(f.var(axis=0), variance[:, c], rtol=4.0 * np.sqrt(2 / n_draws))


@pytest.mark.parametrize("scale", [1.0, np.inf])
def test_row_space_and_all_features_give_equal_predictions(scale):
    """Axes outside the row space keep their prior, of precision E[nu]."""
    rng = np.random.default_rng(41)
    y = np.arange(12) % 3
    X, new = rng.standard_normal((12, 30)), rng.standard_normal((5, 30))
    X += 2.0 * rng.standard_normal((3, 30))[y]
    Y = np.where(np.equal.outer(y, np.arange(3)), 1.0, -1.0)
    metric = Spectrum.fit(X, Y).metric(scale)
    assert metric.A.shape == (12, 11)
    scatter = sum((m := X[y == c] - X[y == c].mean(axis=0)).T @ m for c in range(3))
    eigenvalues, axes = np.linalg.eigh(scatter)
    P = (axes / np.sqrt(1.0 + eigenvalues / metric.kappa)) @ axes.T
    full, full_new = (metric.outside_gain * (r - X.mean(axis=0)) @ P for r in (X, new))
    options = {"cost": COST, "tol": 1e-13, "max_iter": 5000}
    data, full_data = ovr.make_label_data(metric.A, Y), ovr.make_label_data(full, Y)
    fit, full_fit = (fit_labels(d, PRIORS, **options) for d in (data, full_data))
    found = ovr.predict(fit.state, data, metric.transform(new), metric.outside(new))
    expected = ovr.predict(full_fit.state, full_data, full_new, np.zeros(5))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert np.all(found[1] > 0.0)


def test_gamma_terms_are_a_divergence():
    q = Gamma(shape=np.array([2.0, 3.5]), rate=np.array([0.5, 4.0]))
    grid = np.linspace(1e-6, 60.0, 400_001)
    for c, term in enumerate(ovr._gamma_term(q, 1.6, 0.7)):
        log_q = stats.gamma(q.shape[c], scale=1 / q.rate[c]).logpdf(grid)
        log_p = 1.6 * np.log(0.7) - gammaln(1.6) + 0.6 * np.log(grid) - 0.7 * grid
        expected = np.trapezoid(np.exp(log_q) * (log_p - log_q), grid)
        assert term == pytest.approx(expected, abs=1e-5)
