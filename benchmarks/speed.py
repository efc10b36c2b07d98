"""Speed and its lower bound: sweeps, fits, memory. One BLAS thread, CPU time, medians.

    python -m benchmarks speed
    python -m benchmarks speed --only sweeps --write

Everything timed is also checked: a wrong result ends the run. A ratio that is more than 1.3 times
that of the page ends it with an error, once all parts have run.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import (
    bm2pca_sweeps,
    footprint,
    gp_likelihood,
    growth,
    posterior_gradient,
    sweeps,
    waits,
)
from benchmarks.page import command, ratios, read, write
from benchmarks.report import FOLDER
from benchmarks.timing import machine

# What a user waits for, and single steps beside their lower bounds.
PAGE, FLOORS_PAGE = FOLDER / "speed.md", FOLDER / "floors.md"
# Every part takes the folder of plots, or None.
PARTS: dict[str, Callable[[Path | None], str]] = {
    "waits": lambda _: waits.report(),
    "growth": growth.report,
    "sweeps": lambda _: sweeps.report(),
    "posterior_gradient": lambda _: posterior_gradient.report(),
    "footprint": lambda _: footprint.report(),
    "bm2pca_sweeps": lambda _: bm2pca_sweeps.report(),
    "gp_likelihood": lambda _: gp_likelihood.report(),
}
# How far a ratio may exceed that of the page, as busy machines let it.
LIMIT = 1.3


def exceeded(recorded: str, now: str) -> list[str]:
    """Ratios of tables that are too far above the recorded ones, in words."""
    before = ratios(recorded)
    return [
        f"{name}: {value:.2f}, recorded {before[name]:.2f}"
        for name, value in ratios(now).items()
        if value > LIMIT * before.get(name, value)
    ]


def main() -> None:
    parser = command("benchmarks speed", __doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    arguments = parser.parse_args()
    slower = []
    with threadpool_limits(1):
        print(machine(), end="\n\n", flush=True)
        for name in arguments.only:
            text = PARTS[name](FOLDER if arguments.write else None)
            print(text, flush=True)
            page = PAGE if name in ("waits", "growth") else FLOORS_PAGE
            text = f"{machine()}\n\n{text}"
            slower += exceeded(read(page, name), text)
            if arguments.write:
                write(page, name, text)
    if slower:
        sys.exit("\n".join([f"ratios more than {LIMIT} times those of the page:", *slower]))


if __name__ == "__main__":
    main()
