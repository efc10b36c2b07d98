"""Compare the results and times of this checkout with those of another revision.

``python tools/same_results.py HEAD~1`` fits the cells below with both, each in a process of its own
with one thread, the two in turn, and prints the largest difference of predictions and latent
coordinates and the ratio of the fits' CPU times. It fails if a difference is above 1e-10.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-10

# Estimator, arguments, data, training samples per class (of all, if the target is real).
CELLS = {
    "BSDR, wine": ("BSDRClassifier", {}, load_wine, 30),
    "BSDR, digits, two columns": ("BSDRClassifier", {"n_components": 2}, load_digits, 5),
    "BSDR by Laplace, digits": ("BSDRClassifier", {"inference": "laplace"}, load_digits, 20),
    "BSDR, diabetes": ("BSDRRegressor", {}, load_diabetes, 60),
    "BSDR of the paper, wine": ("PaperBSDRClassifier", {}, load_wine, 30),
    "BSDR of the paper, Gibbs, iris": (
        "PaperBSDRClassifier",
        {"inference": "gibbs"},
        load_iris,
        10,
    ),
    "BM2PCA, digits": ("BM2PCAClassifier", {}, load_digits, 10),
    "BM2PCA, cancer": ("BM2PCAClassifier", {}, load_breast_cancer, 20),
    "BM2PCA of the paper, cancer": ("PaperBM2PCAClassifier", {}, load_breast_cancer, 20),
    "BM2PCA, diabetes": ("BM2PCARegressor", {}, load_diabetes, 100),
    "D-GPLVM, digits": ("DGPLVMClassifier", {"n_components": 2}, load_digits, 10),
    "D-GPLVM of the paper, wine": ("PaperDGPLVMClassifier", {}, load_wine, 10),
}


def fit_cell(name: str) -> dict[str, np.ndarray | float]:
    """Predictions, latent coordinates and CPU seconds of one cell."""
    import bsdr_models

    kind, arguments, load, n_training = CELLS[name]
    paper = kind.startswith("Paper")
    package = import_module("bsdr_models.papers") if paper else bsdr_models
    X, y = load(return_X_y=True)
    order = np.random.default_rng(300).permutation(len(X))
    real = load is load_diabetes
    groups = np.zeros(len(y), int) if real else y
    training = np.concatenate([order[groups[order] == g][:n_training] for g in np.unique(groups)])
    new = np.setdiff1d(order, training)[:200]
    model = getattr(package, kind)(**arguments, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[training], y[training])  # compiles
        start = time.process_time()
        model.fit(X[training], y[training])
        found: dict[str, np.ndarray | float] = {"seconds": time.process_time() - start}
        found["predictions"] = model.predict(X[new]) if real else model.predict_proba(X[new])
        if hasattr(model, "transform"):
            found["latent coordinates"] = model.transform(X[new])
    return found


def in_process(checkout: Path, name: str) -> dict[str, np.ndarray | float]:
    """The same, computed by the package of a checkout."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, __file__, "--cell", name],
        env=os.environ | threads | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return pickle.loads(done.stdout)


def main() -> None:
    """Compare, or fit the one cell that the other process was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--only", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        sys.stdout.buffer.write(pickle.dumps(fit_cell(args.cell)))
        return
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(other), args.revision],
            cwd=ROOT,
            check=True,
        )
        try:
            for name in args.only:
                before, after = in_process(other, name), in_process(ROOT, name)
                seconds = (before.pop("seconds"), after.pop("seconds"))
                gap = max(float(np.abs(before[key] - after[key]).max()) for key in before)
                failed |= not gap <= TOLERANCE
                ratio = seconds[1] / seconds[0]
                line = f"{name:<34} {gap:8.1e}  {seconds[1]:6.2f} s  {ratio:5.2f}\n"
                sys.stdout.write(line)
                sys.stdout.flush()
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(other)], cwd=ROOT, check=True
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
