"""Coverage of 90 % ellipses of latent coordinates, and of 90 % intervals of effects, by simulation.

The order and signs of components are not identified: the posterior has 2^R R! equal modes. Draws of
Gibbs, and the truth like one more draw, are aligned by signed permutations chosen by projection and
weights, independently of the latent coordinates.

Effects and class scores of new samples are those of the default model, with the metric under which
they are simulated or with one that is learned.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import chi2

from benchmarks.evidence.simulate import (
    Truths,
    features,
    simulate,
    simulate_hierarchical,
    varying_together,
)
from benchmarks.page import table
from bsdr_models import BSDRClassifier, Sampling
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr.priors import SAMPLING

N, D, R, K = 60, 10, 2, 3
SEED, N_SETS, PROB = 30, 40, 0.9
# Arguments that every engine gets.
COMMON: dict[str, Any] = {"n_components": R, "priors": SAMPLING}
# Samples and features of the default model; features with an effect, None for all.
N_DEFAULT, D_DEFAULT = 60, 100
EFFECTS = {"all features": None, "five strong features": 5}
# With the first one the prior of the effects is that of the simulation.
METRICS = {"known": "identity", "learned": "auto"}

ENGINES: dict[str, dict[str, Any]] = {
    "mean field": {"optimization__n_restarts": 3},
    "Gibbs": {"inference": "gibbs", "sampling": Sampling(draws=1000, tune=500)},
}


def report(
    pictures: Path, n_sets: int = N_SETS, engines: Mapping[str, Mapping[str, Any]] = ENGINES
) -> str:
    """Table of coverages; there is no plot."""
    truths = simulate_labelled(n_sets, np.random.default_rng(SEED))
    rows = []
    for engine, arguments in engines.items():
        inside, wide, converged = [], [], []
        for c in range(n_sets):
            model = (
                PaperBSDRClassifier(random_state=c)
                .set_params(**COMMON, **arguments)
                .fit(truths.X, truths.y[c])
            )
            held, deviations = compare(model.idata_, truths, c)
            inside.append(held.mean())
            wide.append(deviations)
            converged.append(model.converged_)
        share, by_set = np.mean(inside), np.array(inside)
        error = by_set.std(ddof=1) / np.sqrt(n_sets)
        rows.append(
            [
                engine,
                f"{share:.1%} ± {error:.1%}",
                f"{by_set.min():.0%}, {np.median(by_set):.0%}, {by_set.max():.0%}",
                f"{np.mean(wide):.2f}",
                f"{np.sum(converged)} of {n_sets}",
            ]
        )
    head = ["engine", "inside ± s.e.", "worst, median, best set", "mean s.d.", "converged"]
    return f"{n_sets} data sets, N = {N}, D = {D}, R = {R}, K = {K}.\n\n" + table(head, rows)


def report_metric(pictures: Path, n_sets: int = N_SETS) -> str:
    """Table of coverages of effects and of class scores of a new sample; there is no plot."""
    rows = []
    for effects, n_strong in EFFECTS.items():
        for name, metric in METRICS.items():
            # The same data sets for both metrics.
            streams = np.random.default_rng(SEED).spawn(n_sets)
            held = np.array([held_by_default(metric, n_strong, rng) for rng in streams])
            error = held.std(axis=0, ddof=1) / np.sqrt(n_sets)
            cells = [f"{m:.1%} ± {e:.1%}" for m, e in zip(held.mean(axis=0), error, strict=True)]
            rows.append([effects, name, *cells])
    head = ["who has effects", "metric", "effects ± s.e.", "class scores ± s.e."]
    size = f"N = {N_DEFAULT}, D = {D_DEFAULT}, K = {K}"
    return f"{n_sets} data sets for each line, {size}.\n\n" + table(head, rows)


def held_by_default(
    metric: str, n_strong: int | None, rng: np.random.Generator
) -> tuple[float, float]:
    """Shares of effects (D, K) and of class scores of a new sample (K,) in their intervals."""
    labels: set[int] = set()
    while len(labels) < K:  # as in `simulate_labelled`
        X, new = varying_together(N_DEFAULT, D_DEFAULT, rng)
        truth = simulate_hierarchical(
            X, HierarchicalPriors(), (1, K), "multiclass", rng, n_strong=n_strong
        )
        labels = set(truth.y[0])
    model = BSDRClassifier(metric=metric, random_state=0).fit(X, truth.y[0])
    draws = model.idata_["posterior"].dataset.stack(sample=("chain", "draw"))
    coef = draws["coef"].transpose("sample", "feature", "outcome").values
    bias = draws["bias_centered"].transpose("sample", "outcome").values
    scores = new[0] @ coef + bias
    true = new[0] @ truth.coef[0] + truth.bias[0]
    return inside(coef, truth.coef[0]), inside(scores, true)


def inside(draws: FloatArray, true: FloatArray) -> float:
    """Share of true values (...) within the central intervals of draws (S, ...)."""
    low, high = np.quantile(draws, (0.5 - PROB / 2.0, 0.5 + PROB / 2.0), axis=0)
    return float(np.mean((low <= true) & (true <= high)))


def simulate_labelled(n_sets: int, rng: np.random.Generator) -> Truths:
    """Data sets in which every class occurs, so that a classifier has all K.

    The selection depends on the labels alone, so the posterior given these is unchanged.
    """
    X = features(N, D, rng)
    many = simulate(X, SAMPLING, (20 + 2 * n_sets, R, K), rng)
    complete = [c for c, y in enumerate(many.y) if len(np.unique(y)) == K][:n_sets]
    if len(complete) < n_sets:
        raise RuntimeError("too few simulated data sets have rows of every class")
    kept = {
        name: getattr(many, name)[complete]
        for name in ("projection", "latent", "weights", "bias", "y")
    }
    return Truths(X=X, **kept)


def compare(tree: xr.DataTree, truths: Truths, c: int) -> tuple[np.ndarray, float]:
    """Whether each ellipse covers the truth, (N,), and the mean standard deviation."""
    posterior, fit = tree["posterior"].dataset, tree["fit"].dataset
    Q = posterior["projection"].stack(draws=("chain", "draw")).transpose("draws", ...).values
    W = posterior["weights"].stack(draws=("chain", "draw")).transpose("draws", "outcome", ...)
    true = np.concatenate([truths.projection[c], truths.weights[c].T])
    turn = nearest(np.concatenate([Q, W.values], axis=1), true)
    gap = truths.latent[c] @ turn - fit["latent_mean"].values  # (N, R)
    cov = fit["latent_cov"].values
    distance = np.einsum("nr,nrs,ns->n", gap, np.linalg.inv(cov), gap)
    deviation = float(np.sqrt(np.einsum("nrr->nr", cov)).mean())
    return distance <= chi2.ppf(PROB, R), deviation


def nearest(draws: FloatArray, true: FloatArray) -> FloatArray:
    """Signed permutation that brings the truth (P, R) closest to the mean of draws (S, P, R).

    Rows and draws are scaled to one size first, as in the alignment of draws.
    """
    size = np.median(np.abs(draws), axis=(0, 2))[:, None]
    scaled = draws / size
    reference = np.mean(scaled / np.linalg.norm(scaled, axis=(1, 2), keepdims=True), axis=0)
    r = true.shape[1]
    turns = [
        np.eye(r)[:, list(order)] * sign
        for order in itertools.permutations(range(r))
        for sign in itertools.product((1.0, -1.0), repeat=r)
    ]
    return max(turns, key=lambda turn: float(np.sum(reference * (true / size @ turn))))
