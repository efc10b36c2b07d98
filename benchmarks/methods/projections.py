"""Common methods: reduce to R components, then classify these.

A name alone is followed by logistic regression, its penalty by the cross-validated log loss;
"+ probit" is the multinomial probit of Gönen (2013), "+ k-NN" three nearest neighbours. Features
are scaled to unit variance on the training samples unless the protocol has prepared them; other
settings are defaults.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA, FactorAnalysis, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline

from benchmarks.methods.base import Fitted, ImpossibleError, Method, inner_folds, scaler_of
from benchmarks.methods.readouts import Fold, Reader, logistic, neighbours
from benchmarks.protocols import Training
from bsdr_models.baselines import PLSScores

# Above this many features metric learners get principal components, as in Gönen (2013), III-B.
MANY_FEATURES, N_PRINCIPAL = 100, 30

# Number of components, training samples, seed -> transformer.
Reducer = Callable[[int, Training, int], Any]
Readout = Callable[[np.ndarray, np.ndarray, int, Iterable[Fold]], Reader]


class GaussianKernelPCA(KernelPCA):
    """Kernel PCA, its width the median distance between samples."""

    def fit(self, X: np.ndarray, y: Any = None) -> Any:  # noqa: D102
        self.gamma = 0.5 / np.median(pdist(X)) ** 2
        return super().fit(X)


def _behind_pca(model: Any, training: Training, seed: int) -> Any:
    n_samples, n_features = training.X.shape
    if n_features <= MANY_FEATURES:
        return model
    return make_pipeline(PCA(min(N_PRINCIPAL, n_samples), random_state=seed), model)


def _nca(r: int, training: Training, seed: int) -> Any:
    model = NeighborhoodComponentsAnalysis(r, max_iter=200, random_state=seed)
    return _behind_pca(model, training, seed)


def _discriminant(r: int, training: Training, seed: int, **arguments: Any) -> Any:
    if r > training.n_classes - 1:
        raise ImpossibleError(f"no more than {training.n_classes - 1} discriminants")
    return LinearDiscriminantAnalysis(n_components=r, **arguments)


def _metric_learner(name: str, r: int, training: Training, seed: int) -> Any:
    if find_spec("metric_learn") is None:
        raise ImpossibleError("metric-learn is not installed")
    try:
        kind = getattr(import_module("metric_learn"), name)
    except ImportError as error:
        raise ImpossibleError(f"metric-learn does not import: {error}") from error
    arguments = {"random_state": seed} if name == "LMNN" else {}
    return _behind_pca(kind(n_components=r, **arguments), training, seed)


def _umap(r: int, training: Training, seed: int) -> Any:
    if find_spec("umap") is None:
        raise ImpossibleError("umap-learn is not installed")
    try:
        umap = import_module("umap")
    except ImportError as error:
        raise ImpossibleError(f"umap-learn does not import: {error}") from error
    return umap.UMAP(n_components=r, random_state=seed, n_jobs=1)


REDUCERS: dict[str, Reducer] = {
    "PCA": lambda r, training, seed: PCA(r, random_state=seed),
    "factor analysis": lambda r, training, seed: FactorAnalysis(r, random_state=seed),
    "kernel PCA": lambda r, training, seed: GaussianKernelPCA(
        r, kernel="rbf", eigen_solver="dense"
    ),
    "LDA": _discriminant,
    "shrinkage LDA": partial(_discriminant, solver="eigen", shrinkage="auto"),
    "PLS-DA": lambda r, training, seed: PLSScores(r, scale=False),
    "NCA": _nca,
    "LFDA": partial(_metric_learner, "LFDA"),
    "LMNN": partial(_metric_learner, "LMNN"),
    "supervised UMAP": _umap,
}
LIBRARIES = {
    "LFDA": ("metric-learn",),
    "LMNN": ("metric-learn",),
    "supervised UMAP": ("umap-learn", "pynndescent"),
}


def fit(training: Training, n_components: int, seed: int, *, name: str, readout: Readout) -> Fitted:
    """Scale, reduce, classify.

    Raises
    ------
    ImpossibleError
        If there are fewer components, or a library fails with the installed versions.
    """
    n_samples, n_features = training.X.shape
    if n_components > min(n_samples - 1, n_features):
        raise ImpossibleError(f"{n_components} components of {n_samples} x {n_features}")
    scale = scaler_of(training)
    scaled = replace(training, X=scale(training.X))

    def reduce(part: Training) -> Any:
        return REDUCERS[name](n_components, part, seed).fit(part.X, part.y)

    try:
        reducer = reduce(scaled)
        Z = reducer.transform(scaled.X)
    except (TypeError, AttributeError, ImportError) as error:
        if name not in LIBRARIES:
            raise
        text = f"{LIBRARIES[name][0]} fails on this scikit-learn: {error}"
        raise ImpossibleError(text) from error
    read = readout(Z, training.y, training.n_classes, _folds(reduce, scaled, n_components, seed))

    def transform(rows: Any) -> np.ndarray:
        return reducer.transform(scale(rows))

    return Fitted(predict=lambda new: read(transform(new)), transform=transform)


def _folds(
    reduce: Callable[[Training], Any], training: Training, n_components: int, seed: int
) -> Iterator[Fold]:
    """Yield latent coordinates of training and of held-out samples; none if too few for R."""
    folds, y = inner_folds(training.y, seed), training.y
    for train, test in folds.split(training.X, y) if folds else ():
        if n_components < len(train):
            part = replace(training, X=training.X[train], y=y[train])
            embed = reduce(part).transform
            yield embed(part.X), part.y, embed(training.X[test]), y[test]


def methods(suffix: str, readout: Readout, modules: tuple[str, ...]) -> dict[str, Method]:
    """Every projection with one classifier."""
    return {
        name + suffix: Method(
            fit=partial(fit, name=name, readout=readout),
            modules=modules,
            libraries=LIBRARIES.get(name, ()),
        )
        for name in REDUCERS
    }


HERE = ("benchmarks.methods.projections",)
METHODS = methods("", logistic, HERE) | methods(" + k-NN", neighbours, HERE)
