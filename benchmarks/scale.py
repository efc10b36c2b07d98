"""Laplace's method of BSDR on samples in memory, on disk, and on the workers of a cluster.

    python -m benchmarks scale
    python -m benchmarks scale --samples 1000000 --write

All three must find the same mode and draws; wall-clock seconds, one BLAS thread each.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.evidence.page import table as as_markdown
from benchmarks.evidence.page import write
from benchmarks.timing import machine
from bsdr_models.block_checks import check_blocks
from bsdr_models.block_sources import make_blocks
from bsdr_models.bsdr.laplace import Laplace, fit_laplace_blocks
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.sample_blocks import SampleBlocks

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
N_CLASSES, N_DRAWS = 5, 256
# Largest difference of modes and of draws, in posterior standard deviations.
CLOSE = 1e-3
# Samples written at once, and those of a first fit, which loads compiled code.
CHUNK, FEW = 50_000, 2000
MEGABYTE = 1 << 20
# Kinds of passes by the function called with each block.
PARTS = {
    "_sum_moments": "moments",
    "_sum_gradient": "evaluation",
    "_sum_hessian": "curvature",
    "_sum_log_likelihood": "draws",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Samples and labels on disk."""

    X: Path
    y: Path

    @classmethod
    def make(cls, folder: Path, n: int, d: int) -> "Files":
        """Five classes of unit standard deviation that overlap in three directions of D."""
        rng = np.random.default_rng(0)
        files = cls(X=folder / "X.npy", y=folder / "y.npy")
        y = rng.integers(N_CLASSES, size=n)
        centres = np.zeros((N_CLASSES, d))
        centres[:, :3] = rng.standard_normal((N_CLASSES, 3))
        X = np.lib.format.open_memmap(files.X, mode="w+", dtype=np.float64, shape=(n, d))
        for begin in range(0, n, CHUNK):
            part = slice(begin, min(begin + CHUNK, n))
            X[part] = centres[y[part]] + rng.standard_normal((part.stop - begin, d))
        X.flush()
        np.save(files.y, y)
        return files

    def read(self, *, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """X and y; X in memory or mapped."""
        return np.load(self.X, mmap_mode="r" if mapped else None), np.load(self.y)


class Timed:
    """Blocks whose passes are timed, by the name of the function."""

    def __init__(self, blocks: SampleBlocks) -> None:
        self._blocks = blocks
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    def reduce(self, function: Any, *, shared: Any = None) -> Any:
        """Sum over the blocks."""
        begin = time.perf_counter()
        found = self._blocks.reduce(function, shared=shared)
        name = getattr(function, "func", function).__name__
        self.seconds[PARTS[name]].append(time.perf_counter() - begin)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A fit: its seconds, those of its passes, and its result."""

    total: float
    visits: dict[str, list[float]]
    found: Laplace

    def line(self, name: str, note: str) -> list[str]:
        """A line of the table."""
        medians = [f"{statistics.median(self.visits[part]):.3f}" for part in PARTS.values()]
        counts = [len(self.visits[part]) for part in PARTS.values()]
        cells = [f"{m} x {n}" for m, n in zip(medians, counts, strict=True)]
        return [name, f"{self.total:.1f}", *cells, note]


def run(blocks: SampleBlocks) -> Run:
    """Fit as the estimator does after making blocks."""
    begin = time.perf_counter()
    checked = check_blocks(blocks)
    timed: Any = Timed(checked.blocks)
    found = fit_laplace_blocks(
        timed,
        checked.statistics.scaler(standardize=True),
        n_labels=N_CLASSES,
        target="multiclass",
        priors=HierarchicalPriors(),
        rng=np.random.default_rng(0),
        n_draws=N_DRAWS,
    )
    return Run(total=time.perf_counter() - begin, visits=dict(timed.seconds), found=found)


def from_disk(files: Files, block_size: int, limit: int, answer: Any) -> None:
    """A fit in a process limited to ``limit`` bytes beyond those with compiled code."""
    X, y = files.read(mapped=True)
    with threadpool_limits(1):
        run(make_blocks(X[:FEW], y[:FEW]))
        most = int(_status("VmData") * MEGABYTE) + limit
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        answer.send(run(make_blocks(X, y, block_size=block_size)))


def _in_a_process(*arguments: Any) -> Run:
    """Result of a new process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=from_disk, args=(*arguments, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def _status(name: str) -> float:
    """Megabytes of this process as the kernel reports."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024.0
    return float("nan")


def on_workers(files: Files, n_workers: int) -> Run:
    """A fit on the workers of a local cluster, a block on each."""
    from distributed import Client, LocalCluster

    X, y = files.read(mapped=True)
    cluster = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        run(make_blocks(X[:FEW], y[:FEW], block_size=-(-FEW // n_workers), client=client))
        return run(make_blocks(X, y, block_size=-(-len(y) // n_workers), client=client))


def compare(n: int, d: int, *, n_workers: int, block_size: int, limit: int) -> str:
    """Markdown table of the three settings."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        files = Files.make(Path(folder), n, d)
        # Before workers start, which would inherit the environment.
        disk = _in_a_process(files, block_size, limit * MEGABYTE)
        X, y = files.read()
        run(make_blocks(X[:FEW], y[:FEW]))
        memory = run(make_blocks(X, y))
        workers = on_workers(files, n_workers)
    size = n * d * 8 / MEGABYTE
    assert memory.found.converged, "no mode was found"
    gap = max(difference(memory.found, each.found) for each in (disk, workers))
    assert gap < CLOSE, f"the ways differ by {gap:.2g} standard deviations"
    lines = [
        memory.line("in memory", f"{size:.0f} MB of X"),
        disk.line("from disk", f"at most {limit} MB beside the libraries"),
        workers.line(f"{n_workers} workers", "a block on each"),
    ]
    head = [f"N = {n}, D = {d}", "s", *(f"{part}, s" for part in PARTS.values()), ""]
    return (
        f"K = {N_CLASSES}, {N_DRAWS} draws; Pareto k {memory.found.pareto_k:.2f}. Mode and draws "
        f"of the three ways differ by at most {gap:.0e} standard "
        f"deviations.\n\n{as_markdown(head, lines)}"
    )


def difference(one: Laplace, other: Laplace) -> float:
    """Largest difference of modes and of draws, in standard deviations of the draws of the first.

    Draws by one seed differ only as the approximations do.
    """
    std = one.theta.std(axis=0)
    of_mode = np.abs(one.mode - other.mode) / std
    of_draws = np.abs(one.theta - other.theta) / std
    return float(max(of_mode.max(), of_draws.max()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--samples", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block-size", type=int, default=20_000, help="from disk")
    parser.add_argument("--limit", type=int, default=150, help="megabytes, from disk")
    parser.add_argument("--write", action="store_true", help=f"put into {PAGE.name}")
    arguments = parser.parse_args()
    text = compare(
        arguments.samples,
        arguments.features,
        n_workers=arguments.workers,
        block_size=arguments.block_size,
        limit=arguments.limit,
    )
    print(machine(), text, sep="\n\n", flush=True)
    if arguments.write:
        write(PAGE, "scale", f"{machine()}\n\n{text}")


if __name__ == "__main__":
    main()
