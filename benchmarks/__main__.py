"""Benchmarks of the package: ``python -m benchmarks speed`` or ``python -m benchmarks accuracy``.

Arguments after the name go to the benchmark; each knows ``--help``.
"""

import importlib
import sys

BENCHMARKS = ("speed", "accuracy")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        sys.exit(f"usage: python -m benchmarks {{{','.join(BENCHMARKS)}}} ...")
    name = sys.argv.pop(1)
    importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
