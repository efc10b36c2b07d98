"""Scikit-learn regressor of BM2PCA: the paper's model with a tube in place of the margin."""

import warnings
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import paper, regression, selection
from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.mean_field import Start
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.regression import LossGrid, make_loss_grid
from bsdr_models.checks import (
    check_choice,
    feature_names,
    one_thread,
    warn_not_converged,
)
from bsdr_models.frames import read_numbers, read_truth
from bsdr_models.inference.datatree import Context
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.rng import RandomState


class BM2PCARegressor(RegressorMixin, BaseBM2PCA):
    r"""Bayesian max-margin principal component analysis for real targets.

    Features and targets are explained by one latent position per row. Targets have the
    :math:`\epsilon`-insensitive loss of support vector regression [1]_ for a log density,

    .. math::
        x_n \sim N(W z_n + t, I / \tau), \qquad
        p(y_{nc} \mid z_n) \propto e^{-2 C \max(0,\, |y_{nc} - f_{nc}| - \epsilon)}, \qquad
        f_{nc} = \eta_c^\top z_n + \eta_{c0},

    which is a normal given two slack scales [2]_, so that mean field is conjugate.

    Parameters
    ----------
    n_components : int, default=10
        R, dimension of the latent space, at most the number of features. It has to hold what
        varies in the features too: with too few the target is left out.
    C : float, "bound" or "cv", default=3.0
        Slope of the loss outside the tube is 2 C per standard deviation of the output.
        ``"bound"`` takes the candidate with the highest bound of the evidence, ``"cv"`` the one
        with the smallest error on rows held out.
    epsilon : float, "bound" or "cv", default=0.1
        Half width of the tube, in standard deviations of the output.
    start : {"label", "pca", "random"}, default="label"
        Where mean field starts: at the targets, at principal components, or anywhere; further
        restarts are random.
    views : array-like of shape (n_features,), optional
        Name of the view of each feature. A view has loadings, offset and noise of its own, and
        may be missing (NaN) in a row.
    priors : Priors, optional
        Hyper-parameters; the paper's by default.
    calibrate : bool, default=True
        Give standard deviations the size of residuals of rows held out, in five folds. Mean
        field alone makes them too small.
    standardize : bool, default=True
        Scale each feature to unit variance; otherwise all by one number. Sparse rows are never
        scaled.
    n_restarts : int, default=1
        Restarts of mean field; the highest bound is kept.
    max_iter : int, default=2000
        Iterations per restart.
    tol : float, default=1e-3
        Mean field stops when a round gains less than this many nats.
    n_jobs : int, optional
        Restarts and folds that run side by side, by joblib as in scikit-learn: None is 1 unless a
        ``joblib.parallel_config`` says otherwise, -1 is all cores. The result does not depend on
        it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so that two fits differ.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Linear map from complete scaled rows to latent positions.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs.
    C_, epsilon_ : float
        The tube of the fit.
    std_factor_ : ndarray of shape (n_outputs,)
        What calibration multiplies standard deviations by; ones without it.
    cv_results_ : dict or None
        Settings that were compared, and their ``"bound"`` or ``"squared_error"``.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the scores.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound in nats after each iteration.
    n_iter_ : int
    converged_ : bool
    interrupted_ : bool
        Whether the fit was stopped by the user; it is usable all the same.
    idata_ : xarray.DataTree
        Posterior draws, bound and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The same model, declared on the rows of the fit.

    Notes
    -----
    The density of the tube is normalised, so the bound is one of a proper evidence and may choose
    C and epsilon; a classifier's may not. It is not a good judge with few rows: mean field then
    explains the targets by noise alone. On diabetes with 50 rows it predicted no better than the
    mean, where the default was level with ridge regression.

    Unlike a classifier this model predicts best when it has converged: a target that has noise of
    its own gains nothing from a component that only it can see.

    A row without a target (NaN in y) takes part with its features. Missing entries of X are
    integrated out; a view that is absent is left out.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI 29, 2582-2588. Its loss is the hinge.
    .. [2] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines.
           Bayesian Analysis 6(1), 1-23.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bsdr_models import BM2PCARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BM2PCARegressor(random_state=0).fit(X[:200], y[:200])
    >>> mean, std = model.predict(X[200:], return_std=True)
    >>> bool(model.score(X[200:], y[200:]) > 0.4)
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        C: float | Literal["bound", "cv"] = regression.COST,
        epsilon: float | Literal["bound", "cv"] = regression.EPSILON,
        start: Start = "label",
        views: Any = None,
        priors: Priors | None = None,
        calibrate: bool = True,
        standardize: bool = True,
        n_restarts: int = 1,
        max_iter: int = 2000,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.C = C
        self.epsilon = epsilon
        self.start = start
        self.views = views
        self.priors = priors
        self.calibrate = calibrate
        self.standardize = standardize
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn subspace and regression.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN where an entry is missing.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            NaN where there is no target.

        Returns
        -------
        self : BM2PCARegressor

        Raises
        ------
        ValueError
            If the input is infinite or of the wrong shape, an output or every feature is
            constant, or an argument is out of range.
        """
        self._reset()
        X = self._validate(X, y)
        tubes, priors = self._settings()
        Y = self._scale_outputs(X, y)
        select_rng, fit_rng = self._spawn()
        self._observed = self._task = self._make_task(
            X, Y, priors=priors, epsilon=regression.EPSILON
        )
        with one_thread(), self._fitting(X.shape):
            self.C_, self.epsilon_ = self._choose(tubes, select_rng)
            self._learn(fit_rng)
        return self

    def _settings(self) -> tuple[LossGrid, Priors]:
        """Candidates and hyper-parameters, all arguments checked."""
        check_choice("start", self.start, ("label", "pca", "random"))
        return make_loss_grid(self.C, self.epsilon), self._check_counts()

    def _scale_outputs(self, X: Any, y: Any) -> FloatArray:
        """Targets of mean zero and unit variance, (N, K), NaN where there is none."""
        y = read_numbers(y, missing=True)
        check_consistent_length(X, y)
        self._one_output = y.ndim == 1
        Y = y.reshape(len(y), -1)
        if (bare := np.isnan(Y).all(axis=0)).any():
            raise ValueError(f"output {int(bare.argmax())} of y has no target at all")
        scaler = Scaler.fit(Y)
        if scaler.constant.any():
            raise ValueError(f"output {int(scaler.constant.argmax())} of y is constant")
        self._output_scaler = scaler
        self.y_mean_, self.y_scale_ = scaler.location, scaler.scale
        return scaler.transform(Y)

    def _choose(self, tubes: LossGrid, rng: np.random.Generator) -> tuple[float, float]:
        """C and epsilon, and the factors of the standard deviations."""
        task, best = self._task.reduced(), 0
        self.std_factor_ = np.ones(task.Y.shape[1])
        self.cv_results_: dict[str, Any] | None = None
        if tubes.criterion == "bound":
            found = regression.bounds(task, tubes, rng)
            self.cv_results_ = {"settings": tubes.settings, "bound": found}
            tubes = LossGrid(settings=(tubes.settings[int(found.argmax())],), criterion=None)
        if tubes.criterion is None and not self.calibrate:
            return tubes.settings[0]
        fold = selection.deal_folds(np.where(task.observed.any(axis=1), 0, -1), rng)
        if np.count_nonzero(fold >= 0) < selection.N_FOLDS:
            warnings.warn(
                "too few rows have a target to hold some out: settings are the fallback and "
                "standard deviations are not calibrated",
                UserWarning,
                stacklevel=3,
            )
            return tubes.fallback
        mean, variance = regression.held_out(task, tubes, fold, rng, n_jobs=self.n_jobs)
        if tubes.criterion == "cv":
            found = regression.squared_errors(task.Y, mean)
            self.cv_results_ = {"settings": tubes.settings, "squared_error": found}
            best = int(found.argmin())
        if self.calibrate:
            self.std_factor_ = regression.calibration(task.Y, mean[best], variance[best])
        return tubes.settings[best]

    def _learn(self, rng: np.random.Generator) -> None:
        """Climb to convergence with the chosen tube."""
        self._task = replace(self._task, epsilon=self.epsilon_)
        limits = {"n_restarts": self.n_restarts, "max_iter": self.max_iter}
        with self._watched(**limits) as watched:
            learned = paper.fit(
                self._task, cost=self.C_, rng=rng, tol=self.tol, **limits, **watched
            )
        self._set_fitted(learned, self._describe())
        if not (self.converged_ or self.interrupted_):
            warn_not_converged(self.max_iter, self.tol, stacklevel=4)

    def _describe(self) -> Context:
        """What trees say of the data and of the fit."""
        return Context(
            X=self._task.X,
            y=self._task.Y,
            index=None,
            feature_names=feature_names(self),
            labels=np.array([f"y{i}" for i in range(self._task.Y.shape[1])]),
            target="regression",
            config=self._config(self._task.priors),
            attrs={
                "variant": "paper",
                "C": float(self.C_),
                "epsilon": float(self.epsilon_),
                "std_factor": self.std_factor_.tolist(),
                "objective": "bound",
            },
        )

    # ---------------------------------------------------------------- after the fit

    def predict(
        self, X: Any, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Mean of the outputs of new rows, and their standard deviation.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN where an entry is missing.
        return_std : bool
            Also return the standard deviation of a new observation: uncertainty of the score
            and noise of the tube.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        rows = self._samples(X)
        if not return_std:
            mean = self._learned.posterior.score_means(rows)
            return self._shaped(mean * self.y_scale_ + self.y_mean_)
        mean, std = self._moments(rows)
        return self._shaped(mean), self._shaped(std)

    def _shaped(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self._one_output else values

    def _moments(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of new observations, in the units of y: (M, K)."""
        mean, variance = self._learned.posterior.score_moments(rows)
        std = np.sqrt(variance + regression.noise_variance(self.C_, self.epsilon_))
        return mean * self.y_scale_ + self.y_mean_, std * self.std_factor_ * self.y_scale_

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """LatentCoordinates and predictions of new rows as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like, optional
            True targets.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: latent_mean, latent_cov, prediction, prediction_sd, y; and
            how unusual the rows are, t2, q_residual and tail_probability
            (:mod:`bsdr_models.numerics.outliers`).
        """
        rows = self._samples(X)
        mean, std = self._moments(rows)
        unusual, reference = self._outliers(rows)
        return self._context.predictions_tree(
            self._spec,
            latent=self._learned.posterior.embed(rows),
            values={"prediction": mean, "prediction_sd": std, **unusual},
            y=read_truth(y, classes=False),
            inference_method="mean_field",
            attrs=reference,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
