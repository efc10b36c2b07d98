"""Speed and its lower bound: sweeps, fits, memory. One BLAS thread, CPU time, medians.

    python -m benchmarks speed
    python -m benchmarks speed --only sweeps --write
    python -m benchmarks speed --record      # a line of times by commit
    python -m benchmarks speed --compare     # current times and the last lines

Everything timed is also checked: a wrong result ends the run.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import (
    bm2pca_sweeps,
    footprint,
    gp_fits,
    gp_likelihood,
    growth,
    history,
    posterior_gradient,
    sweeps,
)
from benchmarks.evidence.page import write
from benchmarks.report import FOLDER
from benchmarks.timing import machine

# What a user waits for, and single steps beside their lower bounds.
PAGE, FLOORS_PAGE = FOLDER / "speed.md", FOLDER / "floors.md"
# Every part takes the folder of plots, or None.
PARTS: dict[str, Callable[[Path | None], str]] = {
    "waits": lambda _: history.report(),
    "growth": growth.report,
    "sweeps": lambda _: sweeps.report(),
    "posterior_gradient": lambda _: posterior_gradient.report(),
    "footprint": lambda _: footprint.report(),
    "bm2pca_sweeps": lambda _: bm2pca_sweeps.report(),
    "gp_likelihood": lambda _: gp_likelihood.report(),
    "gp_fits": lambda _: gp_fits.report(),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    parser.add_argument("--record", action="store_true", help="keep the times of this commit")
    parser.add_argument("--compare", action="store_true", help="beside those of earlier commits")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.record or arguments.compare:
            found = history.measure()
            print(history.compare(found, history.last()))
            if arguments.record:
                history.record(found)
            return
        print(machine(), end="\n\n", flush=True)
        for name in arguments.only:
            text = PARTS[name](FOLDER if arguments.write else None)
            print(text, flush=True)
            if arguments.write:
                page = PAGE if name in ("waits", "growth") else FLOORS_PAGE
                write(page, name, f"{machine()}\n\n{text}")


if __name__ == "__main__":
    main()
