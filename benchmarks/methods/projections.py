"""Methods in two stages: reduce to R components, then classify these.

A name alone is a projection followed by logistic regression; scaling, settings of the projection
and the penalty are chosen together by the cross-validated log loss. "+ probit" is the multinomial
probit of Gönen (2013) and "+ k-NN" three nearest neighbours, both with the first setting of the
projection, as in that paper.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA, FactorAnalysis, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import (
    N_FOLDS,
    Fitted,
    ImpossibleError,
    Method,
    UnitSize,
    inner_folds,
    scalers,
    spread,
)
from benchmarks.methods.metric_learning import LFDA, LMNN
from benchmarks.methods.readouts import Reader, neighbours
from benchmarks.protocols import Training
from bsdr_models.compare.baselines import PENALTIES, PLSScores
from bsdr_models.metrics import log_losses

# Metric learners get principal components, as in Gönen (2013), III-B.
N_PRINCIPAL = 30
# Iterations of their searches, fewer of which shrink, and target neighbours of LMNN. More of them,
# or a single target neighbour, gave no lower log loss on tuning seeds.
NCA_ITERATIONS, LMNN_ITERATIONS, TARGETS = (50, 10, 3), (50, 20), (3, 2)
# Neighbours of UMAP, and the weight of the classes, whose default of 0.5 was worse (tuning seeds).
NEIGHBOURS, TARGET_WEIGHT = (15, 5), 0.2
# Shrinkage of the within-class covariance, beside that by Ledoit and Wolf.
SHRINKAGE = (0.3, 0.7, 0.95)
# Widths of Gaussian kernels, in root mean squared distances. None below was chosen; without the
# largest the log loss was .438 for .430 (nine sets, tuning seeds 200 and 201).
WIDTHS = (1.2, 2.4, 4.8)
# Numbers of selected features.
SELECTED = (5, 20, 80, 320)

# Number of components, training samples, seed -> transformers, one for each setting.
Candidates = Callable[[int, Training, int], list[Any]]


def _shrunken(r: int, training: Training, seed: int) -> list[Any]:
    """Discriminants of the samples' span, whose rotation shrinkage ignores."""
    return [make_pipeline(PCA(svd_solver="full"), each) for each in _shrinkages(r, training)]


def _shrinkages(r: int, training: Training) -> list[Any]:
    size = min(r, training.n_classes - 1)
    # Its inverse, of every class, would take half of the time of forty classes.
    estimator = LedoitWolf(store_precision=False)
    shrunken = [{"covariance_estimator": estimator}, *({"shrinkage": s} for s in SHRINKAGE)]
    return [LinearDiscriminantAnalysis("eigen", n_components=size, **each) for each in shrunken]


def _sparse(r: int, training: Training, seed: int) -> list[Any]:
    """Shrunken discriminants of the features with the largest F statistics."""
    size = min(r, training.n_classes - 1)
    numbers = [k for k in SELECTED if size <= k < training.X.shape[1]] + ["all"]
    models = product(numbers, _shrinkages(r, training)[:2])
    return [
        make_pipeline(SelectKBest(k=k), PCA(svd_solver="full"), discriminants)
        for k, discriminants in models
    ]


def _kernel_discriminants(r: int, training: Training, seed: int) -> list[Any]:
    """Shrunken discriminants of all components of kernel PCA."""
    size = min(r, training.n_classes - 1)
    return [
        make_pipeline(
            UnitSize(),
            KernelPCA(kernel="rbf", gamma=1.0 / width**2, remove_zero_eig=True),
            LinearDiscriminantAnalysis(solver="eigen", n_components=size, shrinkage=shrinkage),
        )
        for width, shrinkage in product(WIDTHS, (1e-3, 0.1))
    ]


def _principal(training: Training, seed: int, models: Iterable[Any]) -> list[Any]:
    size = min(N_PRINCIPAL, *training.X.shape)
    return [make_pipeline(PCA(size, random_state=seed), model) for model in models]


def _nca(r: int, training: Training, seed: int) -> list[Any]:
    kind = NeighborhoodComponentsAnalysis
    models = (kind(r, max_iter=number, random_state=seed) for number in NCA_ITERATIONS)
    return _principal(training, seed, models)


def _lmnn(r: int, training: Training, seed: int) -> list[Any]:
    grid = product(TARGETS, LMNN_ITERATIONS)
    models = (LMNN(r, n_neighbors=targets, max_iter=number) for targets, number in grid)
    return _principal(training, seed, models)


def _lfda(r: int, training: Training, seed: int) -> list[Any]:
    models = (LFDA(r, shrinkage=shrinkage) for shrinkage in (0.01, 0.1, 0.5))
    return [make_pipeline(PCA(svd_solver="full"), model) for model in models]


def _umap(r: int, training: Training, seed: int) -> list[Any]:
    if find_spec("umap") is None:
        raise ImpossibleError("umap-learn is not installed")
    kind = import_module("umap").UMAP
    return [
        kind(
            n_components=r, n_neighbors=min(size, len(training.y) - 1), random_state=seed, n_jobs=1
        )
        for size in NEIGHBOURS
    ]


CANDIDATES: dict[str, Candidates] = {
    "PCA": lambda r, training, seed: [PCA(r, random_state=seed)],
    "factor analysis": lambda r, training, seed: [FactorAnalysis(r, random_state=seed)],
    "PLS-DA": lambda r, training, seed: [PLSScores(r, scale=False)],
    "LDA": lambda r, training, seed: [
        LinearDiscriminantAnalysis(n_components=min(r, training.n_classes - 1))
    ],
    "shrinkage LDA": _shrunken,
    "sparse LDA": _sparse,
    "kernel LDA": _kernel_discriminants,
    "LFDA": _lfda,
    "NCA": _nca,
    "LMNN": _lmnn,
    "supervised UMAP": _umap,
}
# Of a method whose fit takes seconds: folds by which settings are chosen.
FEW_FOLDS = {"supervised UMAP": 2}
LIBRARIES = {"supervised UMAP": ("umap-learn", "pynndescent")}


def _candidates(name: str, r: int, training: Training, seed: int, *, tuned: bool) -> list[Any]:
    """Scaling and projection, one for each setting, without those that ask for too much."""
    n_samples, n_features = training.X.shape
    r = min(r, n_features, n_samples - 1)
    models = CANDIDATES[name](r, training, seed)
    scaled = scalers(training)[: None if tuned else 1]
    return [make_pipeline(clone(scaler), model) for scaler, model in product(scaled, models)]


def by_penalty(Z: np.ndarray, y: np.ndarray, Z_new: np.ndarray) -> list[np.ndarray]:
    """Probabilities (M, K) of new samples by logistic regression, for each of PENALTIES.

    Each search starts from the result of the last one.
    """
    scaler = StandardScaler().fit(Z)
    Z = scaler.transform(Z)
    Z_new = scaler.transform(Z_new)
    model = LogisticRegression(max_iter=2000, warm_start=True)
    return [model.set_params(C=C).fit(Z, y).predict_proba(Z_new) for C in PENALTIES]


def fit(training: Training, n_components: int, seed: int, *, name: str) -> Fitted:
    """Choose scaling, projection and penalty, then fit them to all training samples."""
    y, k = training.y, training.n_classes
    candidates = _candidates(name, n_components, training, seed, tuned=True)
    losses = np.zeros((len(candidates), len(PENALTIES)))
    for train, test in inner_folds(training, seed, FEW_FOLDS.get(name, N_FOLDS)):
        part = replace(training, X=training.X[train], y=y[train])
        for number, model in enumerate(_candidates(name, n_components, part, seed, tuned=True)):
            reducer = model.fit(part.X, part.y)
            Z, Z_test = reducer.transform(part.X), reducer.transform(training.X[test])
            index = np.searchsorted(np.unique(part.y), y[test])
            found = by_penalty(Z, part.y, Z_test)
            losses[number] += [log_losses(predicted, index).sum() for predicted in found]
    best, column = np.unravel_index(losses.argmin(), losses.shape)
    penalty = PENALTIES[column] if losses.any() else 1.0
    reducer = candidates[best].fit(training.X, y)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=2000))
    model = logistic.fit(reducer.transform(training.X), y)
    return Fitted(
        predict=lambda new: spread(model.predict_proba(reducer.transform(new)), model.classes_, k),
        transform=reducer.transform,
        record={"setting": int(best), "C": penalty},
    )


def fit_all(training: Training, n_components: int, seed: int, *, name: str) -> Fitted:
    """As many components as there are: one fewer than the classes."""
    return fit(training, training.n_classes - 1, seed, name=name)


def fit_untuned(
    training: Training,
    n_components: int,
    seed: int,
    *,
    name: str,
    readout: Callable[[np.ndarray, np.ndarray, int], Reader],
) -> Fitted:
    """The first setting, followed by a classifier without settings."""
    if name.endswith("LDA") and n_components > training.n_classes - 1:
        raise ImpossibleError(f"no more than {training.n_classes - 1} discriminants")
    (model, *_) = _candidates(name, n_components, training, seed, tuned=False)
    reducer = model.fit(training.X, training.y)
    read = readout(reducer.transform(training.X), training.y, training.n_classes)
    return Fitted(predict=lambda new: read(reducer.transform(new)), transform=reducer.transform)


HERE = ("benchmarks.methods.projections",)
METHODS = {
    f"{name}{suffix}": Method(
        fit=partial(function, name=name), modules=HERE, libraries=LIBRARIES.get(name, ())
    )
    for suffix, function in {"": fit, " + k-NN": partial(fit_untuned, readout=neighbours)}.items()
    for name in CANDIDATES
}
METHODS["LDA, all components"] = Method(
    fit=partial(fit_all, name="shrinkage LDA"), modules=HERE, full=True
)
