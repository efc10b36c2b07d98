"""BM2PCA and the paper's model, one classifier for each class or one subspace for all."""

from functools import partial
from typing import Any

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.protocols import Training
from bsdr_models.bm2pca.classifier import MarginClassifier
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.papers import PaperBM2PCAClassifier

# Arguments besides n_components and random_state.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "BM2PCA": {},
    "BM2PCA, one-vs-rest": {"loss__strategy": "one_vs_rest"},
    "paper, one-vs-rest": {"loss__strategy": "one_vs_rest"},
    "paper, shared": {},
}
# Slopes C of the hinge in Figs. 2 and 3 of the paper.
COSTS = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
CONFIGURATIONS |= {
    f"paper, one-vs-rest, C = {cost:g}": CONFIGURATIONS["paper, one-vs-rest"] | {"loss__C": cost}
    for cost in COSTS
}
# Only names of arguments are here, and arguments are in the key of a result.
MODULES = ("bsdr_models.bm2pca.estimator", "bsdr_models.bm2pca.paper.estimator")
CHOSEN = ("C_", "metric_scale_", "n_sweeps_", "temperature_", "n_iter_")


def fit(
    training: Training,
    n_components: int,
    seed: int,
    *,
    kind: type[MarginClassifier],
    arguments: dict[str, Any],
) -> Fitted:
    """Features scaled by the model unless the protocol has prepared them."""
    model: Any = kind(
        n_components, standardize=not training.prepared, random_state=seed
    ).set_params(**arguments)
    model.fit(training.X, training.y)
    record = {name: float(getattr(model, name)) for name in CHOSEN if hasattr(model, name)}
    return of_classifier(model, training, subspace=True, record=record)


METHODS = {
    name: Method(
        fit=partial(
            fit,
            kind=PaperBM2PCAClassifier if name.startswith("paper") else BM2PCAClassifier,
            arguments=arguments,
        ),
        modules=MODULES,
        paper="bm2pca",
        configuration=arguments,
    )
    for name, arguments in CONFIGURATIONS.items()
}
