"""One BM2PCA for several tasks, against one for each task, with few labels per task.

    python -m benchmarks.multitask --seeds 300:320

Every training sample has a label of each task with the same probability, independently; classes of
a task keep at least two. Both fits get all training samples and the same arguments; the fit to one
task treats samples without its label as unlabelled. Printed is the log loss of new samples per
task, means and standard errors of the paired differences over seeds.
"""

import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import datasets
from benchmarks.page import command, table
from benchmarks.protocols import REPORTING_SEEDS, seed_range
from bsdr_models import BM2PCAClassifier
from bsdr_models.papers import PaperBM2PCAClassifier

N_TEST = 1000
UNLABELLED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Tasks, number of training samples, and share of the labels that are known."""

    source: str
    n_train: int
    share: float
    kind: type[Any] = BM2PCAClassifier

    def __str__(self) -> str:
        more = ", paper's model" if self.kind is PaperBM2PCAClassifier else ""
        return f"{self.source}, {self.n_train} samples, {self.share:.0%} of the labels{more}"


PROBLEMS = (
    Problem(source="simulated", n_train=200, share=0.1),
    Problem(source="simulated", n_train=200, share=0.3),
    Problem(source="simulated", n_train=200, share=1.0),
    Problem(source="unrelated", n_train=200, share=0.3),
    Problem(source="digits", n_train=300, share=0.1),
    Problem(source="digits", n_train=300, share=0.3),
    Problem(source="digits", n_train=300, share=0.3, kind=PaperBM2PCAClassifier),
)


def read(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples and classes of all tasks, (N, D) and (N, T)."""
    if problem.source in ("simulated", "unrelated"):
        return simulate(problem.n_train + N_TEST, rng, shared=problem.source == "simulated")
    X, y = datasets.load(problem.source)
    return X, np.column_stack([y % 2, np.where(y >= 5, 5, 0), y])


def simulate(
    n: int, rng: np.random.Generator, *, shared: bool, d: int = 60, n_tasks: int = 3, k: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Tasks of three classes from three latent coordinates, common to all tasks or of each its own.

    Features are the latent coordinates and six others of larger variance, mixed, plus noise.
    """
    r = k if shared else k * n_tasks
    Z = rng.standard_normal((n, r))
    others = 2.0 * rng.standard_normal((n, 6))
    mixing = rng.standard_normal((r + 6, d))
    X = np.hstack([Z, others]) @ mixing + 2.0 * rng.standard_normal((n, d))
    Y = np.empty((n, n_tasks), dtype=np.int64)
    for task in range(n_tasks):
        own = Z if shared else Z[:, task * k : (task + 1) * k]
        utility = 3.0 * own @ rng.standard_normal((k, k)) + rng.gumbel(size=(n, k))
        Y[:, task] = utility.argmax(axis=1)
    return X, Y


def hide(Y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A copy of Y with most labels missing, at least two left of every class."""
    found = np.where(rng.random(Y.shape) < share, Y, UNLABELLED)
    for own, column in zip(found.T, Y.T, strict=True):
        for label in np.unique(column):
            members = np.flatnonzero(column == label)
            lacking = 2 - np.count_nonzero(own[members] == label)
            if lacking > 0:
                hidden = members[own[members] != label]
                own[rng.choice(hidden, lacking, replace=False)] = label
    return found


def losses(problem: Problem, seed: int) -> tuple[list[float], list[float]]:
    """Log loss of new samples in each task: of one fit to all tasks, and of a fit to each."""
    rng = np.random.default_rng(seed)
    X, Y = read(problem, rng)
    order = rng.permutation(len(X))
    train, test = order[: problem.n_train], order[problem.n_train :][:N_TEST]
    known = hide(Y[train], problem.share, rng)
    model = problem.kind(unlabeled=UNLABELLED, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = model.fit(X[train], known).predict_proba(X[test])
        together, alone = [], []
        for task, p in enumerate(joint):
            own = model.fit(X[train], known[:, task])
            classes, truth = own.classes_, Y[test, task]
            together.append(float(log_loss(truth, p, labels=classes)))
            alone.append(float(log_loss(truth, own.predict_proba(X[test]), labels=classes)))
    return together, alone


def lines(problem: Problem, seeds: range, jobs: int) -> Iterator[list[str]]:
    """Lines of the table: one for each task, or for all if they are exchangeable."""
    with ProcessPoolExecutor(jobs) as pool:
        found = np.array(list(pool.map(partial(losses, problem), seeds)))  # (S, 2, T)
    if problem.source in ("simulated", "unrelated"):
        found = found.mean(axis=2, keepdims=True)
        names = ["mean of three"]
    else:
        names = ["odd or even", "five or more", "class"]
    for task, name in enumerate(names):
        together, alone = found[:, 0, task], found[:, 1, task]
        gap = together - alone
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        yield [
            str(problem),
            name,
            f"{together.mean():.3f}",
            f"{alone.mean():.3f}",
            f"{gap.mean():+.3f} ± {error:.3f}",
        ]


def main() -> None:
    """Print the table."""
    parser = command("benchmarks.multitask", __doc__)
    parser.add_argument(
        "--seeds", type=seed_range, default=REPORTING_SEEDS, help="first:past the last"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="source of the data")
    arguments = parser.parse_args()
    body = []
    for problem in PROBLEMS:
        if arguments.only in problem.source:
            body += lines(problem, arguments.seeds, arguments.jobs)
            print(*body[-3:], sep="\n", flush=True)
    print(table(["data", "task", "one fit", "a fit per task", "difference"], body))


if __name__ == "__main__":
    main()
