"""Several models as one, by weights from predictions of samples that their fits have not seen."""

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral
from typing import Any, ClassVar, Self, override

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import log_softmax
from scipy.stats import norm
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, get_tags
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.base import Estimator
from bsdr_models.bm2pca import BM2PCAClassifier, BM2PCARegressor
from bsdr_models.bsdr import BSDRClassifier, BSDRRegressor
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.cross_validation import (
    Fold,
    check_models,
    fitted_clone,
    read_classes,
    read_folds,
    select_samples,
)
from bsdr_models.dgplvm import DGPLVMClassifier
from bsdr_models.dims import FEATURE, LABEL, OBS
from bsdr_models.groups import read_groups
from bsdr_models.inference.datatree import Context, InferenceMethod, output_attrs
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.inference.result import Result
from bsdr_models.members import (
    class_probabilities,
    errors_name,
    label_probabilities,
    moments,
    refuse_frozen,
)
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import POSITIVE, Number
from bsdr_models.pooling import Weights, log_mixture, log_pool, mixture_weights, pool_weights
from bsdr_models.process_state import Warned, recorded_warnings
from bsdr_models.regressor import GaussianRegressor
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.spec import ModelSpec
from bsdr_models.validation import (
    check_samples,
    feature_names,
    label_names,
    read_labels,
    read_numbers,
    require_targets,
    sample_labels,
    validate_samples,
)

# Probabilities below are taken as this one: members are overconfident about samples unlike the
# training samples, which held-out ones do not show, and one of them could exclude a class.
FLOOR = 1e-3
MEMBER = "member"
DIMS = {"weights": (MEMBER,), "fold": (OBS,), "X": (OBS, FEATURE)}
DIMS |= dict.fromkeys(("prediction", "prediction_sd"), (OBS, LABEL))
SPEC = ModelSpec(
    name="stack",
    citation_bibtex="""@article{yao2023locking,
  author  = {Yao, Yuling and Carvalho, Luiz Max and Mesquita, Diego and Domke, Justin},
  title   = {Locking and Quacking: Stacking {B}ayesian Model Predictions by Log-Pooling and
             Superposition},
  journal = {arXiv:2305.07334},
  year    = {2023},
}""",
    variables={"y": (OBS, LABEL)},
    identified=(),
)


class Stack(Estimator, _BaseComposition):
    """What stacks of classifiers and of regressors have in common.

    Predictions are arrays (N, K) of log probabilities of classes; (N, T, 2) of log probabilities of
    absence and presence of T labels, or of mean and standard deviation of T outputs; those of M
    members have an axis before. The posterior are the weights (M,).
    """

    _spec: ClassVar[ModelSpec] = SPEC
    _method: ClassVar[InferenceMethod] = "stack"
    _exclusive = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimators": [list, tuple, None],
        "shrinkage": [POSITIVE],
        "cv": [Number(Integral, 2, np.inf, closed="left")],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] | None = None,
        *,
        shrinkage: float = 50.0,
        cv: int = 5,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimators = estimators
        self.shrinkage = shrinkage
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the members and their weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Sparse, or with NaN for missing values, if all members take such samples.
        y : array-like of shape (n_samples,), or (n_samples, n_labels or n_outputs)
            Classes or an indicator matrix of labels; for a regressor numbers.
        groups : array-like of shape (n_samples,), optional
            Samples of one group, such as a patient, are held out together, also by members whose
            ``fit`` takes ``groups``; the others are refitted for each fold.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If a member does not predict probabilities or, of a regressor, standard deviations.
        ValueError
            If names of members are not unique or conflict with arguments, or y is of another kind.
        """
        self._reset()
        self._check_params()
        rng = as_generator(self.random_state)
        if self.estimators is not None:
            try:
                names, _ = zip(*self.estimators, strict=True)
            except (TypeError, ValueError) as error:
                message = "estimators must be a list of pairs of a name and a model"
                raise TypeError(message) from error
            self._validate_names(names)
            if any("\0" in name for name in names):
                raise ValueError("names of members have no NUL character, which files cannot hold")
            self._check_members(dict(self.estimators))
        require_targets(self, X, y)
        samples = sample_labels(X)
        table, X = self._read(X, reset=True)
        check_samples(X, y, groups)
        self._groups = groups = read_groups(groups, table)
        y, kinds = self._read_targets(y)
        members = self.estimators or [
            (name, kind(random_state=int(rng.integers(2**31)))) for name, kind in kinds.items()
        ]
        folds = self._make_folds(y, groups, rng)
        with self._fitting(table.shape):
            outcome = run_tasks(
                lambda member: self._fit_member(member, X, y, folds, groups),
                members,
                n_jobs=self.n_jobs,
                what="members",
            )
            self._names = [members[i][0] for i in outcome.results]
            fits = zip(*outcome.results.values(), strict=True)
            self.estimators_, values, warned = (list(each) for each in fits)
            for name, own in zip(self._names, warned, strict=True):
                for each in own:
                    warnings.warn(f"{name}: {each.message}", each.category, stacklevel=2)
            if outcome.interrupted:
                message = f"interrupted: the stack is of {', '.join(self._names)} only"
                warnings.warn(message, UserWarning, stacklevel=2)
            targets = self._encode(y)
            self._set_weights(np.stack(values), targets, folds)
            self._scaler = Scaler.identity(table.shape[1])
            self._reference = None
            config = {"shrinkage": float(self.shrinkage)}
            context = Context(
                X=table,
                y=y,
                samples=samples,
                feature_names=feature_names(self),
                groups=groups,
                config=config | {"estimators": {name: repr(model) for name, model in members}},
                **self._describe(targets),
            )
            is_proba = context.target != "regression" and (self._fold >= 0).any()
            result = Result(
                posterior=self.weights_,
                trace=np.empty(0),
                converged=not outcome.interrupted
                and all(getattr(m, "converged_", True) for m in self.estimators_),
                interrupted=outcome.interrupted,
                held_out_log_proba=self._log_proba(self._pooled) if is_proba else None,
            )
            self._set_result(result, context)
            axes = self.plane_.components_ if self._exclusive else context.labels
            self._n_features_out = len(axes)
            if (reason := lack_of_signal(context.attrs)) is not None:
                warnings.warn(no_signal(reason), UserWarning, stacklevel=2)
        return self

    def _check_members(self, members: dict[str, Any]) -> None:
        """Raise a TypeError that names a member which is not usable."""
        check_models(members, "estimators")

    @abstractmethod
    def _read_targets(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Targets as the members take them, and the classes of the default members by name."""

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Targets (N,) or (N, T), -1 for an unknown class."""

    @abstractmethod
    def _predict_member(self, member: Any, X: Any, outcomes: np.ndarray) -> FloatArray:
        """Predictions of a member, of classes, or so many labels or outputs, in their order."""

    @abstractmethod
    def _weigh(self, values: FloatArray, targets: np.ndarray) -> Weights:
        """Weights by held-out predictions of the members."""

    @abstractmethod
    def _combine(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        """Predictions of the stack, from those of the members."""

    @abstractmethod
    def _scores(self, weights: FloatArray, values: FloatArray, targets: np.ndarray) -> FloatArray:
        """Log scores of the stack, (N,) or (N, T), from predictions of the members."""

    @abstractmethod
    def _describe(self, targets: np.ndarray) -> dict[str, Any]:
        """Arguments of the context of the trees."""

    def _fit_member(
        self, member: Any, X: Any, y: np.ndarray, folds: list[Fold], groups: IntArray | None
    ) -> tuple[Any, FloatArray, Warned]:
        """Fit a name and a model; held-out predictions, its own or those of refits; warnings."""
        name, model = member
        with errors_name(name):
            with recorded_warnings() as warned:
                model = fitted_clone(model, X, y, groups)
            by_groups = has_fit_parameter(getattr(model, "estimator", model), "groups")
            log_p = getattr(model, "held_out_log_proba_", None)
            if log_p is not None and (groups is None or by_groups):
                return model, self._by_label(np.exp(log_p)), warned
            refuse_frozen(model)
            outcomes = self._outcomes(y, model)
            of_each = () if self._exclusive else (2,)
            values = np.full((len(y), len(outcomes), *of_each), np.nan)
            with recorded_warnings():  # the fit to all samples has warned
                for train, test in folds:
                    rest = None if groups is None else groups[train]
                    samples = select_samples(model, X, train, train)
                    refit = fitted_clone(model, samples, y[train], rest)
                    new = select_samples(model, X, test, train)
                    values[test] = self._predict_member(refit, new, outcomes)
        return model, values, warned

    def _outcomes(self, y: np.ndarray, member: Any) -> np.ndarray:
        """Classes of a fitted member, sorted, or numbers of labels or outputs."""
        return np.unique(member.classes_) if self._exclusive else np.arange(y.size // len(y))

    def _make_folds(
        self, y: np.ndarray, groups: IntArray | None, rng: np.random.Generator
    ) -> list[Fold]:
        """Pairs (train, test); none if every class has one sample only."""
        strata = y if self._exclusive else np.zeros(len(y), dtype=np.int64)
        n_folds = min(self.cv, int(np.unique(strata, return_counts=True)[1].max()))
        if n_folds < 2:
            return []
        if groups is not None:
            n_folds = min(n_folds, int(groups.max()) + 1)
        return read_folds(strata, strata, n_folds, rng, groups=groups, once=True, least=0)

    def _set_weights(self, values: FloatArray, targets: np.ndarray, folds: list[Fold]) -> None:
        """Set weights, and held-out predictions and scores by weights of other folds.

        The fold is -1 of samples that are not held out by all members, or have no label.
        """
        n_members, n = values.shape[:2]
        self._held_out = values
        self._pooled = np.full(values.shape[1:], np.nan)
        self._scored = np.full((n_members + 1, n), np.nan)
        self._fold = np.full(n, -1)
        known = ~np.isnan(values).reshape(n_members, n, -1).any(axis=(0, 2))
        if self._exclusive:
            known &= targets >= 0
        for number, (_, test) in enumerate(folds):
            others = known.copy()
            others[test] = False
            test = test[known[test]]
            weights, _ = self._weigh(values[:, others], targets[others])
            self._fold[test] = number
            self._pooled[test] = self._combine(weights, values[:, test])
            for row, each in enumerate([*np.eye(n_members), weights]):
                scores = self._scores(each, values[:, test], targets[test])
                self._scored[row, test] = scores.reshape(len(test), -1).sum(axis=1)
        self.weights_, self.weights_sd_ = self._weigh(values[:, known], targets[known])

    def _read(self, X: Any, *, reset: bool) -> tuple[Any, Any]:
        """Samples as numbers, (N, D), and as members take them: a frame with names of columns."""
        tags = get_tags(self).input_tags
        kinds = {"sparse": tags.sparse, "missing": tags.allow_nan}
        table = validate_samples(self, X, reset=reset, least=1 + reset, **kinds)
        return table, X if hasattr(X, "columns") else table

    @property
    def named_estimators_(self) -> Bunch:
        """Fitted members by name."""
        return Bunch(**dict(zip(self._names, self.estimators_, strict=True)))

    def comparison(self) -> pd.DataFrame:
        """Held-out log scores of the members and the stack, as by :func:`arviz.compare`.

        Returns
        -------
        DataFrame
            The best first. The sum of log scores ``elpd``, in nats, with its standard error ``se``;
            that of the best less it, ``elpd_diff``, with its ``dse``; ``weight`` and its standard
            deviation ``weight_sd``. Without held-out samples scores are zero.
        """
        check_is_fitted(self)
        names = pd.Index([*self._names, "stack"], name="model")
        scores = pd.DataFrame(self._scored[:, self._fold >= 0].T, columns=names)
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
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(self._get_params("estimators", deep=deep))

    @override
    def set_params(self, **params: Any) -> Self:
        self._set_params("estimators", **params)
        return self

    def _scale_new(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._read(X, reset=False)[1]

    def _predict_members(self, X: Any) -> FloatArray:
        """Predictions of the members, one after the other on the first axis."""
        outcomes = np.asarray(self._context.labels)
        values = []
        for name, member in self.named_estimators_.items():
            with errors_name(name):
                values.append(self._predict_member(member, X, outcomes))
        return np.stack(values)

    def _prepare(self, X: Any, *, bounded: bool = True) -> Any:
        """Predictions of the stack, of which all others are functions."""
        return self._combine(self.weights_, self._predict_members(X)) if bounded else X

    def _embed(self, X: Any) -> LatentCoordinates:
        """In the plane of the predictions; predicted probabilities of labels, or means."""
        named = self._predictions(X)
        mean = named["prediction" if "prediction" in named else "probability"]
        if self._exclusive:
            mean = self.plane_.transform(mean)
        return LatentCoordinates(mean=mean, cov=np.zeros((*mean.shape, mean.shape[1])))

    def _make_tree(self) -> xr.DataTree:
        """Weights, and held-out predictions of the training samples with their coordinates."""
        named = self._predictions(self._pooled)
        pooled = self._pooled.copy()
        left = self._fold < 0
        named.pop("predicted", None)
        if left.any():
            pooled[left] = self._prepare(self._context.X[left])
        latent = self._embed(pooled)
        named |= {"latent_mean": latent.mean, "latent_cov": latent.cov}
        return self._context.fit_tree(
            {"fit": {"weights": self.weights_, "fold": self._fold, **named}},
            self._spec,
            inference_method=self._method,
            n_components=self._n_features_out,
            coords={MEMBER: self._names},
            dims=DIMS,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(TypeError, ValueError, AttributeError):  # members that `fit` refuses
            members = [member for _, member in self.estimators or ()]
            inputs = [get_tags(member).input_tags for member in members]
            for member, of in zip(members, inputs, strict=True):
                if isinstance(member, Pipeline):  # whose first step may be an imputer
                    of.allow_nan = get_tags(member[0]).input_tags.allow_nan
            for name in ("sparse", "allow_nan", "pairwise"):
                takes = bool(inputs) and all(getattr(of, name) for of in inputs)
                setattr(tags.input_tags, name, takes)
        return tags


class StackedClassifier(ProbabilisticClassifier, Stack):
    """Several classifiers as one, weighted by how well they predict samples they have not seen.

    The log probabilities are a weighted sum of those of the members [1]_, normalised.

    By default the three models of this package, whose errors differ: a linear projection learned
    from labels, margins in a metric of the features, a nonlinear map. Each member's own held-out
    probabilities serve, so that a stack costs the sum of its members; members of scikit-learn are
    refitted for each fold. Label sets are pooled label by label.

    Parameters
    ----------
    estimators : list of (str, classifier), optional
        Names and classifiers with ``predict_proba``, of this package or scikit-learn; by default
        BSDRClassifier, BM2PCAClassifier and, unless for label sets, DGPLVMClassifier.
    shrinkage : float, default=50
        Number of held-out samples that the prior of equal weights is worth. Less for members of
        which some may predict badly.
    cv : int, default=5
        Number of folds.
    n_jobs : int, optional
        Members in parallel, as in :func:`compare_models`.
    random_state : int, RandomState, Generator or None
        Of the folds and the default members.

    Attributes
    ----------
    estimators_, named_estimators_ : list and Bunch
        Members, fitted to all samples, and the same by name.
    classes_ : ndarray of shape (n_classes,)
        Classes in sorted order.
    weights_, weights_sd_ : ndarray of shape (n_members,)
        Weights, and their standard deviations.
    held_out_log_proba_ : ndarray of shape (n_samples, n_classes)
        Of training samples, from the members' held-out probabilities by weights of other folds.
    held_out_score_, held_out_gain_, held_out_gain_se_ : float
        Their log score in nats per sample, its gain over class frequencies, and standard error.
    converged_, interrupted_ : bool
        Whether all members have converged, and whether the user interrupted any fit; the stack is
        then of the members that were complete.
    idata_ : xarray.DataTree
        Weights, and held-out predictions of the training samples in ``fit``.

    See Also
    --------
    StackedRegressor : for real targets.
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

    def _read_targets(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        table = y
        y = read_labels(y)
        kinds = {"bsdr": BSDRClassifier, "bm2pca": BM2PCAClassifier}
        self._exclusive = type_of_target(y) != "multilabel-indicator"
        if not self._exclusive:
            self._label_names = label_names(table, y.shape[1])
            return y, kinds
        return read_classes(y), kinds | {"dgplvm": DGPLVMClassifier}

    def _encode(self, y: np.ndarray) -> IntArray:
        self.classes_, *others = [self._outcomes(y, member) for member in self.estimators_]
        if not self._exclusive:
            return y.astype(np.int64)
        if not all(np.array_equal(self.classes_, each) for each in others):
            raise ValueError(f"members have different classes: {[self.classes_, *others]}")
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return np.where(self.classes_[index] == y, index, -1)

    def _by_label(self, p: FloatArray) -> FloatArray:
        """Bounded log probabilities for those of classes (N, K), or of labels (N, T)."""
        p = p if self._exclusive else np.stack([1.0 - p, p], axis=-1)
        return np.asarray(log_softmax(np.log(np.maximum(p, FLOOR)), axis=-1))

    def _predict_member(self, member: Any, X: Any, outcomes: np.ndarray) -> FloatArray:
        if self._exclusive:
            return self._by_label(class_probabilities(member, X, outcomes))
        return self._by_label(label_probabilities(member, X, len(outcomes)))

    def _weigh(self, values: FloatArray, targets: np.ndarray) -> Weights:
        log_p = values.reshape(len(values), -1, values.shape[-1])
        return pool_weights(log_p, targets.ravel(), self.shrinkage)

    def _combine(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        return log_pool(weights, values)

    def _scores(self, weights: FloatArray, values: FloatArray, targets: np.ndarray) -> FloatArray:
        return self._of_targets(log_pool(weights, values), targets)

    def _of_targets(self, log_p: FloatArray, targets: np.ndarray) -> FloatArray:
        """Log probabilities of the targets."""
        return np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]

    def _describe(self, targets: np.ndarray) -> dict[str, Any]:
        known = self._fold >= 0
        log_p = self._of_targets(self._pooled[known], targets[known])
        groups = None if self._groups is None else self._groups[known]
        held_out = HeldOutScore.of(log_p, targets[known], groups=groups)
        for name, value in held_out.named().items():
            setattr(self, f"{name}_", value)
        return {
            "index": targets if self._exclusive else None,
            "labels": self.classes_ if self._exclusive else self._label_names,
            "target": "multiclass" if self._exclusive else "multilabel",
            "attrs": held_out.attrs(),
        }

    def _log_proba(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes, or of the presence of labels."""
        return X if self._exclusive else X[..., 1]

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        return self.plane_.predict_log_proba(latent)

    @override
    def plot_map(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        space = {"space": "predictions"} if self._exclusive else {}
        return super().plot_map(X, y, **{**space, **options})


class StackedRegressor(GaussianRegressor, Stack):
    """Several regressors as one, weighted by how well they predict samples they have not seen.

    The predictive density is a mixture of the members' normal ones, with the weights of largest
    held-out log score [1]_. Members are refitted for each fold.

    Parameters
    ----------
    estimators : list of (str, regressor), optional
        Names and regressors whose ``predict`` takes ``return_std``, of this package or
        scikit-learn; by default BSDRRegressor and BM2PCARegressor.
    shrinkage, cv, n_jobs, random_state
        As for :class:`StackedClassifier`.

    Attributes
    ----------
    weights_, weights_sd_ : ndarray of shape (n_members,)
        Weights, of sum one, and their standard deviations.
    held_out_score_ : float
        Log density of held-out targets, in nats per target, by weights of other folds.
    estimators_, named_estimators_, converged_, interrupted_, idata_
        As for :class:`StackedClassifier`.

    See Also
    --------
    arviz.compare : the same weights, without the prior.

    References
    ----------
    .. [1] Y. Yao, A. Vehtari, D. Simpson, A. Gelman (2018). Using stacking to average Bayesian
           predictive distributions. Bayesian Analysis 13(3).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bsdr_models import StackedRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = StackedRegressor(random_state=0).fit(X[:200], y[:200])
    >>> mean, std = model.predict(X[200:], return_std=True)
    >>> bool(model.log_density(X[200:], y[200:]).mean() > -5.6)
    True
    """

    def _check_members(self, members: dict[str, Any]) -> None:
        check_models(members, "estimators", "predict")
        for name, member in members.items():
            last = member[-1] if isinstance(member, Pipeline) else member
            if "return_std" not in inspect.signature(last.predict).parameters:
                kind = type(member).__name__
                raise TypeError(f"estimators[{name!r}], {kind}, predicts no standard deviation")

    def _read_targets(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        Y = self._scale_outputs(y, standardize=False)[0]
        return self._match_shape(Y), {"bsdr": BSDRRegressor, "bm2pca": BM2PCARegressor}

    def _encode(self, y: np.ndarray) -> FloatArray:
        return y.reshape(len(y), -1)

    def _predict_member(self, member: Any, X: Any, outcomes: np.ndarray) -> FloatArray:
        return np.stack(moments(member, X, len(outcomes)), axis=-1)

    def _weigh(self, values: FloatArray, targets: np.ndarray) -> Weights:
        log_scores = self._log_densities(values, targets).reshape(len(values), -1)
        return mixture_weights(log_scores, self.shrinkage)

    def _scores(self, weights: FloatArray, values: FloatArray, targets: np.ndarray) -> FloatArray:
        return log_mixture(weights, self._log_densities(values, targets))

    def _log_densities(self, values: FloatArray, targets: np.ndarray) -> FloatArray:
        """Log densities of targets (N, T) by each member, (M, N, T)."""
        return np.asarray(norm.logpdf(targets, values[..., 0], values[..., 1]))

    def _combine(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        mean = np.tensordot(weights, values[..., 0], 1)
        variance = values[..., 1] ** 2 + (values[..., 0] - mean) ** 2
        return np.stack([mean, np.sqrt(np.tensordot(weights, variance, 1))], axis=-1)

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return X[..., 0], X[..., 1]

    def _describe(self, targets: np.ndarray) -> dict[str, Any]:
        scores = self._scored[-1, self._fold >= 0] / targets.shape[1]
        self.held_out_score_ = float(scores.mean()) if scores.size else np.nan
        score = {"held_out_score": self.held_out_score_} if scores.size else {}
        return {
            "index": None,
            "labels": self._outputs,
            "target": "regression",
            "attrs": output_attrs(self._output_scaler) | score,
        }

    def log_density(self, X: Any, y: Any) -> FloatArray:
        """Log predictive density of the targets of new samples, of several outputs their sum.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Outputs of the samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats.
        """
        check_samples(X, y)
        values = self._predict_members(self._scale_new(X))
        y = read_numbers(self._match_targets(y))
        if y.size != len(y) * (k := len(self._context.labels)):
            raise ValueError(f"y must have {k} output(s), got shape {y.shape}")
        return self._scores(self.weights_, values, y.reshape(len(y), -1)).sum(axis=1)
