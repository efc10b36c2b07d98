"""Engine of the paper's model: a local minimum of its objective, and a classifier."""

from typing import Literal

import numpy as np

from bsdr_models.dgplvm.back_constraint import MappingPrior, certain
from bsdr_models.dgplvm.engines import FitResult, calibrate, disagreement, make_result
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.posterior import Draw
from bsdr_models.dgplvm.probit import EP
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers.dgplvm.laplace import LAPLACE
from bsdr_models.papers.dgplvm.map import PaperEmbedder, collapse, fit_paper

# Posteriors of the Gaussian process classifier.
APPROXIMATIONS = {"ep": EP, "laplace": LAPLACE}

Approximation = Literal["ep", "laplace"]


def fit_problem(
    problem: Problem,
    mapping: MappingPrior,
    *,
    approximation: Approximation,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> FitResult:
    """Fit latent coordinates and a classifier of them; new samples are embedded by Eq. (17)."""
    fit = fit_paper(problem, mapping, rng, progressbar=progressbar)
    gram = fit.objective.gram
    theta = np.exp(fit.log_parameters)
    raw, _ = fit.objective.unpack(fit.search.x)
    signal, inverse_width, _, inverse_noise = theta.tolist()
    functions, log_odds = fit_gp_classifier(
        fit.latent,
        problem.y_index,
        approximation=APPROXIMATIONS[approximation],
    )
    variables: dict[str, float | FloatArray] = {
        "signal_variance": signal / gram.variance,
        "lengthscale": inverse_width**-0.5,
        "noise_variance": 1.0 / inverse_noise / gram.variance,
        "criterion": fit.terms.criterion,
        "theta": theta,
        "latent_raw": raw,
    }
    assert problem.training is not None
    draw = Draw(embedder=PaperEmbedder.of(mapping, raw), functions=functions)
    # The temperature is that of each sample left out of the classifier, but not of the embedding.
    posterior, _ = calibrate([draw], [log_odds], problem.training.divisions[:1], problem)
    return make_result(
        fit,
        posterior,
        problem,
        latent=fit.latent,
        left_out=certain(fit.latent),
        variables=variables,
        messages=(collapse(fit, problem), disagreement(fit.search)),
    )
