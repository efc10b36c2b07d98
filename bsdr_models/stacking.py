r"""Several models as one, by weights from predictions of samples that their fits have not seen.

The log probabilities of M classifiers are pooled, and the densities of M regressors mixed,

.. math::
    \log p(k \mid x) = \sum_m w_m \log p_m(k \mid x) - \log Z(x), \qquad
    p(y \mid x) = \sum_m w_m p_m(y \mid x), \qquad w_m \ge 0 .

Weights maximise the log score of held-out samples. Those of a pool have a penalty,

.. math::
    \lambda \sum_m \Bigl(w_m - \frac{1}{M}\Bigr)^2 + 10 \lambda \Bigl(\sum_m w_m - 1\Bigr)^2 .

The score is that of a multinomial logistic regression on the members' log probabilities, so it is
concave; with the penalty as a normal prior, its curvature gives standard deviations of the weights.
Their sum is an inverse temperature, which calibrates the pool; it is drawn to one more than single
weights to equal ones, since few held-out samples that are all predicted well would make the pool
overconfident. Weights of a mixture have sum one and a Dirichlet prior. A label set is a pool for
each label, and several outputs a mixture for each, with common weights.
"""

import inspect
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast, override

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import Bunch, get_tags
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.base import Estimator, GaussianRegressor, ProbabilisticClassifier
from bsdr_models.bm2pca import BM2PCAClassifier, BM2PCARegressor
from bsdr_models.bsdr import BSDRClassifier, BSDRRegressor
from bsdr_models.cross_validation import (
    Fold,
    check_classifiers,
    check_estimators,
    fitted_clone,
    read_classes,
    read_folds,
    select_samples,
)
from bsdr_models.dgplvm import DGPLVMClassifier
from bsdr_models.dims import FEATURE, LABEL, OBS
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.datatree import Context, InferenceMethod, output_attrs
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import Number
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.spec import ModelSpec, Variable
from bsdr_models.validation import (
    feature_names,
    read_labels,
    read_numbers,
    require_targets,
    sample_labels,
    validate_samples,
)

# Probabilities below are taken as this one: members are overconfident about samples unlike the
# training samples, which held-out ones do not show, and one of them could exclude a class.
FLOOR = 1e-3
# Penalty of the sum of the weights, in multiples of that of single ones.
OF_SUM = 10.0
# Steps of the expectation maximisation of mixtures.
N_STEPS = 1000
MEMBER = "member"
SPEC = ModelSpec(
    name="stack",
    paper=(
        "Y. Yao, L. M. Carvalho, D. Mesquita, J. Domke (2023). Locking and quacking: stacking "
        "Bayesian model predictions by log-pooling and superposition. arXiv:2305.07334."
    ),
    citation_bibtex="""@article{yao2023locking,
  author  = {Yao, Yuling and Carvalho, Luiz Max and Mesquita, Diego and Domke, Justin},
  title   = {Locking and Quacking: Stacking {B}ayesian Model Predictions by Log-Pooling and
             Superposition},
  journal = {arXiv:2305.07334},
  year    = {2023},
}""",
    variables={"y": Variable(dims=(OBS, LABEL), symbol="y", equation="", description="Targets.")},
    identified=(),
)

# Weights (M,) of one pool or mixture and their standard deviations.
type Weights = tuple[FloatArray, FloatArray]


def log_pool(weights: FloatArray, log_p: FloatArray) -> FloatArray:
    """Log probabilities (N, K) of the log-linear pool of log_p (M, N, K)."""
    return np.asarray(log_softmax(np.tensordot(weights, log_p, 1), axis=1))


def log_linear_weights(log_p: FloatArray, y: IntArray, shrinkage: float) -> Weights:
    """Weights of a pool by held-out log probabilities (M, N, K) of samples of classes y (N,)."""
    n_members, n, _ = log_p.shape
    equal = np.full(n_members, 1.0 / n_members)
    precision = 2.0 * shrinkage * (np.eye(n_members) + OF_SUM)
    of_class = log_p[:, np.arange(n), y]

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        pooled = log_pool(weights, log_p)
        mean = np.sum(np.exp(pooled) * log_p, axis=2)  # (M, N)
        shift = precision @ (weights - equal)
        value = -pooled[np.arange(n), y].sum() + 0.5 * shift @ (weights - equal)
        return value, np.sum(mean - of_class, axis=1) + shift

    bounds = [(0.0, None)] * n_members
    weights = minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=bounds).x
    p = np.exp(log_pool(weights, log_p))
    centred = log_p - np.sum(p * log_p, axis=2, keepdims=True)
    curvature = np.einsum("ink,nk,jnk->ij", centred, p, centred) + precision
    return np.asarray(weights), np.sqrt(np.diag(np.linalg.inv(curvature)))


def mixture_weights(log_density: FloatArray, shrinkage: float) -> Weights:
    """Weights of a mixture by held-out log densities (M, N), by expectation maximisation.

    The prior is a Dirichlet distribution of ``shrinkage`` samples shared equally.
    """
    n_members = len(log_density)
    density = np.exp(log_density - log_density.max(axis=0))
    weights, prior = np.full(n_members, 1.0 / n_members), shrinkage / n_members
    for _ in range(N_STEPS):
        share = weights[:, None] * density
        weights = np.sum(share / share.sum(axis=0), axis=1) + prior
        weights /= weights.sum()
    ratio = density / (weights @ density)
    curvature = ratio @ ratio.T + np.diag(prior / weights**2)
    centring = np.eye(n_members) - 1.0 / n_members  # the weights have a given sum
    variance = np.diag(np.linalg.pinv(centring @ curvature @ centring, hermitian=True))
    return weights, np.sqrt(np.maximum(variance, 0.0))


class Stack(Estimator, _BaseComposition):
    """What stacks of classifiers and of regressors have in common.

    Predictions of M members are an array (M, N, C), of T labels or outputs. The posterior are the
    weights (M,).
    """

    _spec: ClassVar[ModelSpec] = SPEC
    _method: ClassVar[InferenceMethod] = "stack"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "shrinkage": [Number(Real, 0.0, np.inf, closed="neither")],
        "cv": [Number(Integral, 2, np.inf, closed="left")],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] | None = None,
        *,
        shrinkage: float = 3.0,
        cv: int = 5,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.estimators = estimators
        self.shrinkage = shrinkage
        self.cv = cv
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    # Methods of the subclasses.
    _check_members: Any  # raises a TypeError that names a member of a dict which is not usable
    _read_targets: Any  # y: targets for the members, strata (N,), kinds of the default members
    _targets: Any  # y: targets of the tasks (N, T), whether they are known (N,), and C
    _predict_member: Any  # member, X: predictions (N, C)
    _weigh: Any  # held-out predictions (M, N, C), targets (N, T): weights and their deviations (M,)
    _scores: Any  # weights (M,), predictions (M, N, C), targets (N, T): log scores (N, T)
    _combine: Any  # weights (M,), predictions (M, N, C): those of the stack (N, C)
    _named: Any  # predictions (N, C) by the names of the trees
    _context_of: Any  # targets (N, T), which are held out (N,): arguments of the context
    _coordinates: Any  # predictions (N, C): coordinates (N, R)

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the members and their weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Sparse, or with NaN for missing values, if all members take such samples.
        y : array-like of shape (n_samples,), or (n_samples, n_labels or n_outputs)
            Classes or an indicator matrix of labels; for a regressor numbers.
        groups : array-like of shape (n_samples,), optional
            Samples of one group, such as a patient, are held out together; every member is then
            refitted for each fold.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If a member does not predict probabilities or, of a regressor, standard deviations.
        ValueError
            If names of members are not unique or conflict with arguments, y is of another kind, or
            a member refuses the samples.
        """
        self._reset()
        self._check_params()
        rng = as_generator(self.random_state)
        if self.estimators is not None:
            self._check_given()
        require_targets(self, X, y)
        samples, (table, X) = sample_labels(X), self._read(X, reset=True)
        check_consistent_length(X, y, groups)
        y, strata, kinds = self._read_targets(y)
        members = self.estimators or [
            (name, kind(random_state=int(rng.integers(2**31)))) for name, kind in kinds.items()
        ]
        with self._fitting(table.shape):
            self.estimators_, interrupted = self._fit_members(members, X, y)
            self._names = [name for name, _ in members[: len(self.estimators_)]]
            targets, labelled, n_columns = self._targets(y)
            folds = self._make_folds(strata, groups, rng)
            self._held_out, stopped = self._hold_out(X, y, folds, n_columns, own=groups is None)
            self.weights_, self.weights_sd_ = self._cross_fit(targets, labelled, folds)
            self._scaler, self._reference = Scaler.identity(table.shape[1]), None
            config = {name: repr(member) for name, member in members}
            context = Context(
                X=table,
                y=y,
                samples=samples,
                feature_names=feature_names(self),
                config={"estimators": config, "shrinkage": float(self.shrinkage)},
                **self._context_of(targets, self._fold >= 0),
            )
            probabilities = context.target != "regression" and bool((self._fold >= 0).any())
            result = Result(
                posterior=self.weights_,
                trace=np.empty(0),
                converged=all(getattr(m, "converged_", True) for m in self.estimators_),
                interrupted=interrupted or stopped,
                held_out_log_proba=self._pooled if probabilities else None,
            )
            self._set_result(result, context)
            plane = getattr(self, "plane_", None)  # learned here, once
            self._n_features_out = len(context.labels if plane is None else plane.components_)
        if (reason := lack_of_signal(context.attrs)) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=2)
        return self

    def _check_given(self) -> None:
        """Raise an error if the members given are no pairs of unique names and usable models."""
        try:
            names, _ = zip(*self.estimators or (), strict=True)
        except (TypeError, ValueError) as error:
            raise TypeError("estimators must be a list of pairs of a name and a model") from error
        self._validate_names(names)
        self._check_members(dict(self.estimators or ()))

    def _fit_members(
        self, members: Sequence[tuple[str, Any]], X: Any, y: np.ndarray
    ) -> tuple[list[Any], bool]:
        """Fitted members, fewer after an interrupt, and whether there was one."""

        def fit(member: tuple[str, Any]) -> tuple[Any, list[warnings.WarningMessage]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return clone(member[1]).fit(X, y), caught

        def stopped(result: tuple[Any, Any]) -> bool:
            return bool(getattr(result[0], "interrupted_", False))

        with ProgressBar(len(members), "Members", enabled=self.progressbar) as bar:
            options: Any = {"n_jobs": self.n_jobs, "on_done": lambda _: bar.update()}
            outcome = run_tasks(fit, members, what="members", stopped=stopped, **options)
        for (name, _), (_, caught) in zip(members, outcome.results.values(), strict=False):
            for warning in caught:
                warnings.warn(f"{name}: {warning.message}", warning.category, stacklevel=3)
        return [member for member, _ in outcome.results.values()], outcome.interrupted

    def _make_folds(self, strata: np.ndarray, groups: Any, rng: np.random.Generator) -> list[Fold]:
        """Pairs (train, test); none if every class has one sample only."""
        n_folds = min(self.cv, int(np.unique(strata, return_counts=True)[1].max()))
        if n_folds < 2:
            return []
        groups = None if groups is None else column_or_1d(groups)
        return read_folds(strata, strata, n_folds, rng, groups=groups, once=True, least=0)

    def _hold_out(
        self, X: Any, y: np.ndarray, folds: Sequence[Fold], n_columns: int, *, own: bool
    ) -> tuple[FloatArray, bool]:
        """Held-out predictions (M, N, C) of the fits themselves, or of refits; NaN if interrupted.

        Also return whether they were.
        """
        values = np.full((len(self.estimators_), len(y), n_columns), np.nan)
        given = [getattr(member, "held_out_log_proba_", None) for member in self.estimators_]
        refitted = [number for number, log_p in enumerate(given) if log_p is None or not own]
        for number in {*range(len(given))} - {*refitted}:
            values[number] = given[number]
        tasks = [(number, fold) for fold in folds for number in refitted]

        def predict(task: tuple[int, Fold]) -> FloatArray:
            member, (train, test) = self.estimators_[task[0]], task[1]
            with warnings.catch_warnings():  # the fit to all samples has warned
                warnings.simplefilter("ignore")
                model = fitted_clone(member, select_samples(member, X, train, train), y[train])
                return self._predict_member(model, select_samples(member, X, test, train))

        try:
            outcome = run_tasks(predict, tasks, n_jobs=self.n_jobs, what="folds")
        except KeyboardInterrupt:  # before the end of the first
            return values, True
        for task, found in outcome.results.items():
            number, (_, test) = tasks[task]
            values[number, test] = found
        return values, outcome.interrupted

    def _cross_fit(
        self, targets: np.ndarray, labelled: BoolArray, folds: Sequence[Fold]
    ) -> Weights:
        """Weights of the members; predictions and scores (M + 1, N, T) by weights of other folds.

        The fold is -1 of samples that are not held out by all members, or have no label.
        """
        known = ~np.isnan(self._held_out).any(axis=(0, 2)) & labelled
        self._pooled = np.full(self._held_out.shape[1:], np.nan)
        self._scored = np.full((len(self._held_out) + 1, *targets.shape), np.nan)
        self._fold = np.full(len(targets), -1)
        for number, (_, test) in enumerate(folds):
            others = known.copy()
            others[test] = False
            test = test[known[test]]
            weights, _ = self._weigh(self._held_out[:, others], targets[others])
            values, self._fold[test] = self._held_out[:, test], number
            self._pooled[test] = self._combine(weights, values)
            for row, each in enumerate([*np.eye(len(weights)), weights]):
                self._scored[row, test] = self._scores(each, values, targets[test])
        return cast(Weights, self._weigh(self._held_out[:, known], targets[known]))

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
            The best first: ``rank``; ``elpd``, the sum of held-out log scores in nats, and its
            standard error ``se``; ``elpd_diff`` from the best, and its standard error ``dse``;
            ``weight`` and its standard deviation ``weight_sd``, NaN for the stack. All scores are
            zero if no sample was held out.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        scores = self._scored[:, self._fold >= 0].sum(axis=2)
        behind = scores[scores.sum(axis=1).argmax()] - scores
        columns = {
            "elpd": scores.sum(axis=1),
            "se": _error(scores),
            "elpd_diff": behind.sum(axis=1),
            "dse": _error(behind),
            "weight": [*self.weights_, np.nan],
            "weight_sd": [*self.weights_sd_, np.nan],
        }
        index = pd.Index([*self._names, "stack"], name="model")
        table = pd.DataFrame(columns, index=index).sort_values("elpd", ascending=False)
        table.insert(0, "rank", np.arange(len(table)))
        return table

    @override
    def summary(self) -> pd.DataFrame:
        summary, each = super().summary(), zip(self.weights_, self.weights_sd_, strict=True)
        weights = pd.DataFrame({"value": [f"{weight:.2f} ± {sd:.2f}" for weight, sd in each]})
        weights.index = pd.Index([f"weight of {name}" for name in self._names])
        at = int(np.sum(summary.index != "remark"))
        return pd.concat([summary[:at], weights, summary[at:]])

    @override
    def plot_features(self, member: str | None = None, **options: Any) -> Any:
        """Plot the effect of each feature in a member, by default the first that has effects.

        Parameters
        ----------
        member : str, optional
            Its name.
        **options
            As for :func:`bsdr_models.plots.plot_features`.
        """
        check_is_fitted(self)
        names = [n for n, m in self.named_estimators_.items() if hasattr(m, "plot_features")]
        if not names or (member is not None and member not in names):
            raise ValueError(f"member must be one with effects, {names}, got {member!r}")
        return self.named_estimators_[member or names[0]].plot_features(**options)

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

    def _prepare(self, X: Any, *, bounded: bool = True) -> Any:
        """Predictions of the members, (M, N, C), of which all others are functions."""
        return np.stack([self._predict_member(m, X) for m in self.estimators_]) if bounded else X

    def _predictions(self, X: Any) -> dict[str, np.ndarray]:
        return self._named(self._combine(self._posterior, X))

    def _embed(self, X: Any) -> LatentCoordinates:
        return self._latent(self._combine(self._posterior, X))

    def _latent(self, values: FloatArray) -> LatentCoordinates:
        """Coordinates of predictions (N, C), without a covariance."""
        mean = self._coordinates(values)
        return LatentCoordinates(mean=mean, cov=np.zeros((*mean.shape, mean.shape[1])))

    def _make_tree(self) -> xr.DataTree:
        """Weights, and held-out predictions of the training samples with their coordinates."""
        known, pooled = self._fold >= 0, self._pooled.copy()
        if not known.all():
            X = self._prepare(self._context.X[~known])
            pooled[~known] = self._combine(self._posterior, X)
        tree = self._context.fit_tree(
            {"fit": {"weights": self.weights_, "latent_mean": self._coordinates(pooled)}},
            self._spec,
            inference_method=self._method,
            n_components=self._n_features_out,
            coords={MEMBER: self._names},
            dims={"weights": (MEMBER,), "X": (OBS, FEATURE)},
        )
        if known.any():
            tree["predictions"] = self._context.predictions_tree(
                self._spec,
                latent=self._latent(pooled[known]),
                values=self._named(pooled[known]) | {"fold": self._fold[known]},
                y=self._context.y[known],
                samples=tree["fit"].coords[OBS].to_numpy()[known],
                inference_method=self._method,
            )["predictions"]
        return tree

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = [of.input_tags for of in self._tags_of_members()]
        for name in ("sparse", "allow_nan", "pairwise"):
            setattr(tags.input_tags, name, bool(inputs) and all(getattr(of, name) for of in inputs))
        return tags

    def _tags_of_members(self) -> list[Any]:
        """Tags of the members given, none if they are no estimators."""
        try:
            return [get_tags(member) for _, member in self.estimators or ()]
        except (TypeError, ValueError, AttributeError):
            return []


class StackedClassifier(ProbabilisticClassifier, Stack):
    """Several classifiers as one, weighted by how well they predict samples they have not seen.

    By default the three models of this package, whose errors differ: a linear projection learned
    from labels, margins in a metric of the features, a nonlinear map. Their log probabilities are
    added with weights of largest held-out log score, drawn towards equal ones [1]_. Each member's
    own held-out probabilities serve, so that a stack costs the sum of its members; members of
    scikit-learn are refitted for each fold. Label sets are pooled label by label.

    Parameters
    ----------
    estimators : list of (str, classifier), optional
        Names and classifiers with ``predict_proba``, of this package or scikit-learn; by default
        BSDRClassifier, BM2PCAClassifier and, unless for label sets, DGPLVMClassifier.
    shrinkage : float, default=3
        Penalty of squared distances from equal weights, in nats, and ten times as much of that of
        their sum from one.
    cv : int, default=5
        Number of folds.
    n_jobs : int, optional
        Fits in parallel, as in :func:`compare_models`.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        Of the folds and the default members.

    Attributes
    ----------
    estimators_ : list of classifier
        Members, fitted to all samples.
    named_estimators_ : Bunch
        The same by name.
    classes_ : ndarray of shape (n_classes,)
    weights_, weights_sd_ : ndarray of shape (n_members,)
        Weights, and their standard deviations.
    held_out_log_proba_ : ndarray of shape (n_samples, n_classes)
        Of training samples, from the members' held-out probabilities by weights of other folds.
    held_out_score_, held_out_gain_, held_out_gain_se_ : float
        Their log score in nats per sample, its gain over class frequencies, and standard error.
    converged_, interrupted_ : bool
        Whether all members have converged, and whether the user interrupted any fit; weights are
        then by the samples that all members have held out, and equal if none.
    idata_ : xarray.DataTree
        Weights, and held-out predictions of the training samples in ``predictions``.

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

    def _check_members(self, members: dict[str, Any]) -> None:
        check_classifiers(members, "estimators")

    def _read_targets(self, y: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        y, kinds = read_labels(y), {"bsdr": BSDRClassifier, "bm2pca": BM2PCAClassifier}
        self._exclusive = type_of_target(y) != "multilabel-indicator"
        if not self._exclusive:
            return y, np.zeros(len(y), dtype=np.int64), kinds
        y = read_classes(y)
        return y, y, kinds | {"dgplvm": DGPLVMClassifier}

    def _targets(self, y: np.ndarray) -> tuple[np.ndarray, BoolArray, int]:
        if not self._exclusive:
            self.classes_ = np.arange(y.shape[1])
            return y.astype(np.int64), np.ones(len(y), dtype=bool), y.shape[1]
        self.classes_, *others = [np.asarray(member.classes_) for member in self.estimators_]
        if not all(np.array_equal(self.classes_, each) for each in others):
            raise ValueError(f"members have different classes: {[self.classes_, *others]}")
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return index[:, None], self.classes_[index] == y, len(self.classes_)

    def _predict_member(self, member: Any, X: Any) -> FloatArray:
        p = member.predict_proba(X)
        if isinstance(p, list):  # of each label, as some classifiers of scikit-learn give them
            p = np.stack([of_label[:, 1] for of_label in p], axis=1)
        log_p = np.log(np.maximum(p, FLOOR))
        if not self._exclusive or len(member.classes_) == len(self.classes_):
            return log_p
        spread = np.full((len(p), len(self.classes_)), np.log(FLOOR))
        spread[:, np.searchsorted(self.classes_, member.classes_)] = log_p
        return spread

    def _split(self, values: FloatArray) -> FloatArray:
        """Log probabilities (M, N T, K) of all tasks, of a label those of its absence first."""
        values = np.maximum(values, np.log(FLOOR))
        if self._exclusive:
            return values
        values = np.minimum(values, np.log1p(-FLOOR)).reshape(len(values), -1)
        return np.stack([np.log(-np.expm1(values)), values], axis=2)

    def _weigh(self, values: FloatArray, targets: np.ndarray) -> Weights:
        return log_linear_weights(self._split(values), targets.ravel(), self.shrinkage)

    def _scores(self, weights: FloatArray, values: FloatArray, targets: np.ndarray) -> FloatArray:
        log_p, y = log_pool(weights, self._split(values)), targets.reshape(-1, 1)
        return np.take_along_axis(log_p, y, axis=1).reshape(targets.shape)

    def _combine(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        log_p = log_pool(weights, self._split(values))
        return log_p if self._exclusive else log_p[:, 1].reshape(values.shape[1:])

    def _named(self, values: FloatArray) -> dict[str, np.ndarray]:
        return {"probability": np.exp(values), "predicted": self._most_probable(values)}

    def _context_of(self, targets: np.ndarray, known: BoolArray) -> dict[str, Any]:
        held_out = HeldOutScore.of(self._scored[-1, known], targets[known])
        for name, value in held_out.named().items():
            setattr(self, f"{name}_", value)
        return {
            "index": targets[:, 0] if self._exclusive else None,
            "labels": self.classes_,
            "target": "multiclass" if self._exclusive else "multilabel",
            "attrs": held_out.attrs(),
        }

    def _log_proba(self, X: Any) -> FloatArray:
        return self._combine(self._posterior, X)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        return self.plane_.predict_log_proba(latent)

    def _coordinates(self, values: FloatArray) -> FloatArray:
        """In the plane of the predictions; for label sets, the probabilities themselves."""
        return self.plane_.transform(np.exp(values)) if self._exclusive else np.exp(values)

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
    shrinkage : float, default=3
        Number of samples, shared equally, by which weights are drawn to equal ones.
    cv, n_jobs, progressbar, random_state
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
        check_estimators(members, "estimators")
        for name, member in members.items():
            if "return_std" not in inspect.signature(member.predict).parameters:
                kind = type(member).__name__
                raise TypeError(f"estimators[{name!r}], {kind}, predicts no standard deviation")

    def _read_targets(self, y: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        Y = self._scale_outputs(y, standardize=False)[0]
        y = Y[:, 0] if self._one_output else Y
        kinds = {"bsdr": BSDRRegressor, "bm2pca": BM2PCARegressor}
        return y, np.zeros(len(y), dtype=np.int64), kinds

    def _targets(self, y: np.ndarray) -> tuple[np.ndarray, BoolArray, int]:
        Y = y.reshape(len(y), -1)
        return Y, np.ones(len(Y), dtype=bool), 2 * Y.shape[1]

    def _predict_member(self, member: Any, X: Any) -> FloatArray:
        """Means and standard deviations side by side, (N, 2 K)."""
        parts = member.predict(X, return_std=True)
        return np.concatenate([np.reshape(part, (len(part), -1)) for part in parts], axis=1)

    def _log_density(self, values: FloatArray, targets: np.ndarray) -> FloatArray:
        """Log densities of the members, (M, N, K)."""
        mean, sd = np.split(values, 2, axis=2)
        return np.asarray(norm.logpdf(targets, mean, sd))

    def _weigh(self, values: FloatArray, targets: np.ndarray) -> Weights:
        log_density = self._log_density(values, targets).reshape(len(values), -1)
        return mixture_weights(log_density, self.shrinkage)

    def _scores(self, weights: FloatArray, values: FloatArray, targets: np.ndarray) -> FloatArray:
        log_density = self._log_density(values, targets)
        return np.asarray(logsumexp(log_density, axis=0, b=weights[:, None, None]))

    def _combine(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        """Mean and standard deviation of the mixtures, (N, 2 K)."""
        of_members, sd = np.split(values, 2, axis=2)
        mean = np.tensordot(weights, of_members, 1)
        variance = np.tensordot(weights, sd**2 + (of_members - mean) ** 2, 1)
        return np.concatenate([mean, np.sqrt(variance)], axis=1)

    def _named(self, values: FloatArray) -> dict[str, np.ndarray]:
        return dict(zip(("prediction", "prediction_sd"), np.split(values, 2, axis=1), strict=True))

    def _context_of(self, targets: np.ndarray, known: BoolArray) -> dict[str, Any]:
        scored = self._scored[-1, known]
        self.held_out_score_ = float(scored.mean()) if scored.size else np.nan
        score = {"held_out_score": self.held_out_score_} if scored.size else {}
        return {
            "index": None,
            "labels": np.array([f"y{i}" for i in range(targets.shape[1])]),
            "target": "regression",
            "attrs": output_attrs(self._output_scaler) | score,
        }

    def _moments(self, X: Any) -> tuple[FloatArray, FloatArray]:
        mean, sd = self._named(self._combine(self._posterior, X)).values()
        return mean, sd

    def _coordinates(self, values: FloatArray) -> FloatArray:
        return self._named(values)["prediction"]

    def log_density(self, X: Any, y: Any) -> FloatArray:
        """Log predictive density of the targets of new samples, of several outputs their sum.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats.
        """
        values, y = self._samples(X), read_numbers(y)
        check_consistent_length(values[0], y)
        if y.size != len(y) * (k := len(self._context.labels)):
            raise ValueError(f"y must have {k} output(s), got shape {y.shape}")
        return self._scores(self._posterior, values, y.reshape(len(y), -1)).sum(axis=1)


def _error(values: FloatArray) -> FloatArray:
    """Standard errors of the sums over samples of values (M, N)."""
    mean = values.sum(axis=1, keepdims=True) / max(values.shape[1], 1)
    return np.asarray(np.linalg.norm(values - mean, axis=1))
