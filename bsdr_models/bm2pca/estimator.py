"""Scikit-learn classifier of BM2PCA."""

import warnings
from dataclasses import replace
from typing import Any, ClassVar, Self, get_args

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray
from bsdr_models.base import ProbabilisticClassifier
from bsdr_models.block_sources import by_blocks
from bsdr_models.bm2pca import selection, trees
from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.conjugate import fit as paper
from bsdr_models.bm2pca.conjugate import sampling
from bsdr_models.bm2pca.label_free import fit as label_free
from bsdr_models.bm2pca.label_free import tuning
from bsdr_models.bm2pca.labels import Labels, encode
from bsdr_models.bm2pca.priors import SAMPLING, Priors
from bsdr_models.bm2pca.selection import Selection
from bsdr_models.bm2pca.settings import (
    Candidate,
    Grid,
    HingeLoss,
    Inference,
    Optimization,
    Variant,
    make_grid,
)
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.task import FitResult, Task
from bsdr_models.checks import (
    feature_names,
    one_thread,
    warn_not_converged,
    warn_unless_mixed,
)
from bsdr_models.frames import sample_labels
from bsdr_models.inference.datatree import Context
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.scaling import largest_scaled
from bsdr_models.options import Sampling
from bsdr_models.rng import RandomState
from bsdr_models.tasks import by_task, outcome_names
from bsdr_models.unlabeled import known_entries


class BM2PCAClassifier(ProbabilisticClassifier, BaseBM2PCA):
    r"""Classification by Bayesian maximum margin principal component analysis (BM2PCA).

    Samples are embedded in a latent space in which linear max-margin classifiers separate the
    classes; embedding and classifiers are learned jointly [1]_. By default the embedding depends
    on the features alone, in a metric that discounts the within-class variation; the paper's own
    model is ``variant="paper"``.

    Parameters
    ----------
    n_components : int, default=10
        R, dimension of the latent space, at most the number of features. The label-free variant
        has at most one component fewer than there are classes.
    variant : {"label_free", "paper"}, default="label_free"
        Whether the latent coordinates of training samples depend on their labels; see Notes.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. All but mean field need ``variant="paper"``, one shared subspace and
        complete dense samples of one view; NUTS and ADVI compile the PyMC model.
    loss : HingeLoss, optional
        C, a subspace for all classes or for each, and calibration of the probabilities, see
        :class:`bsdr_models.bm2pca.HingeLoss`.
    unlabeled : scalar, optional
        Marker in y of samples without a label, or of missing labels of one of several tasks. NaN
        stands for all kinds of missing values. By default every value is a class, -1 included, and
        a missing value is an error.
    views : mapping, sequence or array-like of shape (n_features,), optional
        Columns by the name of the view, the columns of each view, or the name of the view of each
        feature. In the paper's model every view has its own loadings,
        offset and noise. A view may be missing (NaN) in a sample.
    priors : Priors, optional
        Hyper-parameters; the paper's for mean field, proper ones for samplers.
    standardize : bool, default=True
        Scale each feature to unit variance; otherwise all by one number. Sparse samples are
        neither centred nor scaled, and stay sparse.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over at most 300 evenly spaced draws.
    optimization : Optimization, optional
        Sweeps, restarts, iterations and tolerance, see :class:`bsdr_models.bm2pca.Optimization`.
    n_jobs : int, optional
        Folds and restarts run in parallel by joblib: None is 1 unless set by
        ``joblib.parallel_config``, -1 is all cores. The result does not depend on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so two fits differ.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of n_tasks of them
    components_ : ndarray of shape (n_components_out, n_features)
        Linear map from complete scaled samples to latent coordinates, up to a shift.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features; zeros and ones for sparse samples.
    C_, metric_scale_, n_sweeps_ : float, float, int or None
        Settings of the fit, where its variant has them.
    temperature_ : float or ndarray of shape (n_tasks,)
        Softmax temperature of the class scores.
    cv_results_ : dict or None
        ``"candidates"`` with their held-out ``"accuracy"`` and ``"log_loss"``.
    held_out_score_ : float
        Log score, in nats per sample, of the samples that were held out to choose settings and
        temperature, at the chosen ones; NaN if none was. For several labels or tasks, per label.
    held_out_gain_, held_out_gain_se_ : float
        How much better it is than that of the class frequencies, and its standard error. The fit
        warns if the gain less 1.28 standard errors is at most 0.01.
    relevance_ : ndarray of shape (n_components_out,)
        Share of each component in the variance of the class scores.
    lower_bounds_ : ndarray of shape (n_iter,)
        Bound or objective in nats after each iteration.
    n_iter_ : int
    converged_ : bool
        False for a fixed number of sweeps.
    interrupted_ : bool
        Whether the user stopped the fit, which remains usable.
    idata_ : xarray.DataTree
        Posterior draws, bound and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The paper's model with one subspace on the training samples.

    See Also
    --------
    BSDRClassifier : more than ten samples per class; a test for signal.
    DGPLVMClassifier : a nonlinear map.
    select_task : one of several tasks.

    Notes
    -----
    *The model.* With signs :math:`y_{nc} = \pm 1` and class scores
    :math:`f_{nc} = \eta_c^\top z_n + \eta_{c0}`, the paper has

    .. math::
        z_n \sim N(0, I), \qquad x_n \sim N(W z_n + t, I / \tau), \qquad
        \phi(y_{nc} \mid z_n) = e^{-2 C \max(0,\, 1 - y_{nc} f_{nc})},

    and the hinge factor is normal given a slack scale [2]_, so that mean field is conjugate.

    *A pseudo-likelihood.* :math:`\phi(+1) + \phi(-1)` depends on f, so the factor is no
    distribution of labels. It defines class scores and their variance, but neither class
    probabilities nor draws of labels, and its evidence, or a bound on it, cannot choose C. Hence C
    is cross-validated, and probabilities are softmax(f / T), or logistic(f / T) of a single score,
    with the temperature T of smallest held-out log loss.

    *Early stopping.* In the paper's model z depends on the label of a training sample; a new
    sample has none. With few samples and many features the bound keeps rising as W adapts to the
    features, while training labels are explained by latent coordinates that new samples lack: on
    ORL faces accuracy falls from 70 to 62 % between the second sweep and the twentieth. So the
    number of sweeps is chosen with C by cross-validation, and a converged bound does not indicate
    a good classifier. The samplers, which cannot stop early, are fully affected.

    *Label-free embedding.* By default :math:`z_n = Q^\top a_n` plus a little noise, with
    :math:`a_n = g\,(I + S / \kappa)^{-1/2} (x_n - t)` and S the within-class scatter, which
    discounts features that vary within classes. If there are fewer components than classes less
    one, or more samples than features, the loss compares the classes with each other instead of
    each with all others [3]_. Training and new samples are embedded alike, the
    fit may converge, and cross-validation chooses :math:`\kappa`.

    *Missing values.* NaN marks a missing value. The paper's variant integrates it out; the
    label-free one imputes it by a factor model of the features alone.

    *Far-out values.* A standardised value of n training samples is at most :math:`\sqrt{n - 1}` in
    magnitude. Values of new samples beyond are set to that bound, as the temperature was found by
    samples that keep it: a feature that hardly varies in the training samples would otherwise
    determine the class scores. Outlier measures and ``standardize=False`` have no such bound.

    *Samples without a label* contribute their features in the paper's variant.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.
    .. [2] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines.
           Bayesian Analysis 6(1), 1-23.
    .. [3] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass
           kernel-based vector machines. Journal of Machine Learning Research 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BM2PCAClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BM2PCAClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.score(X[1::2], y[1::2]) > 0.95)
    True

    Two tasks with one subspace, of which the second has labels for every fourth sample only:

    >>> Y = np.column_stack([y, np.where(y == 1, 4, 7)])
    >>> Y[np.arange(len(Y)) % 4 > 0, 1] = -1
    >>> model = BM2PCAClassifier(unlabeled=-1, random_state=0).fit(X[::2], Y[::2])
    >>> [classes.tolist() for classes in model.classes_]
    [[0, 1, 2], [4, 7]]
    >>> [p.shape for p in model.predict_proba(X)]
    [(178, 3), (178, 2)]

    With ten features missing in a quarter of the samples, and without their labels:

    >>> X[::4, 3:], y[::4] = float("nan"), -1
    >>> model = BM2PCAClassifier(variant="paper", unlabeled=-1, random_state=0).fit(X, y)
    >>> model.classes_.tolist()
    [0, 1, 2]
    """

    _option_types: ClassVar[dict[str, type[Any]]] = {
        "loss": HingeLoss,
        "priors": Priors,
        "sampling": Sampling,
        "optimization": Optimization,
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseBM2PCA._parameter_constraints,
        "variant": [StrOptions(set(get_args(Variant)))],
        "inference": [StrOptions(set(get_args(Inference)))],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        variant: Variant = "label_free",
        inference: Inference = "mean_field",
        loss: HingeLoss | None = None,
        unlabeled: Any = None,
        views: Any = None,
        priors: Priors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        optimization: Optimization | None = None,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.inference = inference
        self.loss = loss
        self.unlabeled = unlabeled
        self.views = views
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.optimization = optimization
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn subspace and classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN marks a missing value.
        y : array-like of shape (n_samples,), (n_samples, n_labels) or (n_samples, n_tasks)
            Classes; or 0 and 1 for each of several labels; or classes of each of several tasks,
            scikit-learn's "multiclass-multioutput"; or ``unlabeled``. Several columns that hold
            only 0 and 1 are labels.

        Returns
        -------
        self : BM2PCAClassifier

        Raises
        ------
        TypeError
            If X is no table, or a Dask or Zarr array.
        ValueError
            If the input is infinite or of the wrong shape, no two classes (of a task) are labelled,
            no feature varies, or an argument is out of range.
        """
        self._reset()
        self._check_arguments()
        samples, X = sample_labels(X), self._validate(X, y)
        labels = encode(y, self.unlabeled)
        grid = self._grid(X.shape, labels)
        check_consistent_length(X, labels.given)
        self.classes_, self._exclusive = labels.classes, labels.exclusive  # type: ignore[assignment]
        select_rng, fit_rng = self._spawn()
        task = self._make_task(X, labels.signs, strategy=self._option("loss").strategy)
        multiclass = self._multiclass(X.shape, labels)
        self._observed = replace(task, sizes=labels.sizes, multiclass=multiclass)
        if self._scaler is not None and self.standardize:  # as of the samples in cross-validation
            self._largest = largest_scaled(X)
        if self.inference != "mean_field":
            sampling.check_samples(self._observed, f"inference={self.inference!r}")
        with one_thread(), self._fitting(X.shape):
            self._task = self._complete(self._observed)
            chosen = self._choose(grid, labels, select_rng)
            self._learn(chosen, labels, fit_rng, samples)
        return self

    def _check_arguments(self) -> None:
        self._check_params()
        strategy = self._option("loss").strategy
        if self.inference != "mean_field" and (self.variant, strategy) != ("paper", "shared"):
            raise ValueError(
                f"inference={self.inference!r} needs variant='paper' and strategy='shared', got "
                f"variant={self.variant!r} and strategy={strategy!r}"
            )

    def _grid(self, shape: tuple[int, int], labels: Labels) -> Grid:
        """Candidate settings for X of a shape."""
        given, n_tasks = self._option("loss").temperature, max(len(labels.sizes), 1)
        if isinstance(given, tuple) and len(given) != n_tasks:
            raise ValueError(f"calibrate has {len(given)} entries, and y has {n_tasks} task(s)")
        # A sampler cannot stop early: its proxy is mean field run to convergence.
        mean_field = self.inference == "mean_field"
        return make_grid(
            self.variant,
            self._option("loss"),
            self._option("optimization").n_sweeps if mean_field else "converged",
            self._option("priors"),
            wide=shape[0] <= shape[1],
            multiclass=self._multiclass(shape, labels),
        )

    def _multiclass(self, shape: tuple[int, int], labels: Labels) -> bool:
        """Whether the loss is the hinge of all classes: in few dimensions, or of many samples."""
        strategy = self._option("loss").strategy
        if (self.variant, strategy) != ("label_free", "shared"):
            return False
        few = int(self.n_components) < sum(max(size - 1, 1) for size in labels.sizes)
        return max(labels.sizes, default=0) > 2 and (few or shape[0] > shape[1])

    def _default_option(self, name: str) -> Any:
        if name == "priors" and self.inference != "mean_field":
            return SAMPLING
        return super()._default_option(name)

    def _selected_params(self) -> dict[str, Any]:
        found: dict[str, Any] = {"loss__C": self.C_}
        if self.variant == "label_free":
            found["priors__metric_scale"] = self.metric_scale_
        elif self.inference == "mean_field" and self.n_sweeps_ is not None:
            found["optimization__n_sweeps"] = self.n_sweeps_
        if self._option("loss").calibrate:
            each = np.asarray(self.temperature_).tolist()
            found["loss__calibrate"] = tuple(each) if isinstance(each, list) else each
        return found

    def _complete(self, task: Task) -> Task:
        """Impute missing values unless the variant integrates them out."""
        if self.variant == "paper" or task.complete:
            return task
        rng = np.random.default_rng(self._seed)
        self._lazy_completer = paper.fit_completer(task, rng)
        return replace(task, X=self._lazy_completer.impute(task.X))

    def _choose(self, grid: Grid, labels: Labels, rng: np.random.Generator) -> Candidate:
        """Choose the setting by cross-validation, if there are several, and the temperature."""
        loss: HingeLoss = self._option("loss")
        fitted = loss.temperature is None and bool(loss.calibrate)
        self._set_temperature(1.0 if loss.temperature is None else loss.temperature, labels)
        self.cv_results_: dict[str, Any] | None = None
        self._held_out = HeldOutScore()
        sampled, chosen = self.inference != "mean_field", grid.candidates[0]
        options: dict[str, Any] = {
            "rng": rng,
            "progressbar": self.progressbar,
            "n_jobs": self.n_jobs,
        }
        temperature: float | FloatArray | None = 1.0
        found: Selection | None
        if len(grid.candidates) > 1 or (fitted and not sampled):
            found = tuning.choose(self._task, grid, labels.groups, variant=self.variant, **options)
            temperature = None
            if found is not None:
                chosen, temperature = grid.candidates[found.best], found.temperature
                self._held_out = found.held_out
                self.cv_results_ = {
                    "candidates": grid.candidates,
                    "accuracy": found.accuracy,
                    "log_loss": found.log_loss,
                }
        if fitted and sampled and temperature is not None:
            found = tuning.select_temperature(self._task, chosen.cost, labels.groups, **options)
            temperature = None
            if found is not None:
                temperature, self._held_out = found.temperature, found.held_out
        if temperature is None:
            warnings.warn(
                "every class has one sample only: fallback settings "
                "are used and probabilities are not calibrated",
                UserWarning,
                stacklevel=3,
            )
            return grid.fallback
        if fitted:
            self._set_temperature(temperature, labels)
        return chosen

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

    def _learn(
        self,
        chosen: Candidate,
        labels: Labels,
        rng: np.random.Generator,
        samples: np.ndarray | None,
    ) -> None:
        """Fit with the chosen setting."""
        self.C_, optimization = chosen.cost, self._option("optimization")
        schedule = self._schedule()
        if self.variant == "label_free":
            assert chosen.scale is not None
            self.metric_scale_ = chosen.scale
            result = label_free.fit_label_free(
                self._task,
                cost=chosen.cost,
                scale=chosen.scale,
                max_iter=int(optimization.max_iter),
            )
        elif self.inference == "mean_field":
            result = self._fit_mean_field(chosen, rng)
        else:
            result = sampling.fit_draws(
                self._task,
                self.inference,
                margins=paper.make_margins(self._task, [chosen.cost]),
                schedule=schedule,
                rng=rng,
            )
        self._set_fitted(result, self._make_context(labels, samples))
        for name, value in self._held_out.named().items():
            setattr(self, f"{name}_", value)
        if (reason := lack_of_signal(self._context.attrs)) is not None:
            warnings.warn(no_signal(reason), UserWarning, stacklevel=3)
        if result.sampled is not None:
            self._tree = trees.draws_tree(result, self._context, inference_method=self.inference)
            self.n_iter_ = int(self._tree["posterior"].sizes["draw"]) + schedule.tune
            self.converged_ = warn_unless_mixed(self._tree, SPEC.identified, stacklevel=5)
        mean_field = self.inference == "mean_field" and chosen.n_sweeps is None
        if mean_field and not (self.converged_ or self.interrupted_):
            warn_not_converged(optimization.max_iter, optimization.tol, stacklevel=4)

    def _make_context(self, labels: Labels, samples: np.ndarray | None) -> Context:
        """Data and settings that the DataTrees record."""
        attrs: dict[str, Any] = {
            "variant": self.variant,
            "strategy": self._option("loss").strategy,
            "C": float(self.C_),
            "temperature": np.asarray(self.temperature_).tolist(),
            "link": "softmax",
            "objective": "objective"
            if self.variant == "label_free"
            else "bound of the pseudo-posterior",
        }
        if self.variant == "label_free":
            attrs["metric_scale"] = float(self.metric_scale_)
        attrs |= self._held_out.attrs()
        tasks = tuple(zip(labels.tasks, labels.classes, strict=True)) if labels.tasks else ()
        return Context(
            X=self._task.X,
            y=labels.given,
            samples=samples,
            index=labels.groups if labels.exclusive else None,
            feature_names=feature_names(self),
            labels=outcome_names(tasks) if tasks else labels.classes,
            target="multiclass" if labels.exclusive else "multilabel",
            tasks=tasks,
            config=self._config(),
            attrs=attrs,
        )

    def _fit_mean_field(self, chosen: Candidate, rng: np.random.Generator) -> FitResult:
        """Fit the paper's variant by a fixed number of sweeps or to convergence."""
        self.n_sweeps_, options = chosen.n_sweeps, self._option("optimization")
        fixed = chosen.n_sweeps is not None
        total = chosen.n_sweeps if chosen.n_sweeps is not None else int(options.max_iter)
        limits = {"n_restarts": 1 if fixed else int(options.n_restarts), "max_iter": total}
        with self._progress_options(**limits) as progress:
            return paper.fit_conjugate(
                self._task,
                cost=chosen.cost,
                rng=rng,
                tol=0.0 if fixed else options.tol,
                **limits,
                **progress,
            )

    @by_blocks
    def decision_function(self, X: Any, *, return_std: bool = False) -> Any:
        """Class scores f, positive for the class; not log odds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_std : bool
            Also return the posterior standard deviation, usually too small.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
            For several tasks, lists of them.
        """
        X = self._samples(X)
        if not return_std:
            return self._scores_by_task(self._posterior.score_means(X))
        mean, variance = self._posterior.score_moments(X)
        return self._scores_by_task(mean), self._scores_by_task(np.sqrt(variance))

    def _scores_by_task(self, scores: FloatArray) -> Any:
        if not self._exclusive:
            return scores
        found = by_task(scores, self._task.sizes)
        found = [own[:, 0] if own.shape[1] == 1 else own for own in found]
        return found if len(found) > 1 else found[0]

    def _split_tasks(self, values: FloatArray) -> Any:
        """A list of the columns of each of several tasks."""
        return by_task(values, self._class_counts) if len(self._task.sizes) > 1 else values

    @property
    def _class_counts(self) -> tuple[int, ...]:
        """Number of classes of each task."""
        return tuple(max(size, 2) for size in self._task.sizes)

    def _log_proba(self, X: Any) -> FloatArray:
        return self._of_scores(self._posterior.score_means(X))

    def _log_proba_at(self, latent: FloatArray) -> FloatArray:
        return self._of_scores(self._posterior.scores_at(latent))

    def _of_scores(self, scores: FloatArray) -> FloatArray:
        """Log probabilities of the classes of all tasks, side by side."""
        return selection.log_probabilities(scores, self.temperature_, self._task.sizes)

    @by_blocks
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, calibrated on held-out samples.

        The margin factors are no likelihood, so the model defines no probabilities. They are
        softmax(f / T), logistic(f / T) for two classes or for each of several labels, with the
        temperature T of smallest held-out log loss. Every task has its own softmax and temperature.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or list of n_tasks of them
        """
        return super().predict_proba(X)

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if len(self._task.sizes) < 2:
            return super()._most_probable(log_p)
        blocks = by_task(log_p, self._class_counts)
        found = [
            classes[own.argmax(axis=1)] for classes, own in zip(self.classes_, blocks, strict=True)
        ]
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
        y : array-like of shape (n_samples,), (n_samples, n_labels) or (n_samples, n_tasks)
            Of several tasks, ``unlabeled`` marks missing labels. Samples without any are left out.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if len(self._task.sizes) < 2:
            return float(super().score(X, y, sample_weight))
        predicted = self.predict(X)
        truth, known = known_entries(y, self.unlabeled)
        if truth.shape != predicted.shape:
            raise ValueError(f"y must have shape {predicted.shape}, got {truth.shape}")
        right, some = ((truth == predicted) | ~known).all(axis=1), known.any(axis=1)
        weights = None if sample_weight is None else np.asarray(sample_weight)[some]
        return float(np.average(right[some], weights=weights))

    def _truth(self, y: Any) -> np.ndarray | None:
        truth = super()._truth(y)
        n_tasks = len(self._task.sizes)
        if truth is not None and n_tasks > 1 and truth.shape[1:] != (n_tasks,):
            raise ValueError(f"y must have a column for each of {n_tasks} tasks, got {truth.shape}")
        return truth

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        if self.inference != "mean_field":  # samplers need complete dense samples
            tags.input_tags.sparse = tags.input_tags.allow_nan = False
        return tags
