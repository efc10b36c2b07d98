"""The default engine and NUTS compared on real data, in Monte Carlo standard errors.

Both sample the same model. NUTS samples the variables of the PyMC model, whose likelihood
PyMC differentiates. z is the difference of the mean, or of a quantile, of an identified quantity
divided by its standard error.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats.base import array_stats

from benchmarks.datasets import load
from benchmarks.page import table
from bsdr_models import BSDRClassifier, Sampling
from bsdr_models.numerics.arrays import FloatArray

SETS, SEED = ("iris", "wine", "digits"), 1
# All of Iris and Wine; NUTS would take hours for all digits.
N_SAMPLES = 200
QUANTILES = (0.05, 0.5, 0.95)
ENGINES: dict[str, dict[str, Any]] = {
    "HMC": {"sampling": Sampling(draws=1000)},
    "NUTS": {"inference": "nuts", "sampling": Sampling(draws=250, tune=250)},
}
# Estimates whose standard error is below this are ties: probabilities of 0 or 1.
TIE = 1e-6
AXES = {"chain_axis": 0, "draw_axis": 1}


def report(
    pictures: Path, sets: tuple[str, ...] = SETS, engines: Mapping[str, Mapping[str, Any]] = ENGINES
) -> str:
    """Table of z-scores of the first engine against the second; there is no plot."""
    rows = []
    for name in sets:
        X, y = (each[:N_SAMPLES] for each in load(name))
        found, seconds = [], []
        for arguments in engines.values():
            begin = time.process_time()
            model = BSDRClassifier(random_state=SEED).set_params(**arguments)
            found.append(quantities(model.fit(X, y)))
            seconds.append(time.process_time() - begin)
        for quantity in found[0]:
            z = z_scores(*(each[quantity] for each in found))
            ess = [np.min(array_stats.ess(clear(each[quantity]), **AXES)) for each in found]
            rows.append(
                [
                    name,
                    quantity,
                    str(z.size),
                    f"{np.sqrt(np.mean(z**2)):.2f}",
                    f"{np.abs(z).max():.1f}",
                    " / ".join(f"{each:.0f}" for each in ess),
                    " / ".join(f"{each:.0f}" for each in seconds),
                ]
            )
    head = ["set", "quantity", "estimates", "z, root mean square", "largest", "least ESS", "CPU s"]
    first, second = engines
    return f"{first} against {second}; ESS and seconds of the one / of the other.\n\n" + table(
        head, rows
    )


def quantities(model: BSDRClassifier) -> dict[str, FloatArray]:
    """Identified quantities of the draws of a fit, each (chain, draw, many)."""
    tree = model.idata_
    found = {
        "coefficients": tree["posterior"]["coef"].values,
        "centred biases": tree["posterior"]["bias_centered"].values,
        "probabilities of training samples": np.exp(tree["log_likelihood"]["y"].values),
    }
    return {name: each.reshape(*each.shape[:2], -1) for name, each in found.items()}


def z_scores(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """Differences of means and quantiles of draws (chain, draw, many) in standard errors, flat."""
    (found, error), (expected, other) = summarise(ours), summarise(theirs)
    seen = np.minimum(error, other) > TIE
    return (found - expected)[seen] / np.hypot(error, other)[seen]


def summarise(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and quantiles of draws (chain, draw, many) and their standard errors, (4, many)."""
    found = [values.mean(axis=(0, 1)), *np.quantile(values, QUANTILES, axis=(0, 1))]
    error = [array_stats.mcse(values, **AXES)]
    for prob in QUANTILES:
        error.append(array_stats.mcse(values, method="quantile", prob=prob, **AXES))
    return np.array(found), np.array(error)


def clear(values: FloatArray) -> FloatArray:
    """Those of many quantities (chain, draw, many) whose mean is not a tie."""
    return values[..., array_stats.mcse(values, **AXES) > TIE]
