"""Speed beside its floor: sweeps, fits, memory. One BLAS thread, CPU time, medians.

    python -m benchmarks speed
    python -m benchmarks speed --only sweeps --write

Whatever is timed is checked: a wrong answer ends the run.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import (
    bm2pca_climbs,
    bm2pca_sweeps,
    climbs,
    footprint,
    gp_fits,
    gp_likelihood,
    sweeps,
)
from benchmarks.timing import machine

REPORT = Path(__file__).parent / "README.md"
PARTS: dict[str, Callable[[], str]] = {
    "sweeps": sweeps.report,
    "climbs": climbs.report,
    "footprint": footprint.report,
    "bm2pca_sweeps": bm2pca_sweeps.report,
    "bm2pca_climbs": bm2pca_climbs.report,
    "gp_likelihood": gp_likelihood.report,
    "gp_fits": gp_fits.report,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {REPORT.name}")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        print(machine(), end="\n\n", flush=True)
        for name in arguments.only:
            text = PARTS[name]()
            print(text, flush=True)
            if arguments.write:
                write(name, f"{machine()}\n\n{text}")


def write(name: str, text: str) -> None:
    """Replace what stands between the marks of a part in the report."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = REPORT.read_text().partition(begin)
    _, _, after = rest.partition(end)
    REPORT.write_text(f"{before}{begin}\n{text}\n{end}{after}")
