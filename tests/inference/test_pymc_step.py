"""A Gibbs kernel as a PyMC step: `pm.sample` walks exactly the kernel's own chain."""

from functools import partial

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest

from bsdr_models.bsdr import gibbs
from bsdr_models.bsdr.model import build_model
from bsdr_models.bsdr.priors import SAMPLING
from bsdr_models.data import Data
from bsdr_models.inference.pymc_step import GibbsStep
from bsdr_models.numerics.design import DenseDesign


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((8, 3))
    y = np.arange(8) % 3
    model = build_model(
        X, y, n_components=2, projection_prior="rowwise", priors=SAMPLING, augmented=True
    )
    kernel = partial(
        gibbs.sweep_variables,
        data=Data(design=DenseDesign(X), y=y, n_labels=3),
        priors=SAMPLING,
        projection_prior="rowwise",
        step=gibbs.step,
    )
    return model, kernel


def sample(model, kernel, *, seed, draws=6, tune=2):
    # Everything that PyMC compiles here is tiny: linking it with Numba would take most of the time.
    with model, pytensor.config.change_flags(mode="FAST_COMPILE"):
        return pm.sample(
            draws,
            tune=tune,
            chains=2,
            cores=1,
            step=GibbsStep(model.value_vars, kernel),
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )


def test_pymc_stores_what_the_kernel_draws(problem):
    model, kernel = problem
    drawn = []

    def recording(values, rng):
        new = kernel(values, rng)
        drawn.append(new)
        return new

    trace = sample(model, recording, seed=2)
    assert len(drawn) == 2 * 8
    for name in model.named_vars:
        if name in drawn[0]:
            expected = np.stack([new[name][0] for new in drawn]).reshape(
                2, 8, *drawn[0][name].shape[1:]
            )
            np.testing.assert_array_equal(trace["posterior"][name], expected[:, 2:])
    Q, W = trace["posterior"]["projection"].values, trace["posterior"]["weights"].values
    coef = Q @ (W - W.mean(axis=-1, keepdims=True))
    np.testing.assert_allclose(trace["posterior"]["coef"], coef)
    assert np.all(trace["posterior"]["scores"].values.argmax(axis=-1) == np.arange(8) % 3)


def test_seed_decides_and_chains_differ(problem):
    model, kernel = problem
    first, second = (sample(model, kernel, seed=3)["posterior"]["weights"].values for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.all(first[0] != first[1])


def test_step_survives_the_way_to_another_process(problem):
    model, kernel = problem
    step = cloudpickle.loads(cloudpickle.dumps(GibbsStep(model.value_vars, kernel, model=model)))
    point, stats = step.step(model.initial_point())
    assert set(point) == {variable.name for variable in model.value_vars}
    assert stats == [{"tune": True}]


def test_transformed_variables_are_refused():
    with pm.Model() as model:
        pm.Gamma("tau", 1.0, 1.0)
        with pytest.raises(ValueError, match="transform: tau"):
            GibbsStep(model.value_vars, lambda values, rng: values)
