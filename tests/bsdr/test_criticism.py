"""Log likelihood of draws against PyMC; predictive checks."""

import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr import build_paper_model
from bsdr_models.bsdr.paper.predict import DrawPosterior
from bsdr_models.bsdr.priors import Priors
from bsdr_models.papers import PaperBSDRClassifier

N, D, R, K, S = 12, 2, 2, 3, 2
PRIORS = Priors(
    projection_shape=1.5,
    projection_rate=0.7,
    weight_shape=2.0,
    weight_rate=3.0,
    bias_shape=0.8,
    bias_rate=1.3,
    noise_shape=2.5,
    noise_rate=0.6,
    latent_scale=0.6,
)
TARGETS = ("multiclass", "multilabel", "regression")


def toy(target):
    rng = np.random.default_rng(7)
    X, utilities = rng.standard_normal((N, D)), rng.standard_normal((N, K))
    y = {"multiclass": np.arange(N) % K, "multilabel": utilities > 0.0, "regression": utilities}[
        target
    ]
    return X, y


def some_draws(target):
    rng = np.random.default_rng(8)
    return DrawPosterior(
        projection=rng.standard_normal((S, D, R)),
        weights=rng.standard_normal((S, R, K)),
        bias=rng.standard_normal((S, K)),
        noise_precision=rng.gamma(2.0, size=(S, K)) if target == "regression" else None,
        latent_scale=PRIORS.latent_scale,
        target=target,
    )


def compiled(model, names, **options):
    variables = [model[name] for name in names]
    return model.compile_logp(vars=variables, jacobian=False, mode="FAST_COMPILE", **options)


def points(draws):
    """Values of the model's free variables at each draw, without latent offsets and precisions."""
    for s in range(S):
        point = {
            "projection": draws.projection[s],
            "weights": draws.weights[s],
            "bias": draws.bias[s],
            "latent_offset": np.zeros((N, R)),
        }
        if draws.noise_precision is not None:
            point["noise_precision_log__"] = np.log(draws.noise_precision[s])
        yield point


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_log_likelihood_is_that_of_the_model(target):
    """Latent offsets by a product Gauss-Hermite rule of 24 x 24 nodes, all samples at once.

    The package's own rule has a root mean square error of 0.02 by row, as it says.
    """
    X, y = toy(target)
    model = build_paper_model(X, y, n_components=R, priors=PRIORS, target=target)
    logp = compiled(model, ["y"], sum=False)
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    log_weights = np.log(weights) - 0.5 * np.log(2.0 * np.pi)
    draws = some_draws(target)
    expected = np.empty((S, N))
    for s, point in enumerate(points(draws)):
        parts = [
            np.reshape(logp(point | {"latent_offset": np.tile([u, v], (N, 1))})[0], (N, -1)).sum(1)
            + log_weights[i]
            + log_weights[j]
            for i, u in enumerate(nodes)
            for j, v in enumerate(nodes)
        ]
        expected[s] = logsumexp(parts, axis=0)
    error = draws.log_likelihood(X, y) - expected
    limit = 1e-8 if target == "regression" else 0.02
    assert np.sqrt(np.mean(error**2)) < limit


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no evidence that the targets depend on X")
@pytest.mark.parametrize("kind", [BSDRClassifier, PaperBSDRClassifier])
def test_arviz_shows_a_posterior_predictive_check_by_pymc(kind):
    """Frequencies of classes are those of the samples, which the biases fit."""
    X, y = toy("multiclass")
    model = kind(random_state=0).fit(X, np.array(list("xyz"))[y])
    check = pm.sample_posterior_predictive(
        model.idata_,
        model=model.model_,
        random_seed=0,
        progressbar=False,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    drawn = check["posterior_predictive/y"]
    assert drawn.dims == ("chain", "draw", "obs")
    np.testing.assert_array_equal(check["observed_data/y"], y)
    for c in range(K):
        assert float((drawn == c).mean()) == pytest.approx(1.0 / K, abs=0.05)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found chain dimension")
        az.plot_ppc_rootogram(check, backend="none")
        az.plot_ppc_pava(check, data_type="categorical", backend="none")
