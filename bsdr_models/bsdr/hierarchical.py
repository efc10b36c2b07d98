"""Fits of the hierarchical model.

Each population of particles (:mod:`bsdr_models.bsdr.populations`) is a chain of the result.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bsdr_models.arrays import FloatArray, IntArray, Target
from bsdr_models.bsdr.draws import Coordinates, Posterior
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.laplace import MOST_LOADINGS, Laplace, fit_laplace
from bsdr_models.bsdr.pooling import choose_power
from bsdr_models.bsdr.populations import (
    Comparison,
    compare_components,
    evidence_without_features,
    mean_evidence,
    moves_for,
    run_populations,
    work,
)
from bsdr_models.bsdr.posterior import (
    Metric,
    Parameters,
    Problem,
    label_log_likelihood,
    make_contrasts,
    regression_log_likelihood,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.views import FeatureMap, Views, learn_map
from bsdr_models.checks import R_HAT_LIMIT
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.metrics import NO_SIGNAL, HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.folds import stratified_subset
from bsdr_models.options import N_DRAWS

type Engine = Literal["smc", "laplace", "nuts", "advi"]

# Samples of which kernels are compared.
_N_COMPARED = 500
# Draws used for predictions and for the covariance of latent coordinates.
N_PREDICT = 256
# Work of an evaluation above which Laplace's method is the default, since sampling takes minutes:
# N = 5000 for ten classes and 64 features; for kernels, whose normal approximation is worse.
TOO_HEAVY, TOO_HEAVY_KERNEL = 1e5, 2e5
# Draws of Laplace's approximation, Pareto k above which it is unreliable, and typical number of
# evaluations of its search.
N_LAPLACE, GOOD_K, _N_EVALUATIONS = 400, 0.7, 60
# R-hat beyond which populations are stuck; below, their predictions agree.
STUCK = 2.0
# Samples of whose linear predictor R-hat is computed.
_N_CHECKED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """Kernels, and their mean log scores of held-out samples."""

    kernels: tuple[Kernel, ...]
    names: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def chosen(self) -> int:
        """Index of the best."""
        return int(np.argmax(self.scores))

    @property
    def kernel(self) -> Kernel:
        """The best."""
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
    comparison
        Of numbers of components, if one was selected.
    kernel_choice
        Of kernels, if one was selected.
    acceptance
        Acceptance rate of each chain at temperature one, (C,).
    n_iter
        Temperatures of the longest chain, or draws of a chain.
    held_out
        Log score of held-out labels at the selected power of pooling.
    r_hat, ess
        Largest R-hat and smallest bulk effective sample size of the log likelihood and of the
        linear predictor of some training samples.
    unmixed
        Share of these quantities with an R-hat above the limit.
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
    log_evidence_empty: float
    n_iter: int
    r_hat: float
    ess: float
    unmixed: float
    interrupted: bool
    log_prior: FloatArray | None = None
    log_evidence: FloatArray = field(default_factory=lambda: np.empty(0))
    comparison: Comparison | None = None
    kernel_choice: KernelChoice | None = None
    acceptance: FloatArray = field(default_factory=lambda: np.empty(0))
    held_out: HeldOutScore = field(default_factory=HeldOutScore)
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

    def attrs(self) -> dict[str, Any]:
        """Attributes of the tree."""
        attrs: dict[str, Any] = {
            "interrupted": int(self.interrupted),
            "pooling_power": self.posterior.power,
            "lapse": self.posterior.lapse,
            "component_share": self.posterior.coordinates.share.tolist(),
            "map_reliability": self.posterior.coordinates.reliability,
        }
        if np.isfinite(self.pareto_k):
            attrs["pareto_k"] = self.pareto_k
        if np.isfinite(self.r_hat):
            attrs |= {"r_hat": self.r_hat, "ess_bulk": self.ess, "unmixed": self.unmixed}
        if self.log_evidence.size:
            attrs |= {
                "log_evidence": self.total_log_evidence,
                "log_evidence_chains": self.log_evidence.tolist(),
                "log_bayes_factor": self.log_bayes_factor,
                "acceptance_rate": self.acceptance.tolist(),
            }
        if self.comparison is not None:
            attrs |= self.comparison.attrs()
        if self.kernel_choice is not None:
            attrs |= self.kernel_choice.attrs()
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


def fit_hierarchical(
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
    declare: Callable[[int, FeatureMap], Any],
    kernels: Sequence[Any] = ("linear",),
    views: Sequence[tuple[str, IntArray]] | None = None,
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
        selects one by the evidence, see :class:`bsdr_models.bsdr.populations.Comparison`.
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
        Returns the PyMC model with a number of components and whitened features.
    kernels : sequence
        Arguments of :func:`bsdr_models.bsdr.views.learn_map`, of which the one with the best score
        of held-out samples is used.
    views : sequence of (str, ndarray), optional
        Names and features of views.

    Raises
    ------
    KeyboardInterrupt
        If the user stops the fit before a population has reached the posterior.
    """
    choice_rng, draw_rng, empty_rng, fold_rng, outside_rng = rng.spawn(5)
    most = len(make_contrasts(n_labels, target))

    def build(metric: FeatureMap, index: IntArray | slice, r: int) -> Problem:
        return Problem.build(
            metric.whiten(X[index]),
            y[index],
            n_labels=n_labels,
            n_components=min(r, most, metric.width),
            target=target,
            priors=priors,
            views=metric.index if isinstance(metric, Views) else None,
        )

    choice: KernelChoice | None = None
    if len(kernels) == 1:
        metric = learn_map(X, kernels[0], views)
    else:
        groups = y if target == "multiclass" else np.zeros(len(y), dtype=np.int64)
        subset = stratified_subset(groups, _N_COMPARED)
        maps = [learn_map(X, kernel, views) for kernel in kernels]
        r = most if n_components == "auto" else n_components
        choice = compare_kernels(
            [build(each, subset, r) for each in maps],
            kernels,
            rng=rng.spawn(1)[0],
            n_jobs=n_jobs,
        )
        metric = maps[choice.chosen]
    whitened, whole = metric.whiten(X), slice(None)
    largest = min(most, metric.width)
    comparison = None
    if n_components == "auto":
        comparison = compare_components(
            lambda r: build(metric, whole, r), largest, rng=choice_rng, n_jobs=n_jobs
        )
        n_components = comparison.chosen
    r = min(n_components, largest)
    problem = build(metric, whole, r)
    if engine is None:
        few = problem.views is None and whitened.shape[1] * r <= MOST_LOADINGS
        heavy = TOO_HEAVY if isinstance(metric, Metric) else TOO_HEAVY_KERNEL
        engine = "laplace" if few and work(problem) > heavy else "smc"
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
            kernel_choice=choice,
            rng=outside_rng,
        )
    else:
        draws, shape, interrupted, stats = draw_with_pymc(
            engine,
            declare(r, metric),
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
        found = {"n_iter": shape[1], "sample_stats": stats}
    if target == "regression":
        power = 1.0
    elif power is None:
        power = 1.0
        evidence = mean_evidence(found.get("log_evidence", np.empty(0)))
        if not interrupted and not evidence - empty < NO_SIGNAL:
            try:
                power, found["held_out"] = choose_power(problem, rng=fold_rng, n_jobs=n_jobs)
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
        comparison=comparison,
        kernel_choice=choice,
        interrupted=interrupted,
        **found,
    )


def fit_from_laplace(
    normal: Laplace,
    problem: Problem,
    metric: FeatureMap,
    *,
    power: float,
    log_evidence_empty: float,
    kernel_choice: KernelChoice | None = None,
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
        log_evidence=np.array([log_evidence_before + normal.log_evidence]),
        log_evidence_empty=log_evidence_empty,
        n_iter=n_evaluations_before + normal.n_evaluations,
        interrupted=normal.interrupted,
        pareto_k=normal.pareto_k if normal.converged else np.inf,
        kernel_choice=kernel_choice,
    )


def _assemble(
    problem: Problem,
    metric: FeatureMap,
    draws: Parameters,
    *,
    power: float,
    log_likelihood: FloatArray,
    **found: Any,
) -> HierarchicalFit:
    """Fit from draws: coordinates, diagnostics, and thinned draws for predictions."""
    coordinates = Coordinates.learn(problem, draws)
    kept = draws.spaced(N_PREDICT)
    r_hat, ess, unmixed = mixing(problem, draws, log_likelihood)
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
        r_hat=r_hat,
        ess=ess,
        unmixed=unmixed,
        **found,
    )


def compare_kernels(
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
) -> KernelChoice:
    """Held-out log scores of the same samples under several kernels."""
    scores = tuple(
        choose_power(problem, rng=stream, n_jobs=n_jobs)[1].score
        for problem, stream in zip(problems, rng.spawn(len(problems)), strict=True)
    )
    names = tuple(each.label for each in kernels)
    return KernelChoice(kernels=tuple(kernels), names=names, scores=scores)


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

    if isinstance(metric, Metric):
        Q = stacked("projection")  # (S, D, R)
        projection = np.swapaxes(Q, 1, 2) @ (metric.axes / metric.size)
    else:
        projection = np.swapaxes(stacked("basis_weights"), 1, 2)
    draws = Parameters(
        projection=projection,
        scale=stacked("scale"),
        weights=stacked("weights"),
        bias=stacked("bias"),
        noise_scale=stacked("noise_scale") if "noise_scale" in posterior else None,
        outside=outside_rng.standard_normal(projection.shape[:2]),
        view_scale=stacked("view_scale") if "view_scale" in posterior else None,
    )
    stats: dict[str, np.ndarray] = {}
    if "sample_stats" in tree.children:
        found = tree["sample_stats"].to_dataset()
        stats = {str(name): each.to_numpy() for name, each in found.items() if each.ndim == 2}
    return draws, shape, bool(tree.attrs.get("interrupted", 0)), stats


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

    n = len(problem.X)
    some = np.unique(np.linspace(0, n - 1, min(n, _N_CHECKED)).astype(int))
    eta = draws.linear_predictor(problem.X[some])
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
