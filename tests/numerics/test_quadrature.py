import numpy as np
import pytest
from scipy.special import factorial2

from bsdr_models.numerics.orthant import gauss_hermite


@pytest.mark.parametrize("n_nodes", [1, 2, 7, 32])
def test_moments_of_the_normal_are_exact_up_to_the_degree_of_the_rule(n_nodes):
    nodes, weights = gauss_hermite(n_nodes)
    assert nodes.shape == weights.shape == (n_nodes,)
    for degree in range(0, min(2 * n_nodes, 20), 2):
        expected = factorial2(degree - 1) if degree else 1.0
        assert np.sum(weights * nodes**degree) == pytest.approx(expected, rel=1e-12)
        assert np.sum(weights * nodes ** (degree + 1)) == pytest.approx(0.0, abs=1e-12 * expected)


def test_rule_is_shared_and_cannot_be_changed():
    nodes, weights = gauss_hermite(12)
    assert gauss_hermite(12)[0] is nodes
    assert not nodes.flags.writeable
    assert not weights.flags.writeable


def test_a_rule_needs_a_node():
    with pytest.raises(ValueError, match="n_nodes"):
        gauss_hermite(0)
