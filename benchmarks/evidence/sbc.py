r"""Simulation-based calibration [1]_ of identified quantities of BSDR.

Parameters and targets are drawn from the joint distribution. The rank of a true value among L
draws from the posterior of its targets is then uniform on 0..L, for every function of parameters
and targets, if the draws are right.

References
----------
.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman (2018). Validating Bayesian
       inference algorithms with simulation-based calibration. arXiv:1804.06788.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binom, chisquare

from benchmarks.evidence.simulate import (
    HierarchicalTruths,
    Truths,
    features,
    simulate,
    simulate_hierarchical,
    varying_together,
)
from benchmarks.page import table
from bsdr_models.bsdr import hmc
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.feature_map import learn_map
from bsdr_models.bsdr.posterior import Parameters
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem, label_log_likelihood, regression_log_likelihood
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, Target
from bsdr_models.papers import maximise, sample
from bsdr_models.papers.bsdr import gibbs, mean_field
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.draws import BSDRDraws
from bsdr_models.papers.bsdr.mean_field import Data
from bsdr_models.papers.bsdr.priors import SAMPLING

PRIORS, K = HierarchicalPriors(), 3
# With it the standard deviation of class scores is a fifth of that of their noise, on average.
WEAK = HierarchicalPriors(scale=0.25)
# Targets, samples and features of the default, and priors; K classes, labels or outputs.
CASES: dict[str, tuple[Target, int, int, HierarchicalPriors]] = {
    "classes": ("multiclass", 40, 6, PRIORS),
    "classes, D > N": ("multiclass", 15, 25, PRIORS),
    "weak signal, D > N": ("multiclass", 15, 25, WEAK),
    "label sets": ("multilabel", 40, 6, PRIORS),
    "real outputs": ("regression", 20, 4, PRIORS),
}
# The paper's model.
N_PAPER, D_PAPER, R_PAPER = 18, 2, 1
SEED = 20
# Level of one test, fixed before any run, equal bins of the ranks, and intervals.
LEVEL, N_BINS, INTERVAL = 0.01, 10, 0.9
COMMON = ("coef[0, 0]", "coef[1, 2]", "bias[0]", "new sample", "log likelihood")
QUANTITIES = (*COMMON, "tau", "noise scale")
# Values closer than this are ties.
TIE = 1e-9
NAMES = ("projection", "weights", "bias")

# Ranks of the true values, (C,), by quantity.
type Ranks = dict[str, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Data sets and their draws; chains of a set, and draws of each; Gibbs sweeps of a draw."""

    n_sets: int = 300
    n_draws: int = 99
    n_chains: int = 16
    n_kept: int = 50
    thin: int = 5
    tune: int = 200


def report(pictures: Path, plan: Plan | None = None) -> str:
    """Table of tests; writes ``sbc.png``."""
    plan = plan or Plan()
    found = {name: by_default(*case, plan) for name, case in CASES.items()} | by_paper(plan)
    draw(found, plan).savefig(pictures / "sbc.png", dpi=90)
    rows = [
        [name, *(verdict(ranks.get(name), plan) for ranks in found.values())] for name in QUANTITIES
    ]
    sizes = "; ".join(f"{name}: N = {n}, D = {d}" for name, (_, n, d, _) in CASES.items())
    return (
        f"{plan.n_sets} data sets and {plan.n_draws} draws for each column. K = {K}; "
        f"{sizes}; the paper's model: N = {N_PAPER}, D = {D_PAPER}, R = {R_PAPER}. P-values of the "
        f"chi-square of {N_BINS} bins, **bold** below {LEVEL:.0%}; in brackets the share of "
        f"{INTERVAL:.0%} intervals that hold the truth.\n\n" + table(["quantity", *found], rows)
    )


def verdict(ranks: IntArray | None, plan: Plan) -> str:
    """One cell of the table."""
    if ranks is None:
        return "–"
    p, held = uniformity(ranks, plan.n_draws), np.mean(covered(ranks, plan.n_draws))
    shown = f"{p:.3f}" if p >= 0.0005 else "< 0.0005"
    return f"{shown if p >= LEVEL else f'**{shown}**'} ({held:.0%})"


# -------------------------------------------------------------------------------- the default model


def by_default(target: Target, n: int, d: int, priors: HierarchicalPriors, plan: Plan) -> Ranks:
    """Ranks among draws of the default engine, with new features for each set."""
    rows = []
    for rng in np.random.default_rng(SEED).spawn(plan.n_sets):
        X, new = varying_together(n, d, rng)
        truth = simulate_hierarchical(X, priors, (1, K), target, rng)
        metric = euclidean(X)
        problem = BSDRProblem(
            X=metric.whiten(X), y=truth.y[0], n_labels=K, target=target, priors=priors
        )
        if target == "regression":
            exact = fit_conjugate(problem, n_draws=plan.n_draws, rng=rng)
            parameters, likelihood = exact.draws, exact.log_likelihood
        else:
            sampled = hmc.sample(problem, n_chains=plan.n_chains, n_draws=plan.n_kept, rng=rng)
            theta = sampled.theta.reshape(-1, problem.n_parameters)
            parameters = problem.parameters(theta, rng=rng)
            likelihood = sampled.log_likelihood.ravel()
        last = len(parameters.scale) - 1
        kept = np.unique(np.linspace(0, last, min(plan.n_draws, last + 1)).round().astype(int))
        draws = of_draws(metric, parameters.take(kept), new, rng)
        draws["log likelihood"] = likelihood[kept]
        true = of_truths(truth, new, target)
        true["log likelihood"] = log_likelihood(truth, target).sum(axis=1)
        rows.append({name: rank(true[name], draws[name], rng) for name in draws})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def euclidean(X: FloatArray) -> Metric:
    """The metric under which coefficients are simulated, which no label has part in."""
    metric = learn_map(X, metric="identity").metric
    assert metric is not None
    return metric


def of_draws(
    metric: Metric, draws: Parameters, new: FloatArray, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Quantities of draws of the default model, each (S,)."""
    outside = rng.standard_normal((*draws.projection.shape[:2], len(metric.axes)))
    loadings = draws.projection @ metric.effects.T
    loadings += metric.outside_loadings(draws.scale[:, None, None] * outside)
    coef = np.swapaxes(loadings, 1, 2) @ draws.weights
    eta = draws.linear_predictor(metric.whiten(new), metric.outside_sd(new))[:, 0]
    out = identified(coef, draws.bias, eta) | {"tau": draws.scale}
    return out if draws.noise_scale is None else out | {"noise scale": draws.noise_scale[:, 0]}


def of_truths(truths: HierarchicalTruths, new: FloatArray, target: Target) -> dict[str, FloatArray]:
    """The same of true values."""
    eta = (new @ truths.coef)[:, 0] + truths.bias
    out = identified(truths.coef, truths.bias, eta) | {"tau": truths.scale}
    return out if target != "regression" else out | {"noise scale": truths.noise_scale[:, 0]}


def identified(coef: FloatArray, bias: FloatArray, eta: FloatArray) -> dict[str, FloatArray]:
    """Entries of coefficients (S, D, K), biases (S, K) and linear predictors (S, K)."""
    return dict(zip(COMMON, (coef[:, 0, 0], coef[:, 1, 2], bias[:, 0], eta[:, 0]), strict=False))


def log_likelihood(truths: HierarchicalTruths, target: Target) -> FloatArray:
    """Log likelihood of simulated targets under the true values, (C, N)."""
    each = []
    for eta, sigma, y in zip(truths.eta, truths.noise_scale, truths.y, strict=True):
        if target == "regression":
            each.append(regression_log_likelihood(eta[None], y, sigma[None])[0])
        else:
            each.append(label_log_likelihood(eta[None], y, target, PRIORS.lapse)[0][0])
    return np.array(each)


# ------------------------------------------------------------------------------ the paper's model


def by_paper(plan: Plan) -> dict[str, Ranks]:
    """Ranks of the true values, by engine, on the same features throughout."""
    rng_truth, rng_gibbs, rng_fit, rng_ties = np.random.default_rng(SEED).spawn(4)
    X = features(N_PAPER, D_PAPER, rng_truth)
    truths = simulate(X, SAMPLING, (plan.n_sets, R_PAPER, K), rng_truth)
    new = rng_truth.standard_normal(D_PAPER)
    found = {
        "paper: Gibbs": by_gibbs(truths, plan, rng_gibbs),
        "paper: mean field": by_mean_field(truths, plan, rng_fit),
    }
    ranks: dict[str, Ranks] = {
        engine: {name: np.zeros(plan.n_sets, dtype=np.int64) for name in COMMON} for engine in found
    }
    for c in range(plan.n_sets):
        y = truths.y[c]
        true = quantities({name: getattr(truths, name)[c][None] for name in NAMES}, X, y, new)
        for engine, draws in found.items():
            values = quantities({name: each[c] for name, each in draws.items()}, X, y, new)
            for name in COMMON:
                ranks[engine][name][c] = rank(true[name], values[name], rng_ties)
    return ranks


def by_gibbs(truths: Truths, plan: Plan, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws (C, S, ...) of `gibbs.step`: one randomly initialised chain per data set."""
    data = Data(design=DenseDesign(truths.X), y=truths.y, n_labels=K)
    result = sample(
        partial(gibbs.init, data, SAMPLING, n_components=R_PAPER, n_chains=len(truths.y)),
        partial(gibbs.step, data=data, priors=SAMPLING),
        record=lambda state: {name: getattr(state, name) for name in NAMES},
        draws=plan.n_draws * plan.thin,
        tune=plan.tune,
        rng=rng,
    )
    return {name: draws[:, plan.thin - 1 :: plan.thin] for name, draws in result.draws.items()}


def by_mean_field(truths: Truths, plan: Plan, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws (C, S, ...) from q of one fit for each data set."""
    sets = []
    for y in truths.y:
        data = Data(design=DenseDesign(truths.X), y=y, n_labels=K)
        init = partial(mean_field.init, data, SAMPLING, n_components=R_PAPER)
        state = maximise(
            [init, partial(init, at_random=True)],
            partial(mean_field.step, data=data, priors=SAMPLING),
            extrapolation=mean_field.extrapolation(data),
            rng=rng,
        ).posterior
        options = {"n_draws": plan.n_draws, "latent": False, "rng": rng}
        sets.append(mean_field.draw(state, data, SAMPLING, **options))
    return {name: np.stack([drawn[name] for drawn in sets]) for name in NAMES}


def quantities(
    draws: dict[str, FloatArray], X: FloatArray, y: IntArray, new: FloatArray
) -> dict[str, FloatArray]:
    """Identified quantities of S draws of one data set, each (S,)."""
    weights, bias = (
        draws[name] - draws[name].mean(axis=-1, keepdims=True) for name in ("weights", "bias")
    )
    coef = draws["projection"] @ weights  # (S, D, K)
    posterior = BSDRDraws(**draws, latent_scale=SAMPLING.latent_scale, target="multiclass")
    value = posterior.log_likelihood(X, y).sum(axis=1)
    return identified(coef, bias, new @ coef + bias) | {"log likelihood": value}


def rank(true: FloatArray, draws: FloatArray, rng: np.random.Generator) -> int:
    """Draws (S,) below the true value (1,), with random ties.

    The log likelihood of well-separated classes is the same for many parameters: a truth among ties
    would never have the highest rank.
    """
    gap = draws - true
    tied = int(np.sum(np.abs(gap) <= TIE))
    return int(np.sum(gap < -TIE)) + int(rng.integers(0, tied + 1))


def uniformity(ranks: IntArray, n_draws: int) -> float:
    """P-value of Pearson's chi-square for uniform ranks in 0..n_draws."""
    counts, _ = np.histogram(ranks, bins=N_BINS, range=(-0.5, n_draws + 0.5))
    return float(chisquare(counts).pvalue)


def covered(ranks: IntArray, n_draws: int) -> BoolArray:
    """Whether the central interval of the draws covers the truth."""
    place = (ranks + 0.5) / (n_draws + 1)
    return np.asarray(np.abs(place - 0.5) < 0.5 * INTERVAL)


def draw(found: dict[str, Ranks], plan: Plan) -> Figure:
    """Histograms of ranks; the band is a 99 % interval of uniform ranks."""
    figure = Figure(figsize=(1.75 * len(QUANTITIES), 1.5 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), len(QUANTITIES), sharex=True, sharey="row", squeeze=False)
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], plan.n_sets, 1 / N_BINS)
    for ax, name in zip(axes[0], QUANTITIES, strict=True):
        ax.set_title(name, fontsize=10)
    for row, (who, ranks) in zip(axes, found.items(), strict=True):
        for ax, name in zip(row, QUANTITIES, strict=True):
            if name not in ranks:
                ax.set_axis_off()
                continue
            ax.axhspan(low, high, color="#dddddd", zorder=0)
            ax.axhline(plan.n_sets / N_BINS, color="#888888", linewidth=0.8, zorder=1)
            ax.hist(
                ranks[name],
                bins=N_BINS,
                range=(-0.5, plan.n_draws + 0.5),
                color="#4477aa",
                edgecolor="white",
                zorder=2,
                alpha=0.85,
            )
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(who.replace(", ", ",\n").replace(": ", ":\n"), fontsize=10)
    figure.supxlabel("rank of the truth", fontsize=10)
    figure.supylabel("data sets", fontsize=10)
    return figure
