"""Accuracy and log loss of the package and of other methods.

    python -m benchmarks accuracy --table few-samples --seeds 0:10
    python -m benchmarks accuracy --table all --jobs 8
    python -m benchmarks accuracy --list

Every fit is one JSON line under ``benchmarks/results``, keyed by everything that determines it,
so that an interrupted run can resume. ``python -m benchmarks report`` makes the tables.
"""

import gzip
import json
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_limits

from benchmarks import datasets, fingerprint, maps, timing
from benchmarks.methods import METHODS
from benchmarks.methods.base import ImpossibleError
from benchmarks.page import command
from benchmarks.protocols import REPORTING_SEEDS, Split, noise, seed_range
from benchmarks.tables import TABLES, Task
from bsdr_models.metrics import expected_calibration_error

RESULTS = Path(__file__).parent / "results" / "accuracy.jsonl"
# A cheap fit of each paper, so that kernels are compiled before the timing.
WARM = {"bsdr": "BSDR", "bm2pca": "BM2PCA", "dgplvm": "D-GPLVM"}
# Of sets with more classes one fit takes as long as all of the others.
MOST_CLASSES = 15

Job = tuple[Task, str, int]


def scores(probability: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, log loss, Brier score (summed over classes) and expected calibration error."""
    rows = np.arange(len(y))
    return {
        "accuracy": float(np.mean(probability.argmax(axis=1) == y)),
        "log_loss": float(-np.log(np.maximum(probability[rows, y], 1e-300)).mean()),
        "brier": float(np.mean(np.sum((probability - np.eye(probability.shape[1])[y]) ** 2, 1))),
        "ece": expected_calibration_error(probability, y),
    }


def mean_average_precision(
    queries: np.ndarray, y_queries: np.ndarray, database: np.ndarray, y_database: np.ndarray
) -> float:
    """Mean over queries of the average precision of the database, ranked by cosine.

    An entry is relevant if it has the class of the query; queries of classes that the database
    lacks are ignored. Queries are (M, R), entries (N, R).
    """
    known = np.isin(y_queries, y_database)
    order = np.argsort(-cosine_similarity(queries[known], database), axis=1)
    relevant = y_database[order] == y_queries[known, None]  # (M, N)
    precision = np.cumsum(relevant, axis=1) / np.arange(1, len(y_database) + 1)
    return float(np.mean(np.sum(precision * relevant, axis=1) / relevant.sum(axis=1)))


def evaluate(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Scores, costs and settings of one method on one split, or why it was skipped.

    On the first of the reported splits samples of each class are fitted once more, with another
    seed, unless there are many classes: ``labels_changed`` is the share of test samples with
    another class, ``variation`` the mean total variation distance of their probabilities,
    ``map_changed`` that of the maps.
    """
    split = task.split(seed)
    found, probability, at = measure(split, method, task.n_components, seed)
    again = task.scheme == "per class" and seed == REPORTING_SEEDS.start
    if again and probability is not None and probability.shape[1] <= MOST_CLASSES:
        _, other, moved = measure(split, method, task.n_components, seed + 1)
        assert other is not None
        same = probability.argmax(axis=1) == other.argmax(axis=1)
        found["labels_changed"] = float(np.mean(~same))
        found["variation"] = 0.5 * float(np.abs(probability - other).sum(axis=1).mean())
        if at is not None and moved is not None:
            found["map_changed"] = maps.change(at, moved)
    return found


def measure(
    split: Split, method: str, n_components: int, seed: int
) -> tuple[dict[str, Any], np.ndarray | None, np.ndarray | None]:
    """Scores of one fit, probabilities (M, K), and coordinates of the samples that a map draws.

    Scores are ``skipped`` alone if the method is not available for these data. Otherwise they are
    ``accuracy``, ``log_loss``, ``brier``, ``ece``; ``fit_seconds`` and ``predict_seconds`` of CPU,
    ``mib`` of memory beyond that before the fit (None if unknown), and remarks of the fit.
    Subspaces also have ``map``, the mean average precision of training samples ranked by cosine
    with each test sample; maps of two coordinates the scores of `maps.scores`.
    """
    chosen = METHODS[method]
    _warm(WARM[chosen.paper] if chosen.paper else method)
    with warnings.catch_warnings(), threadpool_limits(1):
        # Warnings of max_iter, of no signal and of slow mixing are recorded.
        warnings.simplefilter("ignore")
        known = timing.reset_peak()
        before, begin = timing.peak(), time.process_time()
        try:
            fitted = chosen.fit(split.training, n_components, seed)
        except ImpossibleError as reason:
            return {"skipped": str(reason)}, None, None
        middle, above = time.process_time(), timing.peak() - before
        probability = fitted.predict(split.X_test)
        end = time.process_time()
        found = scores(probability, split.y_test)
        # Latent coordinates of a default number are in no table.
        if fitted.transform is not None and (n_components or not chosen.paper):
            queries, database = map(fitted.transform, (split.X_test, split.X_train))
            found["map"] = mean_average_precision(queries, split.y_test, database, split.y_train)
        at = maps.coordinates(chosen, fitted, split, n_components, probability)
        if at is not None:
            found |= maps.scores(at, split.y_test[maps.drawn(split.y_test)])
    costs = {
        "fit_seconds": round(middle - begin, 4),
        "predict_seconds": round(end - middle, 4),
        "mib": round(above, 1) if known else None,
    }
    return found | costs | fitted.record, probability, at


@cache
def _warm(method: str) -> None:
    training = noise("", (30, 4, 3), 0).training
    with warnings.catch_warnings(), suppress(ImpossibleError):
        warnings.simplefilter("ignore")
        METHODS[method].fit(training, 2, 0).predict(training.X)


def key(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Everything that determines a result."""
    chosen = METHODS[method]
    libraries = "".join(f", {name} {_version(name)}" for name in chosen.libraries)
    return {
        **asdict(task),
        "sizes": list(task.sizes),
        "method": method,
        "seed": seed,
        "configuration": repr(chosen.configuration),
        "data": datasets.fingerprint(task.source),
        "code": _code((*chosen.modules, "benchmarks.protocols")),
        "versions": f"numpy {np.__version__}, scipy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}{libraries}",
    }


@cache
def _code(modules: tuple[str, ...]) -> str:
    return fingerprint.code(modules)


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """All lines written so far, except a truncated one."""
    if not path.exists():
        return []
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = []
    for line in content.decode().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return lines


def missing(
    names: Iterable[str], seeds: range | None, methods: Sequence[str] | None, path: Path = RESULTS
) -> list[Job]:
    """Fits that the tables still need, each once; unavailable data sets are left out."""
    done = {json.dumps(line["key"], sort_keys=True) for line in read(path)}
    wanted: dict[Job, None] = {}
    for name in names:
        table = TABLES[name]
        for task, method in table.pairs():
            if not task.why_not and (methods is None or method in methods):
                wanted |= {(task, method, s): None for s in seeds or range(*table.seeds)}
    return [job for job in wanted if json.dumps(key(*job), sort_keys=True) not in done]


def run(jobs: list[Job], path: Path = RESULTS, *, n_jobs: int = 1) -> None:
    """Evaluate in parallel; this process alone writes, one line per finished fit.

    Jobs of a split are shuffled for a better estimate of the remaining time and a balanced load;
    whole splits come first. A fit that raises is recorded with its error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    jobs = sorted(random.Random(0).sample(jobs, len(jobs)), key=lambda job: job[2])
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with path.open("a") as file, Progress(*columns, TimeRemainingColumn()) as progress:
        bar = progress.add_task("fits", total=len(jobs))
        for (task, method, seed), result in _results(jobs, n_jobs):
            line = {"key": key(task, method, seed), "by": fingerprint.version(), "result": result}
            file.write(json.dumps(line) + "\n")
            file.flush()
            note = result.get("failed") or result.get("skipped") or f"{result['accuracy']:.3f}"
            progress.update(bar, advance=1, description=f"{task}, {method}: {note}"[:72])


def _results(jobs: list[Job], n_jobs: int) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield as they are finished; a worker that runs out of memory ends the run."""
    if n_jobs == 1:
        yield from (_job(*job) for job in jobs)
        return
    with ProcessPoolExecutor(max(n_jobs, 0) or None, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_job, *job) for job in jobs]):
            yield done.result()


def _job(task: Task, method: str, seed: int) -> tuple[Job, dict[str, Any]]:
    try:
        return (task, method, seed), evaluate(task, method, seed)
    except Exception as error:
        return (task, method, seed), {"failed": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    parser = command("benchmarks accuracy", __doc__)
    parser.add_argument(
        "--table", choices=[*TABLES, "all"], action="append", help="may be repeated"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="M", help="only these")
    parser.add_argument("--seeds", type=seed_range, help="first:past the last; as the table has it")
    parser.add_argument("--jobs", type=int, default=1, help="workers, of one thread each; -1: all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--list", action="store_true", help="only count the fits of each table")
    arguments = parser.parse_args()
    names = list(TABLES) if "all" in (arguments.table or []) else arguments.table or []
    wanted = (arguments.seeds, arguments.methods, arguments.results)
    if arguments.list:
        for name in names or TABLES:
            print(f"{name}: {len(missing([name], *wanted))} fits to do")
        return
    run(missing(names, *wanted), arguments.results, n_jobs=arguments.jobs)


if __name__ == "__main__":
    main()
