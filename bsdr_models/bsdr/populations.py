"""Populations of particles of the hierarchical model, and their evidence.

Each is tempered independently (:mod:`bsdr_models.inference.tempering`). The size of the problem
determines the number of particles and moves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.posterior import (
    LOG_SQRT_2PI,
    Problem,
    label_log_likelihood,
    make_contrasts,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.parallel import n_workers, run_tasks
from bsdr_models.inference.tempering import Moves, Tempered, run_tempering

# Work of one evaluation, see `work`, up to which chains have most particles, trajectories at
# temperature one are long, and there are more temperatures; most and fewest particles.
_FEW, _LIGHT, _MODERATE, _MAX_PARTICLES, _MIN_PARTICLES = 400.0, 800.0, 1000.0, 64, 16
# With that much work and as many classes, particles with two trajectories at each temperature lag
# behind it: 38 faces, seed 200, were predicted as if by their frequencies.
_HEAVY, _MANY_CLASSES, _MORE_MOVES = 2e4, 20, 6
# Smallest and largest number of draws of each particle, and trajectories between them.
_KEPT, _N_BETWEEN = (4, 12), 4
# Populations for each compared number of components, and their `kept_share`: smaller steps of the
# temperature than for draws, for an evidence with less bias and scatter.
_N_COMPARED, _COMPARED_SHARE = 2, 0.85
# Particles for the evidence of the model without features.
_EMPTY_PARTICLES = 128
# Log scales of outputs are clipped to this, so that squares do not overflow.
_FAR = 100.0


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
    moves = Moves(
        n_particles=n_particles,
        n_warm_up=6,
        n_kept=n_kept,
        n_between=min(_N_BETWEEN, -(-_N_BETWEEN * n_default // n_kept)),
        last_steps=64 if load <= _LIGHT else 32,
        n_last=n_last,
        kept_share=0.7 if load <= _MODERATE else 0.5,
    )
    lags = load > _HEAVY and problem.contrasts.shape[0] >= _MANY_CLASSES
    return replace(moves, n_moves=_MORE_MOVES) if lags else moves


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


def mean_evidence(log_evidence: FloatArray) -> float:
    """Log of the mean evidence over populations; NaN if there are none."""
    if not log_evidence.size:
        return np.nan
    return float(logsumexp(log_evidence) - np.log(len(log_evidence)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Log evidence of 1, 2, ... components, of several populations each: (C, P)."""

    log_evidence: FloatArray

    @property
    def means(self) -> FloatArray:
        """Log of the mean evidence for each number, (C,)."""
        return np.array([mean_evidence(each) for each in self.log_evidence])

    @property
    def error(self) -> float:
        """Standard error of a difference, from those between populations of one number."""
        variance = self.log_evidence.var(axis=1, ddof=1).mean()
        return float(np.sqrt(2.0 * variance / self.log_evidence.shape[1]))

    @property
    def chosen(self) -> int:
        """The smallest number within the error of the largest evidence."""
        return 1 + int(np.argmax(self.means >= self.means.max() - self.error))

    def attrs(self) -> dict[str, float | list[float] | list[int]]:
        """Attributes of the tree."""
        return {
            "components_compared": list(range(1, 1 + len(self.log_evidence))),
            "components_log_evidence": self.means.tolist(),
            "components_error": self.error,
        }


def compare_components(
    build: Callable[[int], Problem],
    largest: int,
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
) -> Comparison:
    """Compare 1, 2, ... components, until the evidence has fallen twice in a row."""
    found: list[FloatArray] = []
    best, falls = -np.inf, 0
    for r, stream in zip(range(1, largest + 1), rng.spawn(largest), strict=True):
        problem = build(r)
        moves = replace(
            moves_for(problem), n_warm_up=1, n_kept=1, n_between=1, kept_share=_COMPARED_SHARE
        )
        runs, interrupted = run_populations(problem, moves, _N_COMPARED, rng=stream, n_jobs=n_jobs)
        if interrupted:
            raise KeyboardInterrupt("before the number of components was chosen")
        found.append(np.array([run.log_evidence for run in runs]))
        value = mean_evidence(found[-1])
        falls = 0 if value > best else falls + 1
        best = max(best, value)
        if falls == 2:
            break
    return Comparison(log_evidence=np.stack(found))


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
