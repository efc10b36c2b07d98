"""Time and peak memory of whole fits, each in a separate process."""

import json
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_wine
from threadpoolctl import threadpool_limits

from benchmarks.page import table as as_markdown
from benchmarks.timing import MIB, peak
from bsdr_models import BSDRClassifier
from bsdr_models.papers import PaperBSDRClassifier


@dataclass(frozen=True)
class Case:
    """A fit of BSDR or of the paper's to N, D, K (or to Wine), limits of wall time and memory."""

    name: str
    arguments: dict[str, Any]
    paper: bool = False
    sizes: tuple[int, ...] = ()
    seconds: float | None = None
    mib: float | None = None


COLUMNWISE: dict[str, Any] = {"priors__projection_prior": "columnwise"}
LONG = (100_000, 64, 10)
# Iterations of memory measurements.
FEW = 30
WIDE = (300, 15_000, 5)
CASES = (
    Case("Wine, one fit", COLUMNWISE, paper=True, seconds=1.0),
    Case("Wine, the default", {}, seconds=5.0),
    Case("N = 100 000, D = 64, entrywise", {"n_components": 5, "optimization__max_iter": FEW},
         paper=True, sizes=LONG, mib=1024.0),
    Case("N = 100 000, D = 64, the default", {"n_components": 5}, sizes=LONG, mib=1024.0),
    *(
        Case(f"N = 300, D = 15 000, {prior}",
             {"priors__projection_prior": prior, "n_components": 4},
             paper=True, sizes=WIDE, seconds=120.0, mib=4096.0)
        for prior in ("entrywise", "columnwise", "rowwise")
    ),
    Case("N = 300, D = 15 000, the default", {"n_components": 4}, sizes=WIDE, seconds=120.0,
         mib=4096.0),
)  # fmt: skip


def rows(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Normal features of which a few differ in mean between the classes."""
    if not sizes:
        return load_wine(return_X_y=True)
    n, d, k = sizes
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = rng.integers(k, size=n)
    live = min(d, 40) // 2
    X[:, :live] += rng.standard_normal((k, live))[y]
    return X, y


def child(case: Case) -> dict[str, float]:
    """Fit and predict the training samples, in this process."""
    X, y = rows(case.sizes)
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: it is reported
        kind = PaperBSDRClassifier if case.paper else BSDRClassifier
        model = kind(random_state=0).set_params(**case.arguments).fit(X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    accuracy = float(np.mean(model.predict(X) == y))
    bounds = getattr(model, "lower_bounds_", np.zeros(1))
    if case.paper:  # the other does not fit samples that it cannot predict
        assert accuracy > 0.9, "the fit has not learnt the samples"
    assert np.all(np.diff(bounds) > -1e-6 * np.abs(bounds[1:])), "the bound fell"
    return {
        "wall": wall,
        "cpu": cpu,
        "mib": peak() - before,
        "data": X.nbytes / MIB,
        "iterations": model.n_iter_,
        "converged": model.converged_,
    }


def measure(case: Case) -> list[str]:
    """One line of the table."""
    command = [sys.executable, "-m", "benchmarks.footprint", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr}")
    result = json.loads(done.stdout)
    time_ok = case.seconds is None or result["wall"] < case.seconds
    mib_ok = case.mib is None or result["mib"] < case.mib
    limits = ["-" if case.seconds is None else f"{case.seconds:.0f} s"]
    limits += ["-" if case.mib is None else f"{case.mib:.0f}"]
    return [
        case.name,
        f"{result['cpu']:.2f}",
        f"{result['wall']:.2f}",
        limits[0] + ("" if time_ok else " **missed**"),
        f"{result['mib']:.0f}",
        limits[1] + ("" if mib_ok else " **missed**"),
        f"{result['data']:.0f}",
        f"{result['iterations']}{'' if result['converged'] else ', not converged'}",
    ]


def report() -> str:
    """Markdown table of all cases."""
    head = ["fit", "CPU s", "wall s", "limit", "MiB above the data", "limit, MiB", "data MiB"]
    table = as_markdown([*head, "iterations"], [measure(case) for case in CASES])
    return (
        "## Time and memory of whole fits\n\n"
        "`BSDRClassifier.fit` and `predict` on the training samples, each in a fresh process: time "
        "of the first fit after import, compiled kernels cached; largest resident memory less that "
        f"before the fit.\n\n{table}\n"
    )


if __name__ == "__main__":
    print(json.dumps(child(Case(**json.loads(sys.argv[1])))))
