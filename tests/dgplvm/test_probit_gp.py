"""Laplace and EP of the binary probit GP, against routes that share no formula with them."""

import math

import numpy as np
import pytest
from scipy import differentiate, integrate, optimize
from scipy.stats import norm

from bsdr_models.dgplvm import probit
from bsdr_models.dgplvm.gp_classifier import numerical_factor
from bsdr_models.dgplvm.probit import EP, hazard
from bsdr_models.papers.dgplvm.laplace import LAPLACE, derivatives
from bsdr_models.papers.normal_tail import inverse_mills, positive_mean


class Fit:
    """A fit to a kernel matrix, by features of its numerical rank."""

    def __init__(self, method, kernel, sign, **options):
        self.features, self.pivots = numerical_factor(kernel)
        self.posterior = method.posterior(self.features, sign, **options)
        self.sites = self.posterior.sites
        evidence = method.evidence(self.features, sign, **options)
        self.log_evidence = evidence.value
        self.kernel_gradient = evidence.gradient
        self.cavity_mean, self.cavity_variance = self.posterior.cavity

    def predict(self, cross, diagonal):
        factor = np.tril(self.features[self.pivots])
        features = np.linalg.solve(factor, cross[:, self.pivots].T).T
        variance = ((features @ self.posterior.root.T) ** 2).sum(axis=1)
        left = diagonal - (features**2).sum(axis=1)
        return features @ self.posterior.weights, variance + left


def laplace(kernel, sign, **options):
    return Fit(LAPLACE, kernel, sign, **options)


def expectation_propagation(kernel, sign, **options):
    return Fit(EP, kernel, sign, **({"tol": 1e-9} | options))


METHODS = {"laplace": laplace, "ep": expectation_propagation}
both = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def smooth(A, B, variance=4.0, lengthscale=1.2):
    return variance * np.exp(-((A[:, None] - B) ** 2).sum(-1) / (2.0 * lengthscale**2))


def mixed(A, B):
    return smooth(A, B, 0.5, 0.8) + 9.0 * A @ B.T


def problem(n=8, seed=0):
    """Samples, signs with some noise, new samples."""
    rng = np.random.default_rng([7, seed])
    X = rng.standard_normal((n, 2))
    sign = np.where(X[:, 0] + 0.7 * rng.standard_normal(n) > 0, 1.0, -1.0)
    assert n < 4 or 0 < (sign > 0).sum() < n
    return X, sign, 1.5 * rng.standard_normal((5, 2))


def reference_laplace(K, sign, cross, diagonal):
    """Mode by root finding in f, second derivatives by differences, dense inverses."""
    inverse = np.linalg.inv(K)

    def slope(f):
        return sign * np.exp(norm.logpdf(f) - norm.logcdf(sign * f)) - inverse @ f

    f = optimize.root(slope, np.zeros(len(K)), tol=1e-14).x
    assert np.abs(slope(f)).max() < 1e-11

    def first(t, sign):
        return sign * np.exp(norm.logpdf(t) - norm.logcdf(sign * t))

    W = -differentiate.derivative(first, f, args=(sign,)).df
    evidence = norm.logcdf(sign * f).sum() - 0.5 * f @ inverse @ f
    evidence -= 0.5 * np.linalg.slogdet(K)[1] + 0.5 * np.linalg.slogdet(inverse + np.diag(W))[1]
    mean = cross @ inverse @ f
    inner = np.linalg.inv(K + np.diag(1.0 / W))
    return evidence, mean, diagonal - np.einsum("mi,ij,mj->m", cross, inner, cross)


def moments(density, centre, sd):
    """Log mass, mean and variance of an unnormalised density by adaptive quadrature."""
    options = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 200}
    low, high = centre - 12.0 * sd, centre + 12.0 * sd
    mass = integrate.quad(density, low, high, **options)[0]
    mean = integrate.quad(lambda f: (f - centre) * density(f), low, high, **options)[0] / mass
    square = integrate.quad(lambda f: (f - centre) ** 2 * density(f), low, high, **options)[0]
    return np.log(mass), centre + mean, square / mass - mean**2


def reference_ep(K, sign, cross, diagonal):
    """Moments by quadrature, dense inverses, all samples at once with half steps."""
    n = len(K)
    S, nu, inverse = np.full(n, 1e-6), np.zeros(n), np.linalg.inv(K)
    log_constant = np.zeros(n)
    for _ in range(400):
        cov = np.linalg.inv(inverse + np.diag(S))
        m = cov @ nu
        target = np.empty((n, 2))
        for i in range(n):
            precision = 1.0 / cov[i, i] - S[i]
            mu, sd = (m[i] / cov[i, i] - nu[i]) / precision, precision**-0.5
            mass, mean, var = moments(
                lambda f, z=sign[i], mu=mu, sd=sd: (
                    math.exp(-0.5 * ((f - mu) / sd) ** 2)
                    / math.sqrt(2.0 * math.pi)
                    / sd
                    * 0.5
                    * math.erfc(-z * f / math.sqrt(2.0))
                ),
                mu,
                sd,
            )
            target[i] = 1.0 / var - precision, mean / var - mu * precision
            site, location = S[i], nu[i]
            log_constant[i] = mass - (
                -0.5 * np.log1p(site * sd**2)
                + 0.5 * (mu * precision + location) ** 2 / (precision + site)
                - 0.5 * mu**2 * precision
            )
        change = target - np.column_stack([S, nu])
        if np.abs(change).max() < 1e-11:
            break
        S, nu = S + 0.5 * change[:, 0], nu + 0.5 * change[:, 1]
    else:
        raise AssertionError("the reference has not converged")
    evidence = log_constant.sum() + 0.5 * nu @ m
    evidence += 0.5 * np.linalg.slogdet(cov)[1] - 0.5 * np.linalg.slogdet(K)[1]
    inner = np.linalg.inv(K + np.diag(1.0 / S))
    mean = cross @ inverse @ m
    return evidence, mean, diagonal - np.einsum("mi,ij,mj->m", cross, inner, cross)


REFERENCES = {laplace: reference_laplace, expectation_propagation: reference_ep}


@both
@pytest.mark.parametrize("kernel", [smooth, mixed])
def test_evidence_mean_and_variance_agree_with_a_plain_computation(method, kernel):
    X, sign, new = problem(5, seed=3)
    K, cross = kernel(X, X), kernel(new, X)
    diagonal = np.diagonal(kernel(new, new))
    expected = REFERENCES[method](K, sign, cross, diagonal)
    got = method(K, sign)
    assert got.log_evidence == pytest.approx(expected[0], abs=1e-8)
    mean, variance = got.predict(cross, diagonal)
    np.testing.assert_allclose(mean, expected[1], atol=1e-7)
    np.testing.assert_allclose(variance, expected[2], atol=1e-7)


@both
@pytest.mark.parametrize("scale", [0.3, 5.0, 100.0])
def test_gradients_agree_with_fourth_order_differences(method, scale, differences):
    """Of the variance, the length-scale and a linear part."""
    X, sign, _ = problem(20)
    d2, linear = ((X[:, None] - X) ** 2).sum(-1), X @ X.T
    theta = np.array([np.log(scale), 0.1, np.log(0.5 * scale)])

    def parts(t):
        return np.exp(t[0] - 0.5 * d2 * np.exp(-2 * t[1])), np.exp(t[2]) * linear

    def evidence(t):
        return method(sum(parts(t)), sign).log_evidence

    R, linear_part = parts(theta)
    G = method(R + linear_part, sign).kernel_gradient
    np.testing.assert_array_equal(G, G.T)
    got = [np.sum(G * D) for D in (R, R * d2 * np.exp(-2 * theta[1]), linear_part)]
    assert got == pytest.approx(differences(evidence, theta, 2e-3), rel=1e-7, abs=1e-8)


def test_one_sample_is_exact_for_ep():
    """P(z f + e > 0) = 1/2, and the moments of a normal truncated at zero with noise."""
    for v in (1e-6, 1.0, 1e6):
        for sign in (-1.0, 1.0):
            got = expectation_propagation(np.array([[v]]), np.array([sign]))
            ratio = v / (1.0 + v)
            assert got.log_evidence == pytest.approx(np.log(0.5), rel=1e-12)
            mean = sign * np.sqrt(2.0 / np.pi * ratio * v)
            np.testing.assert_allclose(got.posterior.mean, mean, rtol=1e-9)
            variance = v * (1.0 - 2.0 / np.pi * ratio)
            np.testing.assert_allclose(got.posterior.variance, variance, rtol=1e-9)


@both
def test_cavities_are_the_posterior_without_the_site(method):
    X, sign, _ = problem(12)
    got = method(mixed(X, X), sign)
    S, nu, F = got.sites.precision, got.sites.location, got.features
    for i in range(12):
        keep = np.arange(12) != i
        covariance = np.linalg.inv(np.eye(F.shape[1]) + F.T @ ((S * keep)[:, None] * F))
        mean = F[i] @ covariance @ F.T @ (nu * keep)
        np.testing.assert_allclose(got.cavity_mean[i], mean, rtol=1e-7)
        np.testing.assert_allclose(got.cavity_variance[i], F[i] @ covariance @ F[i], rtol=1e-7)


@both
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4, 1e8])
def test_extreme_kernels_and_contradicted_signs(method, scale):
    X, sign, _ = problem(30)
    sign = sign.copy()
    sign[::4] *= -1.0
    got = method(scale * (smooth(X, X) + X @ X.T) + 1e-6 * np.eye(30), sign)
    assert np.isfinite(got.log_evidence)
    assert got.log_evidence < 0.0
    assert np.isfinite(got.kernel_gradient).all()
    assert (got.cavity_variance > 0.0).all()


@both
def test_a_start_changes_the_way_and_not_the_end(method):
    X, sign, _ = problem(25)
    K = mixed(X, X)
    first = method(K, sign)
    again = method(1.05 * K, sign, start=first.sites)
    fresh = method(1.05 * K, sign)
    assert again.log_evidence == pytest.approx(fresh.log_evidence, abs=1e-9)
    np.testing.assert_allclose(again.posterior.weights, fresh.posterior.weights, atol=1e-6)


def test_derivatives_of_the_log_factor():
    f = np.linspace(-9.0, 4.0, 27)
    functions = (
        lambda t, sign: norm.logcdf(sign * t),
        lambda t, sign: -derivatives(np.broadcast_to(sign, t.shape), t)[0],
        lambda t, sign: -derivatives(np.broadcast_to(sign, t.shape), t)[1],
    )
    for sign in (-1.0, 1.0):
        found = derivatives(np.full(27, sign), f)
        for got, function in zip(found, functions, strict=True):
            expected = differentiate.derivative(function, f, args=(sign,)).df
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)


def test_hazard_of_the_compiled_sweeps():
    a = np.concatenate([np.linspace(-60.0, 30.0, 901), [-1e3, -1e6, 0.0, 100.0]])
    got = np.array([hazard(x) for x in a])
    np.testing.assert_allclose(got[:, 0], inverse_mills(a), rtol=1e-12)
    np.testing.assert_allclose(got[:, 1], positive_mean(a), rtol=1e-11)


by_features = pytest.mark.parametrize("method", [LAPLACE, EP], ids=["laplace", "ep"])


def features_and_signs(n=40, m=7, scale=1.0, seed=0):
    """Features of rank M, signs with some noise, new features."""
    rng = np.random.default_rng([9, seed])
    F = scale * rng.standard_normal((n, m))
    sign = np.where(F[:, 0] + 0.5 * scale * rng.standard_normal(n) > 0, 1.0, -1.0)
    assert 0 < (sign > 0).sum() < n
    return F, sign, rng.standard_normal((11, m))


@by_features
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_any_factor_of_the_kernel_matrix_gives_the_same(method, scale):
    """Also one with more columns than its rank."""
    F, sign, _ = features_and_signs(scale=scale)
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.standard_normal((20, 7)))[0].T
    evidence = [method.evidence(each, sign, tol=1e-10).value for each in (F @ rotation, F)]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-8)
    got, expected = [method.posterior(each, sign, tol=1e-10) for each in (F @ rotation, F)]
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-6)


def test_blocks_of_samples_are_updated_as_one_by_one(monkeypatch):
    """Also of latent values in place of weights."""
    F, sign, _ = features_and_signs()
    got = []
    for size in (1, 16, 64):
        monkeypatch.setattr(probit, "_BLOCK", size)
        sites, cov, mean = np.zeros((2, 40)), np.eye(7), np.zeros(7)
        end = probit.sweep(F, sign, *sites, cov, mean, np.inf, 0.9, 0.0)
        got.append(np.concatenate([end, *sites, (F @ cov @ F.T).ravel(), F @ mean]))
        sites, cov, mean = np.zeros((2, 40)), F @ F.T, np.zeros(40)
        end = probit.sweep(None, sign, *sites, cov, mean, np.inf, 0.9, 0.0)
        got.append(np.concatenate([end, *sites, cov.ravel(), mean]))
    for other in got[1:]:
        np.testing.assert_allclose(got[0], other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [9, 40])  # latent values are updated, or weights
def test_few_and_many_samples_have_the_same_moments(n, monkeypatch):
    F, sign, _ = features_and_signs(n=n)
    expected = EP.posterior(F, sign, tol=1e-10)
    evidence = EP.evidence(F, sign, tol=1e-10)
    monkeypatch.setattr(probit, "_FEW_SAMPLES", 0.0 if n == 9 else 100.0)
    other = EP.evidence(F, sign, tol=1e-10)
    assert other.value == pytest.approx(evidence.value, abs=1e-9)
    np.testing.assert_allclose(other.gradient, evidence.gradient, atol=1e-9)
    got = EP.posterior(F, sign, tol=1e-10)
    np.testing.assert_allclose(got.mean, expected.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.variance, expected.variance, rtol=1e-7)


def test_numerical_factor_stops_at_the_rank():
    F = np.random.default_rng(1).standard_normal((30, 4))
    got, pivots = numerical_factor(F @ F.T)
    assert got.shape == (30, 4)
    np.testing.assert_allclose(got @ got.T, F @ F.T, atol=1e-10)
    np.testing.assert_allclose(got[pivots], np.tril(got[pivots]))
    assert numerical_factor(np.zeros((3, 3)))[0].shape == (3, 0)
