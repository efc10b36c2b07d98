"""Fits of BSDR's model at full rank, by every engine."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bsdr_models.arrays import FloatArray, IntArray, Target
from bsdr_models.bsdr import hmc
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.draws import Coordinates, Posterior
from bsdr_models.bsdr.held_out import choose_temperature, compare, compared_samples
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.laplace import MOST_LOADINGS, Laplace, fit_laplace
from bsdr_models.bsdr.posterior import (
    Metric,
    Parameters,
    Problem,
    label_log_likelihood,
    regression_log_likelihood,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.views import FeatureMap, Views, learn_map
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.options import N_DRAWS
from bsdr_models.validation import R_HAT_LIMIT

type Engine = Literal["hmc", "conjugate", "laplace", "nuts", "advi"]

# Exponents of the prior covariance that are compared, and the least gain in the held-out log score,
# in nats per sample, for anything but the first of all that are compared.
EXPONENTS, _LEAST_GAIN = (0.0, 0.5), 0.01
# Chains of Hamiltonian Monte Carlo side by side in each chain of the result, and draws of each.
WALKERS, _MOST_DRAWS, _FEWEST_DRAWS = 4, 200, 50
# Work of an evaluation, see `work`, and draws of each for it; work above which Laplace's method is
# the default.
_MODERATE, _DRAWS, TOO_HEAVY = 3400.0, 130.0, 1e6
# Draws of Laplace's approximation and of the conjugate posterior.
N_INDEPENDENT = 1000
# Draws by which whitened features are compared for real outputs.
_N_SCORED = 100
# Pareto k above which Laplace's method is unreliable, and typical number of its evaluations.
GOOD_K, _N_EVALUATIONS = 0.7, 60
# Linear predictors, of a class for a sample, of which R-hat is computed.
_N_CHECKED = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class MapChoice:
    """Whitened features that were compared, and their mean log scores of held-out samples."""

    kernels: tuple[Any, ...]
    names: tuple[str, ...]
    scores: tuple[float, ...]
    chosen: int

    @property
    def kernel(self) -> Any:
        """The kernel that was chosen."""
        return self.kernels[self.chosen]

    def attrs(self) -> dict[str, Any]:
        """Attributes of the tree."""
        return {
            "kernels_compared": list(self.names),
            "kernels_held_out_score": list(self.scores),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalFit:
    """A fit to all training samples.

    Attributes
    ----------
    draws : Parameters
        Parameters of all chains, stacked, (C S, ...).
    n_chains : int
        C.
    log_likelihood : ndarray
        Of each draw, (C, S).
    log_prior : ndarray, optional
        Of each draw as standard normals, (C, S).
    log_evidence, log_evidence_error, log_evidence_empty : float
        Of the model, with its standard error, and of that without features, in nats; NaN if
        unknown.
    choice : MapChoice, optional
        Of whitened features, if they were compared.
    held_out : HeldOutScore
        Log score of held-out labels at the selected temperature.
    r_hat, ess : float
        Largest R-hat and smallest bulk effective sample size of the log likelihood and of the
        linear predictor of some training samples.
    unmixed : float
        Share of these quantities with an R-hat above the limit.
    pareto_k : float
        Of the importance ratios of Laplace's approximation; NaN for other engines.
    sample_stats : dict
        Sample statistics, (C, S) each.
    """

    posterior: Posterior
    draws: Parameters
    n_chains: int
    engine: Engine
    log_likelihood: FloatArray
    n_iter: int
    r_hat: float = np.nan
    ess: float = np.nan
    unmixed: float = np.nan
    interrupted: bool = False
    log_prior: FloatArray | None = None
    log_evidence: float = np.nan
    log_evidence_error: float = np.nan
    log_evidence_empty: float = np.nan
    choice: MapChoice | None = None
    held_out: HeldOutScore = field(default_factory=HeldOutScore)
    pareto_k: float = np.nan
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def coordinates(self) -> Coordinates:
        """Identified latent coordinates, with maps of all draws."""
        return self.posterior.coordinates

    @property
    def converged(self) -> bool:
        """Whether the fit was completed and its diagnostic is below its limit."""
        if self.interrupted or self.engine == "advi":
            return False
        if self.engine == "laplace":
            return self.pareto_k < GOOD_K
        return self.engine == "conjugate" or self.r_hat < R_HAT_LIMIT

    @property
    def n_draws(self) -> int:
        """Draws of a chain."""
        return len(self.draws.scale) // self.n_chains

    @property
    def log_bayes_factor(self) -> float:
        """Log Bayes factor against the model without features, in nats; NaN if unknown."""
        return self.log_evidence - self.log_evidence_empty

    def attrs(self) -> dict[str, Any]:
        """Attributes of the tree."""
        attrs: dict[str, Any] = {
            "interrupted": int(self.interrupted),
            "temperature": self.posterior.temperature,
            "lapse": self.posterior.lapse,
            "component_share": self.posterior.share.tolist(),
            "map_reliability": self.posterior.coordinates.reliability,
        }
        numbers = {
            "pareto_k": self.pareto_k,
            "r_hat": self.r_hat,
            "ess_bulk": self.ess,
            "unmixed": self.unmixed,
            "log_evidence": self.log_evidence,
            "log_evidence_error": self.log_evidence_error,
            "log_bayes_factor": self.log_bayes_factor,
        }
        attrs |= {name: value for name, value in numbers.items() if np.isfinite(value)}
        if isinstance(self.posterior.metric, Metric):
            attrs["prior_exponent"] = self.posterior.metric.exponent
        if self.choice is not None:
            attrs |= self.choice.attrs()
        return attrs | self.held_out.attrs()

    def warn(self) -> None:
        """Warn of chains that have not mixed, an unreliable approximation, or no signal."""
        if self.interrupted:
            return
        if self.engine == "laplace" and not self.converged:
            warnings.warn(
                f"Laplace's approximation is not to be trusted here (Pareto k {self.pareto_k:.2f} "
                f"is above {GOOD_K}): use inference='hmc'",
                ConvergenceWarning,
                stacklevel=5,
            )
        if (reason := lack_of_signal(self.attrs())) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=5)
        elif self.r_hat > R_HAT_LIMIT:
            warnings.warn(
                f"the chains have not mixed: R-hat reaches {self.r_hat:.2f}; take more draws "
                "(sampling=Sampling(draws=...))",
                ConvergenceWarning,
                stacklevel=5,
            )


def fit_hierarchical(
    X: FloatArray,
    y: np.ndarray,
    *,
    engine: Engine | None,
    n_labels: int,
    n_components: int | None,
    target: Target,
    priors: HierarchicalPriors,
    temperature: float | None,
    n_chains: int,
    n_draws: int | None,
    tune: int,
    rng: np.random.Generator,
    progressbar: bool = False,
    declare: Callable[[FeatureMap], Any],
    kernels: Sequence[Any] = ("linear",),
    views: Sequence[tuple[str, IntArray]] | None = None,
) -> HierarchicalFit:
    """Fit the model at full rank.

    Parameters
    ----------
    X : (N, D)
        Centred and scaled features.
    y : ndarray
        As in :class:`bsdr_models.bsdr.paper.data.Data`.
    engine : {"hmc", "conjugate", "laplace", "nuts", "advi"}, optional
        None is ``"conjugate"`` for real outputs, else ``"hmc"``, or ``"laplace"`` for large
        problems.
    n_components : int, optional
        Latent coordinates that are shown; None for all.
    temperature : float, optional
        Of class probabilities; None selects it by held-out samples.
    n_draws : int, optional
        Draws of each chain; by default determined by the size of the problem.
    declare : callable
        Returns the PyMC model of whitened features.
    kernels : sequence
        Arguments of :func:`bsdr_models.bsdr.views.learn_map`, of which the one with the best score
        of held-out samples is used.
    views : sequence of (str, ndarray), optional
        Names and features of views.

    Raises
    ------
    KeyboardInterrupt
        If the user stops the fit before there are draws.
    """
    sample_rng, fold_rng, outside_rng, map_rng = rng.spawn(4)

    def build(feature_map: FeatureMap, index: IntArray | slice = slice(None)) -> Problem:
        return Problem.build(
            feature_map.whiten(X[index]),
            y[index],
            n_labels=n_labels,
            target=target,
            priors=priors,
            views=feature_map.index if isinstance(feature_map, Views) else None,
        )

    feature_map, choice = choose_map(X, y, kernels, views, target, build, map_rng)
    problem = build(feature_map)
    if engine is None:
        engine = default_engine(problem)
    if engine == "conjugate":
        return _fit_outputs(problem, feature_map, n_draws, n_components, choice, rng=sample_rng)
    if engine == "laplace":
        with search_progress(progressbar) as on_evaluation:
            normal = fit_laplace(
                problem,
                rng=sample_rng,
                n_draws=N_INDEPENDENT if n_draws is None else n_draws,
                on_evaluation=on_evaluation,
            )
        return fit_from_laplace(
            normal,
            problem,
            feature_map,
            n_components=n_components,
            temperature=1.0 if temperature is None else temperature,
            choice=choice,
            rng=outside_rng,
        )
    if engine == "hmc":
        if n_draws is None:
            share = (_MODERATE / max(work(problem), 1.0)) ** 0.25
            n_walk = int(np.clip(_DRAWS * share, _FEWEST_DRAWS, _MOST_DRAWS))
            n_walk *= 1 if problem.views is None else 2
        else:
            n_walk = -(-n_draws // WALKERS)
        with sampling_progress(progressbar) as on_step:
            sampled = hmc.sample(
                problem,
                n_chains=WALKERS * n_chains,
                n_draws=n_walk,
                rng=sample_rng,
                on_step=on_step,
            )
        interrupted, held_out = sampled.interrupted, HeldOutScore()
        if temperature is None and not interrupted:
            try:
                temperature, held_out = choose_temperature(problem, sampled, rng=fold_rng)
            except KeyboardInterrupt:  # the draws can still be used
                interrupted = True
        theta = sampled.theta.reshape(-1, problem.n_parameters)
        by_chain = (n_chains, sampled.divergent.size // n_chains)
        return assemble(
            problem,
            feature_map,
            problem.parameters(theta, rng=outside_rng),
            engine="hmc",
            n_components=n_components,
            temperature=temperature or 1.0,
            log_likelihood=sampled.log_likelihood.reshape(by_chain),
            log_prior=sampled.log_prior.reshape(by_chain),
            log_evidence=sampled.log_evidence,
            log_evidence_error=sampled.log_evidence_error,
            log_evidence_empty=sampled.log_evidence_empty,
            held_out=held_out,
            n_iter=by_chain[1],
            interrupted=interrupted,
            choice=choice,
            sample_stats={"diverging": sampled.divergent.reshape(by_chain)},
        )
    draws, shape, interrupted, stats = draw_with_pymc(
        engine,
        declare(feature_map),
        feature_map,
        problem.contrasts,
        n_draws=N_DRAWS if n_draws is None else n_draws,
        tune=tune,
        n_chains=n_chains,
        rng=sample_rng,
        outside_rng=outside_rng,
        progressbar=progressbar,
    )
    each = pointwise_log_likelihood(draws, problem.X, y, target, priors.lapse)
    return assemble(
        problem,
        feature_map,
        draws,
        engine=engine,
        n_components=n_components,
        temperature=1.0 if temperature is None else temperature,
        log_likelihood=each.sum(axis=1).reshape(shape),
        n_iter=shape[1],
        interrupted=interrupted,
        choice=choice,
        sample_stats=stats,
    )


def work(problem: Problem) -> float:
    """Cost of the log likelihood of a draw, in units of a normal distribution function.

    One takes about 25 ns, as some twenty multiplications do.
    """
    n, b = problem.X.shape
    return n * len(problem.contrasts) * (1.0 + b / 20.0)


def default_engine(problem: Problem) -> Engine:
    """Engine for a target and a size."""
    if problem.target == "regression":
        return "conjugate"
    few = problem.views is None and problem.n_loadings <= MOST_LOADINGS
    return "laplace" if few and work(problem) > TOO_HEAVY else "hmc"


def choose_map(
    X: FloatArray,
    y: np.ndarray,
    kernels: Sequence[Any],
    views: Sequence[tuple[str, IntArray]] | None,
    target: Target,
    build: Callable[[FeatureMap, IntArray], Problem],
    rng: np.random.Generator,
) -> tuple[FeatureMap, MapChoice | None]:
    """Whitened features with the best score of held-out samples, and what was compared.

    Linear kernels are compared with each exponent of their prior covariance.
    """
    candidates = []
    for kernel in kernels:
        linear = kernel == "linear" or (isinstance(kernel, Kernel) and kernel.name == "linear")
        for exponent in EXPONENTS if linear else (0.0,):
            candidates.append((kernel, exponent, learn_map(X, kernel, views, exponent)))
    if len(candidates) == 1:
        return candidates[0][2], None
    index = compared_samples(y, target)
    problems = [build(feature_map, index) for _, _, feature_map in candidates]
    if target == "regression":
        scores = [score_outputs(problem, rng) for problem in problems]
    else:
        scores = compare(problems)
    chosen = int(np.argmax(scores))
    if scores[chosen] < scores[0] + _LEAST_GAIN:
        chosen = 0
    best = candidates[chosen][2]
    if len(kernels) == 1:
        return best, None
    names = tuple(
        f"linear, exponent {exponent:g}" if kernel.name == "linear" else kernel.label
        for kernel, exponent, _ in candidates
    )
    compared = tuple(kernel for kernel, _, _ in candidates)
    return best, MapChoice(kernels=compared, names=names, scores=tuple(scores), chosen=chosen)


def score_outputs(problem: Problem, rng: np.random.Generator) -> float:
    """Mean leave-one-out log score of real outputs."""
    return float(np.mean(fit_conjugate(problem, n_draws=_N_SCORED, rng=rng).log_score))


def _fit_outputs(
    problem: Problem,
    feature_map: FeatureMap,
    n_draws: int | None,
    n_components: int | None,
    choice: MapChoice | None,
    *,
    rng: np.random.Generator,
) -> HierarchicalFit:
    """The conjugate posterior of real outputs."""
    exact = fit_conjugate(problem, n_draws=N_INDEPENDENT if n_draws is None else n_draws, rng=rng)
    return assemble(
        problem,
        feature_map,
        exact.draws,
        engine="conjugate",
        n_components=n_components,
        temperature=1.0,
        log_likelihood=exact.log_likelihood[None],
        log_prior=exact.log_prior[None],
        log_evidence=exact.log_evidence,
        log_evidence_error=0.0,
        log_evidence_empty=exact.log_evidence_empty,
        held_out=HeldOutScore(score=float(np.mean(exact.log_score))),
        n_iter=1,
        choice=choice,
    )


def fit_from_laplace(
    normal: Laplace,
    problem: Problem,
    feature_map: FeatureMap,
    *,
    n_components: int | None,
    temperature: float,
    choice: MapChoice | None = None,
    counts: IntArray | None = None,
    rng: np.random.Generator,
) -> HierarchicalFit:
    """A fit by Laplace's method; ``problem`` has all samples, or some if there are ``counts``.

    These are the numbers of samples of each class, (K,).
    """
    every = problem
    if counts is not None:
        every = replace(problem, y=np.repeat(np.arange(len(counts)), counts))
    return assemble(
        problem,
        feature_map,
        problem.parameters(normal.theta, rng=rng),
        engine="laplace",
        n_components=n_components,
        temperature=temperature,
        log_likelihood=normal.log_likelihood[None],
        log_evidence=normal.log_evidence,
        log_evidence_empty=hmc.log_evidence_empty(every, rng=rng),
        n_iter=normal.n_evaluations,
        interrupted=normal.interrupted,
        pareto_k=normal.pareto_k if normal.converged else np.inf,
        choice=choice,
    )


def assemble(
    problem: Problem,
    feature_map: FeatureMap,
    draws: Parameters,
    *,
    n_components: int | None,
    temperature: float,
    log_likelihood: FloatArray,
    **result: Any,
) -> HierarchicalFit:
    """Fit from draws of an engine: coordinates and diagnostics."""
    coordinates = Coordinates.learn(problem, draws)
    width = coordinates.axes.shape[1]
    r_hat, ess, unmixed = mixing(problem, draws, log_likelihood)
    return HierarchicalFit(
        posterior=Posterior(
            metric=feature_map,
            draws=draws,
            coordinates=coordinates,
            temperature=temperature,
            target=problem.target,
            lapse=problem.priors.lapse,
            n_components=width if n_components is None else min(n_components, width),
        ),
        draws=draws,
        n_chains=len(log_likelihood),
        log_likelihood=log_likelihood,
        r_hat=r_hat,
        ess=ess,
        unmixed=unmixed,
        **result,
    )


@contextmanager
def sampling_progress(progressbar: bool) -> Iterator[Callable[[float], None]]:
    """Progress bar of a run whose share that is done is reported."""
    with ProgressBar(100, "BSDR, Hamiltonian Monte Carlo", enabled=progressbar) as bar:
        shown = 0

        def show(share: float) -> None:
            nonlocal shown
            bar.update(int(100 * share) - shown)
            shown = int(100 * share)

        yield show


@contextmanager
def search_progress(progressbar: bool) -> Iterator[Callable[[int, float], None]]:
    """Progress bar of a search with an unknown number of evaluations."""
    with ProgressBar(_N_EVALUATIONS, "BSDR, mode", enabled=progressbar) as bar:

        def show(count: int, value: float) -> None:
            bar.total = max(bar.total, count)
            bar.update(log_density=value)

        yield show
        bar.total = bar.count


def draw_with_pymc(
    engine: str,
    model: Any,
    metric: FeatureMap,
    contrasts: FloatArray,
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

    sampled = engines.run_pymc(
        engine,
        model,
        SPEC,
        draws=n_draws,
        tune=tune,
        chains=n_chains,
        rng=rng,
        progressbar=progressbar,
    )
    posterior = sampled.draws
    n_chains, n_draws = posterior["bias"].shape[:2]

    def stacked(name: str) -> FloatArray:
        values = posterior[name]
        return np.ascontiguousarray(values.reshape(-1, *values.shape[2:]))

    if isinstance(metric, Metric):
        Q = stacked("projection")  # (S, D, J)
        projection = np.swapaxes(Q, 1, 2) @ (metric.axes / metric.size)
    else:
        projection = np.swapaxes(stacked("basis_weights"), 1, 2)
    draws = Parameters(
        projection=projection,
        scale=stacked("scale"),
        weights=np.broadcast_to(contrasts, (len(projection), *contrasts.shape)),
        bias=stacked("bias"),
        noise_scale=stacked("noise_scale") if "noise_scale" in posterior else None,
        outside=outside_rng.standard_normal(projection.shape[:2]),
        view_scale=stacked("view_scale") if "view_scale" in posterior else None,
    )
    return draws, (n_chains, n_draws), sampled.interrupted, dict(sampled.sample_stats)


def mixing(
    problem: Problem, draws: Parameters, log_likelihood: FloatArray
) -> tuple[float, float, float]:
    """R-hat and bulk ESS of the log likelihood and the linear predictor of some samples.

    The largest and the smallest, and the share of these quantities with an R-hat above
    :data:`R_HAT_LIMIT`. NaN for one chain, or for too few draws.
    """
    n_chains, n_draws = log_likelihood.shape
    if n_chains < 2 or n_draws < 4:
        return np.nan, np.nan, np.nan
    import arviz_stats

    n, k = len(problem.X), problem.contrasts.shape[1]
    sample, label = np.divmod(np.linspace(0, n * k - 1, min(n * k, _N_CHECKED)).astype(int), k)
    eta = draws.linear_predictor(problem.X[sample])[:, np.arange(len(sample)), label]
    values = np.concatenate([log_likelihood[..., None], eta.reshape(n_chains, n_draws, -1)], axis=2)
    r_hat = arviz_stats.rhat(values, chain_axis=0, draw_axis=1)
    ess = arviz_stats.ess(values, chain_axis=0, draw_axis=1)
    return float(np.max(r_hat)), float(np.min(ess)), float(np.mean(r_hat > R_HAT_LIMIT))


def pointwise_log_likelihood(
    draws: Parameters, whitened: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> FloatArray:
    """Log likelihood of each training sample under each draw, (S, N)."""
    eta = draws.linear_predictor(whitened)
    if target == "regression":
        assert draws.noise_scale is not None
        return regression_log_likelihood(eta, y, draws.noise_scale)
    return label_log_likelihood(eta, y, target, lapse)[0]
