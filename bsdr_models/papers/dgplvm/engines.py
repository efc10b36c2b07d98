"""Engine of the paper's model: a local minimum of its objective, and a classifier."""

from typing import Literal

import numpy as np

from bsdr_models.dgplvm.back_constraint import Embedder
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.engines import FitResult, calibrate, disagreement, make_result
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.posterior import Draw
from bsdr_models.dgplvm.probit import EP, LAPLACE
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers.dgplvm.likelihood_embedder import LikelihoodEmbedder
from bsdr_models.papers.dgplvm.map import KernelMapping, certain, collapse, fit_paper

# Posteriors of the Gaussian process classifier.
APPROXIMATIONS = {"ep": EP, "laplace": LAPLACE}

Placement = Literal["map", "likelihood"]
Approximation = Literal["ep", "laplace"]


def fit_problem(
    problem: Problem,
    mapping: KernelMapping,
    *,
    placement: Placement,
    approximation: Approximation,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> FitResult:
    """Fit latent coordinates and a classifier of them; samples are placed as Eq. (14) or (17)."""
    fit = fit_paper(problem, mapping, rng, progressbar=progressbar)
    gram = fit.objective.gram
    theta = np.exp(fit.log_parameters)
    raw, _ = fit.objective.unpack(fit.search.x)
    signal, inverse_width, bias, inverse_noise = theta.tolist()
    lengthscale = inverse_width**-0.5
    noise = 1.0 / inverse_noise
    decoder = Decoder.of(
        fit.latent,
        problem.X,
        signal_variance=signal,
        lengthscale=lengthscale,
        noise_variance=noise,
        bias=bias,
        integrate_mean=False,
    )
    functions, log_odds = fit_gp_classifier(
        fit.latent,
        problem.y_index,
        approximation=APPROXIMATIONS[approximation],
    )
    if placement == "map":
        embedder: Embedder = mapping.embedder(raw)
    else:
        embedder = LikelihoodEmbedder.of(fit.latent, problem.X, theta)
    variables: dict[str, float | FloatArray] = {
        "signal_variance": signal / gram.variance,
        "lengthscale": lengthscale,
        "noise_variance": noise / gram.variance,
        "criterion": fit.terms.criterion,
        "theta": theta,
        "latent_raw": raw,
    }
    assert problem.training is not None
    draw = Draw(embedder=embedder, functions=functions)
    # The temperature is that of each sample left out of the classifier, but not of the embedding.
    posterior, _ = calibrate([draw], [log_odds], problem.training.divisions[:1], problem)
    return make_result(
        fit,
        posterior,
        problem,
        latent=fit.latent,
        left_out=certain(fit.latent),
        variables=variables,
        decoder=decoder,
        messages=(collapse(fit, problem), disagreement(fit.search)),
    )
