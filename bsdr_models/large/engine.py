"""Fits of BSDR's model by Laplace's method, to samples in memory or in a Dask array."""

import numpy as np

from bsdr_models.bsdr.engines import N_INDEPENDENT, EngineOptions, Fit, assemble
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.bsdr.feature_map import FeatureMap
from bsdr_models.bsdr.problem import BSDRProblem, make_contrasts
from bsdr_models.data.validation import check_variation, feature_names, sample_labels
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.tasks import ProgressBar
from bsdr_models.large.chunks import Chunks, InMemory, Samples
from bsdr_models.large.dask_arrays import fit_scaler_of_chunks, read_chunked
from bsdr_models.large.laplace import Response, check_size, fit_laplace
from bsdr_models.numerics.arrays import SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.options import as_generator

# Samples of a Dask array that the fit keeps in memory, at most.
N_KEPT = 2000
# Typical number of steps of Laplace's method, for the progress bar.
_N_STEPS = 12


def fit_in_memory(
    problem: BSDRProblem,
    feature_map: FeatureMap,
    options: EngineOptions,
    *,
    rng: np.random.Generator,
) -> Fit:
    """Fit to the samples of a problem."""
    response = Response(target=problem.target, contrasts=problem.contrasts, priors=problem.priors)
    samples = InMemory(problem.X, problem.y, problem.weights)
    return fit_by_laplace(samples, response, problem, feature_map, options, rng=rng)


def fit_chunks(
    model: BSDRClassifier, X: SamplesLike, y: TargetLike, groups: TargetLike | None
) -> None:
    """Fit a classifier to a Dask array (N, D)."""
    if groups is not None:
        raise ValueError("groups are not for Dask arrays, of which no samples are held out")
    if not model._is_plain:
        given = f"kernel={model.kernel!r}" if model.views is None else "views"
        raise ValueError(
            f"{given} is not for Dask arrays, where the kernel is linear and features have no "
            "views: a model in memory takes kernels and views"
        )
    if model.inference not in (None, "laplace"):
        raise ValueError(f"Dask arrays need inference='laplace', got {model.inference!r}")
    samples = sample_labels(X)
    chunks, labels = read_chunked(X, y)
    n_samples, model.n_features_in_ = chunks.shape
    targets = model._read_targets(labels)
    model._set_scaler(check_variation(model, fit_scaler_of_chunks(chunks, standardize=True)))
    model._check_width()
    model._views = None
    check_size(int(model._scaler.varies.sum()), len(model.classes_) - 1)
    kept = evenly_spaced(n_samples, N_KEPT)
    some = targets.take(kept)
    rng, later = as_generator(model.random_state).spawn(2)
    model._seed = int(later.integers(2**63))
    model._context = Context(
        X=model._scaler.transform(np.asarray(chunks[kept].compute(), dtype=np.float64)),
        targets=some,
        feature_names=feature_names(model),
        constant=model._scaler.constant,
        config=model._config(inference="laplace"),
        samples=None if samples is None else samples[kept],
        kept=kept,
        n_samples=n_samples,
    )
    feature_map = model._learner(some, rng.spawn(1)[0]).learn()  # of the samples that are kept
    response = Response(
        target="multiclass",
        contrasts=make_contrasts(len(model.classes_), "multiclass"),
        priors=model._option("priors"),
        scaler=model._scaler.of_varying(),
        metric=feature_map.metric,
    )
    with one_thread(), model._fitting((n_samples, model.n_features_in_)):
        fit = fit_by_laplace(
            Chunks(model._scaler.select(chunks), targets.coded),
            response,
            model._problem(feature_map, np.arange(len(kept))),
            feature_map,
            model._engine_options(),
            rng=rng,
        )
        model._set_result(fit, model._context)
        model._name_fitted()


def fit_by_laplace(
    samples: Samples,
    response: Response,
    problem: BSDRProblem,
    feature_map: FeatureMap,
    options: EngineOptions,
    *,
    rng: np.random.Generator,
) -> Fit:
    """Fit by Laplace's method; ``problem`` has all samples or some."""
    sample_rng, rng = rng.spawn(2)
    with ProgressBar(_N_STEPS, "BSDR, mode", enabled=options.progressbar) as bar:

        def show(count: int, value: float) -> None:
            bar.total = max(bar.total, count)
            bar.update(log_density=value)

        n_draws = options.draws(N_INDEPENDENT)
        normal = fit_laplace(samples, response, rng=sample_rng, n_draws=n_draws, on_step=show)
        bar.total = bar.count
    return assemble(
        problem,
        feature_map,
        problem.parameters(normal.theta, rng=rng),
        options,
        engine="laplace",
        trace=normal.trace,
        log_likelihood=normal.log_likelihood[None],
        interrupted=normal.interrupted,
        pareto_k=normal.pareto_k if normal.converged else np.inf,
    )
