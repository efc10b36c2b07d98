"""Laplace's method of BSDR: samples in memory, and in chunks of a file by threads and workers.

    python -m benchmarks scale
    python -m benchmarks scale --samples 1000000 --write

All three must find the same mode and draws; wall-clock seconds, one BLAS thread each. The memory of
a worker is its resident set after a fit to a few samples, and what the fit to all adds to it at its
peak, beside the chunks that the worker holds.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.page import command, write
from benchmarks.page import table as as_markdown
from benchmarks.timing import machine, peak, reset_peak, resident
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import make_contrasts
from bsdr_models.large.chunks import Chunks, InMemory, Samples
from bsdr_models.large.dask_arrays import fit_scaler_of_chunks, read_chunked
from bsdr_models.large.laplace import Laplace, Response, fit_laplace
from bsdr_models.numerics.scaling import Scaler

PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "large_data.md"
N_CLASSES, N_DRAWS = 5, 256
# Largest difference of modes and of draws, in posterior standard deviations.
CLOSE = 1e-3
# Samples for each worker in a first fit, which loads compiled code.
FEW = 2000
MEGABYTE = 1 << 20
# Kinds of passes by the function called with each chunk.
PARTS = {
    "_sum_derivatives": "Newton step",
    "_sum_log_likelihood": "draws",
}


def write_samples(path: Path, n: int, d: int, chunk: int) -> np.ndarray:
    """Features in a zarr array, and labels (N,): classes of unit deviation in three directions."""
    import zarr

    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=n)
    centres = np.zeros((N_CLASSES, d))
    centres[:, :3] = rng.standard_normal((N_CLASSES, 3))
    X = zarr.create_array(path, shape=(n, d), chunks=(chunk, d), dtype=np.float64)
    for begin in range(0, n, chunk):
        part = slice(begin, min(begin + chunk, n))
        X[part] = centres[y[part]] + rng.standard_normal((part.stop - begin, d))
    return y


class Memory:
    """Memory of a worker in MB, from now on, beside the chunks of a Dask array that it holds.

    A plugin of the worker. A chunk counts from when the worker begins to read or to receive it.
    """

    def __init__(self, name: str, worker: Any) -> None:
        self._name = name
        self._worker = worker
        self._chunks: dict[Any, float] = {}
        base = resident()
        self.found = {"base": base, "peak": base, "chunks": 0.0, "added": 0.0}
        reset_peak()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Called by the worker: a result of a task may be there, or be there no longer."""
        if "memory" not in (start, finish) or key[0] != self._name:
            return
        before = self._held()
        self._chunks.pop(key, None)
        if finish == "memory":
            self._chunks[key] = self._worker.state.tasks[key].nbytes / MEGABYTE
        self._note(max(before, self._held()))

    def _note(self, held: float) -> None:
        """Note the peak since this was last called."""
        found = {"peak": peak(), "chunks": held, "added": peak() - self.found["base"] - held}
        for name, value in found.items():
            self.found[name] = max(self.found[name], value)
        reset_peak()

    def read(self) -> dict[str, float]:
        """What was noted: memory at first, peak, most that was held of X, and most beside these."""
        self._note(self._held())
        return self.found

    def _held(self) -> float:
        return sum(self._chunks.values())


def watch_memory(name: str, dask_worker: Any) -> None:
    """Begin to note the memory of a worker."""
    dask_worker.plugins["memory"] = Memory(name, dask_worker)


def read_memory(dask_worker: Any) -> dict[str, float]:
    """What was noted, at the end."""
    return dask_worker.plugins.pop("memory").read()


class Timed:
    """Samples whose passes are timed, by the name of the function, but for those of a subsample."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self.select = samples.select
        self.shape = samples.shape
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def sum(self, function: Any, shared: Any) -> Any:
        """Sum over the chunks."""
        begin = time.perf_counter()
        found = self._samples.sum(function, shared)
        self.seconds[PARTS[function.__name__]].append(time.perf_counter() - begin)
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


def run(samples: Samples, scaler: Scaler) -> Run:
    """Fit as the estimator does after validation."""
    begin = time.perf_counter()
    timed: Any = Timed(samples)
    response = Response(
        target="multiclass",
        contrasts=make_contrasts(N_CLASSES, "multiclass"),
        priors=HierarchicalPriors(),
        scaler=scaler,
    )
    found = fit_laplace(timed, response, rng=np.random.default_rng(0), n_draws=N_DRAWS)
    return Run(total=time.perf_counter() - begin, visits=dict(timed.seconds), found=found)


def compare(n: int, d: int, *, n_workers: int, chunk: int) -> str:
    """Markdown table of the three settings."""
    import dask.array as da
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "X.zarr"
        y = write_samples(path, n, d, chunk)
        few_path = Path(folder) / "few.zarr"
        few_y = write_samples(few_path, n_workers * FEW, d, FEW)
        on_disk = da.from_zarr(path)
        few = da.from_zarr(few_path)
        X = on_disk.compute()
        scaler = Scaler.fit(X)
        run(InMemory(X[:FEW], y[:FEW]), scaler)
        memory = run(InMemory(X, y), scaler)
        del X
        threads = run(Chunks(on_disk, y), scaler)
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        with cluster, Client(cluster) as client:
            fit_scaler_of_chunks(few, standardize=True)
            run(Chunks(few, few_y), scaler)
            client.run(watch_memory, on_disk.name)
            on_workers, _ = read_chunked(on_disk, y)
            scaler = fit_scaler_of_chunks(on_workers, standardize=True)
            workers = run(Chunks(on_workers, y), scaler)
            used = list(client.run(read_memory).values())
    size = n * d * 8 / MEGABYTE
    most = {name: max(each[name] for each in used) for name in used[0]}
    assert memory.found.converged, "no mode was found"
    gap = max(difference(memory.found, each.found) for each in (threads, workers))
    assert gap < CLOSE, f"the ways differ by {gap:.2g} standard deviations"
    lines = [
        memory.line("in memory", f"{size:.0f} MB of X"),
        threads.line("from disk", f"chunks of {chunk} samples, threads of Dask"),
        workers.line(f"{n_workers} workers", f"chunks of {chunk} samples"),
    ]
    head = [f"N = {n}, D = {d}", "s", *(f"{part}, s" for part in PARTS.values()), ""]
    return (
        f"K = {N_CLASSES}, {N_DRAWS} draws; Pareto k {memory.found.pareto_k:.2f}. Mode and draws "
        f"of the three ways differ by at most {gap:.0e} standard "
        f"deviations.\n\n{as_markdown(head, lines)}\n\nA worker has "
        f"{most['base']:.0f} MB after a fit to {FEW} samples, and "
        f"{most['peak']:.0f} MB at its peak. It holds at most "
        f"{most['chunks']:.0f} MB of X, in chunks of "
        f"{chunk * d * 8 / MEGABYTE:.0f} MB, and beside these the fit adds at most "
        f"{most['added']:.0f} MB."
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
    parser = command("benchmarks scale", __doc__)
    parser.add_argument("--samples", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=20_000, help="samples, from disk")
    parser.add_argument("--write", action="store_true", help=f"put into {PAGE.name}")
    arguments = parser.parse_args()
    text = compare(
        arguments.samples, arguments.features, n_workers=arguments.workers, chunk=arguments.chunk
    )
    print(machine(), text, sep="\n\n", flush=True)
    if arguments.write:
        write(PAGE, "scale", f"{machine()}\n\n{text}")


if __name__ == "__main__":
    main()
