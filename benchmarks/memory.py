"""Peak resident memory of this process, and its reset."""

import resource
import sys
from pathlib import Path

MIB = 1024.0**2
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak() -> float:
    """Largest resident memory of this process so far, MiB."""
    if STATUS.exists():  # Linux hands the peak of a parent on to getrusage
        line = next(row for row in STATUS.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) / 1024.0
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (MIB if sys.platform == "darwin" else 1024.0)


def reset_peak() -> bool:
    """Reset :func:`peak` to the current memory; False if this is not possible."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True
