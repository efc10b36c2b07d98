"""BSDR, the multinomial probit of its paper without a projection, and its map read by k-NN."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.methods.readouts import neighbours
from benchmarks.protocols import Training
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.bsdr.mnp import MNPClassifier
from bsdr_models.bsdr.priors import SPARSE

# Arguments of BSDRClassifier besides n_components and random_state.
PAPER: dict[str, Any] = {"variant": "paper"}
COLUMNWISE: dict[str, Any] = {**PAPER, "priors__projection_prior": "columnwise"}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "BSDR": {},
    "mean field": PAPER,
    "Gibbs": {**PAPER, "inference": "gibbs"},
    "mean field, columnwise": COLUMNWISE,
    "Gibbs, columnwise": {**COLUMNWISE, "inference": "gibbs"},
    "ARD": {**COLUMNWISE, "priors__latent_scale": 0.1, "priors": SPARSE},
    "ARD, 160 iterations": {
        **COLUMNWISE,
        "priors__latent_scale": 0.1,
        "priors": SPARSE,
        "optimization__max_iter": 160,
    },
}
# A component is active if its share in `relevance_` exceeds this.
LIVE = 0.01
# Only names of arguments are here, and arguments are in the key of a result.
MODULES = ("bsdr_models.bsdr.estimator",)
READ_MODULES = (*MODULES, "benchmarks.methods.readouts")


def fit(
    training: Training, n_components: int, seed: int, *, arguments: dict[str, Any]
) -> tuple[BSDRClassifier, dict[str, Any]]:
    """A fitted model, of at most as many components as features, and its remarks."""
    size = min(n_components, training.X.shape[1])
    model = BSDRClassifier(size, random_state=seed).set_params(**arguments)
    model.fit(training.X, training.y)
    norms = np.sqrt(np.sum(model.components_**2, axis=1))
    record: dict[str, Any] = {
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "live": int(np.sum(model.relevance_ > LIVE)),
        "live_by_norm": int(np.sum(norms > LIVE * norms.max())),
    }
    if model.variant_ == "hierarchical":
        record["temperature"] = float(model.temperature_)
        record["log_bayes_factor"] = float(model.log_bayes_factor_)
        return model, record
    if len(model.lower_bounds_):
        record["bound"] = float(model.lower_bounds_[-1])
    return model, record


def own(training: Training, n_components: int, seed: int, *, arguments: dict[str, Any]) -> Fitted:
    """With its own probabilities."""
    model, record = fit(training, n_components, seed, arguments=arguments)
    return of_classifier(model, training, subspace=True, record=record)


def by_neighbours(
    training: Training, n_components: int, seed: int, *, arguments: dict[str, Any]
) -> Fitted:
    """Nearest neighbours in the map, as in Fig. 3 of the paper."""
    model, record = fit(training, n_components, seed, arguments=arguments)
    reader = neighbours(model.transform(training.X), training.y, training.n_classes)
    return Fitted(
        predict=lambda new: reader(model.transform(new)),
        transform=model.transform,
        record=record,
    )


def probit(training: Training, n_components: int, seed: int) -> Fitted:
    """The multinomial probit on all features, "MNP" of the paper."""
    model = MNPClassifier().fit(training.X, training.y)
    return of_classifier(model, training, record={"converged": bool(model.converged_)})


METHODS = {
    name: Method(
        fit=partial(own, arguments=arguments),
        modules=MODULES,
        paper="bsdr",
        configuration=arguments,
    )
    for name, arguments in CONFIGURATIONS.items()
}
METHODS["mean field + k-NN"] = Method(
    fit=partial(by_neighbours, arguments=CONFIGURATIONS["mean field"]),
    modules=READ_MODULES,
    paper="bsdr",
    configuration=CONFIGURATIONS["mean field"],
)
METHODS["MNP"] = Method(
    fit=probit, modules=("bsdr_models.bsdr.mnp",), paper="bsdr", configuration={}, full=True
)
