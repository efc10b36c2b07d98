"""Benchmarks of the package; each has ``--help``.

python -m benchmarks accuracy   fits on many splits, one line each
python -m benchmarks model_choice  models that compare_models recommends, one line each
python -m benchmarks report     tables and curves from these lines
python -m benchmarks pictures   plots of single fits, as in the papers
python -m benchmarks speed      times and their lower bounds
python -m benchmarks scale      Laplace's method in memory, from disk and on workers
"""

import importlib
import sys

BENCHMARKS = ("accuracy", "model_choice", "report", "pictures", "speed", "scale")


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
