"""Priors that are given by name take the place of a model's own."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from bsdr_models import BM2PCAPriors, bm2pca, bsdr, dgplvm, papers
from tests.toys import FAST, scaled_iris

X, Y = scaled_iris()
LAPLACE = partial(pm.Laplace, mu=0.3, b=0.7)
GAMMA = partial(pm.Gamma, alpha=np.float64(2.0), beta=np.float64(3.0))
CASES = [
    (bsdr.build_model, {}, "projection_offset", LAPLACE),
    (bsdr.build_model, {"kernel": "rbf"}, "basis_offset", LAPLACE),
    (bsdr.build_model, {"target": "regression"}, "noise_scale", GAMMA),
    (papers.bsdr.build_model, {"n_components": 1}, "weights", LAPLACE),
    (papers.bsdr.build_model, {"n_components": 1, "augmented": True}, "projection", LAPLACE),
    (bm2pca.build_model, {}, "weights", LAPLACE),
    (papers.bm2pca.build_model, {"n_components": 1}, "loadings", LAPLACE),
    (papers.bm2pca.build_model, {"n_components": 1, "augmented": True}, "latent", LAPLACE),
    (dgplvm.build_model, {"n_components": 1}, "lengthscale", GAMMA),
    (papers.dgplvm.build_model, {"n_components": 1, "weight": 10.0}, "theta", GAMMA),
]


def named(case):
    return f"{case[0].__module__.split('.')[1]} {case[2]}"


@pytest.mark.parametrize(("build", "options", "name", "prior"), CASES, ids=map(named, CASES))
def test_a_given_prior_is_that_of_the_variable(build, options, name, prior):
    """The dims are those of the model, and nothing else is changed."""
    given = build(X, Y, priors={name: prior}, **options)
    own = build(X, Y, **options)
    assert given.named_vars_to_dims.get(name) == own.named_vars_to_dims.get(name)
    variable = given[name]
    value = np.random.default_rng(0).uniform(0.4, 1.5, size=variable.shape.eval(**FAST))
    density = given.compile_fn(pm.logp(variable, value).sum(), inputs=[], **FAST)({})
    of_laplace = stats.laplace(0.3, 0.7) if prior is LAPLACE else stats.gamma(2.0, scale=1.0 / 3.0)
    np.testing.assert_allclose(density, of_laplace.logpdf(value).sum(), rtol=1e-9)
    rest = {each.name for each in own.free_RVs} - {each.name for each in given.free_RVs}
    assert rest <= {"projection_precision", "loading_precision"}  # hyper-parameters of the old one


class Prior:
    """What is used of a Prior of pymc-extras."""

    def __init__(self, dims=()):
        self.dims = dims

    def create_variable(self, name):
        return pm.Laplace(name, 0.3, 0.7, dims=self.dims)


def test_a_prior_of_pymc_extras_is_one():
    prior = Prior(("component", "outcome"))
    model = papers.bsdr.build_model(X, Y, n_components=1, priors={"weights": prior})
    assert model.named_vars_to_dims["weights"] == ("component", "outcome")


def test_a_prior_may_have_variables_of_its_own():
    def pooled(name, dims):
        width = pm.HalfNormal("width", 2.0)
        return pm.Normal(name, 0.0, width, dims=dims)

    model = bsdr.build_model(X, Y, priors={"bias_contrasts": pooled}, name="a")
    assert {"a::width", "a::bias_contrasts"} <= {each.name for each in model.free_RVs}


def test_some_numbers_by_name_are_those_of_the_dataclass():
    numbers = papers.bsdr.Priors(weight_rate=0.5, latent_scale=2.0)
    densities = []
    for priors in (numbers, {"weight_rate": 0.5, "latent_scale": 2.0}, None):
        model = papers.bsdr.build_model(X, Y, n_components=1, priors=priors)
        point = {name: value + 0.5 for name, value in model.initial_point().items()}
        densities.append(float(model.compile_logp(**FAST)(point)))
    assert densities[0] == densities[1] != densities[2]


@pytest.mark.parametrize(
    ("build", "priors", "message"),
    [
        (bsdr.build_model, {"noise_scale": GAMMA}, "cannot replace 'noise_scale'.*replaceable are"),
        (bsdr.build_model, {"scale": pm.Flat, "slope": 1.0}, "'slope', which is no number of"),
        (bsdr.build_model, {"bias_contrasts": pm.Normal.dist()}, "a function of name and dims"),
        (bsdr.build_model, {"scale": LAPLACE, "bias_scale": -1.0}, "'bias_scale' parameter"),
        (bsdr.build_model, {"scale": lambda name, dims: 1.0}, "must have the dims"),
        (
            bsdr.build_model,
            {"bias_contrasts": Prior()},
            "must have the dims",
        ),
        (papers.bsdr.build_model, {"weight_precision": GAMMA}, "integrated out"),
        (papers.bsdr.build_model, {"latent": LAPLACE}, "normal given the features"),
        (papers.bm2pca.build_model, {"latent_offset": LAPLACE}, "integrated out"),
        (bm2pca.build_model, {"cost": 3.0}, "no number of"),
        (bm2pca.build_model, BM2PCAPriors(), "must be a dict"),
        (dgplvm.build_model, {"latent_raw": LAPLACE}, "initial value comes from the labels"),
        (
            papers.dgplvm.build_model,
            {"latent_raw": LAPLACE},
            "initial value comes from the labels",
        ),
    ],
)
def test_other_priors_are_refused_by_name(build, priors, message):
    options = {} if build is bsdr.build_model else {"n_components": 1}
    with pytest.raises(ValueError, match=message):
        build(X, Y, priors=priors, **options)


@pytest.mark.parametrize("r", [1, 3])
def test_the_recommended_bsdr_has_full_rank(r):
    assert bsdr.build_model(X, Y, n_components=2).coords["contrast"] == (0, 1)
    with pytest.raises(ValueError, match="must be 2, the rank of the recommended model"):
        bsdr.build_model(X, Y, n_components=r)
