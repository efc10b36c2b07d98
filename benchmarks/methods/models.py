"""The models of the package, as recommended and as their papers print them, and their stack."""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.methods.readouts import neighbours
from benchmarks.protocols import Training
from bsdr_models import StackedClassifier
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.papers import PaperBSDRClassifier, PaperDGPLVMClassifier
from bsdr_models.papers.bsdr.priors import SPARSE

COLUMNWISE: dict[str, Any] = {"priors__projection_prior": "columnwise"}
ARD = {**COLUMNWISE, "priors__latent_scale": 0.1, "priors": SPARSE}
# Features of the six groups of mfeat.
ENDS = {"fac": 216, "fou": 292, "kar": 356, "mor": 362, "pix": 602, "zer": 649}
GROUPS = dict(zip(ENDS, map(range, (0, *ENDS.values()), ENDS.values()), strict=False))
# Weights of the discriminative prior in Figs. 1 and 3 of Urtasun and Darrell (2007).
WEIGHTS = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
# Arguments of each method besides n_components and random_state, by class.
ARGUMENTS: dict[Any, dict[str, dict[str, Any]]] = {
    BSDRClassifier: {"BSDR": {}, "BSDR, views": {"views": GROUPS}},
    PaperBSDRClassifier: {
        "mean field": {},
        "Gibbs": {"inference": "gibbs"},
        "mean field, columnwise": COLUMNWISE,
        "Gibbs, columnwise": {**COLUMNWISE, "inference": "gibbs"},
        "ARD": ARD,
        "ARD, 160 iterations": {**ARD, "optimization__max_iter": 160},
    },
    BM2PCAClassifier: {"BM2PCA": {}},
    DGPLVMClassifier: {
        "D-GPLVM": {},
        "D-GPLVM, weight 0.03": {"priors__weight": 0.03},
        "D-GPLVM, infinite weight": {"priors__weight": np.inf},
    },
    PaperDGPLVMClassifier: {"D-GPLVM, paper": {}}
    | {f"D-GPLVM, paper, weight {weight:g}": {"weight": weight} for weight in WEIGHTS},
}
# A component is active if its share in `relevance_` exceeds this.
LIVE = 0.01


def fit(training: Training, n_components: int, seed: int, *, method: str) -> Any:
    """A fitted model, of at most as many components as features; of its default number for 0."""
    kind, arguments = next((k, of[method]) for k, of in ARGUMENTS.items() if method in of)
    if n_components:
        arguments = {**arguments, "n_components": min(n_components, training.X.shape[1])}
    model = kind(random_state=seed).set_params(**arguments)
    return model.fit(training.X, training.y, **_groups(training))


def _groups(training: Training) -> dict[str, Any]:
    """Argument of the models that hold out whole groups; those of the papers have no such one."""
    return {} if training.groups is None else {"groups": training.groups}


def record(model: Any) -> dict[str, Any]:
    """Remarks of a fit."""
    if isinstance(model, BM2PCAClassifier):
        return {name: float(getattr(model, name)) for name in ("C_", "temperature_", "n_iter_")}
    found: dict[str, Any] = {"converged": bool(model.converged_), "n_iter": int(model.n_iter_)}
    if isinstance(model, DGPLVMClassifier | PaperDGPLVMClassifier):
        for name in ("map_width", "map_noise"):
            found[name] = float(getattr(model, f"{name}_", np.nan))
        return found
    norms = np.sqrt(np.sum(model.components_**2, axis=1))
    found["live"] = int(np.sum(model.relevance_ > LIVE))
    found["live_by_norm"] = int(np.sum(norms > LIVE * norms.max()))
    if isinstance(model, BSDRClassifier):
        found["temperature"] = float(model.temperature_)
        found["held_out_gain"] = float(model.held_out_gain_)
    elif len(bounds := getattr(model, "lower_bounds_", ())):
        found["bound"] = float(bounds[-1])
    return found


def own(training: Training, n_components: int, seed: int, *, method: str) -> Fitted:
    """With its own probabilities."""
    model = fit(training, n_components, seed, method=method)
    return of_classifier(model, training, subspace=True, record=record(model))


def by_neighbours(training: Training, n_components: int, seed: int) -> Fitted:
    """Nearest neighbours in the map of mean field, as in Fig. 3 of Gönen (2013)."""
    model = fit(training, n_components, seed, method="mean field")
    reader = neighbours(model.transform(training.X), training.y, training.n_classes)
    return Fitted(
        predict=lambda new: reader(model.transform(new)),
        transform=model.transform,
        record=record(model),
    )


def stack(training: Training, n_components: int, seed: int) -> Fitted:
    """The three models with their defaults."""
    model = StackedClassifier(random_state=seed)
    model.fit(training.X, training.y, **_groups(training))
    return of_classifier(model, training, record={"weights": model.weights_.round(4).tolist()})


# Of this module a result depends on the arguments alone, and these are in its key.
METHODS: dict[str, Method] = {}
for _kind, _table in ARGUMENTS.items():
    _paper = _kind._spec.name
    for _name, _arguments in _table.items():
        METHODS[_name] = Method(
            fit=partial(own, method=_name),
            modules=(_kind.__module__,),
            paper=_paper,
            configuration=_arguments,
        )
METHODS["mean field + k-NN"] = Method(
    fit=by_neighbours,
    modules=(PaperBSDRClassifier.__module__, "benchmarks.methods.readouts"),
    paper="bsdr",
    configuration={},
)
METHODS["stack"] = Method(fit=stack, modules=("bsdr_models.compare.stacking",), full=True)
