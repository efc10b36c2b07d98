r"""Simulation-based calibration [1]_ of identified quantities of BSDR.

Parameters and labels are drawn from the joint distribution. The rank of a true value among L
draws from the posterior of its labels is then uniform on 0..L, for every function of parameters
and labels, if the draws are right.

References
----------
.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman (2018). Validating Bayesian
       inference algorithms with simulation-based calibration. arXiv:1804.06788.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binom, chisquare

from benchmarks.evidence.page import table
from benchmarks.evidence.simulate import Truths, features, simulate
from bsdr_models.bsdr import gibbs, predict
from bsdr_models.bsdr.fit import fit_mean_field
from bsdr_models.bsdr.predict import DrawPosterior
from bsdr_models.bsdr.priors import SAMPLING
from bsdr_models.data import Data
from bsdr_models.inference.gibbs import run_gibbs
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.typing import FloatArray, IntArray, ProjectionPrior

PRIORS = SAMPLING
KINDS: tuple[ProjectionPrior, ...] = ("entrywise", "columnwise")
N, D, R, K = 18, 2, 1, 3
SEED = 20
# Level of one test, fixed before any run, and equal bins of the ranks.
LEVEL, N_BINS = 0.01, 10
PLACES = ((0, 0), (0, 1), (1, 2))
QUANTITIES = (*(f"coef[{d}, {k}]" for d, k in PLACES), "bias_centered[0]", "log likelihood")
NAMES = ("projection", "weights", "bias")

# Ranks of the true values, (C,), by engine and quantity.
type Ranks = dict[str, dict[str, IntArray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of a run.

    n_sets, n_draws
        Data sets, and draws kept of each.
    thin, tune
        Gibbs sweeps of a kept draw, and before the first.
    """

    n_sets: int = 500
    n_draws: int = 99
    thin: int = 25
    tune: int = 500


def report(pictures: Path, plan: Plan | None = None) -> str:
    """Tables of tests; writes ``sbc.png``."""
    plan = plan or Plan()
    found = {kind: run(plan, kind) for kind in KINDS}
    draw({kind: ranks for kind, (ranks, _) in found.items()}, plan).savefig(
        pictures / "sbc.png", dpi=90
    )
    rows, sizes = [], []
    for kind, (ranks, size) in found.items():
        for name in QUANTITIES:
            rows.append([kind, name, *(verdict(each[name], plan) for each in ranks.values())])
        sizes.append(f"{kind}: " + ", ".join(f"{who} {norm:.2f}" for who, norm in size.items()))
    engines = list(found[KINDS[0]][0])
    return (
        f"{plan.n_sets} data sets of {N} rows for each prior, D = {D}, R = {R}, K = {K}; "
        f"{plan.n_draws} draws of each, every {plan.thin} sweeps after {plan.tune}. "
        f"P-values of the chi-square of {N_BINS} bins, **bold** below {LEVEL:.0%}; "
        "in brackets the share of ranks in the outer fifth.\n\n"
        + table(["prior of the projection", "quantity", *engines], rows)
        + "\n\nMedian norm of the centred coefficients: "
        + "; ".join(sizes)
        + "."
    )


def verdict(ranks: IntArray, plan: Plan) -> str:
    """One cell of the table."""
    p, outside = uniformity(ranks, plan.n_draws), np.mean(extreme(ranks, plan.n_draws))
    shown = f"{p:.3f}" if p >= 0.0005 else "< 0.0005"
    return f"{shown if p >= LEVEL else f'**{shown}**'} ({outside:.2f})"


def run(plan: Plan, kind: ProjectionPrior) -> tuple[Ranks, dict[str, float]]:
    """Ranks of the true values and the median size of coefficients, by engine."""
    rng_truth, rng_gibbs, rng_fit = np.random.default_rng(SEED).spawn(3)
    X = features(N, D, rng_truth)
    truths = simulate(X, PRIORS, (plan.n_sets, R, K), rng_truth, projection_prior=kind)
    found = {
        "Gibbs": by_gibbs(truths, plan, kind, rng_gibbs),
        "mean field": by_mean_field(truths, plan, kind, rng_fit),
    }
    ranks: Ranks = {engine: {} for engine in found}
    for c in range(plan.n_sets):
        y = truths.y[c]
        true = quantities({name: getattr(truths, name)[c][None] for name in NAMES}, X, y)
        for engine, draws in found.items():
            values = quantities({name: each[c] for name, each in draws.items()}, X, y)
            for name in QUANTITIES:
                rank = int(np.sum(values[name] < true[name]))
                ranks[engine].setdefault(name, np.zeros(plan.n_sets, dtype=np.int64))[c] = rank
    true_size = np.median(coef_norm(truths.projection, truths.weights))
    sizes = {"truth": float(true_size)}
    for engine, draws in found.items():
        sizes[engine] = float(np.median(coef_norm(draws["projection"], draws["weights"])))
    return ranks, sizes


def by_gibbs(
    truths: Truths, plan: Plan, kind: ProjectionPrior, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws (C, S, ...) of `gibbs.step_joint`: a chain of each data set, begun at random."""
    data = Data(design=DenseDesign(truths.X), y=truths.y, n_labels=K)
    result = run_gibbs(
        lambda stream: gibbs.init(
            data,
            PRIORS,
            n_components=R,
            projection_prior=kind,
            n_chains=len(truths.y),
            rng=stream,
        ),
        lambda state, stream: gibbs.step_joint(state, data, PRIORS, rng=stream),
        record=lambda state: {name: getattr(state, name) for name in NAMES},
        draws=plan.n_draws,
        tune=plan.tune,
        thin=plan.thin,
        rng=rng,
    )
    return dict(result.draws)


def by_mean_field(
    truths: Truths, plan: Plan, kind: ProjectionPrior, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws (C, S, ...) from q of one fit for each data set."""
    sets = []
    for y in truths.y:
        data = Data(design=DenseDesign(truths.X), y=y, n_labels=K)
        state = fit_mean_field(
            data, PRIORS, n_components=R, projection_prior=kind, rng=rng, n_restarts=2
        ).state
        inside = data.design.draw(
            state.projection_precision.mean,
            PRIORS.latent_scale**2,
            size=(plan.n_draws, R),
            rng=rng,
        )
        noise = rng.standard_normal((plan.n_draws, K, 1 + R))
        half = np.linalg.cholesky(state.weights.cov)
        full = state.weights.mean + np.einsum("kpq,skq->spk", half, noise)  # (S, 1 + R, K)
        sets.append((state.projection.mean + inside, full[:, 1:], full[:, 0]))
    projection, weights, bias = (np.stack(each) for each in zip(*sets, strict=True))
    return {"projection": projection, "weights": weights, "bias": bias}


def centred_coef(projection: FloatArray, weights: FloatArray) -> FloatArray:
    """Coefficients (..., D, K), of which only differences of classes are identified."""
    coef = projection @ weights
    return coef - coef.mean(axis=-1, keepdims=True)


def coef_norm(projection: FloatArray, weights: FloatArray) -> FloatArray:
    """Norms (...,) of `centred_coef`."""
    return np.linalg.norm(centred_coef(projection, weights), axis=(-2, -1))


def quantities(
    draws: Mapping[str, FloatArray], X: FloatArray, y: IntArray
) -> dict[str, FloatArray]:
    """Identified quantities of S draws of one data set, each (S,)."""
    coef = centred_coef(draws["projection"], draws["weights"])  # (S, D, K)
    posterior = DrawPosterior(
        **draws, noise_precision=None, latent_scale=PRIORS.latent_scale, target="multiclass"
    )
    out = {f"coef[{d}, {k}]": coef[:, d, k] for d, k in PLACES}
    out["bias_centered[0]"] = draws["bias"][:, 0] - draws["bias"].mean(axis=1)
    out["log likelihood"] = predict.log_likelihood(posterior, X, y).sum(axis=1)
    return out


def uniformity(ranks: IntArray, n_draws: int) -> float:
    """P-value of Pearson's chi-square for uniform ranks in 0..n_draws."""
    counts, _ = np.histogram(ranks, bins=N_BINS, range=(-0.5, n_draws + 0.5))
    return float(chisquare(counts).pvalue)


def extreme(ranks: IntArray, n_draws: int) -> np.ndarray:
    """Whether a rank lies in the lowest or the highest tenth."""
    place = (ranks + 0.5) / (n_draws + 1)
    return (place < 0.1) | (place > 0.9)


def draw(found: Mapping[str, Ranks], plan: Plan) -> Figure:
    """Histograms of ranks; the band holds a bin of uniform ranks with 99 %."""
    lines = [(kind, engine) for kind, ranks in found.items() for engine in ranks]
    figure = Figure(figsize=(2.5 * len(QUANTITIES), 2.1 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), len(QUANTITIES), sharex=True, sharey="row", squeeze=False)
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], plan.n_sets, 1 / N_BINS)
    for ax, name in zip(axes[0], QUANTITIES, strict=True):
        ax.set_title(name, fontsize=10)
    for row, (kind, engine) in zip(axes, lines, strict=True):
        for ax, name in zip(row, QUANTITIES, strict=True):
            ax.axhspan(low, high, color="#dddddd", zorder=0)
            ax.axhline(plan.n_sets / N_BINS, color="#888888", linewidth=0.8, zorder=1)
            ax.hist(
                found[kind][engine][name],
                bins=N_BINS,
                range=(-0.5, plan.n_draws + 0.5),
                color="#4477aa",
                edgecolor="white",
                zorder=2,
                alpha=0.85,
            )
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(f"{engine}\n{kind}\ndata sets", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("rank of the truth")
    return figure
