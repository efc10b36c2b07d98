"""How good the model is that ``compare_models`` recommends, on samples that it has not seen.

    python -m benchmarks model_choice --seeds 300:302

The sets of ``docs/benchmarks.md``, with their training samples, and noise. Each comparison is a
line of ``choices.jsonl``: its CPU seconds, and the log loss of all its models on the test samples.
Lines of the same code are not repeated. ``python -m benchmarks report`` makes the table.
"""

import json
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from benchmarks import fingerprint
from benchmarks.page import command, table
from benchmarks.protocols import REPORTING_SEEDS, seed_range
from benchmarks.tables import SETS, Task
from bsdr_models import compare_models
from bsdr_models.metrics import log_losses

LINES = Path(__file__).parent / "choices.jsonl"
# Nats below which the recommended model is as good as the best.
CLOSE = 0.02
TASKS = (
    *(
        Task(source=source, scheme="per class", sizes=sizes, n_components=0)
        for source, sizes in SETS.items()
    ),
    Task(source="noise", scheme="noise", sizes=(60, 200, 3), n_components=0),
)


def choose(task: Task, seed: int) -> dict[str, Any]:
    """The recommended model by training samples, CPU seconds, and the log loss of each model."""
    split = task.split(seed)
    X = split.X_train
    y = split.y_train
    losses = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        begin = time.process_time()
        found = compare_models(X, y, random_state=seed, progressbar=False)
        seconds = time.process_time() - begin
        for name, model in found.models.items():
            probability = clone(model).fit(X, y).predict_proba(split.X_test)
            losses[name] = float(log_losses(probability, split.y_test).mean())
    return {
        "set": task.source,
        "seed": seed,
        "code": _code(),
        "by": fingerprint.version(),
        "recommended": found.recommended,
        "seconds": round(seconds, 1),
        "losses": losses,
    }


def _code() -> str:
    return fingerprint.code(("bsdr_models.compare.comparison", "benchmarks.protocols"))


def read(path: Path = LINES) -> list[dict[str, Any]]:
    """Comparisons of the code of the last one, one for each set and seed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    own = {(line["set"], line["seed"]): line for line in lines if line["code"] == lines[-1]["code"]}
    return list(own.values())


def text(lines: Sequence[dict[str, Any]]) -> str:
    """Sentence, and a line for each set: means over its splits of the log losses."""
    if not lines:
        return "No comparison is recorded."
    body = []
    gaps = []
    lost = []  # against the stack, whatever is recommended
    for name in (task.source for task in TASKS):
        own = [line for line in lines if line["set"] == name]
        if not own:
            continue
        recommended = dict.fromkeys(line["recommended"] for line in own)
        means = {
            model: np.mean([line["losses"][model] for line in own]) for model in own[0]["losses"]
        }
        best = min(means, key=means.__getitem__)
        mean = np.mean([line["losses"][line["recommended"]] for line in own])
        seconds = np.mean([line["seconds"] for line in own])
        gaps.append(mean - means[best])
        lost.append(mean - means["stack"])
        cells = (f"{mean:.3f}", best, f"{means[best]:.3f}", f"{gaps[-1]:+.3f}", f"{seconds:.0f}")
        body.append([name, ", ".join(recommended), *cells])
    seeds = {line["seed"] for line in lines}
    head = ["data", "recommended", "its log loss", "best", "its log loss", "difference", "CPU s"]
    return (
        f"*{len(seeds)} split{'s' if len(seeds) > 1 else ''}, recorded by version "
        f"{', '.join(dict.fromkeys(line['by'] for line in lines))}.*\n\n"
        f"The recommended model is within {CLOSE} nats of the best one on "
        f"{np.sum(np.array(gaps) <= CLOSE)} of {len(gaps)} sets, and at worst {max(gaps):.3f} "
        f"behind. Always taking the stack would change its mean over the sets by "
        f"{-np.mean(lost):+.4f} nats.\n\n{table(head, body)}"
    )


def main() -> None:
    """Compare on all sets and print the table."""
    parser = command("benchmarks model_choice", __doc__)
    parser.add_argument(
        "--seeds", type=seed_range, default=REPORTING_SEEDS[:2], help="first:past the last"
    )
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    done = {(line["set"], line["seed"]) for line in read() if line["code"] == _code()}
    jobs = [
        (task, seed)
        for seed in arguments.seeds
        for task in TASKS
        if not task.why_not and (task.source, seed) not in done
    ]
    with ProcessPoolExecutor(arguments.jobs) as pool, LINES.open("a") as file:
        for line in pool.map(choose, *zip(*jobs, strict=True)) if jobs else ():
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(line["set"], line["seed"], line["recommended"], line["seconds"], flush=True)
    print(text(read()))


if __name__ == "__main__":
    main()
