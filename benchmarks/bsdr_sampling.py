"""BSDR: effective draws per CPU second of its samplers.

``python -m benchmarks.bsdr_sampling``: all rows of a set, features standardised, the paper's vague
priors (all shapes and rates one); with ``--prior sampling`` those that samplers have by default,
which is where ``MAX_WORK`` of :mod:`bsdr_models.bsdr.settings` comes from. Judged are class
probabilities of training rows (position and scores integrated out), class-centred coefficients and
centred biases: the largest rank-normalised R-hat (split, bulk and folded) and the smallest bulk
effective sample size. Seconds are those of the process, warm-up and compilation included.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import arviz_stats
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.datasets import load
from benchmarks.timing import machine
from bsdr_models.bsdr import averaged, averaged_target, gibbs, trees
from bsdr_models.bsdr.card import CARD
from bsdr_models.bsdr.predict import log_likelihood
from bsdr_models.bsdr.priors import PAPER, SAMPLING, Priors
from bsdr_models.data import Data
from bsdr_models.inference.gibbs import run_gibbs
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.scaling import Scaler

CHAINS, COMPONENTS = 4, 2
# Rows whose probabilities are followed, at random.
N_FOLLOWED = 60
# Warm-up and kept sweeps of a chain.
LENGTHS = {"averaged": (300, 6000), "joint": (5000, 5000), "paper": (5000, 5000)}
LENGTHS["nuts"] = (500, 500)
# Under the moderate prior all kernels need less.
MODERATE = {"averaged": (300, 1000), "joint": (1000, 5000)}
PRIORS = {"paper": PAPER, "sampling": SAMPLING}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One data set; ``rows`` at random where there are more, draws fewer by ``shorter``."""

    name: str
    latent_scale: float = 1.0
    projection_prior: str = "entrywise"
    rows: int | None = None
    shorter: int = 1
    prior: str = "paper"

    @property
    def priors(self) -> Priors:
        """Those of the name, with the latent scale of the case."""
        return replace(PRIORS[self.prior], latent_scale=self.latent_scale)

    def lengths(self, sampler: str) -> tuple[int, int]:
        """Warm-up and kept sweeps."""
        tune, draws = (LENGTHS if self.prior == "paper" else MODERATE)[sampler]
        return tune, draws // self.shorter

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Scaled features and labels."""
        X, y = load(self.name)
        kept = np.random.default_rng(0).permutation(len(y))[: self.rows]
        X = X[kept]
        return Scaler.fit(X).transform(X), y[kept].astype(np.int64)


CASES = (
    Case(name="iris"),
    Case(name="wine"),
    Case(name="iris", latent_scale=0.1),
    Case(name="wine", latent_scale=0.1),
    Case(name="digits", rows=300, projection_prior="columnwise", shorter=6),
    Case(name="digits", rows=300, projection_prior="rowwise", shorter=6),
    Case(name="iris", prior="sampling"),
    Case(name="wine", prior="sampling"),
    Case(name="breast cancer", prior="sampling", shorter=2),
    Case(name="digits", rows=300, prior="sampling", shorter=2),
    Case(name="digits", prior="sampling", shorter=10),
)


def by_averaging(case: Case, tune: int, draws: int, rng: np.random.Generator):
    """Draws by the averaged sampler."""
    X, y = case.data()
    data = Data(design=DenseDesign(X), y=y, n_labels=int(y.max()) + 1)
    kind = {"projection_prior": case.projection_prior, "n_components": COMPONENTS}
    problem = averaged_target.pose(data, case.priors, **kind)

    def start(stream):
        first = gibbs.init(data, case.priors, n_chains=CHAINS, rng=stream, **kind)
        return averaged.init(problem, first, rng=stream)

    def record(state):
        Q, W, b = averaged_target.split(state.entries * problem.unit, problem)
        return {"projection": Q, "weights": W, "bias": b}

    return run_gibbs(
        start,
        lambda state, stream: averaged.step(state, problem, tune=tune, rng=stream),
        record=record,
        draws=draws,
        tune=tune,
        rng=rng,
    ).draws


def by_sweeps(case: Case, tune: int, draws: int, rng: np.random.Generator, *, step):
    """Draws by a sweep over scores and positions."""
    X, y = case.data()
    data = Data(design=DenseDesign(X), y=y, n_labels=int(y.max()) + 1)
    kind = {"projection_prior": case.projection_prior, "n_components": COMPONENTS}
    return run_gibbs(
        lambda stream: gibbs.init(data, case.priors, n_chains=CHAINS, rng=stream, **kind),
        lambda state, stream: step(state, data, case.priors, rng=stream),
        record=lambda s: {"projection": s.projection, "weights": s.weights, "bias": s.bias},
        draws=draws,
        tune=tune,
        rng=rng,
    ).draws


def by_nuts(case: Case, tune: int, draws: int, rng: np.random.Generator):
    """Draws by NUTS (nutpie where it is installed), compiled from the PyMC model."""
    from bsdr_models.bsdr.model import build_model
    from bsdr_models.inference.engines import sample_nuts

    X, y = case.data()
    model = build_model(
        X,
        y,
        n_components=COMPONENTS,
        variant="paper",
        projection_prior=case.projection_prior,
        priors=case.priors,
    )
    tree = sample_nuts(model, card=CARD, rng=rng, draws=draws, tune=tune, chains=CHAINS)
    divergent = int(np.asarray(tree["sample_stats"]["diverging"]).sum())
    print(f"  divergences of nuts: {divergent}")
    return {name: tree["posterior"][name].to_numpy() for name in ("projection", "weights", "bias")}


SAMPLERS = {
    "averaged": by_averaging,
    "joint": partial(by_sweeps, step=gibbs.step_joint),
    "paper": partial(by_sweeps, step=gibbs.step),
    "nuts": by_nuts,
}


def quantities(case: Case, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is judged, each (chain, draw, many)."""
    X, y = case.data()
    shown = np.random.default_rng(1).permutation(len(y))[:N_FOLLOWED]
    posterior = trees.draw_posterior(draws, latent_scale=case.latent_scale, target="multiclass")
    Q, W, b = draws["projection"], draws["weights"], draws["bias"]
    found = {
        "probabilities": np.exp(log_likelihood(posterior, X[shown], y[shown])),
        "coefficients": Q @ (W - W.mean(axis=-1, keepdims=True)),
        "biases": b - b.mean(axis=-1, keepdims=True),
    }
    return {name: values.reshape(*b.shape[:2], -1) for name, values in found.items()}


def judge(values: np.ndarray) -> tuple[float, float]:
    """Largest R-hat and smallest bulk effective sample size, over what varies at all."""
    values = values[..., np.ptp(values, axis=(0, 1)) > 1e-9]
    axes = {"chain_axis": 0, "draw_axis": 1}
    return (
        float(np.max(arviz_stats.rhat(values, **axes))),
        float(np.min(arviz_stats.ess(values, **axes))),
    )


def measure(case: Case, sampler: str, seed: int) -> str:
    """One line of the table."""
    tune, draws = case.lengths(sampler)
    begin = time.process_time()
    found = SAMPLERS[sampler](case, tune, draws, np.random.default_rng(seed))
    seconds = time.process_time() - begin
    judged = {name: judge(values) for name, values in quantities(case, found).items()}
    size = np.linalg.norm(
        found["projection"] @ (found["weights"] - found["weights"].mean(-1, keepdims=True)),
        axis=(2, 3),
    )
    least = min(ess for _, ess in judged.values())
    cells = [
        f"{case.name}, N = {len(case.data()[1])}, {case.latent_scale:g}, {case.projection_prior}",
        f"{sampler}, {CHAINS} x ({tune} + {draws})",
        *(f"{rhat:.3f}, {ess:.0f}" for rhat, ess in judged.values()),
        f"{seconds:.0f}",
        f"{least / seconds:.2f}",
        " / ".join(f"{value:.1f}" for value in np.quantile(size, [0.05, 0.5, 0.95])),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["iris", "wine"])
    parser.add_argument("--prior", default="paper", choices=PRIORS)
    parser.add_argument("--samplers", nargs="+", default=["averaged", "nuts"], choices=SAMPLERS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(machine())
    print(
        "| set, latent scale, prior | sampler | probabilities: R-hat, ESS | coefficients | ", end=""
    )
    print("biases | CPU s | ESS per CPU s | size of coefficients, 5 / 50 / 95 % |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(limits=1, user_api="blas"):
        for case in CASES:
            for sampler in options.samplers:
                if case.name in options.sets and case.prior == options.prior:
                    print(measure(case, sampler, options.seed), flush=True)


if __name__ == "__main__":
    main()
