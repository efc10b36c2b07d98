"""Draws by NUTS, and means with their Monte Carlo errors."""

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats


def sample(model, names, *, draws, tune, seed):
    """Draws of variables by name, two chains."""
    with model:
        trace = pm.sample(
            draws=draws,
            tune=tune,
            chains=2,
            cores=1,
            target_accept=0.95,
            random_seed=seed,
            var_names=names,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    return {name: trace["posterior"][name].values for name in names}


def summarise(draws, largest_rhat):
    """Mean and its standard error of each function of the draws and of its square."""
    flat = np.concatenate([v.reshape(*v.shape[:2], -1) for v in draws.values()], axis=2)
    both = np.concatenate([flat, flat**2], axis=2)
    error = [array_stats.mcse(values) for values in np.moveaxis(both, 2, 0)]
    rhat = [array_stats.rhat(values) for values in np.moveaxis(flat, 2, 0)]
    assert max(rhat) < largest_rhat, max(rhat)
    return both.mean(axis=(0, 1)), np.array(error)


@pytest.fixture
def nuts():
    return sample


@pytest.fixture
def summaries():
    return summarise
