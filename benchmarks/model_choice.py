"""How good the model is that ``compare_models`` recommends, on samples that it has not seen.

    python -m benchmarks.model_choice --seeds 300:301

The sets of ``docs/benchmarks.md``, with their training samples, and noise. Printed are the log loss
on the test samples of the recommended model, that of the best one, the difference, and CPU seconds
of the comparison.
"""

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pandas as pd
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from benchmarks.page import command, table
from benchmarks.protocols import REPORTING_SEEDS, seed_range
from benchmarks.tables import SETS, Task
from bsdr_models import compare_models
from bsdr_models.comparison import Comparison
from bsdr_models.metrics import log_losses

# Nats below which the recommended model is as good as the best.
CLOSE = 0.02
TASKS = (
    *(
        Task(source=source, scheme="per class", sizes=sizes, n_components=0)
        for source, sizes in SETS.items()
    ),
    Task(source="noise", scheme="noise", sizes=(60, 200, 3), n_components=0),
)


def choose(task: Task, seed: int) -> tuple[Comparison, float, pd.Series]:
    """The comparison by training samples, its CPU seconds, and the log loss of each model."""
    split = task.split(seed)
    X, y = split.X_train, split.y_train
    losses = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        begin = time.process_time()
        found = compare_models(X, y, random_state=seed, progressbar=False)
        seconds = time.process_time() - begin
        for name, model in found.models.items():
            probability = clone(model).fit(X, y).predict_proba(split.X_test)
            losses[name] = float(log_losses(probability, split.y_test).mean())
    return found, seconds, pd.Series(losses)


def lines(seeds: range, jobs: int) -> Iterator[list[str]]:
    """Lines of the table, one for each set and seed."""
    for task in TASKS:
        if task.why_not:
            continue
        with ProcessPoolExecutor(jobs) as pool:
            for found, seconds, losses in pool.map(partial(choose, task), seeds):
                own, best = losses[found.recommended], losses.min()
                line = [task.source, found.recommended, f"{own:.3f}", str(losses.idxmin())]
                yield [*line, f"{best:.3f}", f"{own - best:.3f}", f"{seconds:.0f}"]


def main() -> None:
    """Print the table."""
    parser = command("benchmarks.model_choice", __doc__)
    parser.add_argument(
        "--seeds", type=seed_range, default=REPORTING_SEEDS, help="first:past the last"
    )
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    body = []
    for line in lines(arguments.seeds, arguments.jobs):
        body.append(line)
        print(*line, sep=", ", flush=True)
    head = ["data", "recommended", "its log loss", "best", "its log loss", "difference", "CPU s"]
    close = sum(float(line[5]) <= CLOSE for line in body)
    print(table(head, body), f"\n{close} of {len(body)} within {CLOSE} nats of the best.")


if __name__ == "__main__":
    main()
