"""Remake the tables of ``docs/evidence.md`` and its pictures.

    python -m benchmarks.evidence
    python -m benchmarks.evidence --only null sbc

One BLAS thread, a few minutes for each part; every number is fixed by its seeds.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.evidence import coverage, null, sbc
from benchmarks.evidence.page import write

DOCS = Path(__file__).parents[2] / "docs"
PARTS: dict[str, Callable[[Path], str]] = {
    "null": null.report,
    "coverage": coverage.report,
    "sbc": sbc.report,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    arguments = parser.parse_args()
    pictures = DOCS / "evidence"
    pictures.mkdir(exist_ok=True)
    with threadpool_limits(1), warnings.catch_warnings():
        # "No signal" on noise, and chains that have not mixed, are what the tables count.
        warnings.simplefilter("ignore")
        for name in arguments.only:
            begin = time.process_time()
            text = PARTS[name](pictures)
            write(DOCS / "evidence.md", name, text)
            print(f"{name}: {time.process_time() - begin:.0f} s of CPU\n\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
