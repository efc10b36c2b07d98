"""Medians of CPU times, which other processes hardly affect; peak memory; the machine."""

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy
import scipy
from threadpoolctl import threadpool_info

from benchmarks import fingerprint

MIB = 1024.0**2


@dataclass(frozen=True, kw_only=True)
class Work:
    """A function to time, of the result of ``prepare``, which is called before and not timed."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None


def medians(
    *work: Work, seconds: float = 2.0, repeats: tuple[int, int] = (5, 201)
) -> tuple[float, ...]:
    """Median CPU time of each of several functions, measured in turns after one that fills caches.

    Turns share the load of the machine, so that ratios vary less than the times. After so many
    seconds in all no further turn starts, once there were the fewest.
    """
    times: list[list[float]] = [[] for _ in work]
    spent = 0.0
    while len(times[0]) <= repeats[0] or (spent < seconds and len(times[0]) <= repeats[1]):
        for each, record in zip(work, times, strict=True):
            argument = each.prepare()
            start = time.process_time()
            each.run(argument)
            record.append(time.process_time() - start)
            spent += record[-1]
    return tuple(statistics.median(record[1:]) for record in times)


def peak() -> float:
    """Largest resident memory of this process so far, MiB."""
    if Path("/proc/self/status").exists():  # Linux hands the peak of a parent on to getrusage
        return _status("VmHWM")
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (MIB if sys.platform == "darwin" else 1024.0)


def resident() -> float:
    """Resident memory of this process, MiB, on Linux."""
    return _status("VmRSS")


def _status(name: str) -> float:
    """An entry of Linux's status of this process, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024.0


def reset_peak() -> bool:
    """Reset :func:`peak` to the current memory; False if this is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def machine() -> str:
    """Version of the package, processor and libraries, for the head of a report."""
    blas = {
        f"{lib['internal_api']} {lib['version']}"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    parts = (
        f"Version {fingerprint.version()} on {_processor()}",
        f"Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"SciPy {scipy.__version__}, numba {numba.__version__}",
        ", ".join(sorted(blas)),
    )
    return "; ".join(parts)


def _processor() -> str:
    """Model and vector extensions if known."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.machine()
    facts = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    flags = facts.get("flags", "").split()
    vectors = next((v for v in ("avx512f", "avx2") if v in flags), "no AVX2")
    return f"{facts.get('model name', platform.machine())} ({vectors})"
