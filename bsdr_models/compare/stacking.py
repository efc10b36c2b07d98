r"""Several classifiers as one, by weights from predictions of samples their fits have not seen.

A fit has three steps. Each member is fitted to all samples, and predicts each of them held out: by
the held-out probabilities of its own fit, or by refits in folds (`_fit_member`). The held-out
probabilities and the classes give the weights (`pool_weights`), and the probabilities of the
samples of a fold by weights of the others (`_pool_held_out`). New samples are predicted by the
members and the weights (`_log_proba`), and shown in the plane of the held-out predictions.

Log probabilities of M classifiers are pooled,

.. math::
    \log p(k \mid x) = \sum_m w_m \log p_m(k \mid x) - \log Z(x), \qquad w_m \ge 0 .

Weights maximise the log score of held-out samples and a prior of equal weights that is worth as
much as S samples. With v the mean information of a sample about a weight, at equal weights,

.. math::
    -\log p(w) = \frac{S v}{2} \Bigl[\sum_m \Bigl(w_m - \frac{1}{M}\Bigr)^2
    + 10 \Bigl(\sum_m w_m - 1\Bigr)^2\Bigr] .

The sum of the weights is an inverse temperature: the second term is for few held-out samples that
are all predicted well, and would make it overconfident.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self, override

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, Tags, _safe_indexing, get_tags
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bsdr_models.bm2pca import BM2PCAClassifier
from bsdr_models.bsdr import BSDRClassifier
from bsdr_models.compare.cross_validation import (
    check_models,
    class_probabilities,
    errors_name,
    fitted_clone,
    predict_fold,
)
from bsdr_models.data.targets import Targets
from bsdr_models.data.training import Training, shared_training
from bsdr_models.data.validation import find_classes
from bsdr_models.dgplvm import DGPLVMClassifier
from bsdr_models.estimators.base import WeightedFit
from bsdr_models.estimators.calibration import HeldOutScore
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.datatree import InferenceMethod
from bsdr_models.inference.dims import FEATURE, OBS
from bsdr_models.inference.result import Result
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.inference.tasks import run_tasks
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.numerics.process_state import NoSignalWarning, Warned, recorded_warnings
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import RandomState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Probabilities below are taken as this one: members are overconfident about samples unlike the
# training samples, which held-out ones do not show, and one of them could exclude a class.
FLOOR = 1e-3
# Precision of the sum of the weights of a pool, in multiples of that of single ones.
OF_SUM = 10.0
# S: with fewer, weights of thirty samples follow the member that was lucky with them, even into
# confidence where there is no signal.
SHRINKAGE = 50.0

MEMBER = "member"
DIMS = {"weights": (MEMBER,), "fold": (OBS,), "X": (OBS, FEATURE)}
SPEC = ModelSpec(
    name="stack",
    citation_bibtex="""@article{yao2023locking,
  author  = {Yao, Yuling and Carvalho, Luiz Max and Mesquita, Diego and Domke, Justin},
  title   = {Locking and Quacking: Stacking {B}ayesian Model Predictions by Log-Pooling and
             Superposition},
  journal = {arXiv:2305.07334},
  year    = {2023},
}""",
    variables={"y": (OBS,)},
    identified=(),
)


def bounded(p: FloatArray) -> FloatArray:
    """Logarithms of probabilities (N, K) of at least `FLOOR`, normalised."""
    return np.asarray(log_softmax(np.log(np.maximum(p, FLOOR)), axis=-1))


class StackedClassifier(WeightedFit, ProbabilisticClassifier, _BaseComposition):
    """Several classifiers as one, weighted by how well they predict samples they have not seen.

    The log probabilities of the stack are a weighted sum of those of its members [1]_, normalised.

    By default the members are the three models of this package, whose errors differ: a linear
    projection learned from labels, margins in a metric of the features, and a nonlinear map. The
    weights are learned from held-out probabilities. Models of this package have them from their
    own fit, so that a stack takes at most the sum of their times; other members are refitted for
    each fold. Models of this package share folds and metric, whatever their own seeds.

    Parameters
    ----------
    estimators : list of (str, classifier), optional
        Names and classifiers with ``predict_proba``, of this package or scikit-learn; by default
        BSDRClassifier, BM2PCAClassifier and DGPLVMClassifier.
    n_jobs : int, optional
        Members in parallel, as in :func:`compare_models`.
    random_state : int, RandomState, Generator or None
        Seed of the folds and the default members.

    Attributes
    ----------
    estimators_, named_estimators_ : list and Bunch
        Members, fitted to all samples, and the same by name.
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    weights_, weights_sd_ : ndarray of shape (n_members,)
        Weights, and their standard deviations.
    held_out_log_proba_ : ndarray of shape (n_samples, n_classes)
        Log probabilities of training samples, pooled from the members' held-out probabilities
        with the weights of the other folds.
    held_out_score_, held_out_gain_, held_out_gain_se_ : float
        Held-out log score in nats per sample, its gain over that of the class frequencies, and the
        standard error of the gain.
    converged_ : bool
        Whether all members have converged.
    idata_ : xarray.DataTree
        Weights, and held-out predictions of the training samples in the group ``fit``.

    See Also
    --------
    compare_models : held-out scores of single models.

    References
    ----------
    .. [1] Y. Yao, L. M. Carvalho, D. Mesquita, J. Domke (2023). Locking and quacking: stacking
           Bayesian model predictions by log-pooling and superposition. arXiv:2305.07334.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bsdr_models import BM2PCAClassifier, DGPLVMClassifier, StackedClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> members = [("bm2pca", BM2PCAClassifier()), ("dgplvm", DGPLVMClassifier())]
    >>> model = StackedClassifier(members, random_state=0).fit(X[::9], y[::9])
    >>> model.comparison().index[0]
    'stack'
    >>> bool(model.score(X[1::9], y[1::9]) > 0.9)
    True
    """

    _spec: ClassVar[ModelSpec] = SPEC
    _method: ClassVar[InferenceMethod] = "stack"
    _given: SamplesLike  # samples as given, during a fit
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "estimators": [list, tuple, None],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, BaseEstimator]] | None = None,
        *,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimators = estimators
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit(
        self,
        X: SamplesLike,
        y: TargetLike,
        groups: TargetLike | None,
        sample_weight: ArrayLike | None = None,
        **given: object,
    ) -> Self:
        """Fit the members and their weights; sample weights are for members that take them."""
        if sample_weight is not None:
            self._check_params()
            for name, member in self.estimators or [("dgplvm", DGPLVMClassifier())]:
                if not has_fit_parameter(member, "sample_weight"):
                    raise TypeError(
                        f"sample_weight: member {name!r}, {type(member).__name__}, takes no "
                        "weights: give estimators whose fit does, such as BSDRClassifier and "
                        "BM2PCAClassifier"
                    )
        return super()._fit(X, y, groups, sample_weight, **given, _given=X)

    def _check_params(self) -> None:
        """Raise an error that names an argument, or a member, which is not usable."""
        super()._check_params()
        if self.estimators is None:
            return
        try:
            names, _ = zip(*self.estimators, strict=True)
        except (TypeError, ValueError) as error:
            message = "estimators must be a list of pairs of a name and a model"
            raise TypeError(message) from error
        self._validate_names(names)
        if any("\0" in name for name in names):
            raise ValueError("names of members have no NUL character, which files cannot hold")
        check_models(dict(self.estimators), "estimators")

    def _scale(self, X: FloatArray) -> FloatArray:
        self._scaler = Scaler.identity(X.shape[1])
        return X

    def _warn_of_replicates(self, X: FloatArray, targets: Targets) -> None:
        super()._warn_of_replicates(Scaler.fit(X).transform(X), targets)

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[FloatArray]:
        context = self._context
        kinds = {"bsdr": BSDRClassifier, "bm2pca": BM2PCAClassifier, "dgplvm": DGPLVMClassifier}
        members = self.estimators or [
            (name, kind(random_state=int(rng.integers(2**31)))) for name, kind in kinds.items()
        ]
        X: SamplesLike = context.X
        if hasattr(self._given, "columns"):  # whose names members may take
            X = self._given if context.kept is None else _safe_indexing(self._given, context.kept)
        seed = int(rng.integers(2**31))
        with shared_training(seed):
            training = _divide(context.X, targets, context.groups)
            fit = partial(
                _fit_member,
                X=X,
                y=targets.y,
                fold=training.divisions[0],
                groups=context.groups,
                weights=context.weights,
                seed=seed,
            )
            fits = run_tasks(fit, members, n_jobs=self.n_jobs, what="members").complete()
        models, held_out, warned = zip(*fits, strict=True)
        self.classes_, *others = [np.unique(model.classes_) for model in models]
        if not all(np.array_equal(self.classes_, each) for each in others):
            raise ValueError(f"members have different classes: {[self.classes_, *others]}")
        index = find_classes(targets.y, self.classes_)  # -1 if unlabelled
        log_p = np.stack(held_out)
        weights = np.ones(len(index)) if context.weights is None else context.weights
        self._pooled, self._fold = _pool_held_out(log_p, index, training.divisions[0], weights)
        known = self._fold >= 0
        self.weights_, self.weights_sd_ = pool_weights(
            log_p[:, known], index[known], counts=weights[known]
        )
        self._names = [name for name, _ in members]
        self.estimators_ = list(models)
        self._held_out = log_p
        in_order = replace(context.targets, names=self.classes_, coded=index)
        self._context = replace(context, targets=in_order)
        groups = None if training.groups is None else training.groups[known]
        score = HeldOutScore.of(
            self._pooled[known, index[known]],
            index[known],
            groups=groups,
            n_folds=training.n_folds,
            weights=weights[known],
        )
        return Result(
            posterior=self.weights_,
            trace=np.empty(0),
            converged=all(getattr(model, "converged_", True) for model in models),
            held_out_log_proba=self._pooled if known.any() else None,
            held_out=score,
            messages=_messages([name for name, _ in members], warned),
        )

    def _name_fitted(self) -> None:
        self._n_features_out = len(self.plane_.components_)

    def _config(self, **resolved: object) -> dict[str, object]:
        return {"estimators": {name: repr(model) for name, model in self.estimators or ()}}

    def _scale_new(self, X: SamplesLike) -> SamplesLike:
        check_is_fitted(self)
        numbers = self._read(X, reset=False)
        return X if hasattr(X, "columns") else numbers

    def _log_proba(self, X: SamplesLike) -> FloatArray:
        """Log probabilities (M, K) of samples as the members take them."""
        log_p = []
        for name, member in self.named_estimators_.items():
            with errors_name(name):
                log_p.append(bounded(class_probabilities(member, X, self.classes_)))
        return log_pool(self.weights_, np.stack(log_p))

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        return self.plane_.predict_log_proba(latent)

    def _embed(self, X: SamplesLike) -> LatentCoordinates:
        return self._place(self._log_proba(X))

    def _place(self, log_p: FloatArray) -> LatentCoordinates:
        """Coordinates of predictions (M, K) in their plane, which have no uncertainty."""
        mean = self.plane_.transform(np.exp(log_p))
        return LatentCoordinates(mean=mean, cov=np.zeros((*mean.shape, mean.shape[1])))

    def _locate(self, X: SamplesLike) -> tuple[LatentCoordinates, dict[str, np.ndarray]]:
        log_p = self._log_proba(X)  # the members are asked once
        return self._place(log_p), self._name_predictions(log_p)

    @property
    def named_estimators_(self) -> Bunch:
        """Fitted members by name."""
        return Bunch(**dict(zip(self._names, self.estimators_, strict=True)))

    def comparison(self) -> pd.DataFrame:
        """Held-out log scores of the members and the stack, as by :func:`arviz.compare`.

        Returns
        -------
        DataFrame
            A row for each model, the best first: ``elpd``, the sum of log scores in nats, with its
            standard error ``se``; ``elpd_diff``, how far it is behind the best, with its standard
            error ``dse``; ``weight``, with its standard deviation ``weight_sd``. Without held-out
            samples scores are zero.
        """
        check_is_fitted(self)
        assert self._context.targets.index is not None
        known = np.flatnonzero(self._fold >= 0)
        truth = self._context.targets.index[known]
        log_p = np.concatenate([self._held_out, self._pooled[None]])[:, known, truth]
        names = pd.Index([*self._names, "stack"], name="model")
        scores = pd.DataFrame(log_p.T, columns=names)
        behind = -scores.sub(scores[scores.sum().idxmax()], axis=0)
        error = np.sqrt(len(scores))
        table = pd.DataFrame(
            {
                "elpd": scores.sum(),
                "se": error * scores.std(ddof=0),
                "elpd_diff": behind.sum(),
                "dse": error * behind.std(ddof=0),
                "weight": [*self.weights_, np.nan],
                "weight_sd": [*self.weights_sd_, np.nan],
            }
        ).sort_values("elpd", ascending=False)
        table.insert(0, "rank", range(len(table)))
        return table

    @override
    def summary(self) -> pd.DataFrame:
        table = super().summary()
        named = zip(self._names, self.weights_, self.weights_sd_, strict=True)
        rows = {f"weight of {name}": f"{weight:.2f} ± {sd:.2f}" for name, weight, sd in named}
        at = int(np.sum(table.index != "remark"))
        return pd.concat([table[:at], pd.Series(rows).to_frame("value"), table[at:]])

    @override
    def get_params(self, deep: bool = True) -> dict[str, object]:
        return dict(self._get_params("estimators", deep=deep))

    @override
    def set_params(self, **params: object) -> Self:
        self._set_params("estimators", **params)
        return self

    def _make_tree(self) -> xr.DataTree:
        """Weights, and held-out predictions of the training samples with their coordinates."""
        log_p = self._pooled.copy()
        if (left := self._fold < 0).any():
            log_p[left] = self._log_proba(self._context.X[left])
        latent = self._place(log_p)
        variables = {
            "weights": self.weights_,
            "fold": self._fold,
            "probability": np.exp(log_p),
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
        }
        return self._context.fit_tree(
            {"fit": variables},
            self._spec,
            inference_method=self._method,
            n_components=self._n_features_out,
            coords={MEMBER: self._names},
            dims=DIMS,
        )

    @override
    def plot_map(
        self, X: SamplesLike | None = None, y: TargetLike | None = None, **options: object
    ) -> "Axes":
        return super().plot_map(X, y, **{"space": "predictions", **options})

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        with suppress(TypeError, ValueError, AttributeError):  # members that `fit` refuses
            members = [member for _, member in self.estimators or ()]
            # The first step of a pipeline may be an imputer.
            first = [each[0] if isinstance(each, Pipeline) else each for each in members]
            takes = bool(first) and all(get_tags(each).input_tags.allow_nan for each in first)
            tags.input_tags.allow_nan = takes
        return tags


def _divide(X: FloatArray, targets: Targets, groups: IntArray | None) -> Training:
    """Divisions of the samples, those that members of this package have."""
    scaled = Scaler.fit(X).transform(X)
    rng = np.random.default_rng()  # that of the shared divisions counts
    n_classes = len(targets.names)
    units = np.ones(scaled.shape[1])
    return Training.of(scaled, targets.coded, n_classes, units, metric=None, rng=rng, groups=groups)


def _fit_member(
    member: tuple[str, BaseEstimator],
    *,
    X: SamplesLike,
    y: np.ndarray,
    fold: IntArray,
    groups: IntArray | None,
    weights: FloatArray | None,
    seed: int,
) -> tuple[BaseEstimator, FloatArray, Warned]:
    """A member fitted to all samples, held-out log probabilities (N, K), and its warnings.

    The probabilities are its own, NaN of samples that were not held out, or those of refits
    without each fold (N,).
    """
    name, estimator = member
    with errors_name(name), shared_training(seed):
        with recorded_warnings() as warned:
            model = fitted_clone(estimator, X, y, groups, weights)
        by_groups = has_fit_parameter(getattr(model, "estimator", model), "groups")
        own = getattr(model, "held_out_log_proba_", None)
        if own is not None and (groups is None or by_groups):
            return model, bounded(np.exp(own)), warned
        classes = np.unique(model.classes_)
        log_p = np.full((len(y), len(classes)), np.nan)
        with recorded_warnings():  # the fit to all samples has warned
            for number in np.unique(fold[fold >= 0]):
                parts = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
                _, p = predict_fold(model, X, y, parts, classes, groups, weights)
                log_p[parts[1]] = bounded(p)
    return model, log_p, warned


def _messages(names: Sequence[str], warned: Sequence[Warned]) -> tuple[str, ...]:
    """Warnings of members with their names, those of several members once.

    Whether targets depend on the samples is judged by the predictions of all members.
    """
    of: dict[str, list[str]] = {}
    for name, own in zip(names, warned, strict=True):
        for each in own:
            if issubclass(each.category, NoSignalWarning):
                continue
            of.setdefault(str(each.message), []).append(name)
    return tuple(f"{', '.join(dict.fromkeys(own))}: {message}" for message, own in of.items())


def _pool_held_out(
    log_p: FloatArray, index: IntArray, fold: IntArray, counts: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Log probabilities (N, K) of held-out samples by weights of the other folds, and the folds.

    ``log_p`` are those of the members, (n_members, N, K), and counts (N,) are as of `pool_weights`.
    The fold is -1 of samples that are not
    held out by all members, or have no class; their log probabilities are NaN.
    """
    known = ~np.isnan(log_p).any(axis=(0, 2)) & (index >= 0)
    pooled = np.full(log_p.shape[1:], np.nan)
    in_fold = np.full(len(index), -1)
    for number in np.unique(fold[fold >= 0]):
        out = fold == number
        others = known & ~out
        weights, _ = pool_weights(log_p[:, others], index[others], counts=counts[others])
        own = known & out
        pooled[own] = log_pool(weights, log_p[:, own])
        in_fold[own] = number
    return pooled, in_fold


# Weights


def log_pool(weights: FloatArray, log_p: FloatArray) -> FloatArray:
    """Log probabilities (..., K) of the log-linear pool of log_p (M, ..., K)."""
    return np.asarray(log_softmax(np.tensordot(weights, log_p, 1), axis=-1))


def pool_loss(
    weights: FloatArray, log_p: FloatArray, y: IntArray, precision: FloatArray, counts: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of weights (M,) given log_p (M, N, K), its gradient and Hessian.

    Samples count as often as ``counts`` (N,), which need be no integers.
    """
    rows = np.arange(len(y))
    shift = weights - 1.0 / len(weights)
    pooled = log_pool(weights, log_p)
    p = np.exp(pooled)
    centred = log_p - np.sum(p * log_p, axis=2, keepdims=True)
    value = float(0.5 * shift @ precision @ shift - counts @ pooled[rows, y])
    gradient = precision @ shift - centred[:, rows, y] @ counts
    p *= counts[:, None]
    return value, gradient, precision + np.einsum("ink,nk,jnk->ij", centred, p, centred)


def pool_weights(
    log_p: FloatArray,
    y: IntArray,
    shrinkage: float = SHRINKAGE,
    counts: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Weights (M,) by held-out log probabilities (M, N, K) of classes y (N,), and their errors.

    Samples count as often as ``counts`` (N,), by default once.
    """
    n_members = len(log_p)
    counts = np.ones(len(y)) if counts is None else counts
    n = float(counts.sum())
    equal = np.full(n_members, 1.0 / n_members)
    eye = np.eye(n_members)
    information = np.trace(pool_loss(equal, log_p, y, 0.0 * eye, counts)[2]) / n_members
    # The mean of the samples and one of unit information, which is all there is without samples.
    mean_information = (information + 1.0) / (n + 1.0)
    precision = shrinkage * mean_information * (eye + OF_SUM)
    weights = minimize(
        lambda weights: pool_loss(weights, log_p, y, precision, counts)[:2],
        equal,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * n_members,
    ).x
    curvature = pool_loss(weights, log_p, y, precision, counts)[2]
    return np.asarray(weights), np.sqrt(np.diag(np.linalg.inv(curvature)))
