"""The step method on the page for PyMC users draws what the samplers of the papers draw."""

import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

from bsdr_models import papers
from tests.toys import scaled_iris

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "pymc.md"
SIZE = {"n_components": 2, "n_chains": 1}
N_TUNE, N_DRAWS = 3, 8


def of_bsdr(X, y):
    priors = papers.bsdr.Priors()
    data = papers.bsdr.mean_field.make_data(
        X, y, n_labels=3, target="multiclass", projection_prior="entrywise"
    )
    return papers.bsdr.build_model(X, y, n_components=2, augmented=True), {
        "start": lambda rng: papers.bsdr.gibbs.init(data, priors, **SIZE, rng=rng),
        "sweep": lambda state, rng: papers.bsdr.gibbs.step(state, data, priors, rng=rng),
        "values": lambda state: papers.bsdr.gibbs.to_variables(state, priors),
    }


def of_bm2pca(X, y):
    two = y > 0
    return margins(X[two], y[two], np.where(y[two, None] == 2, 1.0, -1.0))


def of_bm2pca_with_three_classes(X, y):
    return margins(X, y, np.where(y[:, None] == np.arange(3), 1.0, -1.0), augmented=True)


def margins(X, y, signs, **options):
    priors = papers.bm2pca.SAMPLING
    data = papers.bm2pca.mean_field.make_data(X, signs, 1.0)
    return papers.bm2pca.build_model(X, y, n_components=2, priors=priors, C=1.0, **options), {
        "start": lambda rng: papers.bm2pca.gibbs.init(data, priors, **SIZE, rng=rng),
        "sweep": lambda state, rng: papers.bm2pca.gibbs.step(state, data, priors, rng=rng),
        "values": papers.bm2pca.gibbs.to_variables,
    }


@pytest.mark.filterwarnings("ignore")  # of short chains
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(of_bsdr, marks=pytest.mark.slow),
        pytest.param(of_bm2pca_with_three_classes, marks=pytest.mark.slow),
        of_bm2pca,
    ],
)
def test_draws_are_those_of_the_sampler_itself(case, uncompiled):
    [code] = re.findall(r"ipython3\n([^`]*class Sweep\(.*?)```", PAGE.read_text(), re.DOTALL)
    page = {}
    exec(code, page)
    model, functions = case(*scaled_iris())
    streams = []

    def start(rng):
        streams.append(deepcopy(rng))
        return functions["start"](rng)

    with model:
        step = page["Sweep"](model.value_vars, **functions | {"start": start})
        options = {"chains": 2, "cores": 1, "random_seed": 0, "progressbar": False}
        trace = pm.sample(N_DRAWS, tune=N_TUNE, step=step, **options)
    assert len(streams) == 2
    for chain, rng in enumerate(streams):
        state = functions["start"](rng)
        for sweep in range(N_TUNE + N_DRAWS):
            state = functions["sweep"](state, rng)
            if sweep < N_TUNE:
                continue
            expected = functions["values"](state)
            for name in (each.name for each in model.free_RVs):
                found = trace["posterior"][name].values[chain, sweep - N_TUNE]
                np.testing.assert_allclose(found, expected[name][0], rtol=1e-9, err_msg=name)
