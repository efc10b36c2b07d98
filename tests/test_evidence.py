"""The programme behind ``docs/evidence.md``, at sizes that show only that it does what it says."""

import warnings

import numpy as np
import pytest
from scipy.special import polygamma

from benchmarks.evidence import agreement, coverage, null, page, sbc
from benchmarks.evidence.simulate import features, simulate
from bsdr_models.bsdr.priors import SAMPLING, Priors


@pytest.fixture(autouse=True)
def quiet():
    """Fits of noise and short chains warn, which is right and not asked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_null_has_a_row_per_method_and_a_picture(tmp_path):
    size = null.Size(n_train=12, n_features=15, n_new=30, n_seeds=1)
    text = null.report(tmp_path, size)
    assert [line.split("|")[1].strip() for line in text.splitlines()[4:]] == list(null.METHODS)
    assert (tmp_path / "null.png").stat().st_size > 0


def test_coverage_has_a_row_per_engine(tmp_path):
    short = {"mean field": {}, "Gibbs": {"inference": "gibbs", "draws": 20, "tune": 20}}
    text = coverage.report(tmp_path, n_sets=2, engines=short)
    assert len(text.splitlines()) == 4 + len(short)
    assert "%" in text


def test_sbc_has_a_row_per_quantity_and_a_picture(tmp_path):
    text = sbc.report(tmp_path, sbc.Plan(n_sets=12, n_draws=9, thin=1, tune=5))
    assert len(text.splitlines()) == 4 + len(sbc.KINDS) * len(sbc.QUANTITIES) + 2
    assert (tmp_path / "sbc.png").stat().st_size > 0


def test_agreement_has_a_row_per_quantity():
    engines = {"one": {"draws": 20}, "other": {"draws": 30}}
    text = agreement.report(None, sets=("iris",), engines=engines)
    assert len(text.splitlines()) == 4 + 3


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


@pytest.mark.parametrize(("kind", "shared"), [("entrywise", None), ("columnwise", 0)])
def test_projections_are_simulated_under_their_prior(kind, shared):
    """One precision for a column makes squares of its entries rise together, of others not."""
    X = np.zeros((1, 2))
    priors = Priors(projection_shape=5.0, projection_rate=5.0)
    truths = simulate(X, priors, (20_000, 1, 2), np.random.default_rng(6), projection_prior=kind)
    log_squares = np.log(truths.projection[:, :, 0] ** 2)
    # Var log(q^2) is that of log chi-square_1, pi^2 / 2, plus that of log precision, psi'(5);
    # the latter is what two entries share. Standard error of a correlation: 0.007.
    between = polygamma(1, 5.0) / (polygamma(1, 5.0) + np.pi**2 / 2)
    found = np.corrcoef(log_squares.T)[0, 1]
    assert found == pytest.approx(0.0 if shared is None else between, abs=0.028)


def test_uniformity_passes_even_ranks_and_refuses_a_u():
    assert sbc.uniformity(np.arange(500) % 100, 99) == pytest.approx(1.0)
    # Two of ten bins with all of 100 ranks: chi-square of 400 on 9 degrees of freedom.
    assert sbc.uniformity(np.repeat([0, 99], 50), 99) < 1e-60
    assert sbc.extreme(np.arange(100), 99).mean() == pytest.approx(0.2)


def test_nearest_undoes_a_signed_permutation():
    rng = np.random.default_rng(0)
    true = rng.standard_normal((13, 2))
    draws = true + 0.1 * rng.standard_normal((50, 13, 2))
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(coverage.nearest(draws, true @ turn), turn.T)


def test_labels_are_simulated_with_the_probabilities_of_the_model():
    """The likelihood of the package, averaged over draws of the prior, is the share of a label.

    20 000 sets of one row: the standard error of a share is below 0.0036; bound at four.
    """
    X = np.array([[0.7, -1.2]])
    truths = simulate(X, SAMPLING, (20_000, 1, 3), np.random.default_rng(1))
    draws = {name: getattr(truths, name)[:2000] for name in ("projection", "weights", "bias")}
    for label in range(3):
        values = sbc.quantities(draws, X, np.array([label]))["log likelihood"]
        # The average over 2000 draws adds an error of its own, at most 0.5 / sqrt(2000).
        assert np.mean(truths.y == label) == pytest.approx(np.exp(values).mean(), abs=0.0146 + 0.04)


def test_features_are_standardised():
    X = features(30, 4, np.random.default_rng(2))
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1.0, rtol=1e-12)


def test_write_replaces_what_stands_between_the_marks(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n")
    page.write(file, "x", page.table(["h"], [["1"]]))
    assert file.read_text() == ("a\n<!-- x: begin -->\n| h |\n| --- |\n| 1 |\n<!-- x: end -->\nb\n")
    with pytest.raises(ValueError, match="no marks"):
        page.write(file, "y", "")
