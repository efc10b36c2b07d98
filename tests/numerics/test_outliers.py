"""T2 and Q: leave-out values against the definition, limits against simulated normal samples."""

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.numerics.latent import Reference, q_limit, t2_limit


def normal_rows(rng, n, factor):
    """Samples of factors with loadings (R, D), and noise whose size differs between features."""
    noise = rng.standard_normal((n, factor.shape[1])) * np.linspace(0.4, 1.6, factor.shape[1])
    return 3.0 + rng.standard_normal((n, len(factor))) @ factor + noise


@pytest.fixture(scope="module")
def world():
    """40 training samples of 12 features, and a map to two scores that has not seen them."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((3, 12))
    return rng, factor, normal_rows(rng, 40, factor), rng.standard_normal((12, 2))


def distances(row, rows, projection):
    """T2 and Q of one sample by the definition."""
    z, centre = rows @ projection, (rows @ projection).mean(axis=0)
    fit = np.linalg.lstsq(z - centre, rows - rows.mean(axis=0), rcond=None)[0]
    d = row @ projection - centre
    t2 = d @ np.linalg.solve(np.cov(z.T), d)
    return t2, np.sum((row - rows.mean(axis=0) - d @ fit) ** 2)


def test_samples_are_compared_as_defined(world):
    """New ones with all training samples, and each of these with the others."""
    rng, factor, rows, projection = world
    reference = Reference.learn(rows, projection)
    new = normal_rows(rng, 5, factor)
    others = [np.delete(rows, n, axis=0) for n in range(len(rows))]
    for found, pairs in (
        (reference.compare(new), [(row, rows) for row in new]),
        (reference.compare_training(rows), zip(rows, others, strict=True)),
    ):
        expected = np.array([distances(*pair, projection) for pair in pairs])
        np.testing.assert_allclose(found["t2"], expected[:, 0], rtol=1e-9)
        np.testing.assert_allclose(found["q_residual"], expected[:, 1], rtol=1e-9)


@pytest.mark.parametrize("prob", [0.9, 0.99])
def test_limits_hold_their_share_of_new_normal_rows(prob):
    """Over 200 sets of 30 training samples, 50 new ones each; four standard errors of the sets.

    T2 is exact. Q is the chi-square of two moments estimated from 30 samples: within 0.03.
    """
    rng = np.random.default_rng(1)
    factor, projection = rng.standard_normal((2, 10)), rng.standard_normal((10, 2))
    inside = []
    for _ in range(200):
        reference = Reference.learn(normal_rows(rng, 30, factor), projection)
        found = reference.compare(normal_rows(rng, 50, factor))
        limits = t2_limit(prob, 30, 2), q_limit(prob, reference.q_scale, reference.q_dof)
        inside.append(
            [
                np.mean(found["t2"] < limits[0]),
                np.mean(found["q_residual"] < limits[1]),
                np.mean(found["tail_probability"] > 1.0 - prob),
            ]
        )
    share, error = np.mean(inside, axis=0), np.std(inside, axis=0) / np.sqrt(200)
    assert abs(share[0] - prob) < 4.0 * error[0]
    assert abs(share[1] - prob) < 0.03
    # Two limits, each at half the level, are together a little too wide.
    assert prob - 0.03 < share[2] < prob + 0.05


def test_a_sample_far_off_is_found_inside_and_outside_the_map(world):
    rng, factor, rows, projection = world
    reference = Reference.learn(rows, projection)
    usual = normal_rows(rng, 1, factor)
    along = projection[:, 0] / np.linalg.norm(projection[:, 0])
    across = np.linalg.svd(projection.T)[2][-1]  # no score sees it
    inside, outside = (
        reference.compare(usual + 60.0 * along),
        reference.compare(usual + 60 * across),
    )
    assert inside["tail_probability"][0] < 1e-4
    assert outside["tail_probability"][0] < 1e-4
    np.testing.assert_allclose(outside["t2"], reference.compare(usual)["t2"], rtol=1e-9)
    assert reference.compare(usual)["tail_probability"][0] > 0.05


def test_sparse_samples_and_collinear_scores_change_nothing(world):
    _, _, rows, projection = world
    reference = Reference.learn(rows, projection)
    own = reference.compare_training(rows)
    twice = np.column_stack([projection, projection @ [1.0, -2.0]])
    for given, mapped in (
        (sparse.csr_array(rows), projection),
        (rows, twice),
        (rows, 7.0 * projection[:, ::-1]),
    ):
        again = Reference.learn(given, mapped)
        found = again.compare_training(given)
        assert again.rank == 2
        np.testing.assert_allclose(found["t2"], own["t2"], rtol=1e-8)
        np.testing.assert_allclose(found["q_residual"], own["q_residual"], rtol=1e-8)
        np.testing.assert_allclose(again.q_dof, reference.q_dof, rtol=1e-8)


def test_a_map_that_misses_nothing_has_no_q(world):
    _, _, rows, projection = world
    reference = Reference.learn(rows[:, :2], projection[:2])
    own = reference.compare_training(rows[:, :2])
    assert reference.q_scale == 0.0
    assert (own["q_residual"] < 1e-10 * np.sum(rows**2)).all()
    assert np.quantile(own["tail_probability"], 0.1) > 0.01  # of T2 alone


def test_too_few_samples_say_nothing(world):
    _, _, rows, projection = world
    assert Reference.learn(rows[:4], projection) is None
    assert Reference.learn(np.ones((9, 12)), projection) is None
    few = Reference.learn(rows[:5], projection)
    assert np.isfinite(few.compare_training(rows[:5])["t2"]).all()
