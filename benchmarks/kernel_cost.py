"""CPU time of fits with a kernel, against the number of training samples.

    python -m benchmarks.kernel_cost

Digits up to 1000 samples, beyond that simulated samples of twenty features and ten classes. One
BLAS thread, after a small fit that loads compiled code.
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits, make_classification
from threadpoolctl import threadpool_limits

from benchmarks.evidence.page import table
from bsdr_models import BSDRClassifier

SIZES = (100, 300, 1000, 20_000)


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Training samples and classes."""
    if n <= 1000:
        X, y = load_digits(return_X_y=True)
        chosen = np.random.default_rng(300).permutation(len(y))[:n]
        return X[chosen][:, X.std(axis=0) > 0.5], y[chosen]
    return make_classification(
        n, n_features=20, n_informative=10, n_classes=10, n_clusters_per_class=1, random_state=300
    )


def seconds(n: int, kernel: str) -> float:
    """CPU time of a fit."""
    X, y = samples(n)
    with threadpool_limits(1):
        begin = time.process_time()
        BSDRClassifier(kernel=kernel, random_state=0).fit(X, y)
        return time.process_time() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    seconds(60, "matern")
    body = []
    for n in arguments.sizes:
        body.append([str(n), *(f"{seconds(n, kernel):.0f}" for kernel in ("linear", "matern"))])
        print(*body[-1], flush=True)
    print(table(["samples", "linear, s", "matern, s"], body))


if __name__ == "__main__":
    main()
