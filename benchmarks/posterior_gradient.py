"""Microseconds per log likelihood and gradient of BSDR's default, and its lower bound.

The floor is the four matrix products, and Phi and phi at all nodes for every sample and competing
class that is not decided, each timed alone.
"""

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets import load
from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr import hmc, probit_choice
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import Problem
from bsdr_models.metric import Metric
from bsdr_models.numerics.compiled import njit

AIM = 1.5


# Samples per class of a set, or of normal classes.
CASES = {"wine": 20, "digits": 10, "25 normal classes": 10}


@njit(cache=False, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")
def evaluate_factors(gaps: FloatArray, table: FloatArray, work: FloatArray) -> None:
    """Phi and phi at all nodes for each difference of utilities."""
    for i in range(len(gaps)):
        probit_choice._multiply(gaps[i], table, work)


def problem(name: str, n_per_class: int) -> Problem:
    """Standardised, whitened training samples."""
    rng = np.random.default_rng(0)
    if name in ("wine", "digits"):
        X, y = load(name)
    else:
        y = np.repeat(np.arange(25), n_per_class)
        X = rng.standard_normal((len(y), 30))
        X[:, :6] += 3.0 * rng.standard_normal((25, 6))[y]
    order = rng.permutation(len(y))
    labels = np.unique(y)
    kept = np.concatenate([order[y[order] == label][:n_per_class] for label in labels])
    X = StandardScaler().fit_transform(X[kept])
    return Problem.build(
        Metric.learn(X).whiten(X),
        y[kept],
        n_labels=len(labels),
        target="multiclass",
        priors=HierarchicalPriors(),
    )


def measure(name: str, n_per_class: int) -> list[str]:
    """A line of the table, at draws from the posterior, which decide most comparisons."""
    posed = problem(name, n_per_class)
    sampled = hmc.sample(posed, n_chains=16, n_draws=8, rng=np.random.default_rng(0))
    theta = sampled.theta.reshape(-1, posed.n_parameters)
    s, n = len(theta), len(posed.y)
    scaled = posed.split(theta)[0] * posed.column_scale(theta)[:, :, None]
    z, eta = posed.X @ scaled, posed.linear_predictor(theta)
    slope = probit_choice.log_likelihood(eta, posed.y, posed.priors.lapse)[1]

    def products(_: object) -> None:
        posed.X @ scaled
        z @ posed.contrasts
        posed.X.T @ (slope @ posed.contrasts.T)

    own = np.take_along_axis(eta, np.broadcast_to(posed.y[None, :, None], (s, n, 1)), axis=2)
    gap, decided = own - eta, probit_choice._DECIDED
    counted = (gap < decided) & (gap.min(axis=2, keepdims=True) >= -decided)
    counted[:, np.arange(n), posed.y] = False
    arguments = gap[counted], probit_choice._tables()[1], np.ones(2 * probit_choice.ROW)
    seconds, multiplied, factors = medians(
        Work(run=lambda _: posed.log_density(theta)),
        Work(run=products),
        Work(run=lambda _: evaluate_factors(*arguments)),
    )
    floor = multiplied + factors
    k = eta.shape[2]
    return [
        f"{name}: N = {n}, K = {k}, S = {s}",
        f"{1e6 * seconds:.0f}",
        f"{1e6 * multiplied:.0f}",
        f"{1e6 * factors:.0f}",
        f"{seconds / floor:.2f}",
        f"{AIM:g}",
    ]


def report() -> str:
    """Markdown table."""
    head = ["", "us", "products us", "Phi and phi us", "ratio", "aim"]
    return (
        "## BSDR: the log likelihood and its gradient\n\nS states at once, at draws from the "
        "posterior. The floor is the four matrix products, and Phi and phi at all nodes for every "
        "sample and competing class that is not decided, each timed alone.\n\n"
        f"{as_markdown(head, [measure(*case) for case in CASES.items()])}\n"
    )
