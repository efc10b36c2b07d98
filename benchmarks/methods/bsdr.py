"""BSDR, as recommended and as printed, and its map read by k-NN."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.methods.readouts import neighbours
from benchmarks.protocols import Training
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.bsdr.priors import SPARSE
from bsdr_models.papers import PaperBSDRClassifier

# Arguments besides n_components and random_state, of BSDRClassifier and of the paper's model.
COLUMNWISE: dict[str, Any] = {"priors__projection_prior": "columnwise"}
CONFIGURATIONS: dict[str, dict[str, Any]] = {"BSDR": {}}
PAPER: dict[str, dict[str, Any]] = {
    "mean field": {},
    "Gibbs": {"inference": "gibbs"},
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


def fit(
    training: Training, n_components: int, seed: int, *, kind: Any, arguments: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """A fitted model, of at most as many components as features, and its remarks."""
    size = min(n_components, training.X.shape[1])
    model = kind(size, random_state=seed).set_params(**arguments)
    model.fit(training.X, training.y)
    norms = np.sqrt(np.sum(model.components_**2, axis=1))
    record: dict[str, Any] = {
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "live": int(np.sum(model.relevance_ > LIVE)),
        "live_by_norm": int(np.sum(norms > LIVE * norms.max())),
    }
    if kind is BSDRClassifier:
        record["temperature"] = float(model.temperature_)
        record["log_bayes_factor"] = float(model.log_bayes_factor_)
        return model, record
    if len(model.lower_bounds_):
        record["bound"] = float(model.lower_bounds_[-1])
    return model, record


def own(training: Training, n_components: int, seed: int, **options: Any) -> Fitted:
    """With its own probabilities."""
    model, record = fit(training, n_components, seed, **options)
    return of_classifier(model, training, subspace=True, record=record)


def by_neighbours(training: Training, n_components: int, seed: int, **options: Any) -> Fitted:
    """Nearest neighbours in the map, as in Fig. 3 of the paper."""
    model, record = fit(training, n_components, seed, **options)
    reader = neighbours(model.transform(training.X), training.y, training.n_classes)
    return Fitted(
        predict=lambda new: reader(model.transform(new)),
        transform=model.transform,
        record=record,
    )


METHODS = {
    name: Method(
        fit=partial(own, kind=kind, arguments=arguments),
        modules=(kind.__module__,),
        paper="bsdr",
        configuration=arguments,
    )
    for kind, table in ((BSDRClassifier, CONFIGURATIONS), (PaperBSDRClassifier, PAPER))
    for name, arguments in table.items()
}
METHODS["mean field + k-NN"] = Method(
    fit=partial(by_neighbours, kind=PaperBSDRClassifier, arguments={}),
    modules=(PaperBSDRClassifier.__module__, "benchmarks.methods.readouts"),
    paper="bsdr",
    configuration={},
)
