"""Simulation-based calibration of the draws at full rank, by the programme of docs/evidence.md.

The rank of a true value among draws from the posterior given its targets is uniform.
"""

import numpy as np
import pytest

from benchmarks.evidence import sbc

# Level of all tests of a run together, fixed before any run.
LEVEL = 0.01


def assert_calibrated(case, n_sets):
    """Ranks are uniform, and 90 % intervals hold their share, within three standard deviations."""
    plan = sbc.Plan(n_sets=n_sets, n_draws=39, n_chains=16, n_kept=6)
    ranks = sbc.by_default(*sbc.CASES[case], plan)
    for name, own in ranks.items():
        assert sbc.uniformity(own, plan.n_draws) > LEVEL / len(ranks), name
    held = np.mean([sbc.covered(own, plan.n_draws) for own in ranks.values()])
    assert abs(held - 0.9) < 0.02 * np.sqrt(500 / n_sets), held


@pytest.mark.slow
def test_draws_of_a_few_sets_are_calibrated():
    assert_calibrated("classes, D > N", 20)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["classes", "label sets", "real outputs"])
def test_draws_are_calibrated(case):
    assert_calibrated(case, 50)
