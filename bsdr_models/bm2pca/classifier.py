"""What both classifiers of BM2PCA have in common: labels, cross-validation, probabilities."""

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca import select
from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.posterior import Predictor
from bsdr_models.bm2pca.problem import Candidate, Labels, Problem, encode, task_order
from bsdr_models.bm2pca.select import Selection, Split, log_probabilities
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.dask_arrays import by_chunks
from bsdr_models.groups import read_groups, warn_of_replicates
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.scaling import largest_scaled
from bsdr_models.tasks import by_task, outcome_names
from bsdr_models.validation import (
    check_samples,
    known_entries,
    one_thread,
    sample_labels,
)


class MarginClassifier(ProbabilisticClassifier, BaseBM2PCA):
    """Fit and predictions of a max-margin classifier; subclasses have settings and an engine."""

    # Folds of equal classes rather than with pairs of samples of a class.
    _balanced_folds: ClassVar[bool] = False
    # Probability that a class is random.
    _lapse: ClassVar[float] = 0.0
    # Setting without cross-validation, if it is a candidate.
    _fallback: ClassVar[Candidate] = {}

    @abstractmethod
    def _candidates(self, problem: Problem) -> list[Candidate]:
        """Settings to compare."""

    @abstractmethod
    def _compare(
        self, split: Split, candidates: list[Candidate], rng: np.random.Generator
    ) -> tuple[Candidate, Selection]:
        """Setting chosen, or averaged, by held-out samples, and how candidates compare."""

    @abstractmethod
    def _learn(self, chosen: Candidate, rng: np.random.Generator) -> Result[Predictor]:
        """Fit to all samples with the chosen setting, and set the attributes that name it."""

    @abstractmethod
    def _set_loss(self, problem: Problem) -> Problem:
        """The problem with its loss; raise a ValueError if the engine cannot be fitted to it."""

    def _weigh(self, problem: Problem, split: Split, *, by_fold: bool) -> Problem:
        """The problem with weights of its metric, also without each fold, if the model has one."""
        return problem

    def _complete(self, problem: Problem) -> Problem:
        """The problem with missing values imputed, if the model needs it."""
        return problem

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Learn subspace and classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN marks a missing value.
        y : array-like of shape (n_samples,), (n_samples, n_labels) or (n_samples, n_tasks)
            Classes; or 0 and 1 for each of several labels; or classes of each of several tasks,
            scikit-learn's "multiclass-multioutput"; or ``unlabeled``. Several columns that hold
            only 0 and 1 are labels.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If X is no table, or a Dask array.
        ValueError
            If the input is infinite or of the wrong shape, no two classes (of a task) are labelled,
            no feature varies, or an argument is out of range; if ``groups`` has gaps or one value.
        """
        self._reset()
        self._check_params()
        table = X
        X = self._validate(X, y)
        samples = sample_labels(table)
        labels = encode(y, self.unlabeled)
        given = self._option("loss").temperature
        n_tasks = max(len(labels.sizes), 1)
        if isinstance(given, tuple) and len(given) != n_tasks:
            raise ValueError(f"calibrate has {len(given)} entries, and y has {n_tasks} task(s)")
        check_consistent_length(X, labels.given)
        groups = read_groups(groups, table)
        self.classes_ = labels.classes  # type: ignore[assignment]
        self._exclusive = labels.exclusive
        select_rng, fit_rng = self._spawn()
        strategy = self._option("loss").strategy
        problem = self._make_problem(X, labels.signs, strategy=strategy, sizes=labels.sizes)
        self._observed = self._set_loss(problem)
        if self._standardized and not issparse(X):  # as of the samples in cross-validation
            self._largest = largest_scaled(X)
        if groups is None:
            classes = labels.groups if labels.groups.ndim == 1 else None
            warn_of_replicates(problem.X, classes, stacklevel=3)
        with one_thread(), self._fitting(X.shape):
            self._problem = self._complete(self._observed)
            chosen, held_out_log_proba = self._choose(labels, groups, select_rng)
            self.C_ = chosen["C"]
            result = self._learn(chosen, fit_rng)
            result = replace(result, held_out_log_proba=held_out_log_proba)
            self._set_fitted(result, samples=samples, groups=groups, **self._describe(labels))
            self._report(result, chosen)
        return self

    def _choose(
        self, labels: Labels, groups: IntArray | None, rng: np.random.Generator
    ) -> tuple[Candidate, FloatArray | None]:
        """Choose the setting, if there are several, and the temperature by cross-validation.

        Also return the held-out log probabilities of the training samples.
        """
        loss: HingeLoss = self._option("loss")
        fitted = loss.temperature is None and bool(loss.calibrate)
        self._set_temperature(1.0 if loss.temperature is None else loss.temperature, labels)
        self.cv_results_: dict[str, Any] | None = None
        self._held_out = HeldOutScore()
        split = select.split(self._problem.X, labels.groups, groups, balanced=self._balanced_folds)
        candidates = self._candidates(self._problem)
        judged = fitted or len(candidates) > 1
        self._problem = self._weigh(self._problem, split, by_fold=judged)
        if not judged:
            return candidates[0], None
        if not split.rows:
            reason = "every class has one sample only"
            if groups is not None:
                reason = "no group can be held out, since each has all samples of a class"
            warnings.warn(
                f"{reason}: fallback settings are used and probabilities are not calibrated",
                UserWarning,
                stacklevel=3,
            )
            fallback = (c for c in candidates if self._fallback.items() <= c.items())
            return next(fallback, candidates[0]), None
        chosen, selected = self._compare(split, candidates, rng)
        self._held_out = selected.held_out
        self.cv_results_ = {
            "candidates": candidates,
            "accuracy": selected.accuracy,
            "log_loss": selected.log_loss,
            "weight": selected.weight,
        }
        if fitted:
            self._set_temperature(selected.temperature, labels)
        return chosen, split.spread(selected.log_proba, len(labels.groups))

    def _set_temperature(self, temperature: Any, labels: Labels) -> None:
        """Set ``temperature_``; that of a task without a held-out label is 1."""
        if len(labels.sizes) < 2:
            self.temperature_: float | FloatArray = float(np.squeeze(temperature))
            return
        self.temperature_ = np.array(np.broadcast_to(temperature, len(labels.sizes)), np.float64)
        lost = np.isnan(self.temperature_)
        self.temperature_[lost] = 1.0
        for name in np.array(labels.tasks, dtype=object)[lost]:
            warnings.warn(
                f"no label of task {name!r} can be held out, since every class has one sample only "
                "or is labelled in none that can: its probabilities are not calibrated",
                UserWarning,
                stacklevel=4,
            )

    def _report(self, result: Result[Predictor], chosen: Candidate) -> None:
        """Set held-out scores, and warn if the labels are not predictable."""
        for name, value in self._held_out.named().items():
            setattr(self, f"{name}_", value)
        if (reason := lack_of_signal(self._context.attrs)) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=4)

    def _selected_params(self) -> dict[str, Any]:
        if not self._option("loss").calibrate:
            return {"loss__C": self.C_}
        temperature = np.asarray(self.temperature_).tolist()
        given = tuple(temperature) if isinstance(temperature, list) else temperature
        return {"loss__C": self.C_, "loss__calibrate": given}

    def _describe(self, labels: Labels) -> dict[str, Any]:
        """Targets and settings that the DataTrees record."""
        attrs: dict[str, Any] = {
            "strategy": self._option("loss").strategy,
            "C": float(self.C_),
            "temperature": np.asarray(self.temperature_).tolist(),
            "lapse": self._lapse,
            "link": "softmax",
            **self._model_attrs(),
            **self._held_out.attrs(),
        }
        tasks = tuple(zip(labels.tasks, labels.classes, strict=True)) if labels.tasks else ()
        return {
            "y": labels.given,
            "index": labels.groups if labels.exclusive else None,
            "labels": outcome_names(tasks) if tasks else labels.classes,
            "target": "multiclass" if labels.exclusive else "multilabel",
            "tasks": tasks,
            "attrs": attrs,
        }

    @abstractmethod
    def _model_attrs(self) -> dict[str, Any]:
        """Attributes of the trees that name the model and its settings."""

    @by_chunks
    def decision_function(self, X: Any) -> Any:
        """Class scores f, positive for the class; not log odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
            For several tasks, a list of them.
        """
        X = self._samples(X)  # raises NotFittedError
        scores = self._posterior.score_means(X)
        if not self._exclusive:
            return scores
        blocks = by_task(scores, self._problem.sizes)
        blocks = [own[:, 0] if own.shape[1] == 1 else own for own in blocks]
        return blocks if len(blocks) > 1 else blocks[0]

    def _split_tasks(self, values: FloatArray) -> Any:
        """A list of the columns of each of several tasks."""
        counts = self._context.class_counts
        return by_task(values, counts) if len(self._problem.sizes) > 1 else values

    def _log_proba(self, X: Any) -> FloatArray:
        scores = self._posterior.score_means(X)
        return log_probabilities(scores, self.temperature_, self._problem.sizes, self._lapse)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        scores = self._posterior.scores_at(latent)
        return log_probabilities(scores, self.temperature_, self._problem.sizes, self._lapse)

    @by_chunks
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, calibrated on held-out samples.

        They are softmax(f / T), or logistic(f / T) for two classes or for each of several labels,
        with a temperature T fitted to held-out samples. Every task has its own of both. In
        `BM2PCAClassifier` a class is random with a probability of 0.01.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or list of n_tasks of them
        """
        return super().predict_proba(X)

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if len(self._problem.sizes) < 2:
            return super()._most_probable(log_p)
        blocks = zip(self.classes_, by_task(log_p, self._context.class_counts), strict=True)
        found = [classes[own.argmax(axis=1)] for classes, own in blocks]
        if len({own.dtype.kind for own in found}) > 1:
            found = [own.astype(object) for own in found]
        return np.stack(found, axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of samples whose class, or every label, is predicted right.

        Of several tasks, as scikit-learn's ``MultiOutputClassifier``, the share of samples that are
        predicted right in all tasks in which they have a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.
        y : array-like of shape (n_samples,), (n_samples, n_labels) or (n_samples, n_tasks)
            Of several tasks, ``unlabeled`` marks missing labels. Samples without any are left out.
            Columns of a frame are matched to those of the fit by name.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each sample in the mean; equal by default.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if len(self._problem.sizes) < 2:
            return super().score(X, y, sample_weight)
        check_samples(X, y, sample_weight)
        truth, known = (self._ordered(y, own) for own in known_entries(y, self.unlabeled))
        predicted = self.predict(X)
        right = ((truth == predicted) | ~known).all(axis=1)
        some = known.any(axis=1)
        weights = None if sample_weight is None else np.asarray(sample_weight)[some]
        return float(np.average(right[some], weights=weights))

    def _truth(self, y: Any) -> np.ndarray | None:
        truth = super()._truth(y)
        return truth if truth is None or len(self._problem.sizes) < 2 else self._ordered(y, truth)

    def _ordered(self, y: Any, values: np.ndarray) -> np.ndarray:
        """Columns (M, T) of ``y`` in the order of the tasks of the fit."""
        n_tasks = len(self._problem.sizes)
        if values.shape[1:] != (n_tasks,):
            raise ValueError(
                f"y must have a column for each of {n_tasks} tasks, got {values.shape}"
            )
        return values[:, task_order(y, [name for name, _ in self._context.tasks])]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags
