"""Engines of the paper's model: mean field and Gibbs in NumPy, NUTS and ADVI through PyMC."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bsdr_models.alignment import rotations
from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.problem import Candidate, Problem
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.views import split_views
from bsdr_models.inference.dims import FEATURE
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Schedule, run_sampler
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.row_space import Rows
from bsdr_models.papers.bm2pca import gibbs, mean_field
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of
from bsdr_models.papers.bm2pca.mean_field import Data, State
from bsdr_models.papers.bm2pca.posterior import DrawPosterior, MarginPosterior
from bsdr_models.papers.coordinate_ascent import Bound, Extrapolation, run_coordinate_ascent

if TYPE_CHECKING:
    import pymc as pm

# Gain of a round, in nats, at which mean field has converged.
TOL = 1e-3
# Sweeps in cross-validation for a fit that runs to convergence.
CONVERGED = 50
# Gibbs sweeps in cross-validation, both warm-up and kept.
PATH_SWEEPS = 150
# Largest variable, in numbers over all draws, that is recorded.
MAX_NUMBERS = 20_000_000


def make_data(problem: Problem, cost: float) -> list[Data]:
    """Views and margins of one problem with all outcomes, or of one for each."""
    views = split_views(problem.X, problem.columns)
    data = mean_field.make_data(views, problem.Y, cost, problem.epsilon)
    if problem.strategy == "shared":
        return [data]
    return [replace(data, margins=data.margins.of_label(c)) for c in range(problem.Y.shape[1])]


def initial_states(data: Sequence[Data], problem: Problem, rng: np.random.Generator) -> list[State]:
    """Initial state of each problem."""
    r = problem.n_components
    return [mean_field.init(own, problem.priors, n_components=r, rng=rng) for own in data]


def run_sweeps(
    problem: Problem, cost: float, n_sweeps: int, rng: np.random.Generator
) -> MarginPosterior:
    """Posterior after plain sweeps."""
    data = make_data(problem, cost)
    states = initial_states(data, problem, rng)
    for _ in range(n_sweeps):
        pairs = zip(states, data, strict=True)
        states = [mean_field.sweep(state, own, problem.priors) for state, own in pairs]
    return margin_posterior(states, data, problem)


def path_scores_of_sweeps(
    problem: Problem, X: Rows, candidates: Sequence[Candidate], rng: np.random.Generator
) -> FloatArray:
    """Scores of new samples for all costs and numbers of sweeps, costs first: (G, M, K)."""
    costs = list(dict.fromkeys(each["C"] for each in candidates))
    sweeps = list(dict.fromkeys(each["n_sweeps"] or CONVERGED for each in candidates))
    data = make_data(problem, costs[0])
    initial = initial_states(data, problem, rng)
    scores = []
    for cost in costs:
        data = [replace(own, margins=replace(own.margins, cost=cost)) for own in data]
        pairs = zip(initial, data, strict=True)
        states = [replace(state, slack=mean_field.update_slack(state, own)) for state, own in pairs]
        for number in range(1, max(sweeps) + 1):
            pairs = zip(states, data, strict=True)
            states = [mean_field.sweep(state, own, problem.priors) for state, own in pairs]
            if number in sweeps:
                scores.append(margin_posterior(states, data, problem).scores(X))
    return np.stack(scores)


def margin_posterior(
    states: Sequence[State], data: Sequence[Data], problem: Problem
) -> MarginPosterior:
    """Posterior for prediction."""
    models = [
        FactorModel.of(state.views, own.views, problem.columns)
        for state, own in zip(states, data, strict=True)
    ]
    return MarginPosterior(factor_models=tuple(models), states=tuple(states))


def fit_mean_field(
    problem: Problem,
    *,
    cost: float,
    rng: np.random.Generator,
    max_iter: int,
    tol: float,
    progressbar: bool = False,
) -> Result[MarginPosterior]:
    """Maximise the bound: ``max_iter`` plain sweeps if ``tol`` is 0, else to convergence.

    The bound of several problems is the sum of theirs. Plain sweeps converge slowly along narrow
    ridges of the bound, so of three sweeps to convergence one is extrapolated.
    """
    data = make_data(problem, cost)

    def step(states: list[State]) -> tuple[list[State], Bound]:
        pairs = [
            mean_field.step(state, own, problem.priors)
            for state, own in zip(states, data, strict=True)
        ]
        names = pairs[0][1].terms
        total = {name: sum(bound.terms[name] for _, bound in pairs) for name in names}
        return [state for state, _ in pairs], Bound(total)

    def pack(states: list[State]) -> FloatArray:
        return np.concatenate([mean_field.pack(state) for state in states])

    def unpack(vector: FloatArray, states: list[State]) -> list[State]:
        # Problems have the same shapes.
        vectors = np.split(vector, len(states))
        return list(map(mean_field.unpack, vectors, states, data))

    result = run_coordinate_ascent(
        lambda stream, _: initial_states(data, problem, stream),
        step,
        rng=rng,
        max_iter=max_iter,
        tol=tol,
        extrapolation=Extrapolation(pack=pack, unpack=unpack) if tol > 0.0 else None,
        title="BM2PCA, mean field",
        progressbar=progressbar,
    )
    result = result if tol > 0.0 else replace(result, advice="")
    return result.with_posterior(margin_posterior(result.posterior, data, problem))


def fit_draws(
    problem: Problem, engine: str, *, cost: float, schedule: Schedule, rng: np.random.Generator
) -> Result[DrawPosterior]:
    """Fit the model with one subspace by Gibbs, NUTS or ADVI; components are aligned."""
    margins = margins_of(problem.Y, cost, problem.epsilon)
    data = gibbs.Data(X=problem.X, margins=margins)
    excluded = {"scores"}
    if schedule.chains * schedule.draws * len(problem.X) * problem.n_components > MAX_NUMBERS:
        excluded.add("latent")
    size = {"n_components": problem.n_components, "n_chains": schedule.chains}
    sampled = run_sampler(
        engine,
        schedule,
        init=lambda stream: gibbs.init(data, problem.priors, **size, rng=stream),
        step=lambda state, stream: gibbs.step(state, data, problem.priors, rng=stream),
        record=gibbs.to_variables,
        stats=lambda state: {"lp": gibbs.log_density(state, data, problem.priors)},
        excluded=excluded,
        declare=lambda: declare(problem, cost),
        spec=SPEC,
        rng=rng,
    )
    # C order, as in a model loaded from a file.
    aligned = align_components(dict(sampled.draws), problem.priors, rng).items()
    sampled = replace(sampled, draws={name: np.ascontiguousarray(v) for name, v in aligned})
    return Result(
        posterior=DrawPosterior.of(sampled.draws),
        trace=np.asarray(sampled.fit.get("elbo", [])),
        converged=False,
        interrupted=sampled.interrupted,
        sampled=sampled,
    )


def path_scores_of_draws(
    problem: Problem, X: Rows, candidates: Sequence[Candidate], rng: np.random.Generator
) -> FloatArray:
    """Scores of new samples by short Gibbs runs for every cost, (G, M, K).

    All samplers have the same posterior; scores of mean field are smaller.
    """
    schedule = Schedule(draws=PATH_SWEEPS, tune=PATH_SWEEPS, chains=1)
    scores = []
    for each in candidates:
        fit = fit_draws(problem, "gibbs", cost=each["C"], schedule=schedule, rng=rng)
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.posterior.scores(X))
    return np.stack(scores)


def declare(problem: Problem, cost: float) -> "pm.Model":
    """The PyMC model of the training samples; raise a ValueError unless `check_samples`."""
    from bsdr_models.papers.bm2pca import model

    check_samples(problem, "model_")
    axes = {FEATURE: range(problem.X.shape[1]), problem.score_axis: range(problem.Y.shape[1])}
    options: Any = {"n_components": problem.n_components, "C": cost, "epsilon": problem.epsilon}
    return model.declare(problem.X, problem.Y, axes, priors=problem.priors, **options)


def check_samples(problem: Problem, what: str) -> None:
    """Raise a ValueError if X is incomplete or of several views."""
    if not problem.complete or len(problem.columns) > 1:
        raise ValueError(
            f"{what} needs complete samples of one view; use inference='mean_field' for missing "
            "values and for several views"
        )


def align_components(
    draws: dict[str, FloatArray], priors: Priors, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Rotate the components of every draw into alignment.

    Products over the component axis, such as W z and eta' z, are unchanged. Precisions of columns
    of the loadings are not defined after a rotation, and drawn given the rotated loadings.
    """
    W = draws["loadings"]
    eta = draws["weights"]
    d, r = W.shape[2:]
    stacked = np.concatenate([W, eta.mT], axis=2)
    turn = rotations(stacked.reshape(-1, *stacked.shape[2:])).reshape(*W.shape[:2], r, r)
    out = draws | {"loadings": W @ turn, "weights": turn.mT @ eta}
    if "latent" in draws:
        out["latent"] = draws["latent"] @ turn
    rate = priors.loading_rate + 0.5 * np.sum(out["loadings"] ** 2, axis=2)
    out["loading_precision"] = rng.gamma(priors.loading_shape + 0.5 * d, 1.0 / rate)
    return out
