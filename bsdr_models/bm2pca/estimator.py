"""Scikit-learn classifier of BM2PCA, the recommended model."""

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca import label_free, subspace
from bsdr_models.bm2pca.classifier import MarginClassifier
from bsdr_models.bm2pca.paper.engines import fit_completer
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.bm2pca.task import Candidate, Task
from bsdr_models.bm2pca.within_class_metric import is_large
from bsdr_models.inference.result import Result
from bsdr_models.options import COUNT, Number, StrOptions
from bsdr_models.rng import RandomState
from bsdr_models.validation import warn_not_converged

# Compared costs, the first of which is the fallback. Few samples need one only, or two with the
# hinge of all classes.
COSTS: tuple[float, ...] = (10.0, 1.0, 0.1)
MULTICLASS_COSTS: tuple[float, ...] = (1.0, 3.0, 0.3)
# Compared scales of the metric, and the fallback.
SCALES = (1.0, 10.0, 100.0, np.inf)
SCALE = 10.0


class BM2PCAClassifier(MarginClassifier):
    r"""Classification by Bayesian maximum margin principal component analysis (BM2PCA).

    Samples are embedded in a latent space in which linear max-margin classifiers separate the
    classes [1]_. The embedding depends on the features alone, in a metric that discounts the
    within-class variation. The model as printed in the paper is
    :class:`bsdr_models.papers.PaperBM2PCAClassifier`.

    Parameters
    ----------
    n_components : int, default=10
        R, dimension of the latent space, at most the number of features, and at most one component
        fewer than there are classes.
    metric_scale : float, numpy.inf or "cv", default="cv"
        Shrinkage of the within-class metric towards the Euclidean one, in multiples of the value of
        maximal evidence, or chosen by cross-validation. Infinity is Euclidean, and so is always the
        metric of more than 4000 sparse samples of more than 4000 features.
    loss : HingeLoss, optional
        C, a subspace for all classes or for each, and calibration of the probabilities, see
        :class:`bsdr_models.bm2pca.HingeLoss`.
    unlabeled : scalar, optional
        Marker in y of samples without a label, or of missing labels of one of several tasks. NaN
        stands for all kinds of missing values. By default every value is a class, -1 included, and
        a missing value is an error.
    standardize : bool, default=True
        Scale each feature to unit variance; otherwise all by one number. Sparse samples are
        neither centred nor scaled, and stay sparse.
    max_iter : int, default=2000
        Iterations of the optimisation.
    n_jobs : int, optional
        Folds run in parallel by joblib: None is 1 unless set by ``joblib.parallel_config``, -1 is
        all cores. The result does not depend on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so two fits differ. Only imputation and the draws of
        ``idata_`` are random.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of n_tasks of them
    components_ : ndarray of shape (n_components_out, n_features)
        Linear map from complete scaled samples to latent coordinates, up to a shift.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features; zeros and ones for sparse samples.
    C_, metric_scale_ : float
        Settings of the fit.
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
        Objective in nats, from the initial value on.
    n_iter_ : int
    converged_ : bool
    interrupted_ : bool
        Whether the user stopped the fit, which remains usable.
    idata_ : xarray.DataTree
        Posterior draws, objective and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The pseudo-posterior on the training samples.

    See Also
    --------
    BSDRClassifier : more than ten samples per class; a test for signal.
    DGPLVMClassifier : a nonlinear map.
    bsdr_models.papers.PaperBM2PCAClassifier : the paper's model, by mean field or sampling.
    select_task : one of several tasks.

    Notes
    -----
    With :math:`a_n = g\,(I + S / \kappa)^{-1/2} (x_n - t)` and S the within-class
    scatter, which discounts features that vary within classes, latent coordinates are
    :math:`z_n = Q^\top a_n` plus a little noise. With signs :math:`y_{nc} = \pm 1` and class scores
    :math:`f_{nc} = \eta_c^\top z_n + \eta_{c0}`, a label has the factor

    .. math::
        \phi(y_{nc} \mid z_n) = e^{-2 C \max(0,\, 1 - y_{nc} f_{nc})} .

    If there are fewer components than classes less one, or more samples than features, the loss
    compares the classes with each other instead of each with all others [2]_. Training and new
    samples are embedded alike, the fit converges, and cross-validation chooses :math:`\kappa`.

    :math:`\phi(+1) + \phi(-1)` depends on f, so the factor is a pseudo-likelihood: it gives neither
    probabilities nor draws of labels, and its evidence cannot choose C, which is cross-validated.

    Missing values (NaN) are imputed by a factor model of the features alone. Standardised values of
    new samples are bounded by :math:`\sqrt{n - 1}` in magnitude, the largest of n training samples.
    Samples without a label count as labelled if their class is nearly certain and the held-out log
    likelihood of the labelled samples gains by it.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.
    .. [2] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass
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
    """

    _option_types: ClassVar[dict[str, type[Any]]] = {"loss": HingeLoss}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        "metric_scale": [Number(Real, 0.0, np.inf, closed="right"), StrOptions({"cv"})],
        "max_iter": [COUNT],
    }
    _balanced_folds = False
    _fallback: ClassVar[Candidate] = {"metric_scale": SCALE}
    _path_scores = staticmethod(label_free.path_scores)

    def __init__(
        self,
        n_components: int = 10,
        *,
        metric_scale: float | str = "cv",
        loss: HingeLoss | None = None,
        unlabeled: Any = None,
        standardize: bool = True,
        max_iter: int = 2000,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.metric_scale = metric_scale
        self.loss = loss
        self.unlabeled = unlabeled
        self.standardize = standardize
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def _set_loss(self, task: Task) -> Task:
        """The hinge of all classes in few dimensions, or of many samples."""
        n, d = task.X.shape
        few = int(self.n_components) < sum(max(size - 1, 1) for size in task.sizes)
        several = task.strategy == "shared" and max(task.sizes, default=0) > 2
        if task.strategy == "one_vs_rest" and min(n, d) > subspace.MAX_AXES:
            raise ValueError(
                f"one classifier for each label cannot be learned from {n} samples of {d} "
                f"features: one of the numbers must be at most {subspace.MAX_AXES}; a shared "
                "subspace can"
            )
        return replace(task, multiclass=several and (few or n > d))

    def _candidates(self, task: Task) -> list[Candidate]:
        """Values of C and of the metric scale.

        If samples do not outnumber features, any labels are linearly separable, and all larger
        costs lead to about the same fit of the labels one by one.
        """
        costs, C = MULTICLASS_COSTS if task.multiclass else COSTS, self._option("loss").C
        if C is None and task.X.shape[0] <= task.X.shape[1]:
            costs = costs[: 1 + task.multiclass]
        elif not (C is None or C == "cv"):
            costs = (float(C),)
        scales = SCALES if self.metric_scale == "cv" else (float(self.metric_scale),)
        if is_large(task.X, task.Y):
            scales = (np.inf,)
        return [{"C": cost, "metric_scale": scale} for cost in costs for scale in scales]

    def _complete(self, task: Task) -> Task:
        if task.complete:
            return task
        self._completer = fit_completer(task, np.random.default_rng(self._seed))
        return replace(task, X=self._completer.impute(task.X))

    def _learn(self, chosen: Candidate, rng: np.random.Generator) -> Result:
        self.metric_scale_ = chosen["metric_scale"]
        return label_free.fit_label_free(
            self._task, cost=self.C_, scale=self.metric_scale_, max_iter=int(self.max_iter)
        )

    def _report(self, result: Result, chosen: Candidate) -> None:
        super()._report(result, chosen)
        if not (result.converged or result.interrupted):
            warn_not_converged(self.max_iter, label_free.TOL, stacklevel=4)

    @property
    def model_(self) -> Any:
        """The pseudo-posterior as a ``pymc.Model`` on the scaled training samples.

        Labels have a pseudo-likelihood only: PyMC neither draws them nor computes their log
        likelihood. ``scores`` of new samples are drawn after ``pm.set_data``.
        """
        from bsdr_models.bm2pca import model

        check_is_fitted(self)
        return self._context.name_dims(model.declare(self._task, self._posterior))

    def _selected_params(self) -> dict[str, Any]:
        return {"metric_scale": self.metric_scale_, **super()._selected_params()}

    def _model_attrs(self) -> dict[str, Any]:
        return {"objective": "objective", "metric_scale": float(self.metric_scale_)}
