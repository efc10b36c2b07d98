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
from bsdr_models.typing import FloatArray, IntArray

PRIORS, PRIOR = SAMPLING, "entrywise"
N, D, R, K = 18, 2, 1, 3
SEED = 20
# Level of one test, fixed before any run, and equal bins of the ranks.
LEVEL, N_BINS = 0.01, 10
PLACES = ((0, 0), (0, 1), (1, 2))
QUANTITIES = (*(f"coef[{d}, {k}]" for d, k in PLACES), "bias_centered[0]", "log likelihood")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of a run: data sets, draws kept of each, sweeps of a kept draw and before them."""

    n_sets: int = 500
    n_draws: int = 99
    thin: int = 25
    tune: int = 500


def report(pictures: Path, plan: Plan | None = None) -> str:
    """Table of tests; writes ``sbc.png``."""
    plan = plan or Plan()
    ranks, sizes = run(plan)
    draw(ranks, plan).savefig(pictures / "sbc.png", dpi=110)
    rows = []
    for name in QUANTITIES:
        cells = [name]
        for engine in ranks:
            p = uniformity(ranks[engine][name], plan.n_draws)
            outside = np.mean(extreme(ranks[engine][name], plan.n_draws))
            cells += [
                f"{p:.2f}" if p >= 0.005 else "< 0.005",
                "yes" if p >= LEVEL else "**no**",
                f"{outside:.2f}",
            ]
        rows.append(cells)
    head = ["quantity"]
    for engine in ranks:
        head += [f"{engine}: p", f"uniform at {LEVEL:.0%}", "in the outer fifth"]
    return (
        f"{plan.n_sets} data sets of {N} rows, D = {D}, R = {R}, K = {K}; {plan.n_draws} draws of "
        f"each, {plan.thin} sweeps apart after {plan.tune}. Chi-square of {N_BINS} bins.\n\n"
        + table(head, rows)
        + "\n\nMedian norm of the centred coefficients: "
        + ", ".join(f"{name} {size:.2f}" for name, size in sizes.items())
        + "."
    )


def run(plan: Plan) -> tuple[dict[str, dict[str, IntArray]], dict[str, float]]:
    """Ranks of the true values, (C,), by engine and quantity; median size of coefficients."""
    rng_truth, rng_gibbs, rng_fit = np.random.default_rng(SEED).spawn(3)
    X = features(N, D, rng_truth)
    truths = simulate(X, PRIORS, (plan.n_sets, R, K), rng_truth)
    found = {"Gibbs": by_gibbs(truths, plan, rng_gibbs)}
    found["mean field"] = by_mean_field(truths, plan, rng_fit)
    ranks: dict[str, dict[str, IntArray]] = {engine: {} for engine in found}
    for c in range(plan.n_sets):
        y = truths.y[c]
        true = quantities(
            {name: getattr(truths, name)[c][None] for name in ("projection", "weights", "bias")},
            X,
            y,
        )
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


def by_gibbs(truths: Truths, plan: Plan, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws (C, S, ...): every data set is a chain of one batch, from a random start."""
    data = Data(design=DenseDesign(truths.X), y=truths.y, n_labels=K)
    result = run_gibbs(
        lambda stream: gibbs.init(
            data,
            PRIORS,
            n_components=R,
            projection_prior=PRIOR,
            n_chains=plan.n_sets,
            rng=stream,
        ),
        lambda state, stream: gibbs.step_joint(state, data, PRIORS, rng=stream),
        record=lambda state: {
            name: getattr(state, name) for name in ("projection", "weights", "bias")
        },
        draws=plan.n_draws,
        tune=plan.tune,
        thin=plan.thin,
        rng=rng,
    )
    return dict(result.draws)


def by_mean_field(truths: Truths, plan: Plan, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws (C, S, ...) from q of one fit for each data set."""
    sets = []
    for y in truths.y:
        data = Data(design=DenseDesign(truths.X), y=y, n_labels=K)
        state = fit_mean_field(
            data, PRIORS, n_components=R, projection_prior=PRIOR, rng=rng, n_restarts=2
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


def draw(ranks: Mapping[str, Mapping[str, IntArray]], plan: Plan) -> Figure:
    """Histograms of ranks; the band holds a bin of uniform ranks with 99 %."""
    figure = Figure(figsize=(2.5 * len(QUANTITIES), 4.6), layout="constrained")
    axes = figure.subplots(len(ranks), len(QUANTITIES), sharex=True, sharey="row", squeeze=False)
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], plan.n_sets, 1 / N_BINS)
    for ax, name in zip(axes[0], QUANTITIES, strict=True):
        ax.set_title(name, fontsize=10)
    for row, (engine, found) in zip(axes, ranks.items(), strict=True):
        for ax, name in zip(row, QUANTITIES, strict=True):
            ax.axhspan(low, high, color="#dddddd", zorder=0)
            ax.axhline(plan.n_sets / N_BINS, color="#888888", linewidth=0.8, zorder=1)
            ax.hist(
                found[name],
                bins=N_BINS,
                range=(-0.5, plan.n_draws + 0.5),
                color="#4477aa",
                edgecolor="white",
                zorder=2,
                alpha=0.85,
            )
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(f"{engine}\ndata sets")
    for ax in axes[-1]:
        ax.set_xlabel("rank of the truth")
    return figure
