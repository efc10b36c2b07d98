"""Engines of the recommended model: its mode, and draws by NUTS and ADVI through PyMC."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bsdr_models.dgplvm.back_constraint import MappingEmbedder, MappingPrior, make_mapping
from bsdr_models.dgplvm.gp_classifier import Covariance, fit_gp_classifier, link
from bsdr_models.dgplvm.left_out import LeftOut
from bsdr_models.dgplvm.map_search import Mode, collapse, fit_map
from bsdr_models.dgplvm.posterior import DGPLVMPosterior, Draw, FitResult, mixture, moderate
from bsdr_models.dgplvm.priors import KERNEL, Inference
from bsdr_models.dgplvm.problem import DGPLVMProblem, WellPosedObjective
from bsdr_models.dgplvm.sampling import sample, stack_chains
from bsdr_models.estimators.calibration import HeldOutScore, TemperaturePrior, judge
from bsdr_models.inference.optimise import MapResult, advise
from bsdr_models.inference.result import Schedule
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.latent import LatentCoordinates

# Prior of log T, from the best temperatures of new samples.
LOG_T = TemperaturePrior(mean=0.5, sd=0.5)
# Warning of a classifier whose expectation propagation oscillates.
NOT_CLASSIFIED = (
    "the Gaussian process classifier has not converged, and class probabilities may be wrong: "
    "judge them by held-out samples, and look for wrong labels"
)


def make_result(
    mode: Mode[Any],
    posterior: DGPLVMPosterior,
    problem: DGPLVMProblem,
    *,
    messages: Sequence[str | None] = (),
    **fields: Any,
) -> FitResult:
    """Result with the trace, terms, warnings and convergence of the search of the mode."""
    search = mode.search
    advice = ""
    if not posterior.classified:
        advice = NOT_CLASSIFIED
    elif not (search.converged or search.interrupted):
        advice = advise(search.n_iter, int(problem.optimization.max_iter))
    of_search: dict[str, Any] = {
        "trace": -search.trace[min(search.n_iter, 1) :],
        "terms": mode.terms.values,
        "restarts": tuple(-value for value in search.values),
        "settings": mode.settings,
        "converged": search.converged and posterior.classified,
        "interrupted": search.interrupted,
        "messages": tuple(each for each in (*messages, disagreement(search)) if each is not None),
        "advice": advice,
    }
    return FitResult(posterior=posterior, **of_search | fields)


def fit_problem(
    problem: DGPLVMProblem, engine: Inference, schedule: Schedule, *, rng: np.random.Generator
) -> FitResult:
    """Fit by "map", or by "nuts" or "advi" with draws of the length of a schedule."""
    if engine == "map":
        return fit_mode(problem, rng, progressbar=schedule.progressbar)
    return fit_draws(engine, problem, schedule, rng)


def fit_mode(
    problem: DGPLVMProblem, rng: np.random.Generator, *, progressbar: bool = False
) -> FitResult:
    """Fit the posterior mode."""
    mode = fit_map(problem, rng, progressbar=progressbar)
    found = fit_classifiers(mode, mode.latent, problem)
    posterior, held_out = calibrate([found.draw], found.log_odds, problem)
    # Classes of a single sample have no scatter, whatever the weight.
    may_collapse = np.isfinite(problem.priors.weight) and len(problem.known) > problem.n_labels
    return make_result(
        mode,
        posterior,
        problem,
        latent=mode.latent,
        left_out=found.coordinates,
        variables={
            **dict(zip(KERNEL, np.exp(mode.log_parameters).tolist(), strict=True)),
            "latent_raw": mode.objective.mapping.raw(mode.latent),
            "criterion": mode.terms.criterion,
        },
        messages=[collapse(mode)] if may_collapse else [],
        **held_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """Classifiers of latent coordinates, and what those of each division say of left-out ones.

    ``log_odds`` (N, 1, P) are those of each division; ``coordinates`` are means over the divisions.
    """

    draw: Draw
    log_odds: list[FloatArray]
    coordinates: LatentCoordinates


def fit_classifiers(
    mode: Mode[WellPosedObjective],
    latent: FloatArray,
    problem: DGPLVMProblem,
    *,
    kernel: Covariance | None = None,
    n_divisions: int | None = None,
) -> Classified:
    """Embedder and classifiers of latent coordinates (N, R), of all divisions or the first ones."""
    training = problem.training
    assert training is not None
    y_index = problem.y_index
    prior = mode.objective.mapping
    make = partial(
        make_mapping,
        width=mode.settings["map_width"],
        noise=mode.settings["map_noise"],
    )
    of_parts = partial(LeftOut.of, prior, latent, y_index, make=make)
    judged = [of_parts(parts) for parts in mode.parts[:n_divisions]]
    singly = None if training.singly is None else of_parts(mode.single_parts)
    embedder = make_embedder(prior, latent, y_index, judged)
    classifiers = []
    log_odds = []
    for fold, left_out in zip(training.divisions, judged, strict=False):
        fitted = left_out if singly is None else singly
        functions, odds = fit_gp_classifier(
            fitted.latent,
            y_index,
            kernel=kernel,
            # Copies, and samples of a group, would tell the class of a left-out sample.
            fold=None if training.groups is None else fold,
            held_out=left_out.latent,
        )
        kernel = functions.kernel
        classifiers.append(functions)
        log_odds.append(moderate(odds, left_out.relative_variance)[:, None])  # as of new samples
    mean = np.mean([own.latent for own in judged], axis=0)
    variance = np.mean([own.variance for own in judged], axis=0)
    cov = embedder.scale * variance[:, None, None] * np.eye(latent.shape[1])
    coordinates = LatentCoordinates(mean=mean, cov=cov)
    draw = Draw(embedder=embedder, functions=tuple(classifiers))
    return Classified(draw=draw, log_odds=log_odds, coordinates=coordinates)


def make_embedder(
    prior: MappingPrior, latent: FloatArray, y_index: IntArray, judged: Sequence[LeftOut]
) -> MappingEmbedder:
    """Embedder given latent coordinates (N, R), its scale by those left out in each division."""
    variance = np.mean([own.variance for own in judged], axis=0)
    return MappingEmbedder(
        prior=prior,
        mean=prior.mean_weights @ latent,
        weights=prior.weights(latent),
        scale=float(np.mean([own.scale(latent, y_index) for own in judged])),
        typical_variance=float(np.mean([own.typical_variance for own in judged])),
        left_out_variance=np.where(variance > 0.0, variance, prior.left_out_variance()),
    )


def calibrate(
    draws: Sequence[Draw], log_odds: Sequence[FloatArray], problem: DGPLVMProblem
) -> tuple[DGPLVMPosterior, dict[str, Any]]:
    """Posterior of draws, and fields of a result, by left-out log odds (N, S, P) of divisions."""
    training = problem.training
    assert training is not None
    folds = training.divisions[: len(log_odds)]
    if not any((fold >= 0).any() for fold in folds):  # every class has one sample only
        return DGPLVMPosterior(draws=tuple(draws)), {"held_out": HeldOutScore()}
    judged = judge(
        log_odds, problem.y_index, folds, link, LOG_T, groups=training.groups, share=training.share
    )
    posterior = DGPLVMPosterior(draws=tuple(draws), calibration=judged.calibration)
    return posterior, judged.of_result(slice(None), len(problem.X))


def disagreement(search: MapResult) -> str | None:
    """A warning if several initialisations end at different optima, or None."""
    if search.share_agreeing == 1.0 or search.interrupted:
        return None
    n_runs = len(search.values)
    return (
        f"{round(search.share_agreeing * n_runs)} of {n_runs} initialisations ended at the best "
        f"optimum, the others up to {max(search.values) - search.value:.3g} nats above it: the "
        "mode is not unique"
    )


# Predictions average over as many evenly spaced draws: standard errors are 7 % of the standard
# deviation of a probability between draws.
N_DRAWS = 200


def fit_draws(
    engine: str, problem: DGPLVMProblem, schedule: Schedule, rng: np.random.Generator
) -> FitResult:
    """Posterior draws of the whole model by "nuts" or "advi"; the density must be proper."""
    if not np.isfinite(problem.priors.weight):
        raise ValueError("the PyMC model needs a finite weight, got infinity")
    mode = fit_map(replace(problem, optimization=replace(problem.optimization, n_restarts=1)), rng)
    if mode.search.interrupted:
        raise KeyboardInterrupt
    sampled = sample(engine, problem, mode, schedule, rng)
    latents = stack_chains(sampled.draws["latent"])
    posterior, left_out, held_out = draws_posterior(latents, mode, problem)
    return make_result(
        mode,
        posterior,
        problem,
        latent=latents.mean(axis=0),
        left_out=left_out,
        variables={name: float(sampled.draws[name].mean()) for name in (*KERNEL, "criterion")},
        advice="" if posterior.classified else NOT_CLASSIFIED,
        sampled=sampled,
        converged=False,
        interrupted=sampled.interrupted,
        **held_out,
    )


def draws_posterior(
    latents: FloatArray, mode: Mode[WellPosedObjective], problem: DGPLVMProblem
) -> tuple[DGPLVMPosterior, LatentCoordinates, dict[str, Any]]:
    """Embedder and classifier for each of some draws of the latent coordinates, (S, N, R)."""
    # Optimising the kernel parameters for each draw changes the average by less than 0.01.
    at_mode = fit_classifiers(mode, mode.latent, problem, n_divisions=1)
    kernel = at_mode.draw.functions[0].kernel
    found = [
        fit_classifiers(mode, latents[i], problem, kernel=kernel, n_divisions=1)
        for i in evenly_spaced(len(latents), N_DRAWS)
    ]
    log_odds = np.concatenate([own.log_odds[0] for own in found], axis=1)
    posterior, held_out = calibrate([own.draw for own in found], [log_odds], problem)
    return posterior, mixture([own.coordinates for own in found]), held_out
