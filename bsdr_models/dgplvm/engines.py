"""Engines of the recommended model: its mode, and draws by NUTS and ADVI through PyMC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import MappingEmbedder
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.leave_one_out import (
    enforce_centroid_order,
    leave_folds_out,
    leave_one_out,
    mapping_scale,
)
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.map_search import Mode, collapse, fit_map
from bsdr_models.dgplvm.objective import WellPosedObjective
from bsdr_models.dgplvm.posterior import Draw, Posterior, log_mean, mixture
from bsdr_models.dgplvm.priors import KERNEL
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.dgplvm.sampling import check_declared, sample, stack_chains
from bsdr_models.dgplvm.settings import Inference
from bsdr_models.inference.optimise import MapResult, advise
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates

# Warning of a classifier whose expectation propagation oscillates.
NOT_CLASSIFIED = (
    "the Gaussian process classifier has not converged, and class probabilities may be wrong: "
    "judge them by held-out samples, and look for wrong labels"
)
# Maximum number of training samples in a decoder, whose cost is cubic in their number.
DECODER_SAMPLES = 400


@dataclass(frozen=True, kw_only=True)
class FitResult(Result[Posterior]):
    """Result of a fit by any engine, with latent coordinates (N, R) of the training samples.

    ``left_out`` are the leave-one-out latent coordinates, which plots show. ``variables`` are at
    the mode, or means over draws; ``terms``, ``trace`` and ``restarts`` are those of the search of
    the mode, and ``settings`` those of the mapping.
    """

    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, float | FloatArray]
    decoder: Decoder
    settings: Mapping[str, float]


def make_result(
    mode: Mode[Any],
    posterior: Posterior,
    problem: Problem,
    *,
    messages: Sequence[str | None] = (),
    **fields: Any,
) -> FitResult:
    """Result with the trace, terms and convergence of the search of the mode, and other fields."""
    search = mode.search
    advice = ""
    if not posterior.classified:
        advice = NOT_CLASSIFIED
    elif not (search.converged or search.interrupted):
        advice = advise(len(search.trace), int(problem.optimization.max_iter))
    of_search: dict[str, Any] = {
        "trace": -search.trace,
        "terms": mode.terms.values,
        "restarts": tuple(-value for value in search.values),
        "settings": mode.settings,
        "converged": search.converged and posterior.classified,
        "interrupted": search.interrupted,
        "messages": tuple(message for message in messages if message is not None),
        "advice": advice,
    }
    return FitResult(posterior=posterior, **of_search | fields)


def fit_problem(
    problem: Problem, engine: Inference, schedule: Schedule, *, rng: np.random.Generator
) -> FitResult:
    """Fit by "map", or by "nuts" or "advi" with draws of the length of a schedule."""
    if engine == "map":
        return fit_mode(problem, rng, progressbar=schedule.progressbar)
    return fit_draws(engine, problem, schedule, rng)


def fit_mode(problem: Problem, rng: np.random.Generator, *, progressbar: bool = False) -> FitResult:
    """Fit the posterior mode."""
    mode = fit_map(problem, rng, progressbar=progressbar)
    log_kernel = mode.log_parameters[:3]
    objective = mode.objective
    decoder = make_decoder(mode.latent, problem.features, log_kernel, objective.gram)
    draw, left_out = posterior_by_mapping(mode, mode.latent, problem)
    posterior = Posterior(draws=(draw,))
    messages: list[str | None] = []
    # Classes of a single sample have no scatter, whatever the weight.
    if np.isfinite(problem.priors.weight) and len(problem.known) > problem.n_labels:
        messages.append(collapse(mode))
    messages.append(disagreement(mode.search))
    variables: dict[str, float | FloatArray] = dict(
        zip(KERNEL, np.exp(log_kernel).tolist(), strict=True)
    )
    if problem.dynamics is None:
        variables["latent_raw"] = objective.mapping.raw(mode.latent)
    return make_result(
        mode,
        posterior,
        problem,
        latent=mode.latent,
        left_out=left_out,
        variables=variables | {"criterion": mode.terms.criterion},
        decoder=decoder,
        messages=messages,
        **predict_left_out(posterior, problem),
    )


def posterior_by_mapping(
    mode: Mode[WellPosedObjective],
    latent: FloatArray,
    problem: Problem,
    *,
    kernel_parameters: FloatArray | None = None,
) -> tuple[Draw, LatentCoordinates]:
    """Embedder and classifier of latent coordinates (N, R), and these coordinates left out."""
    prior = mode.objective.mapping
    y_index = problem.y_index
    single = leave_one_out(prior, latent, y_index, mode.tuples, mode.folds)
    left_out = single
    if problem.groups is not None:
        folds = mode.group_folds
        left_out = leave_folds_out(
            single.latent, single.variance, latent, y_index, folds, problem.groups
        )
    scale = mapping_scale(left_out, latent, y_index)
    ordered = enforce_centroid_order(single, latent, y_index)
    classifier = fit_gp_classifier(
        ordered,
        y_index,
        kernel_parameters=kernel_parameters,
        relative_variance=left_out.relative_variance,
        fold=problem.group_fold,
        held_out=left_out.latent,
        share=problem.share,
        predictive=left_out.predictive,
    )
    if ordered is not single.latent:
        # The shift of `enforce_centroid_order` moves samples towards their own classes, as if they
        # could be predicted: leave-one-out predictions are without it.
        log_p = classifier.log_probabilities(left_out.latent, left_out.relative_variance)
        classifier = replace(classifier, left_out=log_p)
    in_fold = problem.in_fold
    if problem.group_fold is not None:
        in_fold |= problem.group_fold >= 0
    variance = prior.left_out_variance()
    variance[in_fold] = left_out.variance[in_fold]
    embedder = MappingEmbedder(
        prior=prior,
        mean=prior.mean_weights @ latent,
        weights=prior.weights(latent),
        scale=scale,
        typical_variance=left_out.typical_variance,
        left_out_variance=variance,
    )
    cov = scale * left_out.variance[:, None, None] * np.eye(latent.shape[1])
    coordinates = LatentCoordinates(mean=left_out.latent, cov=cov)
    return Draw(embedder=embedder, classifier=classifier), coordinates


def predict_left_out(posterior: Posterior, problem: Problem) -> dict[str, Any]:
    """Left-out log probabilities (N, K) and their score, as fields of a result.

    NaN are samples that are never left out: the only ones, or whole groups, of a class.
    """
    draws = posterior.draws
    y_index = problem.y_index
    groups = problem.groups
    group_fold = problem.group_fold
    log_p = log_mean((draw.classifier.left_out for draw in draws), len(draws))
    labelled = problem.known
    if group_fold is None:
        never = np.bincount(y_index[labelled])[y_index[labelled]] == 1
    else:
        never = group_fold[labelled] < 0
    log_p[labelled[never]] = np.nan
    known = labelled[~never]
    of_samples = None if groups is None else groups[known]
    truth = y_index[known]
    score = HeldOutScore.of(log_p[known, truth], truth, groups=of_samples)
    return {"held_out": score, "held_out_log_proba": log_p}


def make_decoder(
    latent: FloatArray, X: FloatArray, log_kernel: FloatArray, gram: FeatureGram
) -> Decoder:
    """The generative part of a fit, on at most ``DECODER_SAMPLES`` samples."""
    some = evenly_spaced(len(X), DECODER_SAMPLES)
    signal, lengthscale, noise = np.exp(log_kernel)
    return Decoder.of(
        latent[some],
        X[some],
        signal_variance=signal * gram.variance,
        lengthscale=lengthscale,
        noise_variance=noise * gram.variance,
    )


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
    engine: str, problem: Problem, schedule: Schedule, rng: np.random.Generator
) -> FitResult:
    """Posterior draws of the whole model by "nuts" or "advi"; the density must be proper."""
    check_declared(problem)
    mode = fit_map(replace(problem, optimization=replace(problem.optimization, n_restarts=1)), rng)
    if mode.search.interrupted:
        raise KeyboardInterrupt
    sampled = sample(engine, problem, mode, schedule, rng)
    latents = stack_chains(sampled.draws["latent"])
    posterior, left_out = draws_posterior(latents, mode, problem)
    mean = latents.mean(axis=0)
    typical = int(((latents - mean) ** 2).sum(axis=(1, 2)).argmin())
    log_kernel = np.log([stack_chains(sampled.draws[name])[typical] for name in KERNEL])
    return make_result(
        mode,
        posterior,
        problem,
        latent=mean,
        left_out=left_out,
        variables={name: float(sampled.draws[name].mean()) for name in (*KERNEL, "criterion")},
        decoder=make_decoder(latents[typical], problem.features, log_kernel, mode.objective.gram),
        advice="" if posterior.classified else NOT_CLASSIFIED,
        sampled=sampled,
        converged=False,
        interrupted=sampled.interrupted,
        **predict_left_out(posterior, problem),
    )


def draws_posterior(
    latents: FloatArray, mode: Mode[WellPosedObjective], problem: Problem
) -> tuple[Posterior, LatentCoordinates]:
    """Embedder and classifier for each of some draws of the latent coordinates, (S, N, R)."""
    # Optimising the kernel parameters for each draw changes the average by less than 0.01.
    at_mode, _ = posterior_by_mapping(mode, mode.latent, problem)
    parameters = at_mode.classifier.functions.kernel.log_values
    parts = [
        posterior_by_mapping(mode, latents[i], problem, kernel_parameters=parameters)
        for i in evenly_spaced(len(latents), N_DRAWS)
    ]
    posterior = Posterior(draws=tuple(draw for draw, _ in parts))
    return posterior, mixture([coordinates for _, coordinates in parts])
