"""Scikit-learn classifier of BM2PCA: validate, choose settings, delegate, name the results."""

import warnings
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from threadpoolctl import threadpool_limits

from bsdr_models.bm2pca import label_free, paper, sampling, selection, trees
from bsdr_models.bm2pca.base import BaseBM2PCA, validate_rows
from bsdr_models.bm2pca.card import CARD
from bsdr_models.bm2pca.mean_field import Start
from bsdr_models.bm2pca.priors import PAPER, SAMPLING, Priors
from bsdr_models.bm2pca.settings import Candidate, Grid, Inference, Variant, make_grid
from bsdr_models.bm2pca.task import Learned, Strategy, Task
from bsdr_models.checks import (
    check_choice,
    dense_targets,
    encode_labels,
    warn_not_converged,
    warn_unless_mixed,
)
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.random import RandomState
from bsdr_models.typing import FloatArray, IntArray

# Sweeps after which a held-out score stands for a fit that goes on to convergence.
CONVERGED = 50


class BM2PCAClassifier(ClassifierMixin, BaseBM2PCA):
    """Bayesian maximum margin principal component analysis."""

    def __init__(
        self,
        n_components: int = 10,
        *,
        variant: Variant = "label_free",
        strategy: Strategy = "shared",
        inference: Inference = "mean_field",
        C: float | Literal["cv"] | None = None,
        metric_scale: float | Literal["cv"] = "cv",
        n_sweeps: int | Literal["cv", "converged"] = "cv",
        start: Start = "label",
        unlabeled: Any = None,
        views: Any = None,
        priors: Priors | None = None,
        calibrate: bool = True,
        standardize: bool = True,
        n_restarts: int = 1,
        max_iter: int = 2000,
        tol: float = 1e-3,
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.strategy = strategy
        self.inference = inference
        self.C = C
        self.metric_scale = metric_scale
        self.n_sweeps = n_sweeps
        self.start = start
        self.unlabeled = unlabeled
        self.views = views
        self.priors = priors
        self.calibrate = calibrate
        self.standardize = standardize
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn subspace and classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN where an entry is missing.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Classes; or 0 and 1 for each of several labels. Entries equal to ``unlabeled`` have
            no label.

        Returns
        -------
        self : BM2PCAClassifier

        Raises
        ------
        ValueError
            If the input is infinite or of the wrong shape, no two classes are labelled, no
            feature varies, or an argument is out of range.
        """
        self._forget()
        X, y = validate_rows(self, X, y, multi_output=True, ensure_min_samples=2)
        grid, priors = self._settings()
        signs, groups = self._encode(y)
        self._y, self._groups = dense_targets(y), groups
        select_rng, fit_rng = self._spawn()
        self._observed = self._make_task(X, signs, priors=priors, strategy=self.strategy)
        # The matrices are small: more threads cost more than they bring, and change the rounding.
        with threadpool_limits(limits=1, user_api="blas"):
            self._task = self._complete(self._observed)
            chosen = self._choose(grid, groups, select_rng)
            self._learn(chosen, fit_rng)
        return self

    def _settings(self) -> tuple[Grid, Priors]:
        """Candidates and hyper-parameters, all arguments checked."""
        check_choice("variant", self.variant, ("label_free", "paper"))
        check_choice("strategy", self.strategy, ("shared", "one_vs_rest"))
        check_choice("inference", self.inference, ("mean_field", "gibbs", "nuts", "advi"))
        check_choice("start", self.start, ("label", "pca", "random"))
        priors = self._check_counts()
        return make_grid(self.variant, self.C, self.n_sweeps, self.metric_scale), priors

    def _default_priors(self) -> Priors:
        return PAPER if self.inference == "mean_field" else SAMPLING

    def _encode(self, y: Any) -> tuple[FloatArray, IntArray]:
        """Signs (N, K), 0 without a label, and the class of each row, -1 without."""
        y = dense_targets(y)
        if y.ndim == 2 and y.shape[1] > 1:
            return self._encode_labels(y)
        y = column_or_1d(y, warn=True)
        known = ~_equals(y, self.unlabeled)
        if not known.any():
            raise ValueError(f"every y equals unlabeled={self.unlabeled!r}: no row has a label")
        check_classification_targets(y[known])
        self.classes_, index = encode_labels(y[known])
        self._exclusive = True
        groups = np.full(len(y), -1, dtype=np.int64)
        groups[known] = index
        k = len(self.classes_)
        if k == 2:
            signs = np.where(groups < 0, 0.0, 2.0 * groups - 1.0)[:, None]
        else:
            signs = np.where(groups[:, None] == np.arange(k), 1.0, -1.0)
            signs[groups < 0] = 0.0
        return signs, groups

    def _encode_labels(self, y: np.ndarray) -> tuple[FloatArray, IntArray]:
        known = ~_equals(y, self.unlabeled)
        on = np.where(known, y, 0)
        if type_of_target(on) != "multilabel-indicator":
            raise ValueError(
                "a y of several columns must hold 0 and 1 (labels), or the marker given by "
                f"unlabeled; got {type_of_target(y)}"
            )
        signs = np.where(known, 2.0 * on.astype(np.float64) - 1.0, 0.0)
        for label, column in enumerate(signs.T):
            if not {-1.0, 1.0} <= set(column.tolist()):
                raise ValueError(f"label {label} is on in no row, or in every row that has it")
        self.classes_ = np.arange(y.shape[1])
        self._exclusive = False
        return signs, np.where(known.any(axis=1), 0, -1)

    def _complete(self, task: Task) -> Task:
        """Rows as the variant learns from them: without gaps, if it cannot do with them."""
        if self.variant == "paper" or task.complete:
            return task
        rng = np.random.default_rng(self._seed)
        self._lazy_completer = paper.fit_completer(task, rng)
        return replace(task, X=self._lazy_completer.impute(task.X))

    def _choose(self, grid: Grid, groups: IntArray, rng: np.random.Generator) -> Candidate:
        """Setting of the fit, by cross-validation where there is a choice, and the temperature."""
        candidates = grid.candidates
        self.temperature_, self.cv_results_ = 1.0, None
        found = None
        if len(candidates) > 1 or self.calibrate:
            kept = selection.thin(groups, rng)
            task, groups = self._task.subset(kept).reduced(), groups[kept]
            sees_labels = self.variant == "paper"
            n_folds = selection.balanced_folds(groups) if sees_labels else selection.N_FOLDS
            fold = selection.deal_folds(groups, rng, n_folds=n_folds)
            with ProgressBar(
                len(np.unique(fold[fold >= 0])), "BM2PCA, folds", enabled=self.progressbar
            ) as bar:

                def scorer(train: IntArray, test: IntArray) -> FloatArray:
                    scores = self._path_scores(grid, task, train, test, rng)
                    bar.update()
                    return scores

                found = selection.select(scorer, task.Y, fold, exclusive=self._exclusive)
        if found is None:
            if len(candidates) > 1 or self.calibrate:
                warnings.warn(
                    "no row can be held out, every class has one: settings are the fallback and "
                    "probabilities are not calibrated",
                    UserWarning,
                    stacklevel=3,
                )
            return grid.fallback
        self.cv_results_ = {
            "candidates": candidates,
            "accuracy": found.accuracy,
            "log_loss": found.log_loss,
        }
        if self.calibrate:
            self.temperature_ = found.temperature
        return candidates[found.best]

    def _path_scores(
        self, grid: Grid, task: Task, train: IntArray, test: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        """Scores of held-out rows under every candidate, (G, M, K)."""
        if self.variant == "label_free":
            return np.concatenate(
                [
                    label_free.path_scores(task, train, test, scales=grid.scales, cost=cost)
                    for cost in grid.costs
                ]
            )
        sweeps = grid.sweeps or (CONVERGED,)
        return paper.path_scores(task, train, test, costs=grid.costs, sweeps=sweeps, rng=rng)

    def _learn(self, chosen: Candidate, rng: np.random.Generator) -> None:
        """Fit with the chosen setting."""
        self.C_ = chosen.cost
        if self.variant == "label_free":
            assert chosen.scale is not None
            self.metric_scale_ = chosen.scale
            learned = label_free.fit(
                self._task, cost=chosen.cost, scale=chosen.scale, max_iter=self.max_iter
            )
        elif self.inference == "mean_field":
            learned = self._fit_sweeps(chosen, rng)
        else:
            learned = sampling.fit(
                self._task,
                self.inference,
                margins=paper.make_margins(self._task, [chosen.cost]),
                draws=self.draws,
                tune=self.tune,
                chains=self.chains,
                rng=rng,
                progressbar=self.progressbar,
            )
        self._adopt(learned, self._describe())
        if learned.sampled is not None:
            self._tree = trees.draws_tree(learned, self._context, inference_method=self.inference)
            self.converged_ = warn_unless_mixed(self._tree, CARD.identified, stacklevel=5)
        mean_field = self.inference == "mean_field" and chosen.n_sweeps is None
        if mean_field and not (self.converged_ or self.interrupted_):
            warn_not_converged(self.max_iter, self.tol, stacklevel=4)

    def _describe(self) -> trees.Context:
        """What trees say of the data and of the fit."""
        config = self._config(self._task.priors)
        config["unlabeled"] = None if self.unlabeled is None else str(self.unlabeled)
        attrs: dict[str, Any] = {
            "variant": self.variant,
            "strategy": self.strategy,
            "C": float(self.C_),
            "temperature": float(self.temperature_),
            "link": "softmax",
            "objective": "objective"
            if self.variant == "label_free"
            else "bound of the pseudo-posterior",
        }
        if self.variant == "label_free":
            attrs["metric_scale"] = float(self.metric_scale_)
        return trees.Context(
            X=self._observed.X,
            y=self._y,
            index=self._groups if self._exclusive else None,
            feature_names=self._feature_names(),
            labels=self.classes_,
            target="multiclass" if self._exclusive else "multilabel",
            config=config,
            attrs=attrs,
        )

    def _fit_sweeps(self, chosen: Candidate, rng: np.random.Generator) -> Learned:
        """The paper's variant: so many sweeps, or to convergence."""
        self.n_sweeps_ = chosen.n_sweeps
        fixed = chosen.n_sweeps is not None
        total = chosen.n_sweeps if chosen.n_sweeps is not None else self.max_iter
        with ProgressBar(total, "BM2PCA, mean field", enabled=self.progressbar) as bar:
            return paper.fit(
                self._task,
                cost=chosen.cost,
                rng=rng,
                max_iter=total,
                tol=0.0 if fixed else self.tol,
                n_restarts=1 if fixed else self.n_restarts,
                callbacks=[lambda iteration, state, info: bar.update(bound=info.elbo)],
            )

    # ---------------------------------------------------------------- after the fit

    def decision_function(self, X: Any, *, return_std: bool = False) -> Any:
        """Scores f: positive on the side of a class; not log odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_std : bool
            Also return the standard deviation of the scores under the fit, too small as a rule.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        rows = self._rows(X)
        flat = self._exclusive and len(self.classes_) == 2
        if not return_std:
            mean = self._learned.posterior.score_means(rows)
            return mean[:, 0] if flat else mean
        mean, variance = self._learned.posterior.score_moments(rows)
        std = np.sqrt(variance)
        return (mean[:, 0], std[:, 0]) if flat else (mean, std)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of the classes: see `predict_proba`."""
        return self._log_proba(self._rows(X))

    def _log_proba(self, rows: Any) -> FloatArray:
        scores = self._learned.posterior.score_means(rows) / self.temperature_
        return selection.log_probabilities(scores, exclusive=self._exclusive)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, calibrated on rows that were held out.

        The model has none of its own: its margin factors are no likelihood. They are
        softmax(f / T), logistic(f / T) for two classes or for each of several labels, with the
        temperature T that suited the scores of held-out rows best.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Class of the largest score; for several labels, which are on.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
        """
        return self._most_probable(self.predict_log_proba(X))

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if not self._exclusive:
            return (log_p > np.log(0.5)).astype(int)
        return self.classes_[log_p.argmax(axis=1)]

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Positions and probabilities of new rows as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like, optional
            True labels, for confusion and reliability.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: latent_mean, latent_cov, probability, predicted, y.
        """
        rows = self._rows(X)
        log_p = self._log_proba(rows)
        return trees.predictions_tree(
            self._context,
            positions=self._learned.posterior.positions(rows),
            values={"probability": np.exp(log_p), "predicted": self._most_probable(log_p)},
            y=y,
            inference_method=self.inference,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


def _equals(y: np.ndarray, marker: Any) -> np.ndarray:
    """Where y is the marker of rows without a label; None marks nothing."""
    if marker is None:
        return np.zeros(y.shape, dtype=bool)
    if isinstance(marker, float) and np.isnan(marker):
        return np.array([isinstance(v, float) and np.isnan(v) for v in y.ravel()]).reshape(y.shape)
    return np.asarray(y == marker)
