"""Microseconds per gradient of BSDR's default inside trajectories, and its lower bound.

The floor is the four matrix products, and Phi and phi at all nodes for every sample and competing
class that is not decided, each timed alone.
"""

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets import load
from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.bsdr import hmc, leapfrog, probit_choice
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem
from bsdr_models.learned_metric.metric import NAMES, ClassBasis, Metric
from bsdr_models.numerics.arrays import SingleArray
from bsdr_models.numerics.compiled import njit

AIM = 1.5


# Samples per class of a set, or of normal classes.
CASES = {"wine": 20, "digits": 10, "25 normal classes": 10}


@njit(cache=False, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")
def evaluate_factors(gaps: SingleArray, table: SingleArray, work: SingleArray) -> None:
    """Phi and phi at all nodes for each difference of utilities."""
    for i in range(len(gaps)):
        probit_choice._multiply(gaps[i], table, work)


def problem(name: str, n_per_class: int) -> BSDRProblem:
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
    X = X[:, X.any(axis=0)]
    weights = np.full(len(NAMES), 1.0 / len(NAMES))
    metric = Metric.learn(X, ClassBasis.of(y[kept]), weights, np.ones(X.shape[1]))
    return BSDRProblem(
        X=metric.whiten(X),
        y=y[kept],
        n_labels=len(labels),
        target="multiclass",
        priors=HierarchicalPriors(),
    )


def measure(name: str, n_per_class: int) -> list[str]:
    """A line of the table, at draws from the posterior, which decide most comparisons."""
    posed = problem(name, n_per_class)
    sampled = hmc.sample(posed, n_chains=8, n_draws=1, rng=np.random.default_rng(0))
    theta = sampled.theta.reshape(-1, posed.n_parameters)
    s, n = len(theta), len(posed.y)
    density = posed.single
    eta = posed.linear_predictor(theta).swapaxes(0, 1).astype(np.float32)
    # Products take the same time whatever is multiplied; biases are loadings of a column of ones.
    loadings = np.ones((s, density.X.shape[1], len(density.contrasts)), np.float32)
    weights = (loadings @ density.contrasts).transpose(1, 0, 2).reshape(loadings.shape[1], -1)
    slope = eta.transpose(1, 0, 2).reshape(n, -1)
    by_class = loadings @ density.contrasts

    def products(_: object) -> None:
        loadings @ density.contrasts
        density.X @ weights
        density.X_t @ slope
        by_class @ density.contrasts_t

    own = np.take_along_axis(eta, np.broadcast_to(posed.y[None, :, None], (s, n, 1)), axis=2)
    gap = own - eta
    decided = density.nodes.far
    counted = (gap < decided) & (gap.min(axis=2, keepdims=True) >= -decided)
    counted[:, np.arange(n), posed.y] = False
    work = np.ones(2 * probit_choice.ROW, np.float32)
    arguments = gap[counted], density.nodes.table, work
    vectors = theta.astype(np.float32)
    filled = np.empty((n, s), np.float32), np.empty_like(vectors)
    seconds, multiplied, factors = medians(
        Work(run=lambda _: leapfrog.evaluate(density, posed.y, vectors, *filled)),
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
    head = ["", "us", "products us", "Phi and phi us", "us / floor", "aim"]
    return (
        "## BSDR: the log likelihood and its gradient\n\nS states at once, at draws from the "
        "posterior. The floor is the four matrix products, and Phi and phi at all nodes for every "
        "sample and competing class that is not decided, each timed alone.\n\n"
        f"{as_markdown(head, [measure(*case) for case in CASES.items()])}\n"
    )
