"""BM2PCA: its variants, one classifier for each class or one subspace for all."""

from functools import partial
from typing import Any

from benchmarks.methods.base import Fitted, Method, scaler_of, spread
from benchmarks.protocols import Training
from bsdr_models.bm2pca.estimator import BM2PCAClassifier

# Arguments of BM2PCAClassifier besides n_components and random_state.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "paper, one-vs-rest": {"variant": "paper", "loss__strategy": "one_vs_rest"},
    "paper, shared": {"variant": "paper"},
    "label-free, one-vs-rest": {"loss__strategy": "one_vs_rest"},
    "label-free, shared": {},
}
# Slopes C of the hinge in Figs. 2 and 3 of the paper.
COSTS = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
CONFIGURATIONS |= {
    f"paper, one-vs-rest, C = {cost:g}": CONFIGURATIONS["paper, one-vs-rest"] | {"loss__C": cost}
    for cost in COSTS
}
# Only names of arguments are here, and arguments are in the key of a result.
MODULES = ("bsdr_models.bm2pca.estimator",)
CHOSEN = ("C_", "metric_scale_", "n_sweeps_", "temperature_", "n_iter_")


def fit(
    training: Training,
    n_components: int,
    seed: int,
    *,
    arguments: dict[str, Any],
    scaled: bool = True,
) -> Fitted:
    """Features scaled by the protocol or to unit variance; if not ``scaled``, unchanged."""
    scale = scaler_of(training) if scaled else lambda rows: rows
    model = BM2PCAClassifier(n_components, standardize=False, random_state=seed).set_params(
        **arguments
    )
    model.fit(scale(training.X), training.y)
    record = {name: float(getattr(model, name)) for name in CHOSEN if hasattr(model, name)}
    classes, k = model.classes_, training.n_classes

    def transform(rows: Any) -> Any:
        return model.transform(scale(rows))

    return Fitted(
        predict=lambda new: spread(model.predict_proba(scale(new)), classes, k),
        transform=transform,
        record=record,
    )


METHODS = {
    name: Method(
        fit=partial(fit, arguments=arguments),
        modules=MODULES,
        paper="bm2pca",
        configuration=arguments,
    )
    for name, arguments in CONFIGURATIONS.items()
}
METHODS["BM2PCA"] = Method(
    fit=partial(fit, arguments=CONFIGURATIONS["label-free, one-vs-rest"], scaled=False),
    modules=MODULES,
    paper="bm2pca",
    configuration=CONFIGURATIONS["label-free, one-vs-rest"],
)
