"""Speed beside its floor: sweeps, fits, memory. One BLAS thread, CPU time, medians.

    python -m benchmarks speed
    python -m benchmarks speed --only sweeps --write

Whatever is timed is checked: a wrong answer ends the run.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import climbs, footprint, sweeps
from benchmarks.timing import machine

REPORT = Path(__file__).parent / "README.md"
# What is replaced in the report.
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
PARTS: dict[str, Callable[[], str]] = {
    "sweeps": sweeps.report,
    "climbs": climbs.report,
    "footprint": footprint.report,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {REPORT.name}")
    arguments = parser.parse_args()
    sections = []
    with threadpool_limits(1):
        print(machine(), end="\n\n", flush=True)
        for name in arguments.only:
            sections.append(PARTS[name]())
            print(sections[-1], flush=True)
    if arguments.write:
        write("\n".join([machine(), "", *sections]))


def write(text: str) -> None:
    """Replace what stands between the marks in the report."""
    old = REPORT.read_text()
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    REPORT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
