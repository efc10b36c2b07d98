"""The objective of the paper: gradient, unbounded directions, and collapse."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine

from bsdr_models.dgplvm.criteria import make_criterion
from bsdr_models.dgplvm.dynamics import Dynamics, DynamicsPriors
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.paper.fit import Collapse, fit_paper
from bsdr_models.dgplvm.paper.objective import (
    KernelMapping,
    PaperObjective,
    initial_log_theta,
)
from bsdr_models.dgplvm.settings import Optimization

# Unsorted, class 1 empty, class 3 with one sample, one unlabelled sample.
LABELS = np.array([2, 0, 0, -1, 2, 3, 0, 2, 2, 0, 4, 4])
SEQUENCE = np.array([0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 2, 2])
K, R, D = 5, 2, 6
MAPPINGS = ("kernel", "centres", "free")


def rng_of(*key):
    return np.random.default_rng([47, *key])


def features():
    rng = rng_of(1)
    X = rng.standard_normal((len(LABELS), D)) + 0.5 * rng.standard_normal((K + 1, D))[LABELS]
    return X - X.mean(axis=0)


def make(mapping="free", *, weight=5.0, **options):
    X = features()
    kernel_mapping = None
    if mapping != "free":
        centres = X if mapping == "kernel" else X[[0, 2, 5, 9, 10]]
        kernel_mapping = KernelMapping(X=X, centres=centres, width=0.1)
    return PaperObjective(
        gram=FeatureGram.of(X),
        criterion=make_criterion("trace_ratio", LABELS, K),
        weight=weight,
        n_components=R,
        kernel_mapping=kernel_mapping,
        **options,
    )


def point(objective, seed=0):
    rng = rng_of(2, seed)
    latent = rng.standard_normal((len(LABELS), R)) + 2.0 * rng.standard_normal((K + 1, R))[LABELS]
    x = objective.pack(latent, np.log([0.7, 0.8, 0.2, 3.0]))
    x[-4:] += 0.1 * rng.standard_normal(4)
    return x


def fourth_order(f, x, step):
    out = np.empty(len(x))
    for i in range(len(x)):
        values = []
        for k in (-2, -1, 1, 2):
            moved = x.copy()
            moved[i] += k * step
            values.append(f(moved))
        out[i] = (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / (12.0 * step)
    return out


def wine(n, seed=3):
    X, y = load_wine(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(X))[:n]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[rows], y[rows]


# ---------------------------------------------------------------------------- value and gradient


def test_value_is_the_sum_of_the_terms_of_the_paper():
    """Terms by SciPy's normal density, traces and sums over entries of a."""
    X = features()
    dynamics = Dynamics.of(SEQUENCE)
    objective = make("kernel", spherical=1.0, dynamics=dynamics)
    x = point(objective)
    u, log_theta, log_dynamics = objective.unpack(x)
    a = objective.kernel_mapping.weights(u)
    K_bc = np.exp(-0.05 * cdist(X, X) ** 2)
    latent = K_bc @ a
    np.testing.assert_allclose(objective.latent(x), latent, atol=1e-12 * np.abs(a).max())

    t1, t2, t3, t4 = np.exp(log_theta)
    K_Y = t1 * np.exp(-0.5 * t2 * cdist(latent, latent) ** 2) + t3 + np.eye(len(X)) / t4
    law = stats.multivariate_normal(np.zeros(len(X)), K_Y)
    expected = -law.logpdf(X.T).sum() + math.log(t1 * t2 * t3 * t4)
    expected += 5.0 * objective.criterion(latent)[0]
    expected += 0.5 * sum(z**2 for z in latent.ravel())
    expected += dynamics.evaluate(latent, log_dynamics).value
    expected += DynamicsPriors().negative_log_density(log_dynamics)[0]
    assert objective(x)[0] == pytest.approx(expected, rel=1e-9)
    assert sum(objective.terms(x).values()) == objective(x)[0]


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("dynamics", [None, Dynamics.of(SEQUENCE)], ids=["still", "moving"])
def test_gradient_is_that_of_differences(mapping, dynamics):
    objective = make(mapping, spherical=0.7, dynamics=dynamics)
    x = point(objective)
    _, gradient = objective(x)
    assert len(x) == len(objective.bounds[0]) == len(objective.bounds[1])
    # Richardson extrapolation has an error of sixth order.
    fine, coarse = (fourth_order(lambda z: objective(z)[0], x, h) for h in (2e-3, 4e-3))
    numeric = (16.0 * fine - coarse) / 15.0
    np.testing.assert_allclose(gradient, numeric, rtol=0.0, atol=1e-8 * np.abs(numeric).max())


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_pack_and_unpack_are_inverse(mapping):
    objective = make(mapping, dynamics=Dynamics.of(SEQUENCE))
    x = point(objective)
    latent = objective.latent(x)
    u, log_theta, log_dynamics = objective.unpack(x)
    np.testing.assert_allclose(objective.pack(latent, log_theta, log_dynamics), x, atol=1e-9)
    assert u.shape == (5 if mapping == "centres" else len(LABELS), R)


def test_mapping_embeds_training_and_new_samples():
    X, new = features(), rng_of(3).standard_normal((4, D))
    for centres in (X, X[:5]):
        chart = KernelMapping(X=X, centres=centres, width=0.3)
        u = rng_of(4).standard_normal((len(centres), R))
        a = chart.weights(u)
        np.testing.assert_allclose(chart.transform(X, a), chart.basis @ u, atol=1e-10)
        expected = np.exp(-0.15 * cdist(new, centres) ** 2) @ a
        np.testing.assert_allclose(chart.transform(new, a), expected, rtol=1e-9)


# -------------------------------------------------------------- unbounded directions


def test_objective_is_unbounded_in_the_scale():
    """F(cX, theta_2 / c^2) = F - 2 ln c, unless there is a spherical prior."""
    objective, held = make(), make(spherical=1.0)
    x = point(objective)
    start, size = objective(x)[0], np.sum(objective.latent(x) ** 2)
    for c in (10.0, 1e3, 1e6):
        moved = x.copy()
        moved[:-4] *= c
        moved[-3] -= 2.0 * math.log(c)
        assert objective(moved)[0] == pytest.approx(start - 2.0 * math.log(c), abs=1e-9)
        gain = -2.0 * math.log(c) + 0.5 * (c**2 - 1.0) * size
        assert held(moved)[0] - held(x)[0] == pytest.approx(gain, rel=1e-10)


def test_objective_is_unbounded_in_the_bias():
    objective = make()
    x = point(objective)
    values = []
    for log_bias in np.log([1e-10, 1e-20, 1e-30]):
        x[-2] = log_bias
        values.append(objective(x)[0])
    np.testing.assert_allclose(np.diff(values), -10.0 * math.log(10.0), atol=1e-6)


def test_squared_norm_with_a_spherical_prior_is_two():
    """|X|^2 = 2 at a mode in theta_2 and the scale of X, for all data."""
    X, y = wine(30)
    fit = fit_paper(
        X, y, 3, n_components=2, weight=1.0, n_centres=0, spherical=1.0, starts=["pca"],
        rng=rng_of(5), optimization=Optimization(max_iter=2000, tol=1e-7),
    )  # fmt: skip
    assert "inverse squared width" not in fit.collapse.at_bounds
    assert np.sum(fit.latent**2) == pytest.approx(2.0, abs=0.02)


def test_bounds_scale_with_the_features():
    """F of 7 Y at theta (49, 1, 49, 1/49) is F of Y and N D ln 7 + 2 ln 7."""
    X, y = wine(25)
    criterion = make_criterion("total", y, 3)
    one, other = (
        PaperObjective(gram=FeatureGram.of(Z), criterion=criterion, weight=2.0, n_components=2)
        for Z in (X - X.mean(axis=0), 7.0 * (X - X.mean(axis=0)))
    )
    shift = 2.0 * math.log(7.0) * np.array([1.0, 0.0, 1.0, -1.0])
    for a, b in zip(one.bounds, other.bounds, strict=True):
        np.testing.assert_allclose(b[-4:] - a[-4:], shift, atol=1e-12)
    latent = rng_of(6).standard_normal((25, 2))
    t = initial_log_theta(one.gram)
    np.testing.assert_allclose(initial_log_theta(other.gram), t + shift, atol=1e-12)
    expected = one(one.pack(latent, t))[0] + (X.size + 2.0) * math.log(7.0)
    assert other(other.pack(latent, t + shift))[0] == pytest.approx(expected, rel=1e-11)


# ------------------------------------------------------------------------------------- optimisation


def test_mapping_with_all_centres_is_no_constraint():
    """It ends at the same optimum or a lower one."""
    X, y = wine(30)
    values = {}
    for n_centres in (0, None):
        fit = fit_paper(
            X, y, 3, n_components=2, weight=100.0, n_centres=n_centres, spherical=1.0,
            hold_width=True, rng=rng_of(7), optimization=Optimization(max_iter=1000, tol=1e-6),
        )  # fmt: skip
        assert fit.search.converged
        assert len(fit.search.values) == 4
        values[n_centres] = fit.search.value
        # The objective without a mapping has the same value at the optimum.
        free = fit_paper(
            X, y, 3, n_components=2, weight=100.0, n_centres=0, spherical=1.0, hold_width=True,
            starts=["pca"], rng=rng_of(8), optimization=Optimization(max_iter=1),
        ).objective  # fmt: skip
        assert free(free.pack(fit.latent, np.log(fit.theta)))[0] == pytest.approx(
            fit.search.value, abs=1e-6
        )
    assert values[None] <= values[0] + 1e-3


def test_embedding_of_new_samples():
    X, y = wine(60)
    fit = fit_paper(
        X[:40], y[:40], 3, n_components=2, weight=10.0, n_centres=10, hold_width=True,
        spherical=1.0, starts=["shrinkage_lda"], rng=rng_of(9),
    )  # fmt: skip
    train, new = (fit.kernel_mapping.transform(part, fit.weights) for part in (X[:40], X[40:]))
    np.testing.assert_allclose(train, fit.latent, atol=1e-8)
    centroids = np.array([fit.latent[y[:40] == c].mean(axis=0) for c in range(3)])
    assert np.mean(cdist(new, centroids).argmin(axis=1) == y[40:]) > 0.85


def test_few_centres_are_a_constraint_and_free_has_no_mapping():
    X, y = wine(40)
    y = np.where(np.arange(40) % 5 == 0, -1, y)
    options = {"n_components": 2, "weight": 10.0, "spherical": 1.0, "hold_width": True}
    fit = fit_paper(X, y, 3, n_centres=6, rng=rng_of(10), **options)
    assert fit.weights.shape == (6, 2)
    embedded = fit.kernel_mapping.transform(X, fit.weights)
    np.testing.assert_allclose(embedded, fit.latent, atol=1e-8)
    free = fit_paper(X, y, 3, n_centres=0, starts=["pca", "lda"], rng=rng_of(10), **options)
    assert free.search.value < fit.search.value
    assert free.kernel_mapping is None


def test_invalid_settings_raise():
    X, y = wine(20)
    with pytest.raises(ValueError, match="at most 2 components"):
        fit_paper(X, y, 3, n_components=3, rng=rng_of(11))


def test_other_criteria_and_sequences():
    X, y = wine(24)
    dynamics = Dynamics.of(np.arange(24) // 6)
    for criterion in ("total", "local_fisher", "inverse_trace", "mcml"):
        fit = fit_paper(
            X, y, 3, n_components=3, weight=10.0, criterion=criterion, spherical=1.0,
            dynamics=dynamics, starts=["pca"], rng=rng_of(12),
            optimization=Optimization(max_iter=30),
        )  # fmt: skip
        trace = fit.search.trace
        assert trace[-1] < trace[0]
        assert "dynamics" in fit.objective.terms(fit.search.x)


# --------------------------------------------------------------------------------------- collapse


@pytest.mark.parametrize("weight", [1.0, 1e4])
def test_collapse_of_many_noisy_features_is_reported(weight):
    """For noise with D >> N all variance is noise, and latent coordinates collapse."""
    X = rng_of(13).standard_normal((12, 200))
    fit = fit_paper(
        X, np.arange(12) % 2, 2, n_components=1, weight=weight, spherical=1.0, hold_width=True,
        starts=["pca", "lda"], rng=rng_of(14),
    )  # fmt: skip
    assert fit.collapse.signal_share < 1e-6
    assert fit.collapse.centroid_distance < 0.1
    assert "output variance" in fit.collapse.at_bounds
    assert "almost nothing" in fit.collapse.warning


def test_a_good_fit_gives_no_warning():
    X, y = wine(60)
    fit = fit_paper(
        X, y, 3, n_components=2, weight=10.0, spherical=1.0, hold_width=True, rng=rng_of(15),
        starts=["pca", "shrinkage_lda"],
    )  # fmt: skip
    assert fit.collapse.warning is None
    assert fit.collapse.signal_share > 0.2
    # Without an identified scale a parameter ends at a bound.
    loose = fit_paper(
        X, y, 3, n_components=2, weight=10.0, rng=rng_of(15), starts=["pca"],
        optimization=Optimization(max_iter=2000, tol=1e-8),
    )  # fmt: skip
    assert "inverse squared width" in loose.collapse.at_bounds
    assert "ended at a bound" in loose.collapse.warning


def test_a_small_signal_share_of_many_features_gives_no_warning():
    """One of 200 directions separates the classes, with little of the variance of a feature."""
    rng = rng_of(16)
    y = np.arange(50) % 2
    X = rng.standard_normal((50, 200)) + 3.5 * np.equal.outer(y, [1]) * rng.standard_normal(200) / 5
    fit = fit_paper(
        X, y, 2, n_components=1, weight=100.0, spherical=1.0, hold_width=True, rng=rng,
        starts=["pca", "lda"],
    )  # fmt: skip
    assert fit.collapse.warning is None
    assert 1e-3 < fit.collapse.signal_share < 0.2
    assert fit.collapse.centroid_distance > 1.0


def test_collapsed_classes_are_reported():
    report = Collapse(signal_share=0.6, at_bounds=(), centroid_distance=2.0, criterion=1e-8)
    assert "collapsed to a point" in report.warning
