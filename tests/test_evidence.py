"""The programme behind ``docs/evidence.md``, at sizes that show only that it does what it says."""

import warnings

import numpy as np
import pytest
from scipy.stats import ks_2samp

from benchmarks import page
from benchmarks.evidence import agreement, coverage, sbc
from benchmarks.evidence.simulate import simulate, simulate_hierarchical, varying_together
from bsdr_models.bsdr.problem import BSDRProblem, label_log_likelihood
from bsdr_models.papers.bsdr.priors import SAMPLING


@pytest.fixture(autouse=True)
def quiet():
    """Fits of noise and short chains warn, which is right and not asked here."""
    with warnings.catch_warnings(action="ignore"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("n_strong", [None, 5])
def test_intervals_of_effects_hold_them_under_either_metric(n_strong):
    """Of three data sets; intervals a fifth as wide would hold a quarter of the effects."""
    for metric in coverage.METRICS.values():
        streams = np.random.default_rng(3).spawn(3)
        held = [coverage.held_by_default(metric, n_strong, rng) for rng in streams]
        assert np.mean([effects for effects, _ in held]) > 0.7


def test_the_shares_inside_are_those_of_the_draws():
    rng = np.random.default_rng(4)
    draws = rng.standard_normal((2000, 500))
    true = rng.standard_normal(500)
    assert coverage.inside(draws, true) == pytest.approx(0.9, abs=0.05)
    assert coverage.inside(0.2 * draws, true) == pytest.approx(0.26, abs=0.07)


def test_z_scores_are_of_size_one_for_draws_of_one_distribution_and_large_for_two():
    rng = np.random.default_rng(5)
    first, second = rng.standard_normal((2, 4, 500, 30))
    z = agreement.z_scores(first, second)
    assert z.size == 4 * 30
    # The four estimates of a quantity depend on each other: as if 30 to 120 squares were averaged.
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.3
    # Means are off by 0.2, and the error of a difference of means is sqrt(2 / 2000) = 0.03.
    assert np.sqrt(np.mean(agreement.z_scores(first + 0.2, second) ** 2)) > 3.0
    certain = np.concatenate([first, np.ones((4, 500, 1))], axis=2)
    assert agreement.z_scores(certain, certain).size == 4 * 30


@pytest.mark.parametrize(("target", "n", "d", "priors"), sbc.CASES.values())
def test_parameters_are_simulated_under_the_prior_that_is_sampled(target, n, d, priors):
    """Two samples of each quantity, one from the simulation and one from the package."""
    rng = np.random.default_rng(6)
    X, new = varying_together(n, d, rng)
    truths = simulate_hierarchical(X, priors, (5000, sbc.K), target, rng)
    metric = sbc.euclidean(X)
    problem = BSDRProblem(
        X=metric.whiten(X), y=truths.y[0], n_labels=sbc.K, target=target, priors=priors
    )
    theta = rng.standard_normal((5000, problem.n_parameters))
    theta[:, -1] = np.log(priors.scale * np.abs(theta[:, -1]))
    theirs = sbc.of_draws(metric, problem.parameters(theta, rng=rng), new, rng)
    if target == "regression":
        log_noise = rng.normal(priors.noise_location, priors.noise_width, 5000)
        theirs["noise scale"] = np.exp(log_noise)
    ours = sbc.of_truths(truths, new, target)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert ks_2samp(values, theirs[name]).pvalue > 1e-3, name


@pytest.mark.parametrize(("target", "n", "d", "priors"), sbc.CASES.values())
def test_targets_are_simulated_with_the_likelihood_that_is_sampled(target, n, d, priors):
    """The sum of log likelihoods is within four standard errors of its expectation given eta."""
    rng = np.random.default_rng(7)
    X, _ = varying_together(n, d, rng)
    truths = simulate_hierarchical(X, priors, (4000, sbc.K), target, rng)
    if target == "regression":
        mean = -np.sum(np.log(truths.noise_scale) + 0.5 * np.log(2 * np.pi) + 0.5, axis=1)
        mean, variance = np.repeat(mean, n), np.full(len(mean) * n, 0.5 * sbc.K)
    else:
        # All outcomes of a sample: classes, or sets of labels.
        outcomes = (
            np.eye(sbc.K, dtype=bool)
            if target == "multiclass"
            else np.array(list(np.ndindex((2,) * sbc.K)), dtype=bool)
        )
        log_p = [
            label_log_likelihood(
                truths.eta,
                np.full(n, one.argmax()) if target == "multiclass" else np.tile(one, (n, 1)),
                target,
                priors.lapse,
            )[0].ravel()
            for one in outcomes
        ]
        p = np.exp(log_p)
        mean = np.sum(p * log_p, axis=0)
        variance = np.sum(p * np.square(log_p), axis=0) - mean**2
    gap = sbc.log_likelihood(truths, target).sum() - mean.sum()
    assert abs(gap) < 4.0 * np.sqrt(variance.sum())


def test_uniformity_passes_even_ranks_and_refuses_a_u():
    assert sbc.uniformity(np.arange(500) % 100, 99) == pytest.approx(1.0)
    # Two of ten bins with all of 100 ranks: chi-square of 400 on 9 degrees of freedom.
    assert sbc.uniformity(np.repeat([0, 99], 50), 99) < 1e-60
    assert sbc.covered(np.arange(100), 99).mean() == pytest.approx(0.9)


def test_nearest_undoes_a_signed_permutation():
    rng = np.random.default_rng(0)
    true = rng.standard_normal((13, 2))
    draws = true + 0.1 * rng.standard_normal((50, 13, 2))
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(coverage.nearest(draws, true @ turn), turn.T)


@pytest.mark.slow
def test_labels_are_simulated_with_the_probabilities_of_the_model():
    """The likelihood of the package, averaged over draws of the prior, is the share of a label.

    20 000 sets of one row: the standard error of a share is below 0.0036; bound at four.
    """
    X = np.array([[0.7, -1.2]])
    truths = simulate(X, SAMPLING, (20_000, 1, 3), np.random.default_rng(1))
    draws = {name: getattr(truths, name)[:2000] for name in ("projection", "weights", "bias")}
    for label in range(3):
        values = sbc.quantities(draws, X, np.array([label]), X[0])["log likelihood"]
        # The average over 2000 draws adds an error of its own, at most 0.5 / sqrt(2000).
        assert np.mean(truths.y == label) == pytest.approx(np.exp(values).mean(), abs=0.0146 + 0.04)


def test_write_replaces_what_stands_between_the_marks(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n")
    page.write(file, "x", page.table(["h"], [["1"]]))
    assert file.read_text() == ("a\n<!-- x: begin -->\n| h |\n| --- |\n| 1 |\n<!-- x: end -->\nb\n")
    with pytest.raises(ValueError, match="no marks"):
        page.write(file, "y", "")
