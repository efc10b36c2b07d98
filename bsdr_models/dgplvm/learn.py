"""Fit of the whole model: latent coordinates, an embedder of new samples and a classifier."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.dgplvm.gp_classifier.fit import GPClassifier, fit_gp_classifier
from bsdr_models.dgplvm.gp_classifier.probit_kernels import Kernel, SmoothBiasKernel
from bsdr_models.dgplvm.latent_inference import infer_latent, infer_latent_left_out
from bsdr_models.dgplvm.leave_one_out import (
    LeaveOneOutFit,
    enforce_centroid_order,
    leave_one_out,
    mapping_scale,
    minimum_slope,
)
from bsdr_models.dgplvm.map_search import Task, fit_map
from bsdr_models.dgplvm.mapping_selection import NOISES, WIDTHS
from bsdr_models.dgplvm.predict import (
    DrawPosterior,
    Embedder,
    LatentCoordinates,
    LikelihoodEmbedder,
    MappingEmbedder,
    Posterior,
    mixture,
)
from bsdr_models.inference.optimise import MapResult
from bsdr_models.inference.sampling import Sampled
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal

type Approximation = Literal["laplace", "ep"]

# Maximum number of training samples in a decoder, whose cost is cubic in their number.
DECODER_SAMPLES = 400
# Predictions average over as many posterior draws, evenly spaced, as bring the largest standard
# error of a leave-one-out probability below this, counted after every so many draws,
DRAWS_ERROR, DRAWS_STEP = 0.01, 50
# unless their classifiers would take more memory, in bytes.
DRAWS_MEMORY = 2**28
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the optimiser, the embedder and the classifier.

    approximation
        Of the classifier.
    placement
        ``"map"`` or ``"likelihood"``: how new samples are embedded.
    reuse_kernel
        Whether the classifier reuses the kernel of the features.
    widths, noises
        Candidates for the settings of the mapping.
    n_starts, max_iter, tol
        Initialisations, iterations and tolerance of the optimiser.
    n_jobs
        Initialisations that run in parallel.
    """

    approximation: Approximation
    placement: str = "map"
    reuse_kernel: bool = False
    widths: Sequence[float] = WIDTHS
    noises: Sequence[float] = NOISES
    n_starts: int = 1
    max_iter: int = 500
    tol: float = 1e-6
    progressbar: bool = False
    n_jobs: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit, the same for all variants and engines.

    posterior
        Embeds and classifies new samples.
    latent
        Latent coordinates of the training samples, (N, R).
    left_out
        Their leave-one-out latent coordinates, which plots show.
    variables
        Other variables of the model at the mode, or their means over draws.
    decoder
        From latent coordinates to features.
    terms
        Terms of the objective, in nats.
    trace, restarts
        Log density after each iteration of the best run, and at the end of every run.
    settings
        Width and noise of the mapping, if any.
    held_out
        Log score of leave-one-out predictions; NaN for the paper's variant, which has none.

    Warnings
    --------
        Messages for the user.
    sampled
        Draws, for a sampler.
    """

    posterior: Posterior | DrawPosterior
    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, float]
    decoder: Decoder
    terms: Mapping[str, float]
    trace: FloatArray
    restarts: tuple[float, ...]
    settings: dict[str, float]
    converged: bool
    interrupted: bool
    held_out: HeldOutScore
    warnings: tuple[str, ...] = ()
    sampled: Sampled | None = None


def learn_mode(task: Task, options: Options, *, rng: np.random.Generator) -> FitResult:
    """Fit the posterior mode of the well-posed model."""
    fit = fit_map(
        task,
        widths=options.widths,
        noises=options.noises,
        n_starts=options.n_starts,
        max_iter=options.max_iter,
        tol=options.tol,
        rng=rng,
        progressbar=options.progressbar,
        n_jobs=options.n_jobs,
    )
    signal, lengthscale, noise = np.exp(fit.log_kernel)
    decoder = make_decoder(fit.latent, task.X, fit.log_kernel, fit.gram.variance)
    reuse = None
    if options.reuse_kernel:
        reuse = SmoothBiasKernel(
            signal_variance=decoder.signal_variance,
            lengthscale=decoder.lengthscale,
            bias_variance=0.0,
            noise_variance=decoder.noise_variance,
        )
    if fit.mapping_prior is not None and options.placement == "map":
        posterior, left_out, warnings = posterior_by_mapping(
            fit.mapping_prior,
            fit.latent,
            fit.tuples,
            task,
            approximation=options.approximation,
            reuse=reuse,
        )
    else:
        temper = fit.gram.n_effective / fit.gram.n_features if task.tempered else 1.0
        posterior, left_out, warnings = posterior_by_likelihood(
            decoder,
            task,
            temper=temper,
            approximation=options.approximation,
            reuse=reuse,
            dynamics=(
                None
                if task.dynamics is None
                else task.dynamics.predictor(fit.latent, fit.log_dynamics)
            ),
        )
    held_out = score_left_out(posterior, task.y_index)
    if (reason := lack_of_signal(held_out.named())) is not None:
        warnings = [no_signal(reason)]
    # Classes of a single sample have no scatter, whatever the weight.
    several_samples = len(task.known) > task.n_labels
    if fit.collapse is not None and np.isfinite(task.weight) and several_samples:
        warnings.append(fit.collapse)
    if (message := disagreement(fit.search)) is not None:
        warnings.append(message)
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
        terms=fit.terms,
        trace=-fit.search.trace,
        restarts=tuple(-value for value in fit.search.values),
        settings={"map_width": fit.settings.width, "map_noise": fit.settings.noise},
        converged=fit.search.converged,
        interrupted=fit.search.interrupted,
        held_out=held_out,
        warnings=tuple(warnings),
    )


def posterior_by_mapping(
    prior: MappingPrior,
    latent: FloatArray,
    tuples: IntArray,
    task: Task,
    *,
    approximation: Approximation,
    reuse: Kernel | None = None,
    kernel_parameters: FloatArray | None = None,
) -> tuple[Posterior, LatentCoordinates, list[str]]:
    """Embedder by the mapping, and a classifier fitted to leave-one-out latent coordinates.

    The parameters of its kernel are optimised unless given.
    """
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
        approximation=approximation,
        priors=task.priors,
        reuse=reuse,
        kernel_parameters=kernel_parameters,
        relative_variance=found.relative_variance,
        conservative_latent=conservative,
    )
    classifier = without_shift(classifier, found)
    embedder = MappingEmbedder.of(prior, latent, scale, found.typical_variance)
    return (
        Posterior(embedder=embedder, classifier=classifier),
        _as_coordinates(found, scale),
        [] if found.predictive else [_not_predictive(found)],
    )


def posterior_by_likelihood(
    decoder: Decoder,
    task: Task,
    *,
    temper: float,
    approximation: Approximation,
    reuse: Kernel | None = None,
    dynamics: Predictor | None = None,
) -> tuple[Posterior, LatentCoordinates, list[str]]:
    """Embedder by likelihood, and a classifier fitted to leave-one-out latent coordinates.

    Samples that are not in the decoder are embedded as new samples.
    """
    inside, n = decoder_samples(len(task.X)), len(task.X)
    outside = np.setdiff1d(np.arange(n), inside)
    own = infer_latent_left_out(decoder, task.X[inside], temper=temper)
    r = task.n_components
    mean, cov = np.empty((n, r)), np.empty((n, r, r))
    mean[inside], cov[inside] = own.latent, own.cov
    if len(outside):
        others = infer_latent(decoder, task.X[outside], temper=temper)
        mean[outside], cov[outside] = others.latent, others.cov
    classifier = fit_gp_classifier(
        mean,
        task.y_index,
        task.n_labels,
        approximation=approximation,
        priors=task.priors,
        reuse=reuse,
    )
    embedder: Embedder = LikelihoodEmbedder(decoder=decoder, temper=temper, dynamics=dynamics)
    return (
        Posterior(embedder=embedder, classifier=classifier),
        LatentCoordinates(mean=mean, cov=cov),
        [],
    )


def draws_posterior(
    prior: MappingPrior,
    latents: FloatArray,
    mode: FloatArray,
    tuples: IntArray,
    task: Task,
    *,
    approximation: Approximation,
) -> tuple[DrawPosterior, LatentCoordinates]:
    """Embedder and classifier for each of some draws of the latent coordinates, (S, N, R).

    The kernel parameters of these classifiers are those at the mode, (N, R): optimising them for
    each draw is expensive, and changes the average by less than 0.01.
    """
    known, n = task.known, len(latents)
    fit = partial(posterior_by_mapping, prior, tuples=tuples, task=task)
    at_mode = fit(mode, approximation=approximation)[0].classifier
    parameters = at_mode.kernel_parameters
    posteriors, left_out, probabilities = [], [], []
    # The first draws of this order are evenly spaced, however many there are.
    for i in np.argsort(np.arange(n) * _GOLDEN % 1.0):
        posterior, coordinates, _ = fit(
            latents[i], approximation=approximation, kernel_parameters=parameters
        )
        posteriors.append(posterior)
        left_out.append(coordinates)
        probabilities.append(np.exp(posterior.classifier.left_out[known]))
        size = len(posteriors)
        if size % DRAWS_STEP == 0:
            error = float(np.std(probabilities, axis=0).max()) / math.sqrt(size)
            if error < DRAWS_ERROR:
                break
        if (size + 1) * posterior.classifier.nbytes > DRAWS_MEMORY:
            break
    return DrawPosterior(draws=tuple(posteriors)), mixture(left_out)


def without_shift(classifier: GPClassifier, found: LeaveOneOutFit) -> GPClassifier:
    """Classifier whose leave-one-out predictions are free of :func:`enforce_centroid_order`.

    The shift moves samples towards their own classes, as if they could be predicted.
    """
    if found.predictive:
        return classifier
    log_p = classifier.log_probabilities(found.latent, found.relative_variance)
    return replace(classifier, left_out=log_p)


def score_left_out(posterior: Posterior | DrawPosterior, y_index: IntArray) -> HeldOutScore:
    """Log score of leave-one-out predictions, which the only sample of a class does not have."""
    draws = posterior.draws if isinstance(posterior, DrawPosterior) else (posterior,)
    log_p = logsumexp([draw.classifier.left_out for draw in draws], axis=0) - np.log(len(draws))
    known = np.flatnonzero(y_index >= 0)
    known = known[np.bincount(y_index[known])[y_index[known]] > 1]
    return HeldOutScore.of(log_p[known, y_index[known]], y_index[known])


def decoder_samples(n_samples: int) -> IntArray:
    """Indices of the samples in a decoder: all, or ``DECODER_SAMPLES`` evenly spaced ones."""
    return np.unique(
        np.linspace(0, n_samples - 1, min(n_samples, DECODER_SAMPLES)).astype(np.int64)
    )


def make_decoder(
    latent: FloatArray, X: FloatArray, log_kernel: FloatArray, variance: float
) -> Decoder:
    """The generative part of a fit, on at most ``DECODER_SAMPLES`` samples."""
    kept = decoder_samples(len(X))
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


def _as_coordinates(found: LeaveOneOutFit, scale: float) -> LatentCoordinates:
    eye = np.eye(found.latent.shape[1])
    return LatentCoordinates(mean=found.latent, cov=scale * found.variance[:, None, None] * eye)


def _not_predictive(found: LeaveOneOutFit) -> str:
    return (
        "the mapping does not predict the classes: leave-one-out latent coordinates keep "
        f"{found.slope:.2f} of the distance between class centroids"
    )
