"""Fit of the whole model: latent coordinates, an embedder of new samples and a classifier."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm import settings
from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.dgplvm.gp_classifier.fit import GPClassifier, fit_gp_classifier
from bsdr_models.dgplvm.latent_inference import infer_latent, infer_latent_left_out
from bsdr_models.dgplvm.leave_one_out import (
    LeaveOneOutFit,
    enforce_centroid_order,
    leave_one_out,
    mapping_scale,
    minimum_slope,
)
from bsdr_models.dgplvm.map_search import MapFit, Task, evenly_spaced, fit_map
from bsdr_models.dgplvm.predict import (
    Draw,
    LatentCoordinates,
    LikelihoodEmbedder,
    MappingEmbedder,
    Posterior,
    mixture,
)
from bsdr_models.inference.optimise import MapResult
from bsdr_models.inference.sampling import Sampled
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal

# Maximum number of training samples in a decoder, whose cost is cubic in their number.
DECODER_SAMPLES = 400
# Predictions average over as many posterior draws, evenly spaced, as bring the largest standard
# error of a leave-one-out probability below this, counted after every so many draws,
DRAWS_ERROR, DRAWS_STEP = 0.01, 50
# unless their classifiers would take more memory, in bytes.
DRAWS_MEMORY = 2**28
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit by any engine.

    The posterior embeds and classifies new samples; ``left_out`` are the leave-one-out latent
    coordinates, which plots show. ``variables`` are at the mode, or means over draws; ``trace`` and
    ``restarts`` are the log density after each iteration of the best run, and at the end of every
    run. ``settings`` are width and noise of the mapping, ``held_out`` is NaN if there are no
    leave-one-out predictions, and ``messages`` are warnings.
    """

    posterior: Posterior
    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, float]
    decoder: Decoder
    weight: float
    criterion: str
    terms: Mapping[str, float]
    trace: FloatArray
    restarts: tuple[float, ...]
    settings: dict[str, float]
    converged: bool
    interrupted: bool
    held_out: HeldOutScore = HeldOutScore()  # noqa: RUF009
    messages: tuple[str, ...] = ()
    sampled: Sampled | None = None


def learn_mode(
    task: Task,
    mapping: settings.Mapping,
    optimization: settings.Optimization,
    *,
    rng: np.random.Generator,
    progressbar: bool = False,
    n_jobs: int | None = 1,
) -> FitResult:
    """Fit the posterior mode."""
    fit = fit_map(task, mapping, optimization, rng=rng, progressbar=progressbar, n_jobs=n_jobs)
    signal, lengthscale, noise = np.exp(fit.log_kernel)
    decoder = make_decoder(fit.latent, task.X, fit.log_kernel, fit.gram.variance)
    if fit.mapping_prior is not None and mapping.embedding == "map":
        draw, left_out, messages = posterior_by_mapping(
            fit.mapping_prior, fit.latent, fit.tuples, task
        )
    else:
        draw, left_out = posterior_by_likelihood(decoder, fit, task)
        messages = []
    posterior = Posterior(draws=(draw,))
    held_out = score_left_out(posterior, task.y_index)
    if (reason := lack_of_signal(held_out.named())) is not None:
        messages = [no_signal(reason)]
    # Classes of a single sample have no scatter, whatever the weight.
    several_samples = len(task.known) > task.n_labels
    if fit.collapse is not None and np.isfinite(task.weight) and several_samples:
        messages.append(fit.collapse)
    if (message := disagreement(fit.search)) is not None:
        messages.append(message)
    return FitResult(
        posterior=posterior,
        latent=fit.latent,
        left_out=left_out,
        variables={
            "signal_variance": float(signal),
            "lengthscale": float(lengthscale),
            "noise_variance": float(noise),
            "criterion": fit.criterion,
        },
        decoder=decoder,
        converged=fit.search.converged,
        interrupted=fit.search.interrupted,
        held_out=held_out,
        messages=tuple(messages),
        **search_fields(task, fit),
    )


def search_fields(task: Task, fit: MapFit) -> dict[str, Any]:
    """Fields of a :class:`FitResult` that are those of the search of the mode for any engine."""
    return {
        "weight": task.weight,
        "criterion": task.criterion,
        "terms": fit.terms,
        "trace": -fit.search.trace,
        "restarts": tuple(-value for value in fit.search.values),
        "settings": {"map_width": fit.settings.width, "map_noise": fit.settings.noise},
    }


def posterior_by_mapping(
    prior: MappingPrior,
    latent: FloatArray,
    tuples: IntArray,
    task: Task,
    *,
    kernel_parameters: FloatArray | None = None,
) -> tuple[Draw, LatentCoordinates, list[str]]:
    """Embedder by the mapping, and a classifier fitted to leave-one-out latent coordinates."""
    found = leave_one_out(prior, latent, task.y_index, tuples)
    scale = mapping_scale(found, latent, task.y_index)
    conservative = None
    if not found.predictive:
        least = minimum_slope(len(task.known))
        conservative = enforce_centroid_order(found, latent, task.y_index, least)
    classifier = fit_gp_classifier(
        enforce_centroid_order(found, latent, task.y_index),
        task.y_index,
        task.n_labels,
        priors=task.priors,
        kernel_parameters=kernel_parameters,
        relative_variance=found.relative_variance,
        conservative_latent=conservative,
    )
    embedder = MappingEmbedder.of(prior, latent, scale, found.typical_variance)
    return (
        Draw(embedder=embedder, classifier=without_shift(classifier, found)),
        LatentCoordinates(
            mean=found.latent,
            cov=scale * found.variance[:, None, None] * np.eye(found.latent.shape[1]),
        ),
        [] if found.predictive else [_not_predictive(found)],
    )


def posterior_by_likelihood(
    decoder: Decoder, fit: MapFit, task: Task
) -> tuple[Draw, LatentCoordinates]:
    """Embedder by likelihood, and a classifier fitted to leave-one-out latent coordinates.

    Samples that are not in the decoder are embedded as new samples.
    """
    temper = fit.gram.n_effective / fit.gram.n_features if task.tempered else 1.0
    n, r = fit.latent.shape
    inside = evenly_spaced(n, DECODER_SAMPLES)
    outside = np.setdiff1d(np.arange(n), inside)
    mean, cov = np.empty((n, r)), np.empty((n, r, r))
    left_out = infer_latent_left_out(decoder, task.X[inside], temper=temper)
    mean[inside], cov[inside] = left_out.latent, left_out.cov
    if len(outside):
        others = infer_latent(decoder, task.X[outside], temper=temper)
        mean[outside], cov[outside] = others.latent, others.cov
    classifier = fit_gp_classifier(mean, task.y_index, task.n_labels, priors=task.priors)
    dynamics: Predictor | None = None
    if task.dynamics is not None:
        dynamics = task.dynamics.predictor(fit.latent, fit.log_dynamics)
    embedder = LikelihoodEmbedder(decoder=decoder, temper=temper, dynamics=dynamics)
    return (
        Draw(embedder=embedder, classifier=classifier),
        LatentCoordinates(mean=mean, cov=cov),
    )


def draws_posterior(
    prior: MappingPrior, latents: FloatArray, mode: FloatArray, tuples: IntArray, task: Task
) -> tuple[Posterior, LatentCoordinates]:
    """Embedder and classifier for each of some draws of the latent coordinates, (S, N, R).

    The kernel parameters of these classifiers are those at the mode, (N, R): optimising them for
    each draw is expensive, and changes the average by less than 0.01.
    """
    known, n = task.known, len(latents)
    fit = partial(posterior_by_mapping, prior, tuples=tuples, task=task)
    parameters = fit(mode)[0].classifier.kernel_parameters
    draws, left_out, probabilities = [], [], []
    # The first draws of this order are evenly spaced, however many there are.
    for i in np.argsort(np.arange(n) * _GOLDEN % 1.0):
        draw, coordinates, _ = fit(latents[i], kernel_parameters=parameters)
        draws.append(draw)
        left_out.append(coordinates)
        probabilities.append(np.exp(draw.classifier.left_out[known]))
        size = len(draws)
        if size % DRAWS_STEP == 0:
            error = float(np.std(probabilities, axis=0).max()) / math.sqrt(size)
            if error < DRAWS_ERROR:
                break
        if (size + 1) * draw.classifier.nbytes > DRAWS_MEMORY:
            break
    return Posterior(draws=tuple(draws)), mixture(left_out)


def without_shift(classifier: GPClassifier, found: LeaveOneOutFit) -> GPClassifier:
    """Classifier whose leave-one-out predictions are free of :func:`enforce_centroid_order`.

    The shift moves samples towards their own classes, as if they could be predicted.
    """
    if found.predictive:
        return classifier
    log_p = classifier.log_probabilities(found.latent, found.relative_variance)
    return replace(classifier, left_out=log_p)


def score_left_out(posterior: Posterior, y_index: IntArray) -> HeldOutScore:
    """Log score of leave-one-out predictions, which the only sample of a class does not have."""
    log_p = posterior.left_out()
    known = np.flatnonzero(y_index >= 0)
    known = known[np.bincount(y_index[known])[y_index[known]] > 1]
    return HeldOutScore.of(log_p[known, y_index[known]], y_index[known])


def make_decoder(
    latent: FloatArray, X: FloatArray, log_kernel: FloatArray, variance: float
) -> Decoder:
    """The generative part of a fit, on at most ``DECODER_SAMPLES`` samples."""
    kept = evenly_spaced(len(X), DECODER_SAMPLES)
    signal, lengthscale, noise = np.exp(log_kernel)
    return Decoder.of(
        latent[kept],
        X[kept],
        signal_variance=signal * variance,
        lengthscale=lengthscale,
        noise_variance=noise * variance,
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


def _not_predictive(found: LeaveOneOutFit) -> str:
    return (
        "the mapping does not predict the classes: leave-one-out latent coordinates keep "
        f"{found.slope:.2f} of the distance between class centroids"
    )
