"""Simulation-based calibration [1]_ of the draws from the hierarchical posterior.

Parameters and labels are drawn from the model with NumPy and SciPy. The rank of a true value among
draws from the posterior given its labels is then uniform. Data sets with labels of a single class
are included.

References
----------
.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman (2018). Validating Bayesian
       inference algorithms with simulation-based calibration. arXiv:1804.06788.
"""

import dataclasses

import numpy as np
import pytest
from bsdr_models.inference.tempering import Moves, run_tempering
from scipy.linalg import sqrtm
from scipy.stats import chisquare
from sklearn.covariance import ledoit_wolf_shrinkage

from bsdr_models.bsdr import Kernel
from bsdr_models.bsdr.posterior import Metric, Problem, label_log_likelihood
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.views import Views, learn_map

PRIORS = HierarchicalPriors()
R, K = 2, 3
# N, D: with fewer and with more features than samples.
SIZES = {"tall": (40, 6), "wide": (15, 25)}
MOVES = Moves(n_particles=200, n_moves=5, n_warm_up=10, n_kept=1, n_between=1)
# Fixed before any run: joint level of all tests of a run, bins of the ranks, and tolerance of the
# coverage of 90 % intervals over all quantities with 500 data sets, three standard deviations.
LEVEL, N_BINS, MARGIN = 0.01, 10, 0.02
# Values closer than this are ties.
TIE = 1e-9
N_NEW = 2


def features(n, d, rng):
    """Centred samples with correlated features, (N, D), and new ones."""
    mix, size = rng.standard_normal((3, d)), np.linspace(0.5, 1.5, d)
    X = (rng.standard_normal((n + N_NEW, 3)) @ mix + rng.standard_normal((n + N_NEW, d))) * size
    X = X - X[:n].mean(axis=0)
    unit = X[:n].std()
    return X[:n] / unit, X[n:] / unit


def draw_truth(X, new, rng):
    """Parameters and labels from the prior, and identified quantities of the parameters."""
    n, d = X.shape
    S = X.T @ X / n
    rho = ledoit_wolf_shrinkage(X, assume_centered=True)
    root = sqrtm((1.0 - rho) * S + rho * np.trace(S) / d * np.eye(d)).real
    half = sqrtm(root * np.trace(S) / np.trace(root @ S) / d).real
    log_scale = PRIORS.scale_location + PRIORS.scale_width * rng.standard_normal()
    coef = np.exp(log_scale) * half @ rng.standard_normal((d, R)) @ rng.standard_normal((R, K))
    bias = PRIORS.bias_scale * rng.standard_normal(K)
    eta = X @ coef + bias
    y = (eta + rng.standard_normal((n, K))).argmax(axis=1)
    y = np.where(rng.random(n) < PRIORS.lapse, rng.integers(0, K, n), y)
    return y, quantities(coef[None], bias[None], np.array([log_scale]), X, new, y)


def quantities(coef, bias, log_scale, X, new, y):
    """Quantities (S,) of draws (S, D, K), (S, K) and (S,)."""
    coef, bias = (each - each.mean(axis=-1, keepdims=True) for each in (coef, bias))
    eta = X @ coef + bias[:, None]
    ahead = new @ coef + bias[:, None]
    return {
        "coef[0, 0]": coef[:, 0, 0],
        "coef[1, 2]": coef[:, 1, 2],
        "coef[3, 1]": coef[:, 3, 1],
        "size of coef": np.sum(coef**2, axis=(1, 2)),
        "bias[0]": bias[:, 0],
        "bias[2]": bias[:, 2],
        "eta[0, 0]": eta[:, 0, 0],
        "eta[9, 1]": eta[:, 9, 1],
        "eta of a new sample": ahead[:, 0, 0],
        "difference of another": ahead[:, 1, 1] - ahead[:, 1, 2],
        "log likelihood": label_log_likelihood(eta, y, "multiclass", PRIORS.lapse)[0].sum(axis=1),
        "log scale": log_scale,
    }


def run(n_sets, size="tall", moves=MOVES, priors=PRIORS, seed=0):
    """Normalised ranks of true values among draws, (C,), by quantity."""
    found = []
    for rng in np.random.default_rng(seed).spawn(n_sets):
        X, new = features(*SIZES[size], rng)
        y, truth = draw_truth(X, new, rng)
        metric = Metric.learn(X)
        problem = Problem.build(
            metric.whiten(X), y, n_labels=K, n_components=R, target="multiclass", priors=priors
        )
        result = run_tempering(
            problem.log_likelihood, problem.n_parameters, moves, rng=rng, jump=problem.rescale
        )
        draws = problem.parameters(result.draws, rng=rng)
        outside = rng.standard_normal((len(draws.scale), R, X.shape[1]))
        loadings = metric.loadings(draws.projection / draws.scale[:, None, None], outside)
        coef = np.swapaxes(draws.scale[:, None, None] * loadings, 1, 2) @ draws.weights
        values = quantities(coef, draws.bias, np.log(draws.scale), X, new, y)
        found.append({name: rank(truth[name], each, rng) for name, each in values.items()})
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def rank(true, draws, rng):
    """Normalised rank of the truth (1,) among draws (S,), with random order of ties.

    The log likelihood of well separated classes has ties.
    """
    difference = draws - true
    below, tied = np.sum(difference < -TIE), np.sum(np.abs(difference) <= TIE)
    return (below + (1 + tied) * rng.random()) / (len(draws) + 1)


def judge(ranks):
    """P-values of Pearson's chi-square by quantity, and the share inside 90 % intervals."""
    bins = (0.0, 1.0)
    p = {
        name: float(chisquare(np.histogram(each, N_BINS, bins)[0]).pvalue)
        for name, each in ranks.items()
    }
    inside = np.mean([np.abs(each - 0.5) < 0.45 for each in ranks.values()])
    return p, float(inside)


def assert_calibrated(ranks):
    """At the level and tolerance above."""
    p, inside = judge(ranks)
    assert min(p.values()) > LEVEL / len(p), p
    n_sets = len(ranks["log scale"])
    assert abs(inside - 0.9) < MARGIN * np.sqrt(500 / n_sets), inside


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_draws_are_calibrated(size):
    assert_calibrated(run(150, size))


# ---------------------------------------------------------------------------- planted faults


def another_prior_of_the_scale(patch):
    return {"priors": dataclasses.replace(PRIORS, scale_width=1.0)}


def jacobian_of_the_scale(patch):
    """A normal prior of tau in place of log tau."""
    original = Problem.log_likelihood

    def faulty(self, theta):
        value, slope = original(self, theta)
        slope = slope.copy()
        self.split(slope)["log_scale"][...] += self.priors.scale_width
        return value + self.priors.scale_width * self.split(theta)["log_scale"], slope

    patch.setattr(Problem, "log_likelihood", faulty)
    return {}


def square_of_the_likelihood(patch):
    original = Problem.log_likelihood
    patch.setattr(
        Problem, "log_likelihood", lambda self, theta: tuple(2.0 * x for x in original(self, theta))
    )
    return {}


FAULTS = (another_prior_of_the_scale, jacobian_of_the_scale, square_of_the_likelihood)
SHORT = {"n_sets": 80, "moves": dataclasses.replace(MOVES, n_moves=2)}


@pytest.mark.slow
def test_fewer_sets_and_moves_pass():
    assert_calibrated(run(**SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("plant", FAULTS)
def test_planted_faults_are_caught(plant, monkeypatch):
    """With the sizes of the test above."""
    changes = plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_calibrated(run(**SHORT, **changes))


# Kernels of 25 samples: one width, or several with scales of their own.
KERNELS = {
    "one": Kernel("rbf", 1.0),
    "several": [Kernel("matern", width) for width in (0.5, 1.0, 3.0)],
}


def run_kernels(n_sets, kernel, priors=PRIORS, seed=0):
    """As :func:`run`, for latent functions with a kernel; parameters are drawn as normals."""
    found = []
    for rng in np.random.default_rng(seed).spawn(n_sets):
        X, new = features(25, 4, rng)
        feature_map = learn_map(X, kernel, None)
        views = feature_map.index if isinstance(feature_map, Views) else None
        inside = feature_map.whiten(X)

        def build(y, priors, inside=inside, views=views):
            return Problem.build(
                inside,
                y,
                n_labels=K,
                n_components=R,
                target="multiclass",
                priors=priors,
                views=views,
            )

        whitened, outside = feature_map.whiten(new), feature_map.outside_sd(new)

        def values(theta, problem, y, at=(whitened, outside), rng=rng):
            draws = problem.parameters(theta, rng=rng)
            eta, ahead = draws.linear_predictor(problem.X), draws.linear_predictor(*at)
            each = label_log_likelihood(eta, y, "multiclass", PRIORS.lapse)[0]
            out = {
                "eta[0, 0]": eta[:, 0, 0],
                "eta[9, 1]": eta[:, 9, 1],
                "size of eta": np.sum(eta**2, axis=(1, 2)),
                "eta of a new sample": ahead[:, 0, 0],
                "difference of another": ahead[:, 1, 1] - ahead[:, 1, 2],
                "log likelihood": each.sum(axis=1),
                "log scale": np.log(draws.scale),
            }
            if draws.view_scale is not None:
                out |= {f"view {v}": scale for v, scale in enumerate(draws.view_scale.T)}
            return out

        start = build(np.zeros(25, dtype=int), PRIORS)
        theta = rng.standard_normal((1, start.n_parameters))
        eta = start.parameters(theta, rng=rng).linear_predictor(start.X)[0]
        y = (eta + rng.standard_normal(eta.shape)).argmax(axis=1)
        y = np.where(rng.random(25) < PRIORS.lapse, rng.integers(0, K, 25), y)
        problem = build(y, priors)
        result = run_tempering(
            problem.log_likelihood, problem.n_parameters, MOVES, rng=rng, jump=problem.rescale
        )
        truth = values(theta, start, y)
        own = values(result.draws, problem, y)
        found.append({name: rank(truth[name], each, rng) for name, each in own.items()})
    return {name: np.array([each[name] for each in found]) for name in found[0]}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_of_kernels_are_calibrated(kernel):
    assert_calibrated(run_kernels(120, KERNELS[kernel]))


@pytest.mark.slow
def test_another_prior_of_the_scales_of_kernels_is_detected():
    """The truth has the width of the default, the posterior a four times larger one."""
    wrong = dataclasses.replace(PRIORS, view_width=4.0 * PRIORS.view_width)
    p, _ = judge(run_kernels(120, KERNELS["several"], priors=wrong))
    assert min(p.values()) < LEVEL / len(p)
