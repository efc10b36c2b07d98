"""Fit of the paper's variant, for comparison.

The classifier and the plots use the fitted latent coordinates of the training samples, not
leave-one-out ones.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import median_distance
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.gp_classifier.fit import fit_gp_classifier
from bsdr_models.dgplvm.gp_classifier.probit_kernels import SmoothBiasKernel
from bsdr_models.dgplvm.learn import FitResult, Options, disagreement
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.paper.paper_fit import STARTS, Mapping, PaperFit, fit_paper
from bsdr_models.dgplvm.predict import Embedder, LikelihoodEmbedder, Posterior
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.relevance import LatentCoordinates

# Default width of the mapping, in units of the inverse median squared distance.
WIDTH = 2.0
# Distance of class centroids, relative to the largest feature, that counts as rounding error.
SAME_CENTROIDS = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperEmbedder:
    """Embedding by the paper's back-constraint, Eq. (17), which is deterministic."""

    fit: PaperFit

    def latent(self, X: FloatArray) -> FloatArray:
        """Latent coordinates, (M, R)."""
        return self.fit.transform(X)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """The same, with covariances of zero."""
        mean = self.fit.transform(X)
        return LatentCoordinates(mean=mean, cov=np.zeros((*mean.shape, mean.shape[1])))


def learn_paper(
    task: Task,
    options: Options,
    *,
    sequence: ArrayLike | None = None,
    rng: np.random.Generator,
) -> FitResult:
    """A local optimum of the paper's objective within bounds.

    Parameters
    ----------
    task : Task
        ``weight`` is 1 / sigma_d**2.
    options : Options
        A single candidate width is used; the noise of the mapping has no counterpart.
    sequence : (N,), optional
        Sequence of each sample.

    Raises
    ------
    ValueError
        If all class centroids coincide, for the criterion is then undefined.
    """
    _check_centroids(task)
    mapping: Mapping = "kernel" if task.n_centres is None else "centres"
    fit = fit_paper(
        task.X,
        task.y_index,
        task.n_labels,
        n_components=task.n_components,
        weight=task.weight,
        width=(options.widths[0] if len(options.widths) == 1 else WIDTH) / median_distance(task.X),
        criterion=task.criterion,
        mapping="free" if task.n_centres == 0 else mapping,
        n_centres=task.n_centres or 1,
        sequence=sequence,
        starts=[STARTS[min(i, len(STARTS) - 1)] for i in range(options.n_starts)],
        rng=rng,
        max_iter=options.max_iter,
        tol=options.tol,
        progressbar=options.progressbar,
        n_jobs=options.n_jobs,
    )
    decoder, kernel = _decoder(fit, task.X), _kernel(fit)
    embedder: Embedder = LikelihoodEmbedder(decoder=decoder, temper=1.0)
    if options.placement == "map":
        embedder = PaperEmbedder(fit=fit)
    classifier = fit_gp_classifier(
        fit.latent,
        task.y_index,
        task.n_labels,
        approximation=options.approximation,
        priors=task.priors,
        reuse=kernel if options.reuse_kernel else None,
    )
    variance = fit.objective.gram.variance
    r = task.n_components
    warnings = [text for text in (fit.warning, disagreement(fit.search)) if text is not None]
    return FitResult(
        posterior=Posterior(embedder=embedder, classifier=classifier),
        latent=fit.latent,
        left_out=LatentCoordinates(mean=fit.latent, cov=np.zeros((len(fit.latent), r, r))),
        variables={
            "signal_variance": kernel.signal_variance / variance,
            "lengthscale": kernel.lengthscale,
            "noise_variance": kernel.noise_variance / variance,
            "criterion": fit.collapse.criterion,
        },
        decoder=decoder,
        terms=fit.objective.terms(fit.search.x),
        trace=-fit.search.trace,
        restarts=tuple(-value for value in fit.search.values),
        settings={},
        converged=fit.search.converged,
        interrupted=fit.search.interrupted,
        held_out=HeldOutScore(),
        warnings=tuple(warnings),
    )


def _check_centroids(task: Task) -> None:
    X, y = task.X[task.known], task.y_index[task.known]
    centroids = np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])
    if np.ptp(centroids, axis=0).max() < SAME_CENTROIDS * np.abs(X).max():
        raise ValueError(
            "the centroids of all classes coincide in the features: the criterion of "
            "variant='paper' is undefined"
        )


def _kernel(fit: PaperFit) -> SmoothBiasKernel:
    output, inverse_width, bias, inverse_noise = (float(value) for value in fit.theta)
    return SmoothBiasKernel(
        signal_variance=output,
        lengthscale=inverse_width**-0.5,
        bias_variance=bias,
        noise_variance=1.0 / inverse_noise,
    )


def _decoder(fit: PaperFit, X: FloatArray) -> Decoder:
    kernel = _kernel(fit)
    return Decoder.of(
        fit.latent,
        X,
        signal_variance=kernel.signal_variance,
        lengthscale=kernel.lengthscale,
        noise_variance=kernel.noise_variance,
        bias=kernel.bias_variance,
        integrate_mean=False,
    )
