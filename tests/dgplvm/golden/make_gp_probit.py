"""Make gp_probit.json: GP classification with a probit link as GPy computes it.

Runs in an environment of its own, `pip install GPy==1.15.0`, by `python make_gp_probit.py` in this
folder.
"""

import json
import platform
from pathlib import Path

import GPy
import numpy as np
import scipy

HERE = Path(__file__).parent
N_TRAIN, N_NEW = 15, 6


def problem():
    """Rows, labels in {0, 1} with some noise, and new rows."""
    rng = np.random.default_rng([2006, 3])
    X = rng.standard_normal((N_TRAIN, 2))
    labels = (X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.standard_normal(N_TRAIN) > 0).astype(float)
    return X, labels, 1.5 * rng.standard_normal((N_NEW, 2))


def kernels():
    smooth = GPy.kern.RBF(2, variance=4.0, lengthscale=1.2)
    mixed = GPy.kern.RBF(2, variance=0.5, lengthscale=0.8) + GPy.kern.Linear(2, variances=9.0)
    return {"smooth": smooth, "mixed": mixed}


def methods():
    inference = GPy.inference.latent_function_inference
    laplace = inference.Laplace()
    laplace._mode_finding_tolerance = 1e-14
    laplace._mode_finding_max_iter = 200
    return {"laplace": laplace, "ep": inference.EP(epsilon=1e-14)}


def main():
    X, labels, new = problem()
    assert 0 < labels.sum() < N_TRAIN
    cases = []
    for kernel_name, kernel in kernels().items():
        for method_name, method in methods().items():
            model = GPy.core.GP(
                X, labels[:, None], kernel, GPy.likelihoods.Bernoulli(), inference_method=method
            )
            mean, variance = model._raw_predict(new)
            cases.append(
                {
                    "kernel": kernel_name,
                    "method": method_name,
                    "log_evidence": float(model.log_likelihood()),
                    "mean": mean.ravel().tolist(),
                    "variance": variance.ravel().tolist(),
                }
            )
    sign = (2.0 * labels - 1.0).tolist()
    golden = {"X": X.tolist(), "sign": sign, "new": new.tolist(), "cases": cases}
    (HERE / "gp_probit.json").write_text(json.dumps(golden, indent=1) + "\n")
    note = {
        "model": "GP classification, probit link; RBF(4, 1.2) and RBF(0.5, 0.8) + Linear(9)",
        "data_seed": [2006, 3],
        "engine": "GPy Laplace (mode to 1e-14) and EP (epsilon 1e-14)",
        "versions": {
            "GPy": GPy.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "python": platform.python_version(),
        },
        "command": "python make_gp_probit.py",
    }
    (HERE / "gp_probit_note.json").write_text(json.dumps(note, indent=1) + "\n")


if __name__ == "__main__":
    main()
