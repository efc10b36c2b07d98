"""Fits of BSDR's model by every engine."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import logsumexp

from bsdr_models.bsdr import hmc
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.feature_map import FeatureMap, MapLearner
from bsdr_models.bsdr.posterior import (
    BSDRPosterior,
    Coordinates,
    Parameters,
    link_of,
    log_probabilities,
)
from bsdr_models.bsdr.problem import (
    BSDRProblem,
    pointwise_log_likelihood,
    regression_log_likelihood,
)
from bsdr_models.bsdr.trees import SPEC
from bsdr_models.data.training import Fold
from bsdr_models.data.validation import R_HAT_LIMIT
from bsdr_models.estimators.calibration import (
    Calibration,
    HeldOutScore,
    Judged,
    TemperaturePrior,
    judge,
    lack_of_signal,
)
from bsdr_models.inference.result import Result
from bsdr_models.inference.tasks import ProgressBar, run_in_threads
from bsdr_models.lazy import annex
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.options import N_CHAINS, N_DRAWS, Sampling

if TYPE_CHECKING:
    import pymc as pm

# Problem of some training samples, by their indices, with the features of a map.
type Build = Callable[[FeatureMap, IntArray], BSDRProblem]
type Engine = Literal["hmc", "conjugate", "laplace", "nuts", "advi"]

# Log densities without features are at least this, whose exponential is positive.
LEAST_LOG = -700.0
# Draws of all chains: with fewer, R-hat exceeds 1.01 by its error.
_DRAWS = 4000
# Work above which there are fewer draws.
_HEAVY = 1.2e4
# Chains, of which two blocks of four cost little more than one block,
_MOST_CHAINS = 8
# if each has so many draws: R-hat exceeds one by about the number of chains over the effective
# sample size.
_LEAST_DRAWS = 250
# Trajectories of each fold before its draws.
_N_FOLD_WARM_UP = 6
# Trajectories of a fold that are its draws, of all divisions together.
_N_FOLD_DRAWS = 12
# Draws of the posterior of each fold of real outputs.
_N_FOLD_EXACT = 500
# Prior of log T, from the best temperatures of new samples of nine data sets.
LOG_T = TemperaturePrior(mean=-0.7, sd=0.4)
# Largest number of loadings, whose precision is a matrix of that width.
MOST_LOADINGS = 10_000
# Work above which Laplace's method is the default.
TOO_HEAVY = 1e6
# Draws of Laplace's approximation and of the conjugate posterior.
N_INDEPENDENT = 1000
# Pareto k above which Laplace's method is unreliable.
GOOD_K = 0.7
# Linear predictors, of a class for a sample, of which R-hat is computed.
_N_CHECKED = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the user asks of an engine; None leaves the choice to it."""

    n_components: int | None = None
    temperature: float | None = None  # selected by held-out samples if None, by "hmc" only
    sampling: Sampling
    progressbar: bool = False

    def draws(self, default: int) -> int:
        """Draws of each chain."""
        return default if self.sampling.draws is None else int(self.sampling.draws)


@dataclass(frozen=True, kw_only=True)
class Fit(Result[BSDRPosterior]):
    """A fit to all training samples; S draws of each of C chains, stacked in ``posterior``."""

    engine: Engine
    log_likelihood: FloatArray  # of each draw, (C, S)
    log_prior: FloatArray | None = None  # as standard normals, (C, S)
    log_evidence: float = np.nan  # of real outputs by "conjugate", in nats
    held_out: HeldOutScore = field(default_factory=HeldOutScore)  # at the selected temperature
    r_hat: float = np.nan  # largest of the log likelihood and some linear predictors
    ess: float = np.nan  # smallest bulk effective sample size of these
    pareto_k: float = np.nan  # of the importance ratios of Laplace's method
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)  # (C, S) each
    run: Mapping[str, float] = field(default_factory=dict)  # time and warm-up of a sampler

    def described(self) -> dict[str, object]:
        """Attributes of the tree."""
        posterior = self.posterior
        attrs: dict[str, object] = {
            "interrupted": int(self.interrupted),
            **posterior.calibration.attrs(),
            "lapse": posterior.lapse,
            "component_share": posterior.share.tolist(),
        }
        numbers = {
            "pareto_k": self.pareto_k,
            "r_hat": self.r_hat,
            "ess_bulk": self.ess,
            "log_evidence": self.log_evidence,
        }
        attrs |= {name: value for name, value in numbers.items() if np.isfinite(value)}
        return {**attrs, **self.run, **self.held_out.attrs()}


def fit_problem(
    learner: MapLearner,
    build: Build,
    engine: Engine | None,
    options: EngineOptions,
    *,
    declare: Callable[[FeatureMap], "pm.Model"],
    rng: np.random.Generator,
) -> Fit:
    """Fit by an engine; by default one for the target and size of the problem.

    ``build`` makes the problem of some samples, and ``declare`` the PyMC model of whitened
    features. KeyboardInterrupt if the user stops the fit before there are draws.
    """
    feature_map = learner.learn()
    problem = build(feature_map, np.arange(len(learner.training.keys)))
    if engine is None:
        few = problem.views is None and problem.n_loadings <= MOST_LOADINGS
        engine = "laplace" if few and problem.work > TOO_HEAVY else "hmc"
        engine = "conjugate" if problem.target == "regression" else engine
    if engine == "conjugate":
        return _fit_conjugate(problem, feature_map, learner, build, options, rng)
    if engine == "hmc":
        return _fit_hmc(problem, feature_map, learner, build, options, rng)
    if engine != "laplace":
        return _fit_pymc(problem, feature_map, engine, declare(feature_map), options, rng)
    laplace = annex("large.engine")
    fit: Fit = laplace.fit_in_memory(problem, feature_map, options, rng=rng)
    return fit


def _fit_hmc(
    problem: BSDRProblem,
    feature_map: FeatureMap,
    learner: MapLearner,
    build: Build,
    options: EngineOptions,
    rng: np.random.Generator,
) -> Fit:
    """Fit by Hamiltonian Monte Carlo, with a temperature selected by held-out samples."""
    sample_rng, fold_rng, outside_rng = rng.spawn(3)
    total = _DRAWS * min(1.0, _HEAVY / max(problem.work, 1.0)) ** 0.5
    n_chains = _MOST_CHAINS if total >= _MOST_CHAINS * _LEAST_DRAWS else N_CHAINS
    n_draws = options.draws(int(total / n_chains))
    begin = time.perf_counter()
    with ProgressBar(100, "BSDR, Hamiltonian Monte Carlo", enabled=options.progressbar) as bar:
        sampled = hmc.sample(
            problem,
            n_chains=options.sampling.n_chains(n_chains),
            n_draws=n_draws,
            rng=sample_rng,
            on_step=lambda share: bar.update(int(100 * share) - bar.count),
        )
    run = {"sampling_time": time.perf_counter() - begin, "tuning_steps": hmc.N_WARM_UP}
    interrupted = sampled.interrupted
    judged = None
    if options.temperature is None and not interrupted:
        try:
            judged = judge_folds(problem, sampled, learner, build, rng=fold_rng)
        except KeyboardInterrupt:  # the draws can still be used
            interrupted = True
    theta = sampled.theta.reshape(-1, problem.n_parameters)
    return assemble(
        problem,
        feature_map,
        problem.parameters(theta, rng=outside_rng),
        options,
        engine="hmc",
        log_likelihood=sampled.log_likelihood,
        log_prior=sampled.log_prior,
        calibration=None if judged is None else judged.calibration,
        **({} if judged is None else judged.of_result(slice(None), len(problem.X))),
        interrupted=interrupted,
        sample_stats=sampled.stats,
        run=run,
    )


def _fit_conjugate(
    problem: BSDRProblem,
    feature_map: FeatureMap,
    learner: MapLearner,
    build: Build,
    options: EngineOptions,
    rng: np.random.Generator,
) -> Fit:
    """The conjugate posterior of real outputs."""
    sample_rng, fold_rng = rng.spawn(2)
    exact = fit_conjugate(problem, n_draws=options.draws(N_INDEPENDENT), rng=sample_rng)
    training = learner.training
    if exact_score := problem.weights is None:
        score = exact.log_score
        empty = exact.log_score_empty
    else:
        score, empty = score_folds(learner, build, fold_rng)
    held_out = HeldOutScore.of(
        score,
        np.zeros(len(score)),
        np.exp(np.maximum(empty, LEAST_LOG)),
        groups=training.groups,
        n_folds=None if exact_score else training.n_folds,
        weights=training.sample_weight,
    )
    return assemble(
        problem,
        feature_map,
        exact.draws,
        replace(options, temperature=1.0),
        engine="conjugate",
        trace=np.array([exact.log_evidence]),
        log_likelihood=exact.log_likelihood[None],
        log_prior=exact.log_prior[None],
        log_evidence=exact.log_evidence,
        held_out=held_out,
    )


def judge_folds(
    problem: BSDRProblem,
    sampled: hmc.Chains,
    learner: MapLearner,
    build: Build,
    *,
    rng: np.random.Generator,
) -> Judged | None:
    """Calibration by the folds of every division; None if no sample can be held out.

    The chains of each fold start from the last states of those of all samples, in the whitened
    features of the fold, and forget the held-out labels within a few trajectories. As of new
    samples, directions that no other sample has are left out.
    """
    training = learner.training
    if training.n_folds < 2:
        return None
    lapse = problem.priors.lapse
    of_one = (problem.n_labels,) if problem.target == "multiclass" else (problem.n_labels, 2)
    log_p = [np.full((len(training.keys), *of_one), np.nan) for _ in training.divisions]
    n_draws = _N_FOLD_DRAWS // len(log_p)

    def predict(fold: Fold, stream: np.random.Generator) -> None:
        out = training.out(fold)
        train, held_out = _split(learner, build, fold)
        theta = hmc.continue_on(
            problem.select(~out),
            train,
            sampled,
            n_warm_up=_N_FOLD_WARM_UP,
            n_draws=n_draws,
            rng=stream,
        )
        eta = held_out.linear_predictor(theta)
        log_p[fold[0]][out] = log_probabilities(eta, problem.target, lapse)

    folds = training.folds()
    streams = rng.spawn(len(folds))
    run_in_threads(lambda number: predict(folds[number], streams[number]), range(len(folds)))
    return judge(
        log_p,
        problem.y.astype(np.int64),
        training.divisions,
        link_of(lapse),
        LOG_T,
        groups=training.groups,
        share=training.share,
        weights=training.sample_weight,
    )


def _split(learner: MapLearner, build: Build, fold: Fold) -> tuple[BSDRProblem, BSDRProblem]:
    """Problems of the samples that are not in a fold, and of those in it, by the same features."""
    feature_map = learner.learn(fold)
    out = learner.training.out(fold)
    return build(feature_map, np.flatnonzero(~out)), build(feature_map, np.flatnonzero(out))


def score_folds(
    learner: MapLearner, build: Build, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Log densities (N,) of real outputs that are held out by folds, and those without features."""
    training = learner.training
    score, empty = np.full((2, len(training.keys)), np.nan)
    for number in range(training.n_folds):
        train, new = _split(learner, build, (0, number))
        for values, size in ((score, 1.0), (empty, 0.0)):
            given = replace(train, X=size * train.X)
            draws = fit_conjugate(given, n_draws=_N_FOLD_EXACT, rng=rng).draws
            assert draws.noise_scale is not None
            eta = draws.linear_predictor(size * new.X)
            each = regression_log_likelihood(eta, new.y, draws.noise_scale)
            values[training.out((0, number))] = logsumexp(each, axis=0) - math.log(_N_FOLD_EXACT)
    return score, empty


def _fit_pymc(
    problem: BSDRProblem,
    feature_map: FeatureMap,
    engine: Engine,
    model: "pm.Model",
    options: EngineOptions,
    rng: np.random.Generator,
) -> Fit:
    """Fit by NUTS or ADVI.

    As for the other engines, the part of the projection outside the row space of the training
    samples enters predictions by its prior.
    """
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    sample_rng, outside_rng = rng.spawn(2)
    sampled = engines.run_pymc(
        engine,
        model,
        SPEC,
        draws=options.draws(N_DRAWS),
        tune=int(options.sampling.tune),
        chains=options.sampling.n_chains(),
        rng=sample_rng,
        progressbar=options.progressbar,
    )
    posterior = sampled.draws

    def stacked(name: str) -> FloatArray:
        values = posterior[name]
        return np.ascontiguousarray(values.reshape(-1, *values.shape[2:]))

    if (metric := feature_map.metric) is not None:
        normal = np.swapaxes(stacked("projection_offset"), 1, 2)  # (S, J, D)
        projection = stacked("scale")[:, None, None] * (normal @ metric.axes)
    else:
        projection = np.swapaxes(stacked("basis_weights"), 1, 2)
    contrasts = problem.contrasts
    draws = Parameters(
        projection=projection,
        scale=stacked("scale"),
        weights=np.broadcast_to(contrasts, (len(projection), *contrasts.shape)),
        bias=stacked("bias"),
        noise_scale=stacked("noise_scale") if "noise_scale" in posterior else None,
        outside=outside_rng.standard_normal(projection.shape[:2]),
        view_scale=stacked("view_scale") if "view_scale" in posterior else None,
    )
    each = pointwise_log_likelihood(
        draws, problem.X, problem.y, problem.target, problem.priors.lapse
    )
    return assemble(
        problem,
        feature_map,
        draws,
        options,
        engine=engine,
        log_likelihood=(each @ problem.sample_weight).reshape(len(posterior["bias"]), -1),
        interrupted=sampled.interrupted,
        sample_stats=sampled.sample_stats,
        run=sampled.attrs,
    )


def assemble(
    problem: BSDRProblem,
    feature_map: FeatureMap,
    draws: Parameters,
    options: EngineOptions,
    *,
    engine: Engine,
    log_likelihood: FloatArray,
    interrupted: bool = False,
    pareto_k: float = np.nan,
    trace: FloatArray | None = None,
    calibration: Calibration | None = None,
    **result: Any,
) -> Fit:
    """Fit from draws of an engine: coordinates, diagnostics, and warnings."""
    coordinates = Coordinates.learn(problem.X, problem.y, problem.target, draws, problem.weights)
    width = coordinates.axes.shape[1]
    shown = options.n_components
    r_hat, ess = mixing(problem, draws, log_likelihood)
    reliable = {"advi": False, "conjugate": True, "laplace": pareto_k < GOOD_K}
    fit = Fit(
        posterior=BSDRPosterior(
            feature_map=feature_map,
            draws=draws,
            coordinates=coordinates,
            calibration=calibration or Calibration(temperature=options.temperature or 1.0),
            target=problem.target,
            lapse=problem.priors.lapse,
            n_components=width if shown is None else min(shown, width),
        ),
        trace=log_likelihood.mean(axis=0) if trace is None else trace,
        converged=not interrupted and reliable.get(engine, r_hat < R_HAT_LIMIT),
        interrupted=interrupted,
        engine=engine,
        log_likelihood=log_likelihood,
        r_hat=r_hat,
        ess=ess,
        pareto_k=pareto_k,
        **result,
    )
    if interrupted:
        return fit
    advice = _advice(fit, signal=lack_of_signal(fit.described()) is None)
    return replace(fit, advice=advice)


def _advice(fit: Fit, *, signal: bool) -> str:
    """Warning of an unreliable approximation, or of chains with a signal that have not mixed."""
    if fit.engine == "laplace" and not fit.converged:
        reason = f"Pareto k {fit.pareto_k:.2f} is not below {GOOD_K}"
        if np.isinf(fit.pareto_k):
            reason = "the search has not found a mode"
        return (
            f"Laplace's approximation is not to be trusted here ({reason}): use inference='hmc', "
            "for a Dask array with some of its samples in memory"
        )
    if signal and fit.r_hat > R_HAT_LIMIT:
        return (
            f"the chains have not mixed: R-hat reaches {fit.r_hat:.2f}; take more draws "
            "(sampling=Sampling(draws=...))"
        )
    return ""


def mixing(
    problem: BSDRProblem, draws: Parameters, log_likelihood: FloatArray
) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS, as in :class:`Fit`; NaN for one chain or few draws."""
    n_chains, n_draws = log_likelihood.shape
    if n_chains < 2 or n_draws < 4:
        return np.nan, np.nan
    import arviz_stats

    n = len(problem.X)
    k = problem.contrasts.shape[1]
    sample, label = np.divmod(np.linspace(0, n * k - 1, min(n * k, _N_CHECKED)).astype(int), k)
    eta = draws.linear_predictor(problem.X[sample])[:, np.arange(len(sample)), label]
    values = np.concatenate([log_likelihood[..., None], eta.reshape(n_chains, n_draws, -1)], axis=2)
    r_hat = arviz_stats.rhat(values, chain_axis=0, draw_axis=1)
    ess = arviz_stats.ess(values, chain_axis=0, draw_axis=1)
    return float(np.max(r_hat)), float(np.min(ess))
