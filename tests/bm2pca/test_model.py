"""The PyMC model against dense normals and quadrature."""

import math

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from scipy import stats
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from bsdr_models import BM2PCAClassifier
from bsdr_models.bm2pca import HingeLoss, build_model, subspace
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.trees import SPEC
from bsdr_models.inference.engines import sample_nuts
from bsdr_models.papers.bm2pca import SAMPLING
from bsdr_models.papers.bm2pca.model import (
    TINY,
    _draw_target,
    log_expected_factor,
    margin_factor,
)
from bsdr_models.papers.bm2pca.model import (
    build_model as build_paper_model,
)
from tests.toys import FAST, on_value_scale, random_point

N, D, R = 6, 5, 2
COST, EPSILON = 1.7, 0.4
SIGNS = np.array([[1, -1, 0, 1, -1, 1], [-1, 0, 0, 1, 1, -1], [1, 1, -1, -1, 1, 0]]).T
CASES = {
    "sign": ("signs", 1),
    "signs": ("signs", 3),
    "target": ("regression", 1),
    "targets": ("regression", 2),
}
SLOW = pytest.mark.slow


def toy(case):
    """Samples, partly missing targets, and options of `declare`."""
    target, k = CASES[case]
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, D)) + 0.5
    y = rng.normal(size=(N, k))
    y[2] = np.nan
    y = y if target == "regression" else SIGNS[:, :k]
    return X, y, {"n_components": R, "target": target}


def declare(X, y, target, *, priors=PAPER, **options):
    """The model of signs, 0 without a label, or of real targets."""
    options |= {"C": COST, "epsilon": EPSILON, "priors": priors}
    if target == "regression":
        return build_paper_model(X, y, target=target, **options)
    labels = np.where(y == 0, -1, y > 0)
    return build_paper_model(X, labels, target="multilabel", unlabeled=-1, **options)


def normal(value, mean, precision):
    return stats.norm(mean, np.broadcast_to(precision, np.shape(value)) ** -0.5).logpdf(value).sum()


def log_prior(point, p):
    """Log prior of the parameters."""

    def gamma(value, shape, rate):
        return stats.gamma(shape, scale=1.0 / rate).logpdf(value).sum()

    nu = point["weight_precision"]
    return (
        gamma(point["loading_precision"], p.loading_shape, p.loading_rate)
        + gamma(point["noise_precision"], p.noise_shape, p.noise_rate)
        + gamma(nu, p.weight_shape, p.weight_rate)
        + normal(point["offset"], 0.0, p.offset_precision)
        + normal(point["loadings"], 0.0, point["loading_precision"])
        + normal(point["weights"], 0.0, nu)
        + normal(point["bias"], 0.0, nu)
    )


def factors(y, f, target):
    """Log of the margin factors, 0 without a target."""
    if target == "signs":
        return np.where(y == 0, 0.0, -2.0 * COST * np.maximum(0.0, 1.0 - y * f))
    cost = 2.0 * COST * np.maximum(0.0, np.abs(y - f) - EPSILON)
    return np.where(np.isnan(y), 0.0, -cost - np.log(2.0 * EPSILON + 1.0 / COST))


def log_expectation(y, mean, sd, target):
    """Log of the mean factor under f ~ N(mean, sd^2), by Gauss-Legendre cells between the kinks.

    The mode of the product lies within 2 COST sd^2 of the mean.
    """
    reach = 14.0 * sd + 2.0 * COST * sd**2
    kinks = [1.0, -1.0] if target == "signs" else [y - EPSILON, y + EPSILON]
    ends = np.union1d(np.linspace(mean - reach, mean + reach, 2001), np.nan_to_num(kinks))
    x, w = np.polynomial.legendre.leggauss(8)
    half = np.diff(ends)[:, None] / 2.0
    f = ends[:-1, None] + half * (1.0 + x)
    each = factors(y, f, target) + stats.norm.logpdf(f, mean, sd) + np.log(w * half)
    return np.logaddexp.reduce(each.ravel())


def dense_scores(X, point):
    """Mean (N, K) and covariance (K, K) of the scores given rows, through the joint of (z, x)."""
    W, eta = point["loadings"], point["weights"]
    cov = W @ W.T + np.eye(len(W)) / point["noise_precision"]
    gain = np.linalg.solve(cov, W)
    mean = (X - point["offset"]) @ gain @ eta + point["bias"]
    return mean, eta.T @ (np.eye(len(eta)) - W.T @ gain) @ eta, cov


def log_joint(point, X, y, target, *, priors):
    total = log_prior(point, priors)
    mean, cov, of_rows = dense_scores(X, point)
    total += stats.multivariate_normal(point["offset"], of_rows).logpdf(X).sum()
    if y.shape[1] == 1:
        sd = math.sqrt(cov[0, 0])
        return total + sum(log_expectation(y[n, 0], mean[n, 0], sd, target) for n in range(N))
    # z = m + L'^-1 offset, where L L' is the precision of z given x.
    W, offset = point["loadings"], point["latent_offset"]
    L = np.linalg.cholesky(np.eye(R) + point["noise_precision"] * W.T @ W)
    f = mean + offset @ np.linalg.inv(L) @ point["weights"]
    return total + normal(offset, 0.0, 1.0) + factors(y, f, target).sum()


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "signs" else SLOW) for case in CASES]
)
def test_log_density_is_the_joint(lab, case):
    X, y, options = toy(case)
    model = declare(X, y, priors=lab.PRIORS, **options)
    log_density = model.compile_logp(jacobian=False, **FAST)
    rng = np.random.default_rng(11)
    for _ in range(3):
        point = random_point(model, rng)
        expected = log_joint(point, X, y, options["target"], priors=lab.PRIORS)
        np.testing.assert_allclose(
            log_density(on_value_scale(model, point)), expected, rtol=1e-9, atol=1e-8
        )


def test_augmented_density_is_equation_4(lab):
    """The scale of a hinge without a label has its Gamma prior."""
    X, y, options = toy("signs")
    model = declare(X, y, priors=lab.PRIORS, augmented=True, **options)
    log_density = model.compile_logp(jacobian=False, **FAST)
    rng = np.random.default_rng(12)
    for _ in range(3):
        point = random_point(model, rng)
        z, lam = point["latent"], point["hinge_scale"]
        mean = z @ point["loadings"].T + point["offset"]
        u = COST * (1.0 - y * (z @ point["weights"] + point["bias"]))
        mixture = -0.5 * np.log(2.0 * np.pi * lam) - (lam + u) ** 2 / (2.0 * lam)
        none = stats.chi2(1).logpdf(lam)
        expected = log_prior(point, lab.PRIORS) + normal(z, 0.0, 1.0)
        expected += normal(X, mean, point["noise_precision"]) + np.where(y, mixture, none).sum()
        found = log_density(on_value_scale(model, point))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# Closed forms


@pytest.fixture(scope="module")
def expected():
    """Value and gradient in mean and variance of the closed form, by kind of factor.

    Arguments are means of f (M,), variances (M,), C and half the width of an interval around 0.3.
    """
    inputs = f, variance, cost, width = pt.dvector(), pt.dvector(), pt.dscalar(), pt.dscalar()
    found = {}
    for hinge, v in ((True, [1.0 - f]), (False, [0.3 - f - width, f - 0.3 - width])):
        value = log_expected_factor(v, variance, cost)
        outputs = [value, *pytensor.grad(value.sum(), [f, variance])]
        found[hinge] = pytensor.function(inputs, outputs, on_unused_input="ignore", **FAST)
    return lambda half, *values: found[half is None](*values, half or 0.0)


def log_expected(mean, sd, low, high, cost):
    """Log E[phi(f)] by normal integrals below, inside and above the interval without loss."""
    with mpmath.workdps(400):
        m, s, rate = mpmath.mpf(mean), mpmath.mpf(sd), 2 * mpmath.mpf(cost)
        low, high = (mpmath.mpf(end) for end in (low, high))
        total = mpmath.ncdf((high - m) / s) - mpmath.ncdf((low - m) / s)
        below = mpmath.ncdf((low - m) / s - rate * s)
        total += mpmath.exp(rate * (m - low) + (rate * s) ** 2 / 2) * below
        if high < mpmath.inf:
            above = mpmath.ncdf((m - high) / s - rate * s)
            total += mpmath.exp(rate * (high - m) + (rate * s) ** 2 / 2) * above
        return float(mpmath.log(total))


@pytest.mark.parametrize("width", [None, 0.0, 1e-3, 0.2])
def test_expected_factor_is_a_sum_of_normal_integrals(expected, width):
    """Means on either side of the kinks, spreads of 0.01 to 20."""
    points = [(0.3, 0.5, 10), (2.0, 1.0, 10), (-1.0, 0.2, 10), (-8.0, 0.3, 40), (0.0, 20.0, 10)]
    points += [(0.95, 0.01, 10), (1.0, 3.0, 0.1), (-30.0, 1.0, 1), (12.0, 2.0, 5)]
    ends = (1.0, np.inf) if width is None else (0.3 - width, 0.3 + width)
    for mean, sd, cost in points:
        truth = log_expected(mean, sd, *ends, cost)
        got = expected(width, np.array([mean]), np.array([sd**2]), cost)[0]
        np.testing.assert_allclose(got[0], truth, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("width", [None, 0.2])
def test_gradient_of_the_expected_factor(expected, width):
    """Difference quotients of values that were checked above."""
    rng = np.random.default_rng(1)
    f, variance = rng.normal(scale=3.0, size=20), 0.1 + rng.gamma(2.0, size=20)
    _, in_mean, in_variance = expected(width, f, variance, 3.0)
    step = 1e-5
    for gradient, d_mean, d_variance in ((in_mean, step, 0.0), (in_variance, 0.0, step)):
        up = expected(width, f + d_mean, variance + d_variance, 3.0)[0]
        down = expected(width, f - d_mean, variance - d_variance, 3.0)[0]
        np.testing.assert_allclose(gradient, (up - down) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("width", [None, 0.1])
def test_expected_factor_of_the_smallest_variance_is_the_factor(expected, width):
    """Zero weights, where optimisers start, have this variance."""
    f = np.linspace(-2.0, 2.5, 40)
    v = 1.0 - f if width is None else np.abs(f - 0.3) - width
    value = expected(width, f, np.full(f.shape, TINY), 3.0)[0]
    np.testing.assert_allclose(value, -6.0 * np.maximum(v, 0.0), rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("width", [None, 0.0, 0.1])
def test_expected_factor_far_out(expected, width):
    """Scores to +-1e4, standard deviations from 1e-8 to 1e4: finite, and no more than log 1."""
    means = [0.0, 0.3, 0.999, 1.0, 1.001, 30.0, 1e4]
    f = np.array([sign * m for m in means for sign in (-1.0, 1.0)])
    for sd in (math.sqrt(TINY), 1e-3, 1.0, 30.0, 1e4):
        value, in_mean, in_variance = expected(width, f, np.full(f.shape, sd**2), 10.0)
        assert np.isfinite([value, in_mean, in_variance]).all(), sd
        assert (value <= 1e-15).all()
        # The log of the factor has slope 2 C at most, so has that of its expectation.
        assert (np.abs(in_mean) <= 20.0 + 1e-6).all(), sd


# Predictions


@pytest.mark.parametrize("case", [pytest.param("sign", marks=SLOW), "signs"])
def test_coefficients_give_the_mean_score_of_a_new_sample(case):
    X, y, options = toy(case)
    model = declare(X, y, **options)
    rng = np.random.default_rng(8)
    point = random_point(model, rng)
    coef, intercept = model.compile_fn(
        model.replace_rvs_by_values([model["coef"], model["intercept"]]),
        inputs=model.value_vars,
        on_unused_input="ignore",
        **FAST,
    )(on_value_scale(model, point))
    new = rng.normal(size=(4, D))
    expected, _, _ = dense_scores(new, point)
    np.testing.assert_allclose(new @ coef + intercept, expected, rtol=1e-10)


@pytest.mark.slow
def test_prior_predictive_samples_have_their_covariance():
    """Squared Mahalanobis distances under each draw's own parameters are chi-squared of D."""
    X, y, options = toy("sign")
    model = declare(X, y, priors=SAMPLING, **options)
    with pytest.warns(UserWarning, match="Potentials"):
        prior = pm.sample_prior_predictive(400, model=model, random_seed=4, compile_kwargs=FAST)
    draws, rows = prior.prior, prior.prior_predictive["samples"].values[0]
    assert rows.shape == (400, N, D)
    squares = []
    for s, x in enumerate(rows):
        point = {name: draws[name].values[0, s] for name in draws.data_vars}
        gap = x - point["offset"]
        squares.append((gap * np.linalg.solve(dense_scores(x, point)[2], gap.T).T).sum(axis=1))
    # The variance of chi-squared is 2 D; 400 N rows, five standard errors.
    assert abs(np.mean(squares) - D) < 5.0 * math.sqrt(2.0 * D / (400 * N))
    assert stats.kstest(np.ravel(squares), stats.chi2(D).cdf).pvalue > 1e-4


# Input


REAL = [0.5, np.nan, -0.3, 1.2, 0.0, 2.0]


@pytest.mark.parametrize(
    ("target", "y", "expected"),
    [
        ("multiclass", [0, 1, 2, 2, 1, 0], np.eye(3)[[0, 1, 2, 2, 1, 0]] * 2 - 1),
        ("multiclass", [0, 1, -1, -1, 1, 0], [[-1], [1], [0], [0], [1], [-1]]),
        ("binary", ["a", "b", "?", "a", "b", "b"], [[-1], [1], [0], [-1], [1], [1]]),
        (
            "multilabel",
            [[0, 1], [1, 0], [-1, 1], [1, 1], [0, -1], [1, 0]],
            [[-1, 1], [1, -1], [0, 1], [1, 1], [-1, 0], [1, -1]],
        ),
        ("regression", REAL, np.array([REAL]).T),
    ],
)
def test_targets_of_the_declared_model(target, y, expected):
    """Signs, or real outputs, and missing ones, as a fit encodes them."""
    X, *_ = toy("sign")
    expected = np.array(expected, dtype=np.float64)
    unlabeled = "?" if target == "binary" else -1
    options = {"n_components": R, "C": COST, "epsilon": EPSILON, "priors": PAPER}
    model = build_paper_model(X, y, target=target, unlabeled=unlabeled, **options)
    missing = expected == 0.0 if target != "regression" else np.isnan(expected)
    given = model["y_data"].get_value()
    np.testing.assert_array_equal(given[~missing], expected[~missing])
    if target == "binary":  # cost and priors are those given
        same = declare(X, expected, "signs", n_components=R)
        point = on_value_scale(same, random_point(same, np.random.default_rng(0)))
        found, wanted = (each.compile_logp(**FAST)(point) for each in (model, same))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    if target != "regression":
        recommended = build_model(X, y, target=target, unlabeled=unlabeled)
        np.testing.assert_array_equal(recommended["y_data"].get_value(), expected)


# Samplers


@pytest.fixture(scope="module")
def wine():
    """The first cultivar of 40 wines against the rest, standardised: separable."""
    X, y = load_wine(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:40]
    X = X[rows]
    return (X - X.mean(axis=0)) / X.std(axis=0), y[rows] == 0


@pytest.mark.slow
def test_nuts_mixes_on_separable_classes(wine):
    """A divergence is a warning, and warnings are errors here."""
    sampled = sample_nuts(
        build_paper_model(*wine, n_components=2, priors=SAMPLING),
        var_names=SPEC.identified,
        rng=np.random.default_rng(1),
        draws=1000,
        tune=1000,
        chains=2,
    )
    for name in SPEC.identified:
        values = sampled.draws[name].reshape(2, 1000, -1)
        for each in np.moveaxis(values, 2, 0):
            assert array_stats.rhat(each) < 1.05, name
            assert array_stats.ess(each) > 100, name
    X, y = wine
    mean = {name: draws.mean(axis=(0, 1)) for name, draws in sampled.draws.items()}
    scores = X @ mean["coef"][:, 0] + mean["intercept"][0]
    assert ((scores > 0) == y).mean() > 0.95


@pytest.mark.parametrize("spread", [None, 0.7])
def test_real_targets_are_drawn_from_their_density(spread):
    """A Kolmogorov-Smirnov test, after the integral of the density."""
    f = pt.as_tensor(np.full(4000, 0.4))
    variance = [] if spread is None else [pt.as_tensor(spread**2)]
    drawn = pm.draw(
        _draw_target(f, *variance, None, C=COST, epsilon=EPSILON),
        random_seed=1,
        **FAST,
    )
    grid = np.linspace(-12.0, 12.0, 4001)
    log_density = margin_factor(grid, f[:1], *variance, C=COST, epsilon=EPSILON).eval()
    cdf = np.cumsum(np.exp(log_density)) * (grid[1] - grid[0])
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


# The recommended model


@pytest.mark.parametrize(
    ("case", "n_components"),
    [
        ("classes", 2),
        pytest.param("classes", 1, marks=SLOW),
        pytest.param("two classes", 1, marks=SLOW),
        pytest.param("labels", 2, marks=SLOW),
    ],
)
def test_pseudo_posterior_is_that_of_the_engine(case, n_components):
    """The log density differs from the objective by a constant; the tree holds its variables."""
    X, y = load_wine(return_X_y=True)
    X, y = X[::5], y[::5].astype(float)
    y[4] = np.nan
    if case == "two classes":
        X, y = X[y != 0.0], y[y != 0.0]
    if case == "labels":
        y = np.column_stack([y == 0.0, X[:, 0] > 13.0])
    loss = HingeLoss(C=0.7, calibrate=False)
    model = BM2PCAClassifier(n_components, loss=loss, unlabeled=np.nan, random_state=0).fit(X, y)
    declared, posterior = model.model_, model._posterior
    log_density = declared.compile_logp(**FAST)
    signs, A = model._signs, posterior.metric.whiten(model._context.X)
    reached, _ = subspace.objective(posterior.state, A, signs, posterior.settings)
    assert reached == pytest.approx(model.objective_[-1], rel=1e-9)
    rng, gaps = np.random.default_rng(7), []
    for _ in range(3):
        point = posterior.state.unpack(rng.standard_normal(posterior.state.packed.size))
        value, _ = subspace.objective(point, A, signs, posterior.settings)
        names = {"metric_projection": point.projection, "weights": point.weights[1:]}
        gaps.append(log_density({"bias": point.weights[0], **names}) - value)
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)
    posterior = model.idata_["posterior"]
    for variable in declared.free_RVs:
        axes = declared.named_vars_to_dims[variable.name]
        assert posterior[variable.name].dims == ("chain", "draw", *axes)
        for axis in axes:
            assert posterior[axis].values.tolist() == list(declared.coords[axis])


def effects_of_whitened_features(model, point):
    """Effects (D, B), from the coefficients of unit projections."""
    (values,) = model.replace_rvs_by_values([model["coef"]])
    names = ("metric_projection", "weights")
    inputs = [model.rvs_to_values[model[name]] for name in names]
    coef = model.compile_fn(values, inputs=inputs, **FAST)
    found = []
    for unit in np.eye(len(point["metric_projection"])):
        own = {name: np.zeros_like(point[name]) for name in names}
        own["metric_projection"][:, 0] = unit
        own["weights"][0, 0] = 1.0
        found.append(coef(own)[:, 0])
    return np.stack(found, axis=1)


@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=SLOW), 3])
def test_the_declared_model_is_that_of_a_fit_without_a_learned_metric(n_classes):
    X, y = load_wine(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    X = StandardScaler().fit_transform(X)
    model = BM2PCAClassifier(metric="identity", loss=HingeLoss(C=0.7, calibrate=False)).fit(X, y)
    fitted = model.model_
    declared = build_model(X, y, C=0.7)
    point = fitted.initial_point(random_seed=0)
    rng = np.random.default_rng(1)
    point = {name: rng.standard_normal(value.shape) for name, value in point.items()}
    # The axes of the two metrics may differ in sign.
    slopes = [effects_of_whitened_features(each, point) for each in (fitted, declared)]
    turned = np.linalg.pinv(slopes[1]) @ slopes[0] @ point["metric_projection"]
    values = [
        fitted.compile_logp(**FAST)(point),
        declared.compile_logp(**FAST)(point | {"metric_projection": turned}),
    ]
    np.testing.assert_allclose(*values, rtol=1e-9)
    assert declared.named_vars_to_dims == fitted.named_vars_to_dims
