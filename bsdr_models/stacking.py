r"""Classifiers stacked by pooling their predictive distributions.

With M members, whose log probabilities are :math:`\log p_m(k \mid x)`, the log-linear pool is

.. math::
    \log p(k \mid x) = \sum_m w_m \log p_m(k \mid x) - \log Z(x), \qquad w_m \ge 0 .

Weights maximise the log score of samples that the members' fits have not seen, less a penalty,

.. math::
    \lambda \sum_m \Bigl(w_m - \frac{1}{M}\Bigr)^2 + 10 \lambda \Bigl(\sum_m w_m - 1\Bigr)^2 .

The score is that of a multinomial logistic regression on the members' log probabilities, so it is
concave; with the penalty as a normal prior, its curvature gives standard deviations of the weights.
The sum of the weights is an inverse temperature, which calibrates the pool; it is drawn to one more
than single weights to equal ones, since few held-out samples that are all predicted well would make
the pool overconfident.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, override

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from sklearn.base import clone
from sklearn.utils import Bunch, get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.base import ProbabilisticClassifier
from bsdr_models.bm2pca import BM2PCAClassifier
from bsdr_models.bsdr import BSDRClassifier
from bsdr_models.comparison import check_classifiers
from bsdr_models.cross_validation import (
    Fold,
    fitted_clone,
    read_classes,
    read_folds,
    select_samples,
)
from bsdr_models.dgplvm import DGPLVMClassifier
from bsdr_models.dims import FEATURE, LABEL, OBS
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.datatree import Context, InferenceMethod
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import Number, StrOptions
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.spec import ModelSpec, Variable
from bsdr_models.validation import (
    feature_names,
    read_labels,
    require_targets,
    sample_labels,
    validate_samples,
)

# Probabilities below are taken as this one: members are overconfident about samples unlike the
# training samples, which held-out ones do not show, and one of them could exclude a class.
FLOOR = 1e-3
# Penalty of the sum of the weights, in multiples of that of single ones.
OF_SUM = 10.0
# Steps of the expectation maximisation of linear pooling.
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
    variables={"y": Variable(dims=(OBS,), symbol="y", equation="", description="Classes.")},
    identified=(),
)


# Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Weights of M members, (M,), their standard deviations, and how they are pooled."""

    weights: FloatArray
    sd: FloatArray
    pooling: Literal["log", "linear"]

    def log_probabilities(self, log_p: FloatArray) -> FloatArray:
        """Log probabilities (N, K) of the pool, from those of the members, (M, N, K)."""
        log_p = np.maximum(log_p, np.log(FLOOR))
        if self.pooling == "log":
            return np.asarray(log_softmax(np.tensordot(self.weights, log_p, 1), axis=1))
        mixed = logsumexp(log_p, axis=0, b=self.weights[:, None, None])
        return np.asarray(log_softmax(mixed, axis=1))


def fit_pool(
    log_p: FloatArray, y: IntArray, *, pooling: Literal["log", "linear"], shrinkage: float
) -> Pool:
    """Pool of members with held-out log probabilities (M, N, K) for samples of classes y (N,)."""
    log_p = np.maximum(log_p, np.log(FLOOR))
    if pooling == "log":
        weights, sd = log_linear_weights(log_p, y, shrinkage)
    else:
        weights, sd = mixture_weights(log_p[:, np.arange(len(y)), y], shrinkage)
    return Pool(weights=weights, sd=sd, pooling=pooling)


def log_linear_weights(
    log_p: FloatArray, y: IntArray, shrinkage: float
) -> tuple[FloatArray, FloatArray]:
    """Weights (M,) of a log-linear pool of log_p (M, N, K), and their standard deviations."""
    n_members, n, _ = log_p.shape
    equal = np.full(n_members, 1.0 / n_members)
    precision = 2.0 * shrinkage * (np.eye(n_members) + OF_SUM)
    of_class = log_p[:, np.arange(n), y]

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        pooled = log_softmax(np.tensordot(weights, log_p, 1), axis=1)
        mean = np.sum(np.exp(pooled) * log_p, axis=2)  # (M, N)
        shift = precision @ (weights - equal)
        value = -pooled[np.arange(n), y].sum() + 0.5 * shift @ (weights - equal)
        return value, np.sum(mean - of_class, axis=1) + shift

    bounds = [(0.0, None)] * n_members
    weights = minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=bounds).x
    p = np.exp(log_softmax(np.tensordot(weights, log_p, 1), axis=1))
    centred = log_p - np.sum(p * log_p, axis=2, keepdims=True)
    curvature = np.einsum("ink,nk,jnk->ij", centred, p, centred) + precision
    return np.asarray(weights), np.sqrt(np.diag(np.linalg.inv(curvature)))


def mixture_weights(log_density: FloatArray, shrinkage: float) -> tuple[FloatArray, FloatArray]:
    """Weights (M,) of a mixture of densities (M, N), of sum one, and their standard deviations.

    By expectation maximisation, with a Dirichlet prior of ``shrinkage`` samples shared equally.
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


# Estimator


class StackedClassifier(ProbabilisticClassifier):
    """Several classifiers as one, weighted by how well they predict samples they have not seen.

    By default the three models of this package, whose errors differ: a linear projection learned
    from labels, margins in a metric of the features, a nonlinear map. Their log probabilities are
    added with weights of largest held-out log score, drawn towards equal ones [1]_. Each member's
    own held-out probabilities serve, so that a stack costs the sum of its members; members of
    scikit-learn are refitted for each fold.

    Parameters
    ----------
    estimators : list of (str, classifier), optional
        Names and classifiers with ``predict_proba``, of this package or scikit-learn; by default
        BSDRClassifier, BM2PCAClassifier and DGPLVMClassifier with their defaults.
    pooling : {"log", "linear"}, default="log"
        Weighted sum of log probabilities, or of probabilities.
    shrinkage : float, default=3
        Penalty of squared distances from equal weights, in nats, and ten times as much of that of
        their sum from one; for ``"linear"`` a number of samples shared equally.
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
        Whether all members have converged, and whether the user interrupted any.
    idata_ : xarray.DataTree
        Weights, and held-out predictions of the training samples in ``predictions``.

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
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "pooling": [StrOptions({"log", "linear"})],
        "shrinkage": [Number(Real, 0.0, np.inf, closed="neither")],
        "cv": [Number(Integral, 2, np.inf, closed="left")],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] | None = None,
        *,
        pooling: Literal["log", "linear"] = "log",
        shrinkage: float = 3.0,
        cv: int = 5,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.estimators = estimators
        self.pooling: Literal["log", "linear"] = pooling
        self.shrinkage = shrinkage
        self.cv = cv
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the members and their weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Sparse, or with missing values, if all members take such samples.
        y : array-like of shape (n_samples,)
            Classes.
        groups : array-like of shape (n_samples,), optional
            Samples of one group, such as a patient, are held out together; every member is then
            refitted for each fold.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If a member is no classifier with ``predict_proba``.
        ValueError
            If names of members are not unique, y does not hold classes, an argument is out of
            range, or a member refuses the samples.
        """
        self._reset()
        self._check_params()
        rng = as_generator(self.random_state)
        members = self._members(rng)
        require_targets(self, y)
        samples, table = sample_labels(X), self._read(X, reset=True)
        X = X if hasattr(X, "shape") else table  # members read names of columns
        check_consistent_length(X, y, groups)
        y = read_classes(read_labels(y))
        with self._fitting(table.shape):
            self.estimators_, interrupted = self._fit_members(members, X, y)
            self._names = [name for name, _ in members[: len(self.estimators_)]]
            self.classes_ = _common_classes(self.named_estimators_)
            index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
            index = np.where(self.classes_[index] == y, index, -1)  # -1 without a label
            folds = self._make_folds(y, groups, rng)
            own = groups is None
            self._log_p = np.stack([self._held_out(m, X, y, folds, own) for m in self.estimators_])
            pool, log_p, self._fold = self._weigh(index, folds)
            self.weights_, self.weights_sd_ = pool.weights, pool.sd
            known = np.flatnonzero(self._fold >= 0)
            held_out = HeldOutScore.of(log_p[known, index[known]], index[known])
            for name, value in held_out.named().items():
                setattr(self, f"{name}_", value)
            self._scaler, self._reference = Scaler.identity(table.shape[1]), None
            context = Context(
                X=table,
                y=y,
                index=index,
                samples=samples,
                feature_names=feature_names(self),
                labels=self.classes_,
                target="multiclass",
                config={
                    "estimators": {name: repr(member) for name, member in members},
                    "pooling": self.pooling,
                    "shrinkage": float(self.shrinkage),
                },
                attrs=held_out.attrs(),
            )
            result = Result(
                posterior=pool,
                trace=np.empty(0),
                converged=all(getattr(m, "converged_", True) for m in self.estimators_),
                interrupted=interrupted,
                held_out_log_proba=log_p if len(known) else None,
            )
            self._set_result(result, context)
            self._n_features_out = min(2, len(self.classes_) - 1)
            self._latent = self._embed(X).mean
        if (reason := lack_of_signal(context.attrs)) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=2)
        return self

    def _members(self, rng: np.random.Generator) -> list[tuple[str, Any]]:
        """Names and classifiers, checked, not fitted."""
        if self.estimators is None:
            kinds = {"bsdr": BSDRClassifier, "bm2pca": BM2PCAClassifier, "dgplvm": DGPLVMClassifier}
            seeds = iter(rng.integers(2**31, size=len(kinds)).tolist())
            return [(name, kind(random_state=next(seeds))) for name, kind in kinds.items()]
        members = self._pairs()
        if self.estimators and not members:
            raise TypeError("estimators must be a list of pairs of a name and a classifier")
        names = [str(name) for name, _ in members]
        if not names or len(set(names)) < len(names) or any("__" in name for name in names):
            raise ValueError(f"estimators need unique names without '__', got {names}")
        check_classifiers(dict(members), "estimators")
        return members

    def _pairs(self) -> list[tuple[str, Any]]:
        """Names and classifiers as given; empty if they are anything else."""
        given = self.estimators if isinstance(self.estimators, Sequence) else ()
        pairs = all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in given)
        return list(given) if pairs else []

    def _fit_members(
        self, members: Sequence[tuple[str, Any]], X: Any, y: np.ndarray
    ) -> tuple[list[Any], bool]:
        """Fitted members, fewer after an interrupt, and whether there was one."""

        def fit(member: tuple[str, Any]) -> tuple[Any, list[warnings.WarningMessage]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return clone(member[1]).fit(X, y), caught

        with ProgressBar(len(members), "Members", enabled=self.progressbar) as bar:
            outcome = run_tasks(
                fit,
                members,
                n_jobs=self.n_jobs,
                what="members",
                stopped=lambda result: getattr(result[0], "interrupted_", False),
                on_done=lambda _: bar.update(),
            )
        of_members: dict[tuple[type[Warning], str], list[str]] = {}
        for (name, _), (_, caught) in zip(members, outcome.results.values(), strict=False):
            for warning in caught:
                of_members.setdefault((warning.category, str(warning.message)), []).append(name)
        for (category, message), names in of_members.items():
            warnings.warn(f"{', '.join(names)}: {message}", category, stacklevel=3)
        return [member for member, _ in outcome.results.values()], outcome.interrupted

    def _make_folds(self, y: np.ndarray, groups: Any, rng: np.random.Generator) -> list[Fold]:
        """Pairs (train, test); none if every class has one sample only."""
        n_folds = min(self.cv, int(np.unique(y, return_counts=True)[1].max()))
        if n_folds < 2:
            return []
        groups = None if groups is None else column_or_1d(groups)
        return read_folds(y, y, n_folds, rng, groups=groups, once=True, least=0)

    def _held_out(
        self, member: Any, X: Any, y: np.ndarray, folds: Sequence[Fold], own: bool
    ) -> FloatArray:
        """Held-out log probabilities (N, K), the member's own if it has some, or of refits."""
        log_p = getattr(member, "held_out_log_proba_", None) if own else None
        if log_p is not None:
            return np.asarray(log_p)

        def predict(fold: Fold) -> FloatArray:
            train, test = fold
            with warnings.catch_warnings():  # the fit to all samples has warned
                warnings.simplefilter("ignore")
                model = fitted_clone(member, select_samples(member, X, train, train), y[train])
                log_p = np.full((len(test), len(self.classes_)), np.log(FLOOR))
                columns = np.searchsorted(self.classes_, model.classes_)
                log_p[:, columns] = _log_proba_of(model, select_samples(member, X, test, train))
            return log_p

        outcome = run_tasks(predict, folds, n_jobs=self.n_jobs, what="folds")
        log_p = np.full((len(y), len(self.classes_)), np.nan)
        for number, values in outcome.results.items():
            log_p[folds[number][1]] = values
        return log_p

    def _weigh(self, index: IntArray, folds: Sequence[Fold]) -> tuple[Pool, FloatArray, IntArray]:
        """Pool, held-out log probabilities (N, K) by weights of other folds, and folds (N,).

        The fold is -1 of samples that are not held out by all members, or have no label.
        """
        known = ~np.isnan(self._log_p).any(axis=(0, 2)) & (index >= 0)

        def fit(samples: BoolArray) -> Pool:
            log_p, y = self._log_p[:, samples], index[samples]
            return fit_pool(log_p, y, pooling=self.pooling, shrinkage=self.shrinkage)

        log_p, fold_of = np.full(self._log_p.shape[1:], np.nan), np.full(len(index), -1)
        for number, (_, test) in enumerate(folds):
            others = known.copy()
            others[test] = False
            test = test[known[test]]
            log_p[test] = fit(others).log_probabilities(self._log_p[:, test])
            fold_of[test] = number
        return fit(known), log_p, fold_of

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Samples as numbers, (N, D); sparse or with NaN if all members take such samples."""
        tags = get_tags(self).input_tags
        return validate_samples(self, X, reset=reset, sparse=tags.sparse, missing=tags.allow_nan)

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
            ``weight`` and its standard deviation ``weight_sd``, NaN for the stack. Empty if no
            sample was held out.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        log_p = self._log_p if self.held_out_log_proba_ is None else self.held_out_log_proba_[None]
        known = self._fold >= 0
        y = np.asarray(self._context.index)[known]
        scores = np.concatenate([self._log_p, log_p])[:, known, y]
        behind = scores[scores.sum(axis=1).argmax()] - scores
        per_nat = np.sqrt(max(len(y), 1))
        table = pd.DataFrame(
            {
                "elpd": scores.sum(axis=1),
                "se": per_nat * scores.std(axis=1),
                "elpd_diff": behind.sum(axis=1),
                "dse": per_nat * behind.std(axis=1),
                "weight": [*self.weights_, np.nan],
                "weight_sd": [*self.weights_sd_, np.nan],
            },
            index=pd.Index([*self._names, "stack"], name="model"),
        ).sort_values("elpd", ascending=False)
        table.insert(0, "rank", np.arange(len(table)))
        return table

    @override
    def summary(self) -> pd.DataFrame:
        summary = super().summary()
        each = zip(self._names, self.weights_, self.weights_sd_, strict=True)
        rows = {f"weight of {name}": f"{weight:.2f} ± {sd:.2f}" for name, weight, sd in each}
        at = int(np.sum(summary.index != "remark"))
        weights = pd.DataFrame({"value": list(rows.values())}, index=list(rows))
        return pd.concat([summary[:at], weights, summary[at:]])

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
    def plot_map(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        return super().plot_map(X, y, **{"space": "predictions", **options})

    @override
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        params = super().get_params(deep=False)
        for name, member in self._pairs() if deep else ():
            params |= {name: member}
            params |= {f"{name}__{key}": value for key, value in member.get_params().items()}
        return params

    @override
    def set_params(self, **params: Any) -> Self:
        self.estimators = params.pop("estimators", self.estimators)
        names = [name for name, _ in self._pairs()]
        if replaced := {name: params.pop(name) for name in names if name in params}:
            self.estimators = [(name, replaced.get(name, m)) for name, m in self._pairs()]
        for name, member in self._pairs():
            of_member = [key for key in params if key.startswith(f"{name}__")]
            if of_member:
                values = {key.removeprefix(f"{name}__"): params.pop(key) for key in of_member}
                member.set_params(**values)
        return super().set_params(**params)

    def _scale_new(self, X: Any) -> Any:
        """Samples as the members take them, after a check."""
        check_is_fitted(self)
        self._read(X, reset=False)
        return X

    def _log_proba(self, X: Any) -> FloatArray:
        log_p = np.stack([_log_proba_of(member, X) for member in self.estimators_])
        return self._posterior.log_probabilities(log_p)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        return self.plane_.predict_log_proba(latent)

    def _embed(self, X: Any) -> LatentCoordinates:
        mean = self.plane_.transform(np.exp(self._log_proba(X)))
        return LatentCoordinates(mean=mean, cov=np.zeros((*mean.shape, mean.shape[1])))

    def _make_tree(self) -> xr.DataTree:
        """Weights, plane of the training samples, and their held-out predictions."""
        tree = self._context.fit_tree(
            {"fit": {"weights": self.weights_, "latent_mean": self._latent}},
            self._spec,
            inference_method=self._method,
            n_components=self._n_features_out,
            coords={MEMBER: self._names},
            dims={"weights": (MEMBER,), "X": (OBS, FEATURE)},
        )
        known = np.flatnonzero(self._fold >= 0)
        if len(known):
            log_p, y = np.asarray(self.held_out_log_proba_)[known], self._context.y[known]
            held_out = {
                "probability": ((OBS, LABEL), np.exp(log_p)),
                "predicted": (OBS, self.classes_[log_p.argmax(axis=1)]),
                "y": (OBS, y),
                "fold": (OBS, self._fold[known]),
                "class_frequency": tree["fit/class_frequency"],
            }
            names = tree["fit"].coords[OBS].to_numpy()[known]
            tree["predictions"] = xr.DataTree(xr.Dataset(held_out, coords={OBS: names}))
        return tree

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = [get_tags(member).input_tags for _, member in self._pairs()]
        tags.input_tags.sparse = bool(inputs) and all(of.sparse for of in inputs)
        tags.input_tags.allow_nan = bool(inputs) and all(of.allow_nan for of in inputs)
        return tags


def _log_proba_of(member: Any, X: Any) -> FloatArray:
    """Log probabilities (M, K) of a member."""
    return np.log(np.maximum(member.predict_proba(X), FLOOR))


def _common_classes(members: Bunch) -> np.ndarray:
    """Classes (K,) of all members; ValueError if they differ."""
    (first, reference), *others = members.items()
    for name, member in others:
        if not np.array_equal(reference.classes_, member.classes_):
            raise ValueError(
                f"classes of {name!r} are {np.asarray(member.classes_).tolist()}, those of "
                f"{first!r} {np.asarray(reference.classes_).tolist()}"
            )
    return np.asarray(reference.classes_)
