"""Rows beyond memory: a sweep of BSDR in one process, on workers, and from disk.

    python -m benchmarks scale --rows 1000000 --features 100
    python -m benchmarks scale --model                          # what a sweep costs, in parts

Everything is timed in one run, sweeps in memory and on workers in turns, wall seconds, one BLAS
thread each. All ways start alike, and must have the same bound after the same number of sweeps.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from benchmarks.evidence.page import table as as_markdown
from benchmarks.evidence.page import write
from benchmarks.timing import machine
from bsdr_models.bsdr import blocks, mean_field
from bsdr_models.bsdr.block_starts import BlockData, prepare
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import make_data
from bsdr_models.inference.row_blocks import RowBlocks
from bsdr_models.row_sources import make_blocks

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
PRIORS = Priors(latent_scale=0.3)
N_CLASSES, N_COMPONENTS = 5, 3
# Workers keep the memory of large temporary arrays, as docs/how_to/large_data.md advises.
KEEP = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{kind}_THRESHOLD_": 1 << 27
    for kind in ("TRIM", "MMAP")
}
# Rows that are written at once.
CHUNK = 50_000
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Rows and labels on disk."""

    X: Path
    y: Path

    @classmethod
    def make(cls, folder: Path, n: int, d: int) -> "Files":
        """Five classes of unit spread, two apart in three directions of D."""
        rng = np.random.default_rng(0)
        files = cls(X=folder / "X.npy", y=folder / "y.npy")
        y = rng.integers(N_CLASSES, size=n)
        centres = np.zeros((N_CLASSES, d))
        centres[:, :3] = 2.0 * rng.standard_normal((N_CLASSES, 3))
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


@dataclass(slots=True)
class Climb:
    """One way under way: its seconds and bounds, sweep by sweep."""

    state: Any
    step: Callable[[Any], tuple[Any, mean_field.Info]]
    seconds: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    def run(self) -> None:
        """One sweep."""
        begin = time.perf_counter()
        self.state, info = self.step(self.state)
        self.seconds.append(time.perf_counter() - begin)
        self.bounds.append(info.elbo)

    @property
    def median(self) -> float:
        """Seconds of a sweep; the first one also loads compiled code."""
        return statistics.median(self.seconds[1:])


def in_memory(X: np.ndarray, y: np.ndarray) -> Climb:
    """The path of arrays."""
    data = make_data(X, y, n_labels=N_CLASSES)
    state = mean_field.init(
        data,
        PRIORS,
        n_components=N_COMPONENTS,
        projection_prior="entrywise",
        rng=np.random.default_rng(0),
    )

    return Climb(state=state, step=lambda state: mean_field.step(state, data, PRIORS))


def by_blocks(rows: RowBlocks) -> Climb:
    """The path of blocks, wherever they lie."""
    data: BlockData = prepare(rows, None, n_labels=N_CLASSES)
    state = blocks.init(
        data,
        PRIORS,
        n_components=N_COMPONENTS,
        projection_prior="entrywise",
        rng=np.random.default_rng(0),
    )

    return Climb(state=state, step=lambda state: blocks.step(state, data, PRIORS))


def on_workers(client: Any, files: Files, n_blocks: int, most: int | None = None) -> RowBlocks:
    """Blocks on the workers of a cluster, of the first so many rows."""
    X, y = (rows[:most] for rows in files.read(mapped=True))
    return make_blocks(X, y, block_rows=-(-len(y) // n_blocks), client=client)


def from_disk(files: Files, limit: int, n_sweeps: int, answer: Any) -> None:
    """Sweeps from disk, in a process that may hold ``limit`` bytes: bounds, seconds, peak."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with threadpool_limits(1):
        climb = by_blocks(make_blocks(*files.read(mapped=True)))
        for _ in range(n_sweeps):
            climb.run()
    answer.send((climb.bounds, climb.seconds, _status("VmData"), _status("RssAnon")))


def _in_a_process(function: Callable[..., None], *arguments: Any) -> Any:
    """What a new process sends back."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(*arguments, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def _status(name: str) -> float:
    """Megabytes of this process by the kernel's account."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024.0
    return float("nan")


def compare(n: int, d: int, *, n_workers: int, n_blocks: int, n_sweeps: int, limit: int) -> str:
    """Markdown table of the three ways."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set(KEEP)
    lines = []
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        files = Files.make(Path(folder), n, d)
        # Before there are workers, whose environment it would have.
        bounds, seconds, held, anonymous = _in_a_process(from_disk, files, limit, n_sweeps)
        memory = in_memory(*files.read())
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        with cluster, Client(cluster) as client:
            workers = by_blocks(on_workers(client, files, n_blocks))
            client_cpu = 0.0
            for _ in range(n_sweeps):
                before = time.process_time()
                workers.run()
                client_cpu += (time.process_time() - before) / n_sweeps
                memory.run()
            few = by_blocks(on_workers(client, files, n_blocks, most=100 * n_blocks))
            for _ in range(5 * n_sweeps):
                few.run()
        _check(memory.bounds, workers.bounds)
        _check(memory.bounds, bounds)
    disk = statistics.median(seconds[1:])
    base = memory.median
    lines.append(["in memory, one process", f"{base:.2f}", "1.00", "-"])
    lines.append(
        [
            f"{n_workers} workers, {n_blocks} blocks",
            f"{workers.median:.2f}",
            f"{workers.median / base:.2f}",
            f"{client_cpu:.3f} s of CPU in the client",
        ]
    )
    note = "what Dask takes, there is next to no work"
    lines.append([f"the same, {100 * n_blocks} rows", f"{few.median:.3f}", "-", note])
    lines.append(
        [
            f"from disk, at most {limit // MEGABYTE} MB",
            f"{disk:.2f}",
            f"{disk / base:.2f}",
            f"{held:.0f} MB of data segment, {anonymous:.0f} MB resident",
        ]
    )
    head = [f"N = {n}, D = {d}", "s per sweep", "of in memory", ""]
    return as_markdown(head, lines)


# Sizes D, K, R at which the parts of a sweep are timed, with N_FIT rows.
SIZES = [(25, 5, 3), (100, 5, 3), (400, 5, 3), (100, 2, 3), (100, 10, 3), (100, 5, 1), (100, 5, 8)]
N_FIT = 50_000
REPEATS = 5


def cost_model() -> str:
    """CPU nanoseconds of a row: products with X, its own update, its scores; and the fit."""
    move, score, lines = [], [], []
    for d, k, r in SIZES:
        first, second = _visits(d, k, r)
        move.append(first)
        score.append(second)
        lines.append([str(d), str(k), str(r), f"{first:.0f}", f"{second:.0f}"])
    sizes = np.array(SIZES, dtype=float)
    d, k, r = sizes.T
    names = ("1", "D", "D R", "R (R + K)")
    of_move, gap_move = _fit(np.column_stack([np.ones_like(d), d, d * r, r * (r + k)]), move)
    of_score, gap_score = _fit(np.column_stack([np.ones_like(d), k]), score)
    text = as_markdown(["D", "K", "R", "positions, ns a row", "scores, ns a row"], lines)
    terms = " + ".join(f"{c:.3g} {name}" for c, name in zip(of_move, names, strict=True))
    return (
        f"{text}\n\npositions: {terms} ns a row (largest error {gap_move:.0%})\n\n"
        f"scores: {of_score[0]:.3g} + {of_score[1]:.3g} K ns a row (largest error {gap_score:.0%})"
    )


def _visits(d: int, k: int, r: int) -> tuple[float, float]:
    """Median CPU nanoseconds a row of the two visits of a sweep."""
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=N_FIT)
    X = rng.standard_normal((N_FIT, d)) + 2.0 * np.eye(k, d)[y]
    data = prepare(make_blocks(X, y), None, n_labels=k)
    state = blocks.init(data, PRIORS, n_components=r, projection_prior="entrywise", rng=rng)
    state, _ = blocks.step(state, data, PRIORS)
    message = blocks.Message.of(state.shared, data, PRIORS)
    seconds: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        begin = time.process_time()
        data.blocks.visit(blocks.move_rows, state.rows, shared=message)
        middle = time.process_time()
        data.blocks.visit(blocks.score_rows, state.rows, shared=message)
        seconds.append((middle - begin, time.process_time() - middle))
    first, second = np.median(seconds, axis=0) * 1e9 / N_FIT
    return float(first), float(second)


def _fit(design: np.ndarray, values: list[float]) -> tuple[np.ndarray, float]:
    """Coefficients, none negative, by relative least squares; the largest relative error."""
    observed = np.array(values)
    found, _ = nnls(design / observed[:, None], np.ones(len(observed)))
    return found, float(np.max(np.abs(design @ found / observed - 1.0)))


def _check(expected: list[float], found: list[float]) -> None:
    gap = max(abs(a / b - 1.0) for a, b in zip(expected, found, strict=True))
    assert gap < 1e-9, f"bounds differ by {gap:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--limit", type=int, default=1024, help="megabytes, from disk")
    parser.add_argument("--model", action="store_true", help="only the parts of a sweep")
    parser.add_argument("--write", action="store_true", help=f"put into {PAGE.name}")
    arguments = parser.parse_args()
    print(machine(), end="\n\n", flush=True)
    with threadpool_limits(1):
        _show("scale-parts", cost_model(), arguments.write)
    if arguments.model:
        return
    sizes = {"n_workers": arguments.workers, "n_blocks": arguments.blocks}
    sizes |= {"n_sweeps": arguments.sweeps, "limit": arguments.limit * MEGABYTE}
    found = compare(arguments.rows, arguments.features, **sizes)
    _show("scale-ways", found, arguments.write)


def _show(name: str, text: str, into_page: bool) -> None:
    print(text, end="\n\n", flush=True)
    if into_page:
        write(PAGE, name, f"{machine()}\n\n{text}")


if __name__ == "__main__":
    main()
