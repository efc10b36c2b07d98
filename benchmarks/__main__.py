"""Benchmarks of the package; each of them knows ``--help``.

python -m benchmarks accuracy   fits on many splits, a line for each
python -m benchmarks report     tables and curves from these lines
python -m benchmarks pictures   the pictures of the papers that show single fits
python -m benchmarks speed      times beside their floors, and since the last commit
python -m benchmarks scale      sweeps in memory, on workers and from disk
"""

import importlib
import sys

BENCHMARKS = ("accuracy", "report", "pictures", "speed", "scale")


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        sys.exit(f"usage: python -m benchmarks {{{','.join(BENCHMARKS)}}} ...")
    name = sys.argv.pop(1)
    importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
