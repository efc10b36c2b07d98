"""Density of the hierarchical model against independent formulas."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.linalg import sqrtm
from scipy.special import ndtr
from sklearn.covariance import ledoit_wolf_shrinkage

from bsdr_models.bsdr import posterior
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.numerics import orthant

# All differ, and none is neutral.
PRIORS = HierarchicalPriors(
    scale_location=-0.4,
    scale_width=1.3,
    bias_scale=2.7,
    noise_location=-0.8,
    noise_width=0.6,
    lapse=0.04,
)
TARGETS = ("multiclass", "multilabel", "regression")
# Target, number of labels, components.
CASES = [(target, k, r) for target in TARGETS for k, r in ((4, 2), (2, 1))]


def problem(target="multiclass", k=4, r=2, *, n=9, b=5, seed=0):
    rng = np.random.default_rng(seed)
    y = {
        "multiclass": rng.integers(0, k, n),
        "multilabel": rng.random((n, k)) < 0.4,
        "regression": rng.standard_normal((n, k)),
    }[target]
    X = rng.standard_normal((n, b)) / np.sqrt(b)
    return Problem.build(X, y, n_labels=k, n_components=r, target=target, priors=PRIORS)


def correlated(n, d, seed=0):
    """Centred samples (N, D) with correlated features of different scales."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.standard_normal((n, d))
    X *= np.linspace(0.5, 2.0, d)
    return X - X.mean(axis=0)


def dense(X):
    """Lambda of the documentation, with the shrinkage of scikit-learn, (D, D)."""
    S = X.T @ X / len(X)
    rho = ledoit_wolf_shrinkage(X, assume_centered=True)
    root = sqrtm((1.0 - rho) * S + rho * np.trace(S) / len(S) * np.eye(len(S))).real
    return root * np.trace(S) / np.trace(root @ S)


def linear_predictor(this, theta):
    """eta (S, N, K) from the definition of the model, one particle at a time."""
    r, b, (j, _) = this.n_components, this.X.shape[1], this.contrasts.shape
    out = []
    for vector in theta:
        Q = vector[: r * b].reshape(r, b).T
        W = vector[r * b : r * (b + j)].reshape(r, j)
        bias = vector[r * (b + j) : r * (b + j) + j]
        tau = np.exp(PRIORS.scale_location + PRIORS.scale_width * vector[r * (b + j) + j])
        out.append((tau * this.X @ Q @ W + PRIORS.bias_scale * bias) @ this.contrasts)
    return np.array(out)


def log_likelihood(this, theta):
    """(S,), from SciPy's distributions and adaptive quadrature of the probit."""
    eta, eps = linear_predictor(this, theta), PRIORS.lapse
    k = eta.shape[2]
    if this.target == "multiclass":
        p = np.exp([orthant.log_prob(each, this.y, n_nodes=64) for each in eta])
        return np.log((1.0 - eps) * p + eps / k).sum(axis=1)
    if this.target == "multilabel":
        p = np.where(this.y, ndtr(eta), ndtr(-eta))
        return np.log((1.0 - eps) * p + eps / 2.0).sum(axis=(1, 2))
    sigma = np.exp(PRIORS.noise_location + PRIORS.noise_width * theta[:, -k:])
    return stats.norm.logpdf(this.y, eta, sigma[:, None]).sum(axis=(1, 2))


# ------------------------------------------------------------------------------------ checks
# Functions, so that they apply to planted faults.


def check_value(target, k, r):
    this = problem(target, k, r)
    theta = np.random.default_rng(1).standard_normal((6, this.n_parameters))
    assert_allclose(this.log_likelihood(theta)[0], log_likelihood(this, theta), rtol=1e-5)


def check_gradient(target, k, r):
    """Away from the knots of the normal distribution function, where p jumps by 1e-11."""
    this = problem(target, k, r)
    theta = np.random.default_rng(2).standard_normal((4, this.n_parameters))
    value, gradient = this.log_likelihood(theta)
    assert value.shape == (4,)
    assert gradient.shape == theta.shape
    h = 1e-5
    for i in range(this.n_parameters):
        move = h * np.eye(this.n_parameters)[i]
        up, down = (log_likelihood(this, theta + sign * move) for sign in (1.0, -1.0))
        assert_allclose(gradient[:, i], (up - down) / (2.0 * h), rtol=2e-5, atol=2e-5)


def check_total(target, k):
    """Probabilities of all responses sum to one."""
    n = 3
    if target == "multiclass":
        every = np.indices((k,) * n).reshape(n, -1).T
    else:
        every = np.indices((2,) * (n * k)).reshape(n * k, -1).T.reshape(-1, n, k).astype(bool)
    this = problem(target, k, 1, n=n)
    theta = np.random.default_rng(3).standard_normal((5, this.n_parameters))
    total = sum(np.exp(dataclasses.replace(this, y=y).log_likelihood(theta)[0]) for y in every)
    assert_allclose(total, 1.0, rtol=0, atol=2e-6)


def check_parameters(target, k, r):
    """Parameters have the linear predictor and the noise of the density."""
    this = problem(target, k, r)
    theta = np.random.default_rng(4).standard_normal((6, this.n_parameters))
    draws = this.parameters(theta, rng=np.random.default_rng(0))
    expected = linear_predictor(this, theta)
    n = len(this.X)
    assert_allclose(draws.linear_predictor(this.X, np.zeros(n)), expected, rtol=1e-10, atol=1e-12)
    outside = np.linspace(0.0, 2.0, n)
    z = np.einsum("nb,srb->snr", this.X, draws.projection)
    z += outside[:, None] * draws.scale[:, None, None] * draws.outside[:, None]
    assert_allclose(draws.latent(this.X, outside), z, rtol=1e-10, atol=1e-12)
    tau = np.exp(PRIORS.scale_location + PRIORS.scale_width * this.split(theta)["log_scale"])
    assert_allclose(draws.scale, tau)
    if target == "regression":
        sigma = np.exp(PRIORS.noise_location + PRIORS.noise_width * theta[:, -k:])
        assert_allclose(draws.noise_scale, sigma)
    else:
        assert draws.noise_scale is None


def check_prior(target, k):
    """Prior of weights and biases is exchangeable over classes, and sums to zero."""
    this = problem(target, k, 1)
    theta = np.random.default_rng(5).standard_normal((20_000, this.n_parameters))
    draws = this.parameters(theta, rng=np.random.default_rng(0))
    centred = np.eye(k) - (target == "multiclass") / k
    for values, scale in ((draws.weights[:, 0], 1.0), (draws.bias, PRIORS.bias_scale)):
        assert_allclose(np.cov(values.T), scale**2 * centred, atol=0.05 * scale**2)
    assert (
        this.n_parameters
        == theta.shape[1]
        == (5 + 2 * len(this.contrasts) + 1 + k * (target == "regression"))
    )
    assert len(this.contrasts) == k - (target == "multiclass")


def check_rescale(target):
    """Affine in the parameters, with the given Jacobian and a symmetric proposal."""
    this = problem(target)
    theta = np.random.default_rng(13).standard_normal((4000, this.n_parameters))
    there, log_jacobian = this.rescale(theta, np.random.default_rng(0))
    # The same random numbers give the same map.
    slope = this.rescale(theta + 1.0, np.random.default_rng(0))[0] - there
    assert_allclose(np.log(slope).sum(axis=1), log_jacobian, atol=1e-9)
    assert_allclose(this.rescale(2.0 * theta, np.random.default_rng(0))[1], log_jacobian)
    for i in range(3):
        other = theta.copy()
        other[:, i] += 1.0
        moved = this.rescale(other, np.random.default_rng(0))[0] - there
        assert not np.delete(moved, i, axis=1).any()
    eta, factor = linear_predictor(this, theta[:50]), linear_predictor(this, there[:50])
    factor = factor / eta
    assert_allclose(factor, factor[:, :1, :1] * np.ones_like(eta), rtol=1e-8)
    assert (np.ptp(factor) < 1e-8) == (target == "regression")  # where it remains the same
    change = np.hstack([np.log(slope), there - slope * theta])
    error = change.std(axis=0) / np.sqrt(len(change))
    assert (np.abs(change.mean(axis=0)) <= 4.5 * error + 1e-9).all()


def check_align(target, r):
    """Orthogonal maps that keep the likelihood and align rotated copies."""
    this = problem(target, 4, r)
    rng = np.random.default_rng(14)
    theta = rng.standard_normal((6, this.n_parameters))
    value, slope = this.log_likelihood(theta)
    there, turned = this.align(theta, slope)
    assert not np.allclose(there, theta)
    assert_allclose(np.sum(there**2, axis=1), np.sum(theta**2, axis=1))
    found = this.log_likelihood(there)
    assert_allclose(found[0], value, rtol=1e-10)
    assert_allclose(found[1], turned, rtol=1e-6, atol=1e-7)
    copies = np.repeat(theta[:1], 8, axis=0)
    for copy in copies:
        blocks = this.split(copy[None])
        turn = stats.ortho_group.rvs(r, random_state=rng) if r > 1 else -np.eye(1)
        for name in ("projection", "weights"):
            blocks[name][0] = turn @ blocks[name][0]
    assert np.ptp(copies, axis=0).max() > 0.1 or r == 1
    there, _ = this.align(copies, copies)
    assert np.ptp(there, axis=0).max() < 1e-9


def check_metric(n, d):
    """Variances and covariances of x'q of training and new samples."""
    X, new = correlated(n, d), correlated(30, d, seed=1)
    metric, full = Metric.learn(X), dense(X)
    assert np.trace(full @ X.T @ X) == pytest.approx(np.sum(X**2))
    inside = metric.whiten(new)
    variance = np.sum(inside**2, axis=1) + metric.outside_sd(new) ** 2
    assert_allclose(variance, np.einsum("nd,de,ne->n", new, full, new) / d, rtol=1e-8)
    assert_allclose(metric.whiten(X) @ inside.T, X @ full @ new.T / d, atol=1e-8 * d)
    assert_allclose(metric.outside_sd(X), 0.0, atol=1e-6)
    assert metric.axes.shape == (d, min(d, n - 1))


def check_loadings(n, d):
    """Covariance of the loadings, and their latent coordinates."""
    X, new = correlated(n, d), correlated(30, d, seed=1)
    metric, full = Metric.learn(X), dense(X)
    b = metric.axes.shape[1]
    linear = np.vstack(
        [metric.loadings(np.eye(b), np.zeros((b, d))), metric.loadings(np.zeros((d, b)), np.eye(d))]
    )  # the images of standard normals
    assert_allclose(linear.T @ linear, full / d, atol=1e-10)
    rng = np.random.default_rng(6)
    inside, outside = rng.standard_normal((4, b)), rng.standard_normal((4, d))
    q = metric.loadings(inside, outside)
    assert_allclose(X @ q.T, metric.whiten(X) @ inside.T, atol=1e-8)
    off = new - new @ metric.axes @ metric.axes.T
    expected = metric.whiten(new) @ inside.T + metric.outside * off @ outside.T
    assert_allclose(new @ q.T, expected, atol=1e-8)


# ------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize(("target", "k", "r"), CASES)
def test_value(target, k, r):
    check_value(target, k, r)


@pytest.mark.parametrize(("target", "k", "r"), CASES)
def test_gradient(target, k, r):
    check_gradient(target, k, r)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("r", [1, 2, 3])
def test_components_are_aligned(target, r):
    check_align(target, r)


@pytest.mark.parametrize(("target", "k"), [("multiclass", 4), ("multiclass", 2), ("multilabel", 2)])
def test_responses_sum_to_one(target, k):
    check_total(target, k)


@pytest.mark.parametrize(("target", "k", "r"), CASES)
def test_draws_agree_with_the_density(target, k, r):
    check_parameters(target, k, r)


@pytest.mark.parametrize("target", TARGETS)
def test_rescaling_has_its_jacobian(target):
    check_rescale(target)


@pytest.mark.parametrize("target", TARGETS)
def test_prior_of_the_classes(target):
    check_prior(target, 4)


@pytest.mark.parametrize(("n", "d"), [(40, 6), (12, 12), (11, 12), (9, 40)])
def test_metric_is_the_root_of_the_shrunk_covariance(n, d):
    check_metric(n, d)


@pytest.mark.parametrize(("n", "d"), [(40, 6), (9, 40)])
def test_loadings_have_the_prior_covariance(n, d):
    check_loadings(n, d)


@pytest.mark.parametrize("target", TARGETS)
def test_particles_that_are_not_finite(target):
    this = problem(target)
    theta = np.random.default_rng(7).standard_normal((7, this.n_parameters))
    expected, slope = this.log_likelihood(theta)
    bad = theta.copy()
    bad[1, 0], bad[3, -1], bad[4, 7] = np.nan, np.inf, -np.inf
    bad[5] *= 1e200  # finite, but its linear predictor would not be
    value, gradient = this.log_likelihood(bad)
    lost = [1, 3, 4, 5]
    assert np.isneginf(value[lost]).all()
    assert not gradient[lost].any()
    kept = [0, 2, 6]
    assert_allclose(value[kept], expected[kept], rtol=1e-12)
    assert_allclose(gradient[kept], slope[kept], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("target", TARGETS)
def test_log_scales_far_out_do_not_overflow(target):
    this = problem(target)
    theta = np.random.default_rng(8).standard_normal((3, this.n_parameters))
    place = -1 if target != "regression" else -1 - this.contrasts.shape[1]
    theta[:, place] = -1e4, 1e4, 9e5
    value, gradient = this.log_likelihood(theta)
    assert np.isfinite(gradient).all()
    assert not np.isnan(value).any()
    if target != "regression":  # a lapse bounds the loss
        assert np.isfinite(value).all()


@pytest.mark.parametrize(("n", "d"), [(40, 6), (9, 40)])
def test_metric_is_equivariant_to_rotations_of_the_features(n, d):
    X, new = correlated(n, d), correlated(30, d, seed=1)
    turn = stats.ortho_group.rvs(d, random_state=0)
    a, b = Metric.learn(X), Metric.learn(X @ turn)
    assert_allclose(a.whiten(new) @ a.whiten(X).T, b.whiten(new @ turn) @ b.whiten(X @ turn).T)
    assert_allclose(a.outside_sd(new), b.outside_sd(new @ turn), atol=1e-6)
    assert b.outside == pytest.approx(a.outside)


@pytest.mark.parametrize(("n", "d"), [(40, 6), (9, 40)])
def test_constant_features_do_not_change_the_metric(n, d):
    X, new = correlated(n, d), correlated(30, d, seed=1)
    place = np.array([0, 2, 2, d])
    wide, wide_new = (np.insert(each, place, 0.0, axis=1) for each in (X, new))
    a, b = Metric.learn(X), Metric.learn(wide)
    assert_allclose(b.whiten(wide_new) @ b.whiten(wide).T, a.whiten(new) @ a.whiten(X).T)
    assert_allclose(b.outside_sd(wide_new), a.outside_sd(new), atol=1e-6)
    rng = np.random.default_rng(9)
    q = b.loadings(rng.standard_normal((5, b.axes.shape[1])), rng.standard_normal((5, d + 4)))
    constant = ~wide.any(axis=0)
    assert constant.sum() == 4
    assert_allclose(q[:, constant], 0.0, atol=0)
    assert q[:, ~constant].all()


@pytest.mark.parametrize(("n", "d"), [(40, 6), (9, 40)])
@pytest.mark.parametrize("unit", [1e-160, 1e-5, 1e120])
def test_metric_is_invariant_to_units(n, d, unit):
    X = correlated(n, d)
    a, b = Metric.learn(X), Metric.learn(unit * X)
    assert_allclose(b.size, a.size)
    assert b.outside == pytest.approx(a.outside)
    assert_allclose(b.axes @ b.axes.T, a.axes @ a.axes.T, atol=1e-9)


def test_subset_of_draws():
    this = problem("regression")
    theta = np.random.default_rng(14).standard_normal((10, this.n_parameters))
    draws = this.parameters(theta, rng=np.random.default_rng(0))
    assert draws.spaced(4).tolist() == [0, 3, 6, 9]
    assert draws.spaced(99).tolist() == list(range(10))
    some = draws.take(draws.spaced(4))
    outside = np.ones(len(this.X))
    assert_allclose(
        some.linear_predictor(this.X, outside),
        draws.linear_predictor(this.X, outside)[[0, 3, 6, 9]],
    )
    assert_allclose(some.noise_scale, draws.noise_scale[[0, 3, 6, 9]])


def test_copied_features_and_samples():
    """Directions without variance are outside the axes."""
    X = correlated(20, 4)
    metric = Metric.learn(np.hstack([X, X]))
    assert metric.axes.shape == (8, 4)
    new = np.zeros((1, 8))
    new[0, [0, 4]] = 1.0, -1.0
    assert_allclose(metric.whiten(new), 0.0, atol=1e-8)
    assert metric.outside_sd(new)[0] == pytest.approx(np.sqrt(2.0) * metric.outside)
    again = Metric.learn(np.vstack([X, X]))
    assert again.axes.shape == (4, 4)


def test_density_is_invariant_to_permutations_of_classes():
    """A permutation is an orthogonal map of the contrasts."""
    this, order = problem(), np.array([2, 0, 3, 1])
    other = dataclasses.replace(this, y=np.argsort(order)[this.y])
    theta = np.random.default_rng(10).standard_normal((5, this.n_parameters))
    turn = this.contrasts[:, order] @ this.contrasts.T
    moved = {name: block.copy() for name, block in this.split(theta).items()}
    moved["weights"] = moved["weights"] @ turn
    moved["bias"] = moved["bias"] @ turn
    there = np.concatenate([block.reshape(5, -1) for block in moved.values()], axis=1)
    assert_allclose(np.sum(there**2, axis=1), np.sum(theta**2, axis=1))
    value = this.log_likelihood(theta)[0]
    assert_allclose(other.log_likelihood(there)[0], value, rtol=1e-12)


@pytest.mark.parametrize("target", TARGETS)
def test_density_is_invariant_to_rotations_of_components_and_order_of_samples(target):
    this = problem(target)
    theta = np.random.default_rng(11).standard_normal((5, this.n_parameters))
    turn = stats.ortho_group.rvs(2, random_state=1)
    moved = this.split(theta.copy())
    there = np.concatenate(
        [
            (turn @ each if name in ("projection", "weights") else each).reshape(5, -1)
            for name, each in moved.items()
        ],
        axis=1,
    )
    order = np.random.default_rng(12).permutation(len(this.X))
    other = dataclasses.replace(this, X=np.ascontiguousarray(this.X[order]), y=this.y[order])
    value = this.log_likelihood(theta)[0]
    assert_allclose(this.log_likelihood(there)[0], value, rtol=1e-11)
    assert_allclose(other.log_likelihood(theta)[0], value, rtol=1e-12)


# ---------------------------------------------------------------------------- planted faults


def change_density(patch, change):
    """Patch the density to return ``change(problem, theta, value, blocks of the gradient)``."""
    original = Problem.log_likelihood

    def faulty(self, theta):
        value, gradient = original(self, theta)
        gradient = gradient.copy()
        return change(self, theta, value, self.split(gradient)), gradient

    patch.setattr(Problem, "log_likelihood", faulty)


def change_draws(patch, **change):
    """Patch blocks of the draws by functions of them and of the problem."""
    original = Problem.parameters

    def faulty(self, theta, *, rng):
        draws = original(self, theta, rng=rng)
        new = {name: f(draws, self) for name, f in change.items()}
        return dataclasses.replace(draws, **new)

    patch.setattr(Problem, "parameters", faulty)


def change_metric(patch, **change):
    original = Metric.learn
    patch.setattr(
        Metric,
        "learn",
        lambda X: dataclasses.replace(
            original(X), **{name: f(original(X), X) for name, f in change.items()}
        ),
    )


def no_lapse(patch):
    original = posterior.label_log_likelihood
    patch.setattr(
        posterior, "label_log_likelihood", lambda eta, y, target, _: original(eta, y, target, 1e-12)
    )


def lapse_over_classes_for_label_sets(patch):
    original = posterior._label_probability
    patch.setattr(
        posterior,
        "_label_probability",
        lambda eta, y, lapse: tuple(
            part - 0.25 * lapse * (i == 1) for i, part in enumerate(original(eta, y, lapse))
        ),
    )


def jacobian_of_the_scale(patch):
    def change(self, theta, value, _):
        return value + PRIORS.scale_width * self.split(theta)["log_scale"]

    change_density(patch, change)


def slope_without_the_width(name):
    def plant(patch):
        def change(self, theta, value, slopes):
            slopes[name][...] /= PRIORS.scale_width
            return value

        change_density(patch, change)

    return plant


def slope_of_the_noise_without_its_constant(patch):
    def change(self, theta, value, slopes):
        slopes["log_noise"][...] += PRIORS.noise_width * len(self.X)
        return value

    change_density(patch, change)


def bias_in_other_units(patch):
    change_draws(patch, bias=lambda draws, _: draws.bias / PRIORS.bias_scale)


def projection_without_scale(patch):
    change_draws(patch, projection=lambda draws, _: draws.projection / draws.scale[:, None, None])


def precision_for_scale(patch):
    change_draws(
        patch,
        noise_scale=lambda draws, this: (
            draws.noise_scale**-2 if this.target == "regression" else None
        ),
    )


def rescaling_without_jacobian(patch):
    original = Problem.rescale

    def faulty(self, theta, rng):
        there, log_jacobian = original(self, theta, rng)
        return there, np.zeros_like(log_jacobian)

    patch.setattr(Problem, "rescale", faulty)


def weights_left_as_they_are(patch):
    original = Problem.align

    def faulty(self, theta, slope):
        there, turned = (each.copy() for each in original(self, theta, slope))
        begin, end, _ = self.layout["weights"]
        there[:, begin:end], turned[:, begin:end] = theta[:, begin:end], slope[:, begin:end]
        return there, turned

    patch.setattr(Problem, "align", faulty)


def gradient_left_behind(patch):
    original = Problem.align
    patch.setattr(
        Problem, "align", lambda self, theta, slope: (original(self, theta, slope)[0], slope)
    )


def identity_for_contrasts(patch):
    patch.setattr(posterior, "make_contrasts", lambda k, _: np.eye(k))


def first_class_as_reference(patch):
    patch.setattr(posterior, "make_contrasts", lambda k, _: np.eye(k)[1:] - np.eye(k)[:1])


def covariance_for_its_root(patch):
    def size(original, X):
        value = np.sum((X @ original.axes) ** 2, axis=0) / len(X)
        wrong = original.size**4
        wrong *= value.sum() / np.sum(wrong * value) / X.shape[1]
        return np.sqrt(wrong)

    change_metric(patch, size=size)


def nothing_outside(patch):
    change_metric(patch, outside=lambda *_: 0.0)


def loadings_not_centred_on_the_axes(patch):
    patch.setattr(
        Metric,
        "loadings",
        lambda self, inside, outside: (inside * self.size) @ self.axes.T + self.outside * outside,
    )


CLASSES, SETS, OUTPUTS = (("multiclass", 4, 2), ("multilabel", 4, 2), ("regression", 4, 2))
FAULTS = {
    "no lapse": (no_lapse, check_value, CLASSES),
    "no lapse, label sets": (no_lapse, check_value, SETS),
    "lapse over classes for label sets": (
        lapse_over_classes_for_label_sets,
        check_total,
        ("multilabel", 2),
    ),
    "Jacobian of the scale": (jacobian_of_the_scale, check_total, ("multiclass", 4)),
    "slope of the scale": (slope_without_the_width("log_scale"), check_gradient, CLASSES),
    "slope of the noise": (slope_without_the_width("log_noise"), check_gradient, OUTPUTS),
    "normalisation in the slope of the noise": (
        slope_of_the_noise_without_its_constant,
        check_gradient,
        OUTPUTS,
    ),
    "bias without its scale": (bias_in_other_units, check_parameters, SETS),
    "projection without its scale": (projection_without_scale, check_parameters, CLASSES),
    "precision for scale": (precision_for_scale, check_parameters, OUTPUTS),
    "rescaling without Jacobian": (rescaling_without_jacobian, check_rescale, ("multiclass",)),
    "weights not rotated": (weights_left_as_they_are, check_align, ("multiclass", 2)),
    "gradient not rotated": (gradient_left_behind, check_align, ("multiclass", 2)),
    "as many contrasts as classes": (identity_for_contrasts, check_prior, ("multiclass", 4)),
    "a class of reference": (first_class_as_reference, check_prior, ("multiclass", 4)),
    "covariance for its root": (covariance_for_its_root, check_metric, (40, 6)),
    "nothing outside the axes": (nothing_outside, check_metric, (9, 40)),
    "loadings along the axes twice": (loadings_not_centred_on_the_axes, check_loadings, (9, 40)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name, monkeypatch):
    plant, check, case = FAULTS[name]
    check(*case)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(*case)
