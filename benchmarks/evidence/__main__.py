"""Recompute the tables and plots of ``docs/evidence.md``.

    python -m benchmarks.evidence
    python -m benchmarks.evidence --only null sbc

One BLAS thread, a few minutes for each part; every number is fixed by its seeds.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import fingerprint
from benchmarks.evidence import agreement, coverage, null, sbc
from benchmarks.page import command, write

DOCS = Path(__file__).parents[2] / "docs"
PARTS: dict[str, Callable[[Path], str]] = {
    "null": null.report,
    "weak": null.report_weak,
    "coverage": coverage.report,
    "metric": coverage.report_metric,
    "sbc": sbc.report,
    "agreement": agreement.report,
}


def main() -> None:
    parser = command("benchmarks.evidence", __doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    arguments = parser.parse_args()
    pictures = DOCS / "evidence"
    pictures.mkdir(exist_ok=True)
    with threadpool_limits(1), warnings.catch_warnings():
        # "No signal" on noise, and chains that have not mixed, are counted by the tables.
        warnings.simplefilter("ignore")
        for name in arguments.only:
            begin = time.process_time()
            text = PARTS[name](pictures)
            recorded = f"*Recorded by version {fingerprint.version()}.*"
            write(DOCS / "evidence.md", name, f"{recorded}\n\n{text}")
            print(f"{name}: {time.process_time() - begin:.0f} s of CPU\n\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
