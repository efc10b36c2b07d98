"""From a task to what an estimator keeps: positions, a way to place new rows, a classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MapPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.latent_inference import project, project_left_out
from bsdr_models.dgplvm.leave_one_out import (
    LeaveOneOutFit,
    guard_order,
    leave_one_out,
    leave_out_tuples,
    map_scale,
    posterior_slope,
)
from bsdr_models.dgplvm.map_search import Task, fit_map
from bsdr_models.dgplvm.mapping_selection import NOISES, WIDTHS
from bsdr_models.dgplvm.predict import (
    ByLikelihood,
    ByMap,
    Classifier,
    DrawPosterior,
    LatentCoordinates,
    Placement,
    Posterior,
    mixture,
)
from bsdr_models.inference.optimise import MapResult
from bsdr_models.numerics.probit_kernels import Kernel, SmoothBiasKernel

type Approximation = Literal["laplace", "ep"]

# Training rows that decoding conditions on, at most: it is cubic in their number.
DECODER_SAMPLES = 400
# Draws of a sampler that prediction averages over.
N_PREDICT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a task is learned.

    approximation
        Of the classifier.
    placement
        ``"map"`` or ``"likelihood"``: how new rows are placed.
    reuse_kernel
        Whether the classifier takes the kernel of the features instead of one of its own.
    widths, noises
        Candidates for the settings of the map.
    n_starts, max_iter, tol
        Of the search for the mode.
    progressbar
    n_jobs
        Starts of the search side by side.
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
class Sampled:
    """Draws with axes (chain, draw, ...) by name, and what the sampler says of itself."""

    draws: Mapping[str, FloatArray]
    sample_stats: Mapping[str, FloatArray]
    fit: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A fit of any variant and engine.

    posterior
        Places and classifies new rows.
    latent
        Latent coordinates of the training rows, (N, R).
    left_out
        Where they would lie as new rows: what may be shown of them.
    variables
        Other variables of the model at the mode, or their means over draws.
    decoder
        From positions to features.
    terms
        Objective by its terms, in nats.
    trace, restarts
        Log density after each iteration of the best start; at the end of every start.
    settings
        Width and noise of the map, where it has them.
    remarks
        Sentences for the user.
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
    settings: Mapping[str, float]
    converged: bool
    interrupted: bool
    remarks: tuple[str, ...] = ()
    sampled: Sampled | None = None


def learn_map(task: Task, options: Options, *, rng: np.random.Generator) -> Learned:
    """The mode of the well-posed model.

    Parameters
    ----------
    task : Task
    options : Options
    rng : numpy.random.Generator

    Returns
    -------
    Learned
    """
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
    decoder = make_decoder(fit.latent, task.X, fit.log_kernel, fit.rows.variance)
    reuse = None
    if options.reuse_kernel:
        reuse = SmoothBiasKernel(
            signal_variance=decoder.signal_variance,
            lengthscale=decoder.lengthscale,
            bias_variance=0.0,
            noise_variance=decoder.noise_variance,
        )
    if fit.map_prior is not None and options.placement == "map":
        posterior, left_out, said = by_map(
            fit.map_prior,
            fit.latent,
            task,
            approximation=options.approximation,
            reuse=reuse,
        )
    else:
        temper = fit.rows.n_effective / fit.rows.n_features if task.tempered else 1.0
        posterior, left_out, said = by_likelihood(
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
    remarks = list(said)
    # Classes of one row each are on points whatever the weight.
    several_samples = len(task.known) > task.n_labels
    if fit.collapse is not None and np.isfinite(task.weight) and several_samples:
        remarks.append(fit.collapse)
    if (gap := disagreement(fit.search)) is not None:
        remarks.append(gap)
    return Learned(
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
        remarks=tuple(remarks),
    )


def by_map(
    prior: MapPrior,
    latent: FloatArray,
    task: Task,
    *,
    approximation: Approximation,
    reuse: Kernel | None = None,
) -> tuple[Posterior, LatentCoordinates, list[str]]:
    """New rows are placed by the map; the classifier learns from leave-out positions."""
    tuples = leave_out_tuples(task.y_index, task.n_labels)
    found = leave_one_out(prior, latent, task.y_index, tuples)
    scale = map_scale(found, latent, task.y_index)
    positions = guard_order(found, latent, task.y_index)
    believed = None
    if not found.predictive:
        least = posterior_slope(len(task.known))
        believed = guard_order(found, latent, task.y_index, least)
    classifier = fit_gp_classifier(
        positions,
        task.y_index,
        task.n_labels,
        approximation=approximation,
        priors=task.priors,
        reuse=reuse,
        spread=found.spread,
        believed=believed,
    )
    placement = ByMap.of(prior, latent, scale, found.typical_variance)
    return (
        Posterior(placement=placement, classifier=classifier),
        _as_coordinates(found, scale),
        [] if found.predictive else [_not_predictive(found)],
    )


def by_likelihood(
    decoder: Decoder,
    task: Task,
    *,
    temper: float,
    approximation: Approximation,
    reuse: Kernel | None = None,
    dynamics: Predictor | None = None,
) -> tuple[Posterior, LatentCoordinates, list[str]]:
    """New rows are placed by their features; the classifier learns from rows placed likewise.

    Rows that the decoder does not hold are new to it as they are.
    """
    inside, n = decoder_samples(len(task.X)), len(task.X)
    outside = np.setdiff1d(np.arange(n), inside)
    own = project_left_out(decoder, task.X[inside], temper=temper)
    r = task.n_components
    mean, cov = np.empty((n, r)), np.empty((n, r, r))
    mean[inside], cov[inside] = own.latent, own.cov
    if len(outside):
        others = project(decoder, task.X[outside], temper=temper)
        mean[outside], cov[outside] = others.latent, others.cov
    classifier = fit_gp_classifier(
        mean,
        task.y_index,
        task.n_labels,
        approximation=approximation,
        priors=task.priors,
        reuse=reuse,
    )
    placement: Placement = ByLikelihood(decoder=decoder, temper=temper, dynamics=dynamics)
    return (
        Posterior(placement=placement, classifier=classifier),
        LatentCoordinates(mean=mean, cov=cov),
        [],
    )


def draws_posterior(
    prior: MapPrior, latents: FloatArray, task: Task, *, approximation: Approximation
) -> tuple[DrawPosterior, LatentCoordinates]:
    """The map conditioned on each of some draws of the positions, (S, N, R).

    The classifier of a draw keeps the mode of its prior: a search per draw costs more than it
    brings.
    """
    tuples = leave_out_tuples(task.y_index, task.n_labels)
    posteriors, left_out = [], []
    for latent in latents:
        found = leave_one_out(prior, latent, task.y_index, tuples)
        scale = map_scale(found, latent, task.y_index)
        classifier: Classifier = fit_gp_classifier(
            guard_order(found, latent, task.y_index),
            task.y_index,
            task.n_labels,
            approximation=approximation,
            priors=task.priors,
            refit=False,
            spread=found.spread,
        )
        placement = ByMap.of(prior, latent, scale, found.typical_variance)
        posteriors.append(Posterior(placement=placement, classifier=classifier))
        left_out.append(_as_coordinates(found, scale))
    return DrawPosterior(draws=tuple(posteriors)), mixture(left_out)


def decoder_samples(n_samples: int) -> IntArray:
    """Rows that a decoder holds: all, or ``DECODER_SAMPLES`` evenly spaced ones."""
    return np.unique(
        np.linspace(0, n_samples - 1, min(n_samples, DECODER_SAMPLES)).astype(np.int64)
    )


def make_decoder(
    latent: FloatArray, X: FloatArray, log_kernel: FloatArray, variance: float
) -> Decoder:
    """The generative part of a fit, on at most ``DECODER_SAMPLES`` rows."""
    rows = decoder_samples(len(X))
    signal, lengthscale, noise = np.exp(log_kernel)
    return Decoder.of(
        latent[rows],
        X[rows],
        signal_variance=signal * variance,
        lengthscale=lengthscale,
        noise_variance=noise * variance,
    )


def disagreement(search: MapResult) -> str | None:
    """What several starts say of each other, if they do not agree."""
    if search.share_agreeing == 1.0 or search.interrupted:
        return None
    ends = len(search.values)
    return (
        f"{round(search.share_agreeing * ends)} of {ends} starts ended at the best optimum, the "
        f"others up to {max(search.values) - search.value:.3g} nats above it: the mode is not "
        "unique"
    )


def _as_coordinates(found: LeaveOneOutFit, scale: float) -> LatentCoordinates:
    eye = np.eye(found.latent.shape[1])
    return LatentCoordinates(mean=found.latent, cov=scale * found.variance[:, None, None] * eye)


def _not_predictive(found: LeaveOneOutFit) -> str:
    return (
        "the map does not predict the classes: positions of rows left out keep "
        f"{found.slope:.2f} of the distance between class centroids"
    )
