"""Fit of the whole model: latent coordinates, an embedder of new samples and a classifier."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import MappingEmbedder, MappingPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.gp_classifier import GPClassifier, fit_gp_classifier
from bsdr_models.dgplvm.leave_one_out import (
    enforce_centroid_order,
    leave_one_out,
    mapping_scale,
)
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.map_search import Mode, Task, collapse, fit_map
from bsdr_models.inference.optimise import MapResult
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.validation import one_thread

# Maximum number of training samples in a decoder, whose cost is cubic in their number.
DECODER_SAMPLES = 400
# Variables of the kernel of the features.
KERNEL = ("signal_variance", "lengthscale", "noise_variance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Embedder and classifier, given one set of latent coordinates of the training samples.

    The embedder has methods `latent` and `embed`, and `to_classify`: latent coordinates and their
    relative variance.
    """

    embedder: Any
    classifier: GPClassifier

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log class probabilities of samples (M, D), (M, K)."""
        return self.classifier.log_probabilities(*self.embedder.to_classify(X))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Average over posterior draws, whose components are aligned; a mode is a single draw.

    Predictions use one thread.
    """

    draws: tuple[Draw, ...]

    @property
    def embedder(self) -> Any:
        """The embedder of the last draw."""
        return self.draws[-1].embedder

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates of samples (M, D), (M, R)."""
        with one_thread():
            return np.asarray(np.mean([draw.embedder.latent(X) for draw in self.draws], axis=0))

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates of samples (M, D), over draws."""
        with one_thread():
            return mixture([draw.embedder.embed(X) for draw in self.draws])

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log of the mean class probabilities of samples (M, D), (M, K)."""
        with one_thread():
            return log_mean((draw.log_probabilities(X) for draw in self.draws), len(self.draws))

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """Log of the mean class probabilities at latent coordinates (G, R), (G, K)."""
        with one_thread():
            log_p = (draw.classifier.log_probabilities(latent) for draw in self.draws)
            return log_mean(log_p, len(self.draws))


def log_mean(log_p: Iterable[FloatArray], count: int) -> FloatArray:
    """Log of the mean of so many probabilities, one of which is in memory at a time."""
    return np.asarray(reduce(np.logaddexp, log_p) - np.log(count))


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of the mixture of the parts with equal weights."""
    means = np.stack([part.mean for part in parts])
    mean = means.mean(axis=0)
    between = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([part.cov for part in parts], axis=0) + between)


@dataclass(frozen=True, kw_only=True)
class FitResult(Result):
    """Result of a fit by any engine, with latent coordinates (N, R) of the training samples.

    ``left_out`` are the leave-one-out latent coordinates, which plots show. ``variables`` are at
    the mode, or means over draws; ``terms``, ``trace`` and ``restarts`` are those of the search of
    the mode. ``settings`` are those of the mapping, and ``held_out`` is NaN if there are no
    leave-one-out predictions.
    """

    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, Any]
    decoder: Decoder
    settings: Mapping[str, float]
    held_out: HeldOutScore = HeldOutScore()  # noqa: RUF009


def make_result(
    mode: Mode, task: Task, *, messages: Sequence[str | None], **fields: Any
) -> FitResult:
    """Result with what the search of the mode determines, unless it is given."""
    search = mode.search
    found: dict[str, Any] = {
        "trace": -search.trace,
        "converged": search.converged,
        "interrupted": search.interrupted,
        "terms": mode.terms.values,
        "restarts": tuple(-value for value in search.values),
        "settings": mode.settings,
        "messages": tuple(message for message in messages if message is not None),
    }
    if not (search.converged or search.interrupted):
        found["advice"] = (
            f"the search stopped after max_iter={task.optimization.max_iter} iterations; the "
            "result is usable, but a larger max_iter brings it closer to the optimum"
        )
    return FitResult(**found | fields)


def learn_mode(task: Task, rng: np.random.Generator, **options: Any) -> FitResult:
    """Fit the posterior mode; options are of :func:`~bsdr_models.inference.optimise.run_map`."""
    mode = fit_map(task, rng, **options)
    log_kernel, objective = mode.log_parameters[:3], mode.objective
    decoder = make_decoder(mode.latent, task.features, log_kernel, objective.gram)
    draw, left_out = posterior_by_mapping(mode, mode.latent, task)
    messages: list[str | None] = []
    posterior = Posterior(draws=(draw,))
    log_p, held_out = predict_left_out(posterior, task)
    if (reason := lack_of_signal(held_out.named())) is not None:
        messages.append(no_signal(reason))
    # Classes of a single sample have no scatter, whatever the weight.
    if np.isfinite(task.priors.weight) and len(task.known) > task.n_labels:
        messages.append(collapse(mode))
    messages.append(disagreement(mode.search))
    variables: dict[str, Any] = dict(zip(KERNEL, np.exp(log_kernel).tolist(), strict=True))
    if task.dense and task.dynamics is None:
        variables["latent_raw"] = objective.mapping.raw(mode.latent)
    return make_result(
        mode,
        task,
        posterior=posterior,
        latent=mode.latent,
        left_out=left_out,
        variables=variables | {"criterion": mode.terms.criterion},
        decoder=decoder,
        held_out=held_out,
        held_out_log_proba=log_p,
        messages=messages,
    )


def posterior_by_mapping(
    mode: Mode, latent: FloatArray, task: Task, *, kernel_parameters: FloatArray | None = None
) -> tuple[Draw, LatentCoordinates]:
    """Embedder by the mapping, and a classifier fitted to left-out latent coordinates.

    For the mapping, tuples and folds of the mode, and any latent coordinates (N, R).
    """
    prior: MappingPrior = mode.objective.mapping
    left_out = leave_one_out(
        prior, latent, task.y_index, mode.tuples, mode.folds, groups=task.groups
    )
    scale = mapping_scale(left_out, latent, task.y_index)
    ordered = enforce_centroid_order(left_out, latent, task.y_index)
    classifier = fit_gp_classifier(
        ordered,
        task.y_index,
        priors=task.priors,
        kernel_parameters=kernel_parameters,
        relative_variance=left_out.relative_variance,
        fold=task.group_fold,
        predictive=left_out.predictive,
    )
    if ordered is not left_out.latent:
        # The shift of `enforce_centroid_order` moves samples towards their own classes, as if they
        # could be predicted: leave-one-out predictions are without it.
        log_p = classifier.log_probabilities(left_out.latent, left_out.relative_variance)
        classifier = replace(classifier, left_out=log_p)
    in_fold = task.in_fold
    variance = prior.left_out_variance()
    variance[in_fold] = left_out.variance[in_fold]
    embedder = MappingEmbedder.of(
        prior,
        latent,
        scale=scale,
        typical_variance=left_out.typical_variance,
        left_out_variance=variance,
    )
    cov = scale * left_out.variance[:, None, None] * np.eye(latent.shape[1])
    coordinates = LatentCoordinates(mean=left_out.latent, cov=cov)
    return Draw(embedder=embedder, classifier=classifier), coordinates


def predict_left_out(posterior: Posterior, task: Task) -> tuple[FloatArray, HeldOutScore]:
    """Left-out log probabilities (N, K), NaN of samples that are never left out; their score.

    These are the only sample of a class, or groups that have all samples of a class.
    """
    draws, y_index, groups = posterior.draws, task.y_index, task.groups
    log_p = log_mean((draw.classifier.left_out for draw in draws), len(draws))
    labelled = task.known
    if groups is None:
        never = np.bincount(y_index[labelled])[y_index[labelled]] == 1
    else:
        never = ~task.in_fold[labelled]
    log_p[labelled[never]] = np.nan
    known = labelled[~never]
    of_samples = None if groups is None else groups[known]
    truth = y_index[known]
    return log_p, HeldOutScore.of(log_p[known, truth], truth, groups=of_samples)


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
