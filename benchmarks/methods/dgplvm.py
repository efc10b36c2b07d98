"""D-GPLVM: its default, variations of the default, and the paper's objective."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.protocols import Training
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.papers import PaperDGPLVMClassifier

# Arguments besides n_components and random_state, of the recommended classifier and the paper's.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "D-GPLVM": {},
    "D-GPLVM, weight 0.03": {"priors__weight": 0.03},
    "D-GPLVM, infinite weight": {"priors__weight": np.inf},
}
# Weights of the discriminative prior, 1 / sigma_d^2 of the paper, of Figs. 1 and 3.
PAPER_WEIGHTS = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
PAPER: dict[str, dict[str, Any]] = {"D-GPLVM, paper": {}} | {
    f"D-GPLVM, paper, weight {weight:g}": {"weight": weight} for weight in PAPER_WEIGHTS
}
# Only names of arguments are here, and arguments are in the key of a result.
MODULES = ("bsdr_models.dgplvm.estimator", "bsdr_models.dgplvm.paper.estimator")


def own(
    training: Training, n_components: int, seed: int, *, kind: type[Any], arguments: dict[str, Any]
) -> Fitted:
    """With its own probabilities."""
    model = kind(n_components, random_state=seed).set_params(**arguments)
    model.fit(training.X, training.y)
    record = {
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "map_width": float(getattr(model, "map_width_", np.nan)),
        "map_noise": float(getattr(model, "map_noise_", np.nan)),
        "standardized": bool(model.standardized_),
    }
    return of_classifier(model, training, subspace=True, record=record)


METHODS = {
    name: Method(
        fit=partial(own, kind=kind, arguments=arguments),
        modules=MODULES,
        paper="dgplvm",
        configuration=arguments,
    )
    for kind, table in ((DGPLVMClassifier, CONFIGURATIONS), (PaperDGPLVMClassifier, PAPER))
    for name, arguments in table.items()
}
