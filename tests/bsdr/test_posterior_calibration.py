"""Simulation-based calibration (arXiv:1804.06788) of the draws at full rank.

Parameters and labels are drawn from the model with NumPy; the rank of a true value among draws
from the posterior given its labels is then uniform. Labels may be of a single class.
"""

import numpy as np
import pytest
from scipy.stats import chisquare

from bsdr_models.bsdr import hmc
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem, label_log_likelihood
from bsdr_models.learned_metric.metric import NAMES, ClassBasis, Metric

PRIORS = HierarchicalPriors()
K = 3
# N, D: with fewer and with more features than samples.
SIZES = {"tiny": (10, 3), "tall": (40, 6), "wide": (20, 40)}
# Fixed before any run: joint level of all tests of a run, bins of the ranks, and tolerance of the
# coverage of 90 % intervals over all quantities with 500 data sets, three standard deviations.
LEVEL, N_BINS, MARGIN = 0.01, 10, 0.02
# Values closer than this are ties.
TIE = 1e-9
N_NEW = 2
# Chains, of which each gives a draw, and trajectories after adaptation.
N_CHAINS, N_TRAJECTORIES = 32, 4


def features(n, d, rng):
    """Centred samples with correlated features, (N, D), and new ones."""
    mix, size = rng.standard_normal((3, d)), np.linspace(0.5, 1.5, d)
    X = (rng.standard_normal((n + N_NEW, 3)) @ mix + rng.standard_normal((n + N_NEW, d))) * size
    X = X - X[:n].mean(axis=0)
    unit = X[:n].std()
    return X[:n] / unit, X[n:] / unit


def learn_metric(X):
    """The average of all candidates, for classes that have nothing to do with the targets."""
    equal = np.full(len(NAMES), 1.0 / len(NAMES))
    groups = ClassBasis.of(np.arange(len(X)) % 3)
    return Metric.learn(X, groups, equal, np.ones(X.shape[1]), centred=True)


def prior_root(X):
    """A root of the prior covariance of effects, (D, D)."""
    metric = learn_metric(X)
    turned = (metric.turned * metric.removed) @ metric.turned.T
    return metric.diagonal[:, None] * (np.eye(X.shape[1]) - turned)


def draw_truth(X, target, rng):
    """Parameters and targets from the prior: effects (D, K), biases, log tau, noise and y."""
    n, d = X.shape
    tau = PRIORS.scale * np.abs(rng.standard_normal())
    coef = tau * prior_root(X) @ rng.standard_normal((d, K))
    bias = PRIORS.bias_scale * rng.standard_normal(K)
    if target == "regression":
        sigma = np.exp(PRIORS.noise_location + PRIORS.noise_width * rng.standard_normal(K))
        y = X @ coef + bias + sigma * rng.standard_normal((n, K))
        return coef, bias, np.log(tau), sigma, y
    t = X @ coef + bias + rng.standard_normal((n, K))
    lapse = rng.random((n, 1 if target == "multiclass" else K)) < PRIORS.lapse
    if target == "multiclass":
        y = np.where(lapse[:, 0], rng.integers(0, K, n), t.argmax(axis=1))
    else:
        y = np.where(lapse, rng.random((n, K)) < 0.5, t > 0.0)
    return coef, bias, np.log(tau), None, y


def quantities(coef, bias, log_scale, sigma, X, new, y, target):
    """Quantities (S,) of draws (S, D, K), (S, K), (S,) and (S, K)."""
    if target == "multiclass":
        coef, bias = (each - each.mean(axis=-1, keepdims=True) for each in (coef, bias))
    eta = X @ coef + bias[:, None]
    ahead = new @ coef + bias[:, None]
    out = {
        "coef[0, 0]": coef[:, 0, 0],
        "coef[2, 1]": coef[:, 2, 1],
        "size of coef": np.sum(coef**2, axis=(1, 2)),
        "bias[0]": bias[:, 0],
        "eta[0, 0]": eta[:, 0, 0],
        "eta[9, 1]": eta[:, 9, 1],
        "eta of a new sample": ahead[:, 0, 0],
        "difference of another": ahead[:, 1, 1] - ahead[:, 1, 2],
        "log scale": log_scale,
    }
    if target == "regression":
        return out | {"noise[0]": sigma[:, 0], "noise[1]": sigma[:, 1]}
    each = label_log_likelihood(eta, y, target, PRIORS.lapse)[0]
    return out | {"log likelihood": each.sum(axis=1)}


def sample(problem, rng):
    """The last draw of each chain, (S, P)."""
    found = hmc.sample(problem, n_chains=N_CHAINS, n_draws=N_TRAJECTORIES, rng=rng)
    return found.theta[:, -1]


def run(n_sets, size, target="multiclass"):
    """Normalised ranks of true values among draws, (C,), by quantity."""
    found = []
    for rng in np.random.default_rng(0).spawn(n_sets):
        X, new = features(*SIZES[size], rng)
        *truth, y = draw_truth(X, target, rng)
        metric = learn_metric(X)
        problem = BSDRProblem(X=metric.whiten(X), y=y, n_labels=K, target=target, priors=PRIORS)
        if target == "regression":
            draws = fit_conjugate(problem, n_draws=60, rng=rng).draws
        else:
            draws = problem.parameters(sample(problem, rng), rng=rng)
        outside = rng.standard_normal((*draws.outside.shape, X.shape[1]))
        scale = draws.scale[:, None, None]
        loadings = draws.projection @ metric.effects.T
        loadings += metric.outside_loadings(scale * outside)
        coef = np.swapaxes(loadings, 1, 2) @ draws.weights
        parameters = coef, draws.bias, np.log(draws.scale), draws.noise_scale
        values = quantities(*parameters, X, new, y, target)
        expected = quantities(
            *(None if each is None else np.asarray(each)[None] for each in truth), X, new, y, target
        )
        found.append({name: rank(expected[name], each, rng) for name, each in values.items()})
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def rank(true, draws, rng):
    """Normalised rank of the truth (1,) among draws (S,), with random order of ties."""
    difference = draws - true
    below, tied = np.sum(difference < -TIE), np.sum(np.abs(difference) <= TIE)
    return (below + (1 + tied) * rng.random()) / (len(draws) + 1)


def judge(ranks, n_bins=N_BINS):
    """P-values of Pearson's chi-square by quantity, and the share inside 90 % intervals."""
    bins = (0.0, 1.0)
    p = {
        name: float(chisquare(np.histogram(each, n_bins, bins)[0]).pvalue)
        for name, each in ranks.items()
    }
    inside = np.mean([np.abs(each - 0.5) < 0.45 for each in ranks.values()])
    return p, float(inside)


def assert_calibrated(ranks, n_bins=N_BINS):
    """At the level and tolerance above."""
    p, inside = judge(ranks, n_bins)
    assert min(p.values()) > LEVEL / len(p), p
    n_sets = len(ranks["log scale"])
    assert abs(inside - 0.9) < MARGIN * np.sqrt(500 / n_sets), inside


def test_draws_of_few_samples_are_calibrated():
    assert_calibrated(run(20, "tiny"), n_bins=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "size"),
    [
        ("multiclass", "tall"),
        ("multiclass", "wide"),
        ("multilabel", "wide"),
        ("regression", "tall"),
    ],
)
def test_draws_are_calibrated(target, size):
    assert_calibrated(run(80, size, target))
