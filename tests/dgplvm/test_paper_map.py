"""The objective of the paper: gradient, unbounded directions, and collapse."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_wine

from bsdr_models.dgplvm.priors import DGPLVMOptimization, DGPLVMPriors
from bsdr_models.dgplvm.problem import DGPLVMProblem, FeatureGram, make_criterion
from bsdr_models.papers.dgplvm.map import (
    PaperEmbedder,
    PaperObjective,
    collapse,
    fit_paper,
    kernel_mapping,
    theta_priors,
)

# Unsorted, class 1 empty, class 3 with one sample, one unlabelled sample.
LABELS = np.array([2, 0, 0, -1, 2, 3, 0, 2, 2, 0, 4, 4])
K, R, D = 5, 2, 6
MAPPINGS = ("kernel", "free")


def rng_of(*key):
    return np.random.default_rng([47, *key])


def features():
    rng = rng_of(1)
    X = rng.standard_normal((len(LABELS), D)) + 0.5 * rng.standard_normal((K + 1, D))[LABELS]
    return X - X.mean(axis=0)


def make(kind="free"):
    X = features()
    mapping = kernel_mapping(X, None if kind == "free" else 0.1 * np.median(pdist(X) ** 2))
    gram = FeatureGram.of(X)
    return PaperObjective(
        gram=gram,
        criterion=make_criterion("trace_ratio", LABELS),
        weight=5.0,
        n_components=R,
        parameter_priors=theta_priors(gram),
        mapping=mapping,
        root=mapping.factor,
    )


def point(objective, seed=0):
    rng = rng_of(2, seed)
    latent = rng.standard_normal((len(LABELS), R)) + 2.0 * rng.standard_normal((K + 1, R))[LABELS]
    x = objective.pack(latent, np.log([0.7, 0.8, 0.2, 3.0]))
    x[-4:] += 0.1 * rng.standard_normal(4)
    return x


def wine(n, seed=3):
    X, y = load_wine(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(X))[:n]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[rows], y[rows]


def fit(X, y, *, n_components=2, starts=1, max_iter=500, weight=10.0, free=False, **options):
    """Task and mode of the paper's objective."""
    task = DGPLVMProblem(
        **options,
        X=X,
        y_index=y,
        n_components=n_components,
        priors=DGPLVMPriors(weight=weight),
        optimization=DGPLVMOptimization(n_restarts=starts, max_iter=max_iter),
    )
    mapping = kernel_mapping(X, None if free else 2.0)
    return task, fit_paper(task, mapping, rng_of(7, 0))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_gradient_is_that_of_differences(mapping, extrapolated):
    objective = make(mapping)
    x = point(objective)
    _, gradient = objective(x)
    numeric = extrapolated(lambda z: objective(z)[0], x)
    np.testing.assert_allclose(gradient, numeric, rtol=0.0, atol=1e-8 * np.abs(numeric).max())


def test_bounds_scale_with_the_features():
    """F of 7 Y at theta (49, 1, 49, 1/49) is F of Y and N D ln 7 + 2 ln 7."""
    X, y = wine(25)
    one, other = (fit(Z, y, criterion="total", free=True, max_iter=1)[1].objective
                  for Z in (X, 7.0 * X))  # fmt: skip
    shift = 2.0 * math.log(7.0) * np.array([1.0, 0.0, 1.0, -1.0])
    for a, b in zip(one.parameter_bounds, other.parameter_bounds, strict=True):
        np.testing.assert_allclose(b - a, shift, atol=1e-12)
    latent, t = rng_of(6).standard_normal((25, 2)), one.log_medians
    np.testing.assert_allclose(other.log_medians, t + shift, atol=1e-12)
    expected = one(one.pack(latent, t))[0] + (X.size + 2.0) * math.log(7.0)
    assert other(other.pack(latent, t + shift))[0] == pytest.approx(expected, rel=1e-11)


def test_mapping_embeds_training_and_new_samples_of_a_fit():
    X, y = wine(60)
    _, mode = fit(X[:40], y[:40], weight=10.0, starts=2)
    embedder = PaperEmbedder.of(mode.objective.mapping, mode.objective.unpack(mode.search.x)[0])
    assert embedder.weights.shape == (40, 2)
    train, new = embedder.latent(X[:40]), embedder.latent(X[40:])
    np.testing.assert_allclose(train, mode.latent, atol=1e-6 * np.abs(mode.latent).max())
    centroids = np.array([mode.latent[y[:40] == c].mean(axis=0) for c in range(3)])
    assert np.mean(cdist(new, centroids).argmin(axis=1) == y[40:]) > 0.85
    # The objective is that without a mapping.
    _, full = fit(X[:40], y[:40], weight=10.0, max_iter=20)
    free = fit(X[:40], y[:40], weight=10.0, free=True, max_iter=1)[1].objective
    at_end = free(free.pack(full.latent, full.log_parameters))[0]
    assert at_end == pytest.approx(full.search.value, abs=1e-6)


@pytest.mark.parametrize("criterion", ["total", "inverse_trace"])
def test_other_criteria(criterion):
    X, y = wine(24)
    _, mode = fit(X, y, n_components=3, weight=10.0, max_iter=30, criterion=criterion)
    assert mode.search.trace[-1] < mode.search.trace[0]


@pytest.mark.parametrize("weight", [1.0, 1e4])
def test_collapse_of_many_noisy_features_is_reported(weight):
    """For noise with D >> N all variance is noise."""
    X = rng_of(13).standard_normal((12, 200))
    task, mode = fit(X, np.arange(12) % 2, n_components=1, weight=weight, starts=2)
    assert "almost nothing" in collapse(mode, task)


def at_mode(mode, *, signal, criterion=0.3, log_width=0.0):
    """The mode with such a share of the variance, well inside the other bounds."""
    variance = mode.objective.gram.variance
    logs = np.log([2.0 * signal * variance, 1.0, 1e-3 * variance, 1.0 / variance])
    logs[1] = log_width
    latent = 10.0 * np.repeat(np.eye(2), len(mode.latent) // 2, axis=0)
    found = replace(mode, log_parameters=logs, latent=latent)
    vars(found)["terms"] = replace(mode.terms, criterion=criterion)
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signal": 0.5}, None),
        ({"signal": 0.01}, None),  # one of many directions, with little of the variance
        ({"signal": 4e-4}, "explain almost nothing of the features: signal share 0.0004"),
        ({"signal": 0.5, "criterion": 1e-8}, "collapsed to a point"),
        ({"signal": 0.5, "log_width": np.log(1e3)}, "inverse squared width ended at a bound"),
    ],
)
def test_what_counts_as_degenerate(options, message):
    X, y = wine(24)
    y = np.repeat([0, 1], 12)
    task, mode = fit(X, y, n_components=1, max_iter=1)
    got = collapse(at_mode(mode, **options), task)
    assert got is None if message is None else message in got
