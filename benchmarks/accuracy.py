"""Accuracy and log loss of the package beside what people use today.

    python -m benchmarks.accuracy --table few-samples --seeds 0:10
    python -m benchmarks.accuracy --report

Every fit is one JSON line under ``benchmarks/results``, keyed by everything that determines it,
so that a stopped run resumes where it was.
"""

import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn

import bsdr_models
from benchmarks import baselines, dgplvm, margin, report
from benchmarks.tables import (
    CONFIGURATIONS,
    DGPLVM,
    DGPLVM_RIVALS,
    MARGIN,
    MARGIN_RIVALS,
    TABLES,
    Task,
)
from bsdr_models import BSDRClassifier
from bsdr_models.metrics import expected_calibration_error

RESULTS = Path(__file__).parent / "results" / "accuracy.jsonl"
# A component is live when it carries more than this share of the variance of the scores.
LIVE = 0.01


def scores(probability: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, log loss, Brier score (summed over classes) and expected calibration error."""
    rows = np.arange(len(y))
    return {
        "accuracy": float(np.mean(probability.argmax(axis=1) == y)),
        "log_loss": float(-np.log(np.maximum(probability[rows, y], 1e-300)).mean()),
        "brier": float(np.mean(np.sum((probability - np.eye(probability.shape[1])[y]) ** 2, 1))),
        "ece": expected_calibration_error(probability, y),
    }


def evaluate(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Scores of one method on one split; empty where the method does not exist there."""
    split = task.split(seed)
    begin, model, record = time.process_time(), None, {}
    with warnings.catch_warnings():
        # Stopping at max_iter, no signal in noise, samplers that mix slowly: all are on record.
        warnings.simplefilter("ignore")
        if method in CONFIGURATIONS:
            model = BSDRClassifier(
                n_components=task.n_components, random_state=seed, **CONFIGURATIONS[method]
            ).fit(split.X_train, split.y_train)
            probability = model.predict_proba(split.X_test)
        elif method in MARGIN + MARGIN_RIVALS:
            scaled = split if task.scheme == "few rows" else split.standardised()
            probability, record = margin.probabilities(method, scaled, task.n_components, seed)
        elif method in DGPLVM + DGPLVM_RIVALS:
            probability, record = dgplvm.probabilities(method, split, task.n_components, seed)
        elif method == "full LDA":
            probability = baselines.discriminant(split)
        else:
            probability = baselines.probabilities(method, split, task.n_components, seed)
    if probability is None:
        return {}
    seconds = round(time.process_time() - begin, 3)
    found = {**scores(probability, split.y_test), "seconds": seconds}
    return {**found, **record} if model is None else {**found, **_on_record(model)}


def _on_record(model: BSDRClassifier) -> dict[str, Any]:
    """What a fit says about itself."""
    norms = np.sqrt(np.sum(model.components_**2, axis=1))
    record = {
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "latent_scale": float(model.latent_scale_),
        "live": int(np.sum(model.relevance_ > LIVE)),
        "live_by_norm": int(np.sum(norms > LIVE * norms.max())),
    }
    if len(model.lower_bounds_):
        record["bound"] = float(model.lower_bounds_[-1])
        attrs = model.idata_.attrs
        record["stack"] = [round(float(w), 3) for w in attrs["stack_weights"]]
    return record


@cache
def code(paper: str) -> str:
    """Fingerprint of the modules that a fit of one paper runs through."""
    root = Path(bsdr_models.__file__).parent
    parts = [*root.glob("*.py")]
    for folder in (paper, "numerics", "inference"):
        parts += (root / folder).glob("*.py")
    digest = hashlib.sha256()
    for path in sorted(parts):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def key(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Everything that determines a result."""
    papers = {
        "bm2pca": (margin.CONFIGURATIONS, (*MARGIN, *MARGIN_RIVALS, "BM2PCA")),
        "dgplvm": (dgplvm.CONFIGURATIONS, DGPLVM),
        "bsdr": (CONFIGURATIONS, (*CONFIGURATIONS, "BSDR")),
    }
    paper = next((name for name, (_, methods) in papers.items() if method in methods), "")
    configuration = papers[paper][0].get(method) if paper else None
    used = code(paper) if paper else ""
    return {
        **asdict(task),
        "sizes": list(task.sizes),
        "method": method,
        "seed": seed,
        "configuration": repr(configuration),
        "code": used,
        "versions": f"numpy {np.__version__}, scipy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}",
    }


def read(path: Path) -> list[dict[str, Any]]:
    """All lines written so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def run(
    table: str, seeds: Iterable[int], methods: Iterable[str] | None, path: Path = RESULTS
) -> None:
    """Evaluate what is missing of a table, one line per fit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {json.dumps(line["key"], sort_keys=True) for line in read(path)}
    for task in TABLES[table].tasks:
        for method in methods or TABLES[table].methods:
            for seed in seeds:
                this = key(task, method, seed)
                if json.dumps(this, sort_keys=True) in done:
                    continue
                result = evaluate(task, method, seed)
                with path.open("a") as file:
                    file.write(json.dumps({"key": this, "result": result}) + "\n")
                shown = {k: result[k] for k in ("accuracy", "log_loss", "seconds") if k in result}
                print(task, method, seed, shown, flush=True)


def write(names: Iterable[str], seeds: Iterable[int], path: Path = RESULTS) -> str:
    """Tables as Markdown, from the newest line of every task, method and seed."""
    newest = {}
    for line in read(path):
        part = line["key"]
        task = Task(
            source=part["source"],
            scheme=part["scheme"],
            sizes=tuple(part["sizes"]),
            n_components=part["n_components"],
        )
        row = {"task": str(task), "method": part["method"], "seed": part["seed"]}
        newest[tuple(row.values())] = {**row, **line["result"]}
    wanted = set(seeds)
    rows = [row for row in newest.values() if row["seed"] in wanted]
    text = []
    for name in names:
        table = TABLES[name]
        tasks = [str(task) for task in table.tasks]
        text += [f"### {name}"]
        if table.measures:
            text += [report.measures(rows, tasks, table.methods, table.measures)]
            continue
        text += [report.tables(rows, tasks, table.methods)]
        if table.ours:
            text += [report.differences(rows, tasks, table.methods, table.ours)]
        else:
            text += [report.fits(rows, tasks, table.methods)]
    return "\n\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated")
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--seeds", default="0:10", help="first:past the last")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only print tables, as Markdown")
    arguments = parser.parse_args()
    seeds = range(*map(int, arguments.seeds.split(":")))
    if arguments.report:
        print(write(arguments.table or TABLES, seeds, arguments.results))
        return
    for table in arguments.table or ():
        run(table, seeds, arguments.methods, arguments.results)


if __name__ == "__main__":
    main()
