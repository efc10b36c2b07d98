"""Fits of the hierarchical model: posterior draws, latent coordinates and predictions.

Populations of particles are tempered independently (:mod:`bsdr_models.inference.tempering`), each
a chain of the result. The size of the problem determines the number of particles and moves.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp
from sklearn.exceptions import ConvergenceWarning

from bsdr_models.arrays import BoolArray, FloatArray, IntArray, Target
from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.laplace import MOST_LOADINGS, Laplace, fit_laplace
from bsdr_models.bsdr.pooling import POWERS, pool, weigh_powers
from bsdr_models.bsdr.posterior import (
    LOG_SQRT_2PI,
    Metric,
    Parameters,
    Problem,
    label_log_likelihood,
    make_contrasts,
    regression_log_likelihood,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.settings import N_DRAWS
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.checks import R_HAT_LIMIT
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.parallel import n_workers, run_tasks
from bsdr_models.inference.tempering import Moves, Tempered, run_tempering
from bsdr_models.metrics import NO_SIGNAL, HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.folds import assign_folds, sample_keys
from bsdr_models.numerics.relevance import LatentCoordinates

type Engine = Literal["smc", "laplace", "nuts", "advi"]

# Draws used for predictions and for the covariance of latent coordinates.
N_PREDICT = 256
# Work of one evaluation, see `work`, up to which chains have most particles, trajectories at
# temperature one are long, and there are more temperatures; most and fewest particles.
_FEW, _LIGHT, _MODERATE, _MAX_PARTICLES, _MIN_PARTICLES = 400.0, 800.0, 1000.0, 64, 16
# Smallest and largest number of draws of each particle, and trajectories between them.
_KEPT, _N_BETWEEN = (4, 12), 4
# Populations for each compared number of components.
_N_COMPARED = 2
# Work of an evaluation above which Laplace's method is the default, since sampling takes minutes:
# N = 5000 for ten classes and 64 features.
TOO_HEAVY = 1e5
# Draws of Laplace's approximation, Pareto k above which it is unreliable, and typical number of
# evaluations of its search.
N_LAPLACE, GOOD_K, _N_EVALUATIONS = 400, 0.7, 60
# R-hat beyond which populations are stuck; below, their predictions agree.
STUCK = 2.0
# Samples of whose linear predictor R-hat is computed.
_N_CHECKED = 16
# Folds, sufficient number of held-out samples to weight powers of pooling, particles of a fold.
N_FOLDS, _ENOUGH, _FOLD_PARTICLES = 5, 100, 24
# Particles for the evidence of the model without features.
_EMPTY_PARTICLES = 128
# Log scales of outputs are clipped to this, so that squares do not overflow.
_FAR = 100.0
# Linear predictors held in memory at once.
_BLOCK = 1 << 21
# Draws that colour a map.
_GRID_DRAWS = 100
# Smallest size of a linear predictor.
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    r"""Latent coordinates that the likelihood identifies.

    The likelihood identifies latent coordinates only up to an invertible affine map. With F(x) the
    posterior mean of the linear predictor, the identified coordinates are
    :math:`u(x) = V^\top (F(x) - \bar F)`, where the columns of V are the leading eigenvectors of
    the covariance of the class means of F (of F itself if targets are not classes): canonical
    variates in units of the probit noise, or of the output.

    Labels of nearly separable classes leave the size of the linear predictor open upwards, and a
    few draws of great size would determine its mean. The predictor of labels is therefore scaled to
    one size in all draws, the median root mean square over the training samples.

    coefficients
        Mean of Q W over draws, so scaled, for whitened features, (B, K).
    axes, shift
        V, (K, R), and V' times the mean linear predictor without bias, (R,).
    share
        Share of each axis in the variance between classes, (R,).
    maps
        A_s, (S, 1 + R, R), least-squares affine maps of the latent coordinates of each draw to u on
        the training samples; the first row is the constant.
    reliability
        Share of the variance of u that these maps explain, averaged over draws: 1 if all draws
        arrange the training samples alike.
    """

    coefficients: FloatArray
    axes: FloatArray
    shift: FloatArray
    share: FloatArray
    maps: FloatArray
    reliability: float

    @classmethod
    def learn(cls, problem: Problem, draws: Parameters) -> "Coordinates":
        """Identified coordinates from the training samples and all draws."""
        s, r, b = draws.projection.shape
        z = draws.latent(problem.X, np.zeros(len(problem.X)))
        weights = draws.weights
        if problem.target != "regression":
            eta = z @ weights
            size = np.sqrt(np.mean((eta - eta.mean(axis=1, keepdims=True)) ** 2, axis=(1, 2)))
            weights = weights * (np.median(size) / np.maximum(size, _TINY))[:, None, None]
        flat = draws.projection.reshape(s * r, b)
        coefficients = flat.T @ weights.reshape(s * r, -1) / s
        linear = problem.X @ coefficients  # (N, K)
        if problem.target == "multiclass":
            present = np.unique(problem.y)
            means = np.stack([linear[problem.y == label].mean(axis=0) for label in present])
            spread = means - means.mean(axis=0)
            spread -= spread.mean(axis=1, keepdims=True)
        else:
            spread = linear - linear.mean(axis=0)
        _, size, rows = np.linalg.svd(spread, full_matrices=True)
        axes = rows[:r].T
        largest = np.abs(axes).argmax(axis=0)
        axes = axes * np.where(axes[largest, np.arange(r)] < 0.0, -1.0, 1.0)
        variance = np.zeros(r)
        variance[: min(r, len(size))] = size[:r] ** 2
        total = float(np.sum(size**2))
        shift = linear.mean(axis=0) @ axes
        target = linear @ axes - shift
        maps = np.stack([_fit_affine(each, target) for each in z])
        residual = z @ maps[:, 1:] + maps[:, :1] - target
        around = np.sum(target**2)
        return cls(
            coefficients=coefficients,
            axes=axes,
            shift=shift,
            share=variance / total if total > 0.0 else np.full(r, 1.0 / r),
            maps=maps,
            reliability=1.0 - float(np.sum(residual**2)) / (s * around) if around > 0.0 else 0.0,
        )

    def thin(self, index: IntArray) -> "Coordinates":
        """Coordinates with the maps of some draws."""
        return replace(self, maps=self.maps[index])

    def embed(self, whitened: FloatArray) -> FloatArray:
        """u of whitened samples, (M, R)."""
        return whitened @ (self.coefficients @ self.axes) - self.shift

    def covariance(self, latent: FloatArray, mean: FloatArray) -> FloatArray:
        """Covariance of the coordinates of each sample over draws, (M, R, R).

        Parameters
        ----------
        latent : (S, M, R)
            Latent coordinates under each draw.
        mean : (M, R)
            u.
        """
        residual = latent @ self.maps[:, 1:] + self.maps[:, :1] - mean
        return np.einsum("smr,smq->mrq", residual, residual, optimize=True) / len(residual)

    def align(self, draws: Parameters) -> Parameters:
        """Draws in these coordinates, with the same linear predictor."""
        shift, linear = self.maps[:, 0], self.maps[:, 1:]  # (S, R), (S, R, R)
        weights = np.stack(
            [
                np.linalg.lstsq(a, w, rcond=None)[0]
                for a, w in zip(linear, draws.weights, strict=True)
            ]
        )
        return replace(
            draws,
            projection=np.swapaxes(linear, 1, 2) @ draws.projection,
            weights=weights,
            bias=draws.bias - (shift[:, None] @ weights)[:, 0],
        )


def _fit_affine(source: FloatArray, target: FloatArray) -> FloatArray:
    """Least-squares affine map of (N, R) to a target (N, R), constant first."""
    full = np.column_stack([np.ones(len(source)), source])
    size = np.sqrt(np.mean(full**2, axis=0))
    size[size == 0.0] = 1.0
    found: FloatArray = np.linalg.lstsq(full / size, target, rcond=1e-10)[0] / size[:, None]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Posterior draws for predictions.

    draws
        At most :data:`N_PREDICT`.
    power
        Power of pooling, see :func:`bsdr_models.bsdr.pooling.pool`.
    """

    metric: Metric
    draws: Parameters
    coordinates: Coordinates
    power: float
    target: Target
    lapse: float

    def components(self) -> FloatArray:
        """Loadings of the coordinates for scaled features, (R, D)."""
        found = self.coordinates.coefficients @ self.coordinates.axes  # (B, R)
        return np.asarray((self.metric.axes @ (self.metric.size[:, None] * found)).T)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of scaled samples (M, D), with their covariances."""
        whitened, outside = self.metric.whiten(X), self.metric.outside_sd(X)
        mean = self.coordinates.embed(whitened)
        cov = np.empty((*mean.shape, mean.shape[1]))
        for part in self._blocks(len(X), mean.shape[1]):
            latent = self.draws.latent(whitened[part], outside[part])
            cov[part] = self.coordinates.covariance(latent, mean[part])
        return LatentCoordinates(mean=mean, cov=cov)

    def log_probabilities(self, X: FloatArray, *, power: float | None = None) -> FloatArray:
        """Pooled log probabilities of classes, or of each label being 1: (M, K)."""
        power = self.power if power is None else power
        whitened, outside = self.metric.whiten(X), self.metric.outside_sd(X)
        out = np.empty((len(X), self.draws.bias.shape[1]))
        for part in self._blocks(len(X), out.shape[1]):
            eta = self.draws.linear_predictor(whitened[part], outside[part])
            out[part] = pool_labels(eta, self.target, self.lapse, power)
        return out

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R), by at most 100 draws.

        Of a sample whose deviation from u in single draws is zero: what all samples share, the
        shift, scale and shear of each draw, is averaged over.
        """
        kept = self.draws.spaced(_GRID_DRAWS)
        aligned = self.coordinates.thin(kept).align(self.draws.take(kept))
        out = np.empty((len(latent), aligned.bias.shape[1]))
        for part in self._blocks(len(latent), out.shape[1]):
            eta = latent[part] @ aligned.weights + aligned.bias[:, None]
            out[part] = pool_labels(eta, self.target, self.lapse, self.power)
        return out

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of real outputs, (M, K) each."""
        assert self.draws.noise_scale is not None
        whitened, outside = self.metric.whiten(X), self.metric.outside_sd(X)
        mean, std = (np.empty((len(X), self.draws.bias.shape[1])) for _ in range(2))
        for part in self._blocks(len(X), mean.shape[1]):
            eta = self.draws.linear_predictor(whitened[part], outside[part])
            mean[part] = eta.mean(axis=0)
            noise = np.mean(self.draws.noise_scale**2, axis=0)
            std[part] = np.sqrt(eta.var(axis=0) + noise)
        return mean, std

    def _blocks(self, n: int, width: int) -> list[slice]:
        size = max(1, _BLOCK // (len(self.draws.scale) * max(width, 1)))
        return [slice(begin, begin + size) for begin in range(0, n, size)]


def pool_labels(eta: FloatArray, target: Target, lapse: float, power: float) -> FloatArray:
    """Pooled log probabilities of classes, or of labels being 1, from eta (S, M, K)."""
    if target == "multiclass":
        return pool(np.log(probit_choice.probabilities(eta, lapse)), power)
    both = np.stack([log_ndtr(eta), log_ndtr(-eta)], axis=-1)
    both = np.logaddexp(np.log1p(-lapse) + both, np.log(lapse / 2.0))
    return pool(both, power)[..., 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalFit:
    """A fit to all training samples.

    draws
        Parameters of all chains, stacked, (C S, ...).
    coordinates
        Identified latent coordinates, with maps of all draws.
    n_chains
        C.
    log_likelihood
        Of each draw, (C, S); None for streams, which do not keep all samples.
    log_prior
        Of each draw as standard normals, (C, S); None if unknown.
    log_evidence, log_evidence_empty
        Of each chain, (C,), empty if the engine has none; and of the model without features.
    by_components
        Log evidence by number of components, if these were compared.
    acceptance
        Acceptance rate of each chain at temperature one, (C,).
    n_iter
        Temperatures of the longest chain, or draws of a chain.
    held_out
        Log score of held-out labels at the selected power of pooling.
    r_hat, ess
        Largest R-hat and smallest bulk effective sample size of the log likelihood and of the
        linear predictor of some training samples.
    pareto_k
        Of the importance ratios of Laplace's approximation; NaN for other engines.
    sample_stats
        Sample statistics of NUTS, (C, S) each.
    """

    posterior: Posterior
    draws: Parameters
    coordinates: Coordinates
    n_chains: int
    engine: Engine
    log_likelihood: FloatArray | None
    log_prior: FloatArray | None
    log_evidence: FloatArray
    log_evidence_empty: float
    by_components: tuple[tuple[int, float], ...]
    acceptance: FloatArray
    n_iter: int
    held_out: HeldOutScore
    r_hat: float
    ess: float
    interrupted: bool
    pareto_k: float = np.nan
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether the fit was completed and its diagnostic is below its limit."""
        if self.interrupted:
            return False
        if self.engine == "laplace":
            return self.pareto_k < GOOD_K
        return self.engine != "advi" and self.r_hat < R_HAT_LIMIT

    @property
    def n_draws(self) -> int:
        """Draws of a chain."""
        return len(self.draws.scale) // self.n_chains

    @property
    def total_log_evidence(self) -> float:
        """Log of the mean evidence over chains, in nats; NaN if unknown."""
        return mean_evidence(self.log_evidence)

    @property
    def log_bayes_factor(self) -> float:
        """Log Bayes factor against the model without features, in nats; NaN if unknown."""
        return self.total_log_evidence - self.log_evidence_empty

    def attrs(self) -> dict[str, float | int | list[float] | list[int]]:
        """Attributes of the tree."""
        attrs: dict[str, float | int | list[float] | list[int]] = {
            "interrupted": int(self.interrupted),
            "pooling_power": self.posterior.power,
            "lapse": self.posterior.lapse,
            "component_share": self.posterior.coordinates.share.tolist(),
            "map_reliability": self.posterior.coordinates.reliability,
        }
        if np.isfinite(self.pareto_k):
            attrs["pareto_k"] = self.pareto_k
        if np.isfinite(self.r_hat):
            attrs |= {"r_hat": self.r_hat, "ess_bulk": self.ess}
        if self.log_evidence.size:
            attrs |= {
                "log_evidence": self.total_log_evidence,
                "log_evidence_chains": self.log_evidence.tolist(),
                "log_bayes_factor": self.log_bayes_factor,
                "acceptance_rate": self.acceptance.tolist(),
            }
        if self.by_components:
            attrs["components_compared"] = [number for number, _ in self.by_components]
            attrs["components_log_evidence"] = [value for _, value in self.by_components]
        return attrs | self.held_out.attrs()

    def warn(self) -> None:
        """Warn of no signal, an unreliable approximation, or stuck chains."""
        if (reason := lack_of_signal(self.attrs())) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=5)
        if self.engine == "laplace" and not self.converged and not self.interrupted:
            warnings.warn(
                f"Laplace's approximation is not to be trusted here (Pareto k {self.pareto_k:.2f} "
                f"is above {GOOD_K}): use inference='smc'",
                ConvergenceWarning,
                stacklevel=5,
            )
        limit = STUCK if self.engine == "smc" else R_HAT_LIMIT
        if self.r_hat > limit:
            warnings.warn(
                f"R-hat of the identified quantities reaches {self.r_hat:.2f}: the chains are "
                "stuck in different modes; give more draws",
                ConvergenceWarning,
                stacklevel=5,
            )


def mean_evidence(log_evidence: FloatArray) -> float:
    """Log of the mean evidence over populations; NaN if there are none."""
    if not log_evidence.size:
        return np.nan
    return float(logsumexp(log_evidence) - np.log(len(log_evidence)))


def work(problem: Problem) -> float:
    """Cost of the log likelihood of a particle, in units of a normal distribution function.

    One takes about 25 ns, as some twenty multiplications do.
    """
    n, b = problem.X.shape
    # Regression needs no distribution function.
    each = 1.0 / 20.0 if problem.target == "regression" else 1.0
    return n * (each * problem.contrasts.shape[0] + b * problem.n_components / 20.0)


def moves_for(problem: Problem, n_draws: int | None = None) -> Moves:
    """Numbers of particles and moves of a chain.

    Parameters
    ----------
    n_draws : int, optional
        Requested draws of a chain.
    """
    load = max(work(problem), 1.0)
    n_particles = int(
        np.clip(round(_MAX_PARTICLES * np.sqrt(_FEW / load)), _MIN_PARTICLES, _MAX_PARTICLES)
    )
    n_last = n_particles // 2
    if problem.target == "regression":  # small noise makes narrow ridges, which need more moves
        return Moves(
            n_particles=n_particles,
            n_moves=6,
            n_warm_up=8,
            n_kept=2 * _KEPT[0] if n_draws is None else -(-n_draws // n_last),
            n_between=3,
            last_steps=64,
            n_last=n_last,
        )
    n_default = int(np.clip(round(_KEPT[0] * np.sqrt(1000.0 / load)), *_KEPT))
    n_kept = n_default if n_draws is None else -(-n_draws // n_last)
    return Moves(
        n_particles=n_particles,
        n_warm_up=6,
        n_kept=n_kept,
        n_between=min(_N_BETWEEN, -(-_N_BETWEEN * n_default // n_kept)),
        last_steps=64 if load <= _LIGHT else 32,
        n_last=n_last,
        kept_share=0.7 if load <= _MODERATE else 0.5,
    )


def fit(
    X: FloatArray,
    y: np.ndarray,
    *,
    engine: Engine | None,
    n_labels: int,
    n_components: int | Literal["auto"],
    target: Target,
    priors: HierarchicalPriors,
    power: float | None,
    n_chains: int,
    n_draws: int | None,
    tune: int,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
    progressbar: bool = False,
    declare: Callable[[int], Any],
) -> HierarchicalFit:
    """Fit the hierarchical model.

    Parameters
    ----------
    X : (N, D)
        Centred and scaled features.
    y : ndarray
        As in :class:`bsdr_models.bsdr.data.Data`.
    engine : {"smc", "laplace", "nuts", "advi"}, optional
        Tempered sequential Monte Carlo, a normal approximation around the mode, or PyMC's engines.
        None is ``"smc"``, or ``"laplace"`` for large problems.
    n_labels : int
        K.
    n_components : int or "auto"
        R; at most the number of contrasts, K - 1 for classes and K otherwise, is used. ``"auto"``
        selects the number with the largest evidence.
    power : float, optional
        Power of pooling; None selects it by held-out samples.
    n_chains, tune : int
        Populations or chains, and warm-up of NUTS.
    n_draws : int, optional
        Draws of each chain; by default determined by the size of the problem.
    rng : numpy.random.Generator
        Spawns streams, so that the result does not depend on ``n_jobs``.
    n_jobs : int, optional
        Parallel populations and folds.
    declare : callable
        Returns the PyMC model with a number of components.

    Raises
    ------
    KeyboardInterrupt
        If the user stops the fit before a population has reached the posterior.
    """
    metric = Metric.learn(X)
    whitened = metric.whiten(X)
    choice_rng, draw_rng, empty_rng, fold_rng, outside_rng = rng.spawn(5)

    def build(r: int) -> Problem:
        return Problem.build(
            whitened, y, n_labels=n_labels, n_components=r, target=target, priors=priors
        )

    largest = min(len(make_contrasts(n_labels, target)), whitened.shape[1])
    by_components: tuple[tuple[int, float], ...] = ()
    if n_components == "auto":
        by_components = compare_components(build, largest, rng=choice_rng, n_jobs=n_jobs)
        r = max(by_components, key=lambda pair: pair[1])[0]
    else:
        r = min(n_components, largest)
    problem = build(r)
    if engine is None:
        few = whitened.shape[1] * r <= MOST_LOADINGS
        engine = "laplace" if few and work(problem) > TOO_HEAVY else "smc"
    empty, interrupted = np.nan, False
    if engine in ("smc", "laplace"):
        empty = evidence_without_features(y, n_labels, target, priors, rng=empty_rng)
    if engine == "smc":
        runs, interrupted = run_populations(
            problem,
            moves_for(problem, n_draws),
            n_chains,
            rng=draw_rng,
            n_jobs=n_jobs,
            progressbar=progressbar,
        )
        theta = np.concatenate([run.draws for run in runs])
        draws = problem.parameters(theta, rng=outside_rng)
        log_likelihood = np.stack([run.log_likelihood for run in runs])
        log_prior = (-0.5 * np.sum(theta**2, axis=1)).reshape(log_likelihood.shape)
        found: dict[str, Any] = {
            "log_prior": log_prior,
            "log_evidence": np.array([run.log_evidence for run in runs]),
            "acceptance": np.array([run.acceptance[-1] for run in runs]),
            "n_iter": max(len(run.temperatures) for run in runs),
        }
    elif engine == "laplace":
        with search_progress(progressbar) as on_evaluation:
            normal = fit_laplace(
                problem,
                rng=draw_rng,
                n_draws=N_LAPLACE if n_draws is None else n_draws,
                on_evaluation=on_evaluation,
            )
        return fit_from_laplace(
            normal,
            problem,
            metric,
            power=1.0 if power is None else power,
            log_evidence_empty=empty,
            rng=outside_rng,
        )
    else:
        draws, shape, interrupted, stats = draw_with_pymc(
            engine,
            declare(r),
            metric,
            n_draws=N_DRAWS if n_draws is None else n_draws,
            tune=tune,
            n_chains=n_chains,
            rng=draw_rng,
            outside_rng=outside_rng,
            progressbar=progressbar,
        )
        each = pointwise_log_likelihood(draws, whitened, y, target, priors.lapse)
        log_likelihood = each.sum(axis=1).reshape(shape)
        found = {
            "log_prior": None,
            "log_evidence": np.array([]),
            "acceptance": np.array([]),
            "n_iter": shape[1],
            "sample_stats": stats,
        }
    held_out = HeldOutScore()
    if target == "regression":
        power = 1.0
    elif power is None:
        power = 1.0
        if not interrupted and not mean_evidence(found["log_evidence"]) - empty < NO_SIGNAL:
            try:
                power, held_out = choose_power(problem, rng=fold_rng, n_jobs=n_jobs)
            except KeyboardInterrupt:  # the draws can still be used
                interrupted = True
    return _assemble(
        problem,
        metric,
        draws,
        power=power,
        log_likelihood=log_likelihood,
        engine=engine,
        log_evidence_empty=empty,
        by_components=by_components,
        held_out=held_out,
        interrupted=interrupted,
        **found,
    )


def fit_from_laplace(
    normal: Laplace,
    problem: Problem,
    metric: Metric,
    *,
    power: float,
    log_evidence_empty: float,
    log_evidence_before: float = 0.0,
    n_evaluations_before: int = 0,
    rng: np.random.Generator,
) -> HierarchicalFit:
    """A fit by Laplace's method, whose power of pooling is given.

    Parameters
    ----------
    problem : Problem
        Of all samples or a subsample, which determine the latent coordinates.
    power : float
        Of pooling.
    log_evidence_empty : float
        Of the model without features.
    log_evidence_before : float
        Of earlier samples of a stream, added to that of ``normal``.
    n_evaluations_before : int
        Evaluations for earlier samples.
    rng : numpy.random.Generator
        For the part of the projection outside the row space of the training samples.
    """
    return _assemble(
        problem,
        metric,
        problem.parameters(normal.draws, rng=rng),
        power=power,
        log_likelihood=normal.log_likelihood[None],
        engine="laplace",
        log_prior=None,
        log_evidence=np.array([log_evidence_before + normal.log_evidence]),
        log_evidence_empty=log_evidence_empty,
        acceptance=np.array([]),
        n_iter=n_evaluations_before + normal.n_evaluations,
        held_out=HeldOutScore(),
        interrupted=normal.interrupted,
        pareto_k=normal.pareto_k if normal.converged else np.inf,
    )


def _assemble(
    problem: Problem,
    metric: Metric,
    draws: Parameters,
    *,
    power: float,
    log_likelihood: FloatArray,
    by_components: tuple[tuple[int, float], ...] = (),
    held_out: HeldOutScore,
    **found: Any,
) -> HierarchicalFit:
    """Fit from draws: coordinates, diagnostics, and thinned draws for predictions."""
    coordinates = Coordinates.learn(problem, draws)
    kept = draws.spaced(N_PREDICT)
    r_hat, ess = mixing(problem, draws, log_likelihood)
    return HierarchicalFit(
        posterior=Posterior(
            metric=metric,
            draws=draws.take(kept),
            coordinates=coordinates.thin(kept),
            power=power,
            target=problem.target,
            lapse=problem.priors.lapse,
        ),
        draws=draws,
        coordinates=coordinates,
        n_chains=len(log_likelihood),
        log_likelihood=log_likelihood,
        by_components=by_components,
        held_out=held_out,
        r_hat=r_hat,
        ess=ess,
        **found,
    )


@contextmanager
def search_progress(progressbar: bool) -> Iterator[Callable[[int, float], None]]:
    """Progress bar of a search with an unknown number of evaluations."""
    with ProgressBar(_N_EVALUATIONS, "BSDR, mode", enabled=progressbar) as bar:

        def show(count: int, value: float) -> None:
            bar.total = max(bar.total, count)
            bar.update(log_density=value)

        yield show
        bar.total = bar.count


def run_populations(
    problem: Problem,
    moves: Moves,
    n_chains: int,
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> tuple[list[Tempered], bool]:
    """Independent populations of particles, and whether the user has stopped them."""
    parallel = n_workers(n_jobs, n_chains) > 1
    with ProgressBar(100 * n_chains, "BSDR, tempering", enabled=progressbar) as bar:
        shown = 0

        def show(share: float) -> None:
            nonlocal shown
            new = int(100 * share)
            bar.update(new - shown)
            shown = new

        def temper(stream: np.random.Generator) -> Tempered:
            nonlocal shown
            shown = 0
            return run_tempering(
                problem.log_likelihood,
                problem.n_parameters,
                moves,
                rng=stream,
                jump=problem.rescale,
                align=problem.align,
                **({} if parallel else {"on_step": show}),
            )

        outcome = run_tasks(
            temper,
            rng.spawn(n_chains),
            n_jobs=n_jobs,
            what="populations",
            stopped=lambda run: run.interrupted,
            on_done=lambda run: bar.update(100) if parallel else None,
        )
    runs = list(outcome.results.values())
    whole = [run for run in runs if not run.interrupted] or runs[:1]
    return whole, outcome.interrupted or len(whole) < n_chains


def compare_components(
    build: Callable[[int], Problem],
    largest: int,
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
) -> tuple[tuple[int, float], ...]:
    """Log evidence of 1, 2, ... components, until it has fallen twice in a row."""
    found: list[tuple[int, float]] = []
    best, falls = -np.inf, 0
    for r, stream in zip(range(1, largest + 1), rng.spawn(largest), strict=True):
        problem = build(r)
        moves = replace(moves_for(problem), n_warm_up=1, n_kept=1, n_between=1)
        runs, interrupted = run_populations(problem, moves, _N_COMPARED, rng=stream, n_jobs=n_jobs)
        if interrupted:
            raise KeyboardInterrupt("before the number of components was chosen")
        value = mean_evidence(np.array([run.log_evidence for run in runs]))
        found.append((r, value))
        falls = 0 if value > best else falls + 1
        best = max(best, value)
        if falls == 2:
            break
    return tuple(found)


def draw_with_pymc(
    engine: str,
    model: Any,
    metric: Metric,
    *,
    n_draws: int,
    tune: int,
    n_chains: int,
    rng: np.random.Generator,
    outside_rng: np.random.Generator,
    progressbar: bool,
) -> tuple[Parameters, tuple[int, int], bool, dict[str, np.ndarray]]:
    """Draws by NUTS or ADVI, their shape, whether the run was interrupted, and sample statistics.

    As for the other engines, the part of the projection outside the row space of the training
    samples enters predictions by its prior.
    """
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    tree = engines.run_pymc(
        engine,
        model,
        SPEC,
        draws=n_draws,
        tune=tune,
        chains=n_chains,
        rng=rng,
        progressbar=progressbar,
    )
    posterior = tree["posterior"].to_dataset()
    shape = (posterior.sizes["chain"], posterior.sizes["draw"])

    def stacked(name: str) -> FloatArray:
        values = posterior[name].to_numpy()
        return np.ascontiguousarray(values.reshape(-1, *values.shape[2:]))

    Q = stacked("projection")  # (S, D, R)
    draws = Parameters(
        projection=np.swapaxes(Q, 1, 2) @ (metric.axes / metric.size),
        scale=stacked("scale"),
        weights=stacked("weights"),
        bias=stacked("bias"),
        noise_scale=stacked("noise_scale") if "noise_scale" in posterior else None,
        outside=outside_rng.standard_normal((len(Q), Q.shape[2])),
    )
    stats: dict[str, np.ndarray] = {}
    if "sample_stats" in tree.children:
        found = tree["sample_stats"].to_dataset()
        stats = {str(name): each.to_numpy() for name, each in found.items() if each.ndim == 2}
    return draws, shape, bool(tree.attrs.get("interrupted", 0)), stats


def mixing(problem: Problem, draws: Parameters, log_likelihood: FloatArray) -> tuple[float, float]:
    """Largest R-hat, smallest bulk ESS of the log likelihood and linear predictor of some samples.

    NaN for one chain, or for too few draws.
    """
    n_chains, n_draws = log_likelihood.shape
    if n_chains < 2 or n_draws < 4:
        return np.nan, np.nan
    import arviz_stats

    n = len(problem.X)
    some = np.unique(np.linspace(0, n - 1, min(n, _N_CHECKED)).astype(int))
    eta = draws.linear_predictor(problem.X[some], np.zeros(len(some)))
    values = np.concatenate([log_likelihood[..., None], eta.reshape(n_chains, n_draws, -1)], axis=2)
    r_hat = arviz_stats.rhat(values, chain_axis=0, draw_axis=1)
    ess = arviz_stats.ess(values, chain_axis=0, draw_axis=1)
    return float(np.max(r_hat)), float(np.min(ess))


def evidence_without_features(
    y: np.ndarray,
    n_labels: int,
    target: Target,
    priors: HierarchicalPriors,
    *,
    rng: np.random.Generator,
) -> float:
    """Log evidence of the model without features, biases and noise only, in nats.

    Sufficient statistics are class counts, or moments of the outputs.
    """
    contrasts = make_contrasts(n_labels, target)
    n_bias = len(contrasts)
    n_parameters = n_bias + (n_labels if target == "regression" else 0)

    def log_likelihood(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        bias = priors.bias_scale * theta[:, :n_bias] @ contrasts  # (S, K)
        if target == "regression":
            log_noise = priors.noise_location + priors.noise_width * theta[:, n_bias:]
            value, by_bias, by_noise = _normal_sums(y, bias, log_noise)
        else:
            value, by_bias = _label_sums(y, bias, target, priors.lapse)
            by_noise = np.empty((len(theta), 0))
        by_bias = priors.bias_scale * by_bias @ contrasts.T
        return value, np.concatenate([by_bias, priors.noise_width * by_noise], axis=1)

    moves = Moves(n_particles=_EMPTY_PARTICLES, n_moves=2, n_warm_up=1)
    return run_tempering(log_likelihood, n_parameters, moves, rng=rng).log_evidence


def _normal_sums(
    y: FloatArray, mean: FloatArray, log_scale: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log density of outputs (N, K) given means and log scales (S, K), and its gradients."""
    centre, spread = y.mean(axis=0), np.sum((y - y.mean(axis=0)) ** 2, axis=0)
    precision = np.exp(-2.0 * np.clip(log_scale, -_FAR, _FAR))
    gap = centre - mean
    square = precision * (spread + len(y) * gap**2)
    value = -0.5 * square.sum(axis=1) - len(y) * np.sum(log_scale + LOG_SQRT_2PI, axis=1)
    return value, len(y) * precision * gap, square - len(y)


def _label_sums(
    y: np.ndarray, eta: FloatArray, target: Target, lapse: float
) -> tuple[FloatArray, FloatArray]:
    """Log probability of labels if all samples have the same eta (S, K), and its gradient."""
    s, k = eta.shape
    if target == "multiclass":
        present, counts = np.unique(y, return_counts=True)
        same = np.broadcast_to(eta[:, None], (s, len(present), k))
        each, slope = label_log_likelihood(same, present, target, lapse)
        return each @ counts, np.einsum("n,snk->sk", counts, slope)
    # Each label is a separate problem with two samples, 1 and 0.
    counts = np.stack([y.sum(axis=0), (~y.astype(bool)).sum(axis=0)])  # (2, K)
    both = np.broadcast_to(eta.reshape(s * k, 1, 1), (s * k, 2, 1))
    each, slope = label_log_likelihood(both, np.array([[True], [False]]), target, lapse)
    value = np.einsum("nk,skn->s", counts, each.reshape(s, k, 2))
    return value, np.einsum("nk,skn->sk", counts, slope.reshape(s, k, 2))


def make_folds(problem: Problem) -> IntArray:
    """Fold of each sample, (N,), stratified by class; -1 for the only sample of a class.

    There are at most as many folds as samples in the smallest class with two or more.
    """
    n = len(problem.y)
    groups = problem.y if problem.target == "multiclass" else np.zeros(n, dtype=np.int64)
    sizes = np.bincount(groups)
    n_folds = min(N_FOLDS, int(sizes[sizes > 1].min(initial=n)))
    return assign_folds(groups, sample_keys(problem.X), n_folds=n_folds)


def choose_power(
    problem: Problem, *, rng: np.random.Generator, n_jobs: int | None = 1
) -> tuple[float, HeldOutScore]:
    """Power of pooling from held-out samples, and their log score at that power.

    Folds are held out in turn until there are :data:`_ENOUGH` samples. Features are whitened as for
    all samples, which does not use labels.

    Returns
    -------
    power : float
        1 if no sample can be held out.
    held_out : HeldOutScore
    """
    streams, folds = rng.spawn(N_FOLDS), make_folds(problem)
    n_folds = int(folds.max()) + 1
    if n_folds < 2:
        return 1.0, HeldOutScore()
    sizes = np.cumsum(np.bincount(folds[folds >= 0]))
    held_out = range(min(int(np.searchsorted(sizes, _ENOUGH)) + 1, n_folds))

    def log_probabilities(fold: int) -> list[FloatArray]:
        return _held_out_log_probabilities(problem, folds == fold, streams[fold])

    outcome = run_tasks(log_probabilities, held_out, n_jobs=n_jobs, what="folds")
    if outcome.interrupted:
        raise KeyboardInterrupt("before the power of pooling was chosen")
    by_power = [np.concatenate(each) for each in zip(*outcome.results.values(), strict=True)]
    power = weigh_powers([float(each.sum()) for each in by_power])
    # Linear between the two powers beside it.
    shares = [np.interp(power, POWERS[::-1], unit[::-1]) for unit in np.eye(len(POWERS))]
    log_p = np.tensordot(shares, by_power, axes=1)
    y = np.concatenate([problem.y[folds == fold] for fold in outcome.results])
    return power, HeldOutScore.of(log_p, y)


def _held_out_log_probabilities(
    problem: Problem, out: BoolArray, rng: np.random.Generator
) -> list[FloatArray]:
    """Log probability of each held-out label under each power."""
    others = replace(problem, X=np.ascontiguousarray(problem.X[~out]), y=problem.y[~out])
    found = run_tempering(
        others.log_likelihood,
        others.n_parameters,
        Moves(n_particles=_FOLD_PARTICLES, kept_share=0.5),
        rng=rng,
        jump=others.rescale,
        align=others.align,
    )
    draws = others.parameters(found.draws, rng=rng)
    eta = draws.linear_predictor(problem.X[out], np.zeros(int(out.sum())))
    y = problem.y[out]
    out_by_power = []
    for power in POWERS:
        log_p = pool_labels(eta, problem.target, problem.priors.lapse, power)
        if problem.target == "multiclass":
            out_by_power.append(log_p[np.arange(len(y)), y])
        else:
            off = np.log(-np.expm1(np.minimum(log_p, -1e-15)))
            out_by_power.append(np.where(y, log_p, off))
    return out_by_power


def pointwise_log_likelihood(
    draws: Parameters, whitened: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> FloatArray:
    """Log likelihood of each training sample under each draw, (S, N)."""
    eta = draws.linear_predictor(whitened, np.zeros(len(whitened)))
    if target == "regression":
        assert draws.noise_scale is not None
        return regression_log_likelihood(eta, y, draws.noise_scale)
    return label_log_likelihood(eta, y, target, lapse)[0]
