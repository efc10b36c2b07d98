"""D-GPLVM: its default, variations of the default, and the paper's objective."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.protocols import Training
from bsdr_models.dgplvm.estimator import DGPLVMClassifier

# Arguments of DGPLVMClassifier besides n_components and random_state.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "D-GPLVM": {},
    "D-GPLVM, weight 0.03": {"priors__weight": 0.03},
    "D-GPLVM, infinite weight": {"priors__weight": np.inf},
    "D-GPLVM, paper": {"variant": "paper"},
}
# Only names of arguments are here, and arguments are in the key of a result.
MODULES = ("bsdr_models.dgplvm.estimator",)
# Weights of the discriminative prior, 1 / sigma_d^2 of the paper, of Figs. 1 and 3.
PAPER_WEIGHTS = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
CONFIGURATIONS |= {
    f"D-GPLVM, paper, weight {weight:g}": {"variant": "paper", "priors__weight": weight}
    for weight in PAPER_WEIGHTS
}


def _fit(
    training: Training, n_components: int, seed: int, arguments: dict[str, Any]
) -> tuple[DGPLVMClassifier, dict[str, Any]]:
    model = DGPLVMClassifier(n_components, random_state=seed).set_params(**arguments)
    model.fit(training.X, training.y)
    record = {
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "map_width": float(getattr(model, "map_width_", np.nan)),
        "map_noise": float(getattr(model, "map_noise_", np.nan)),
        "standardized": bool(model.standardized_),
    }
    return model, record


def own(training: Training, n_components: int, seed: int, *, arguments: dict[str, Any]) -> Fitted:
    """With its own probabilities."""
    model, record = _fit(training, n_components, seed, arguments)
    return of_classifier(model, training, subspace=True, record=record)


METHODS = {
    name: Method(
        fit=partial(own, arguments=arguments),
        modules=MODULES,
        paper="dgplvm",
        configuration=arguments,
    )
    for name, arguments in CONFIGURATIONS.items()
}
