"""What both classifiers of BM2PCA have in common: labels, cross-validation, probabilities."""

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length

from bsdr_models.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.bm2pca import select
from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.posterior import Predictor
from bsdr_models.bm2pca.problem import Candidate, Labels, Problem, encode
from bsdr_models.bm2pca.select import Selection, Split, log_probabilities
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.dask_arrays import by_chunks
from bsdr_models.groups import read_groups, warn_of_replicates
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.scaling import largest_scaled
from bsdr_models.validation import one_thread, sample_labels


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
    def _ready(self, problem: Problem) -> Problem:
        """The problem as the engine fits it; raise a ValueError if it cannot."""

    def _weigh(self, split: Split, *, by_fold: bool) -> None:
        """Give the problem weights of its metric, also without each fold, if the model has one."""

    def _report(self) -> None:
        """Set attributes that need the tree of the fit."""

    def fit(self, X: SamplesLike, y: TargetLike, *, groups: TargetLike | None = None) -> Self:
        """Learn subspace and classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN marks a missing value.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Classes, or 0 and 1 for each of several labels; or ``unlabeled``.
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
            If the input is infinite or of the wrong shape, no two classes are labelled, no
            feature varies, or an argument is out of range; if ``groups`` has gaps or one value.
        """
        self._reset()
        self._check_params()
        table = X
        X = self._validate(X, y)
        samples = sample_labels(table)
        labels = encode(y, self.unlabeled)
        check_consistent_length(X, labels.given)
        groups = read_groups(groups, table)
        self.classes_ = labels.classes if labels.exclusive else np.arange(len(labels.classes))
        self._exclusive = labels.exclusive
        select_rng, fit_rng = self._spawn()
        strategy = self._option("loss").strategy
        problem = self._make_problem(X, labels.signs, strategy=strategy, exclusive=labels.exclusive)
        if self.standardize and not issparse(X):  # as of the samples in cross-validation
            self._largest = largest_scaled(problem.X)
        if groups is None:
            warn_of_replicates(problem.X, labels.groups, stacklevel=3)
        with one_thread(), self._fitting(X.shape):
            self._problem = self._ready(problem)
            chosen, held_out = self._choose(labels, groups, select_rng)
            self.C_ = chosen["C"]
            result = replace(self._learn(chosen, fit_rng), **held_out)
            attrs: dict[str, object] = {
                "strategy": strategy,
                "C": float(self.C_),
                "temperature": self.temperature_,
                "lapse": self._lapse,
                "link": "softmax",
                **self._model_attrs(),
            }
            self._set_fitted(
                result,
                y=labels.given,
                samples=samples,
                groups=groups,
                index=labels.groups if labels.exclusive else None,
                labels=labels.classes,
                target="multiclass" if labels.exclusive else "multilabel",
                attrs=attrs,
            )
            self._report()
        return self

    def _choose(
        self, labels: Labels, groups: IntArray | None, rng: np.random.Generator
    ) -> tuple[Candidate, dict[str, Any]]:
        """Setting chosen by cross-validation, and what the `Result` says of held-out samples."""
        loss: HingeLoss = self._option("loss")
        fitted = loss.temperature is None and bool(loss.calibrate)
        self.temperature_ = 1.0 if loss.temperature is None else loss.temperature
        self.cv_results_: dict[str, object] | None = None
        none: dict[str, Any] = {"held_out": HeldOutScore()}
        split = select.split(self._problem.X, labels.groups, groups, balanced=self._balanced_folds)
        candidates = self._candidates(self._problem)
        judged = fitted or len(candidates) > 1
        self._weigh(split, by_fold=judged)
        if not judged:
            return candidates[0], none
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
            return next(fallback, candidates[0]), none
        chosen, selected = self._compare(split, candidates, rng)
        self.cv_results_ = {
            "candidates": candidates,
            "accuracy": selected.accuracy,
            "log_loss": selected.log_loss,
            "weight": selected.weight,
        }
        if fitted:
            self.temperature_ = selected.temperature
        log_p = split.spread(selected.log_proba, len(labels.groups))
        return chosen, {"held_out": selected.held_out, "held_out_log_proba": log_p}

    def _selected_params(self) -> dict[str, object]:
        if not self._option("loss").calibrate:
            return {"loss__C": self.C_}
        return {"loss__C": self.C_, "loss__calibrate": self.temperature_}

    @abstractmethod
    def _model_attrs(self) -> dict[str, object]:
        """Attributes of the trees that name the model and its settings."""

    @by_chunks
    def decision_function(self, X: SamplesLike) -> FloatArray:
        """Class scores f, positive for the class; not log odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the samples, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        X = self._samples(X)  # raises NotFittedError
        scores = self._posterior.score_means(X)
        return scores[:, 0] if self._exclusive and scores.shape[1] == 1 else scores

    def _log_proba(self, X: Rows) -> FloatArray:
        scaled = self._posterior.score_means(X) / self.temperature_
        return log_probabilities(scaled, self._exclusive, self._lapse)

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        scaled = self._posterior.scores_at(latent) / self.temperature_
        return log_probabilities(scaled, self._exclusive, self._lapse)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags
