"""Scikit-learn regressor of BM2PCA: the epsilon-insensitive loss in place of the hinge."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca.estimator import BaseBM2PCA
from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import feature_names, read_views
from bsdr_models.estimators.regressor import GaussianRegressor
from bsdr_models.inference.dims import FEATURE
from bsdr_models.inference.result import Result
from bsdr_models.inference.tasks import run_tasks
from bsdr_models.numerics.arrays import FloatArray, IntArray, Rows
from bsdr_models.numerics.folds import N_FOLDS
from bsdr_models.numerics.process_state import warn
from bsdr_models.options import COUNT, POSITIVE, TOLERANCE, Options, RandomState
from bsdr_models.papers.bm2pca.conjugate import (
    BM2PCAProblem,
    MarginPosterior,
    fit_mean_field,
    run_sweeps,
)

if TYPE_CHECKING:
    import pymc as pm

# Sweeps of a fit without the held-out samples, enough for their predictions to converge.
SWEEPS = 50
# Gain of the last rounds, in nats, at which a fit ends: less changes no prediction that matters.
TOL = 0.2
# Pseudo-samples that are predicted as believed, which regularise the calibration for few samples.
PSEUDO_SAMPLES = 1.0
# Features up to which there are as many components, whose cost is cubic in their number,
FEW_FEATURES = 30
# and components of more features.
N_COMPONENTS = 10
# Noise precision of features of unit variance that leaves independent features to the components,
SMALL_NOISE = 10.0
# and observations that its prior is worth: it is fixed.
CERTAIN = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonInsensitiveLoss(Options):
    """Loss of real targets in BM2PCA: linear beyond an interval without loss.

    Parameters
    ----------
    C : float, default=3.0
        Half the slope beyond epsilon, per standard deviation of the output.
    epsilon : float, default=0.1
        Half width of the interval without loss, in standard deviations of the output.
    calibrate : bool, default=True
        Whether predictions are multiplied by the slope of a regression of held-out targets on them,
        in five folds, and standard deviations scaled to the size of its residuals. Without this,
        predictions are shrunk too much where few components explain the features.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    HingeLoss : classes.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from bsdr_models import BM2PCARegressor, EpsilonInsensitiveLoss
    >>> model = BM2PCARegressor(loss=EpsilonInsensitiveLoss(epsilon=0.0))
    >>> search = GridSearchCV(model, {"loss__C": [1.0, 3.0, 10.0]})
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "C": [POSITIVE],
        "epsilon": [TOLERANCE],
        "calibrate": ["boolean"],
    }

    C: float = 3.0
    epsilon: float = 0.1
    calibrate: bool = True


@dataclass(eq=False, repr=False)
class BM2PCARegressor(GaussianRegressor, BaseBM2PCA):
    r"""Bayesian max-margin principal component analysis for real targets.

    Each sample has latent coordinates that explain its features and its targets. The negative log
    density of a target is the :math:`\epsilon`-insensitive loss of support vector regression [1]_,

    .. math::
        x_n \sim N(W z_n + t, I / \tau), \qquad
        p(y_{nc} \mid z_n) \propto e^{-2 C \max(0,\, |y_{nc} - f_{nc}| - \epsilon)}, \qquad
        f_{nc} = \eta_c^\top z_n + \eta_{c0},

    which is normal given two slack scales [2]_, so that mean field is conjugate.

    Parameters
    ----------
    n_components : int, optional
        Dimension R of the latent space, at most the number of features. By default it is the number
        of features, up to 30, and 10 for more features. If there are too few components, they
        explain the features and not the target.
    loss : EpsilonInsensitiveLoss, optional
        Cost C, epsilon and calibration of predictions, see
        :class:`bsdr_models.EpsilonInsensitiveLoss`.
    priors : BM2PCAPriors, optional
        Hyper-parameters. By default those of the paper. With as many components as features, a
        noise of a tenth of the features' variance is used if it predicts held-out samples better.
    max_iter : int, default=2000
        Iterations of mean field.
    views : dict, optional
        Lists of columns by the name of the view. Every view has its own loadings, offset and noise.
        A view may be missing (NaN) in a sample.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    n_jobs, progressbar, random_state
        As for :class:`BM2PCAClassifier`.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs.
    C_, epsilon_ : float
        Loss parameters of the fit.
    slope_, std_factor_ : ndarray of shape (n_outputs,)
        Calibration: slopes by which the posterior mean is multiplied, relative to the mean of the
        output, and factors of the standard deviations. Ones without calibration.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound in nats after each iteration.
    components_, mean_, scale_, relevance_, n_iter_, converged_, interrupted_, model_
        As for :class:`BM2PCAClassifier`.
    idata_ : xarray.DataTree
        As for :class:`BM2PCAClassifier`. ``coef`` and ``intercept`` are those of predictions: they
        are multiplied by ``slope_``, and their standard deviations are at least those between the
        folds of the calibration.

    See Also
    --------
    BSDRRegressor : models the targets only.
    BM2PCAClassifier : classes.

    Notes
    -----
    In this model only latent coordinates that explain features can predict a target. If the
    features are independent, a model with few components takes them as noise and predicts by
    little more than the first component of partial least squares, so that ridge regression is
    better. The choice of ``priors`` for few features avoids this.

    A sample without a target (NaN in y) contributes its features. Missing values of X are
    integrated out.

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

    n_components: int | None = None
    _: KW_ONLY
    loss: EpsilonInsensitiveLoss | None = None
    views: Mapping[str, ArrayLike] | None = None
    priors: BM2PCAPriors | None = None
    standardize: bool = True
    max_iter: int = 2000
    n_jobs: int | None = None
    progressbar: bool = False
    random_state: RandomState = None

    _method = "mean_field"
    _missing_outputs: ClassVar[bool] = True
    _sparse = False
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "loss": EpsilonInsensitiveLoss,
        "priors": BM2PCAPriors,
    }
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **BaseBM2PCA._parameter_constraints,
        "n_components": [COUNT, None],
        "max_iter": [COUNT],
    }

    def _scale(self, X: Rows) -> Rows:
        self._views = read_views(self.views, list(feature_names(self)))  # refused before any work
        return super()._scale(X)

    def _make_problem(self, Y: FloatArray) -> BM2PCAProblem:
        """Scaled samples and targets, with the columns of the views."""
        X = self._context.X
        d = X.shape[1]
        views = self._views
        columns: tuple[IntArray | None, ...] = (None,)
        if views is not None and len(views) > 1:
            columns = tuple(own for _, own in self._scaler.positions(views))
        n_components = self.n_components or (d if d <= FEW_FEATURES else N_COMPONENTS)
        return BM2PCAProblem(
            X=X,
            Y=Y,
            n_components=min(int(n_components), d),
            priors=self._option("priors"),
            columns=columns,
            cost=self.C_,
            epsilon=self.epsilon_,
        )

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[MarginPosterior]:
        loss: EpsilonInsensitiveLoss = self._option("loss")
        self.C_ = float(loss.C)
        self.epsilon_ = float(loss.epsilon)
        self._problem = self._make_problem(targets.coded)
        none = np.zeros(len(targets.names))
        self.slope_ = self.std_factor_ = none + 1.0
        calibrate_rng, fit_rng, division_rng = rng.spawn(3)
        coef_sd = none
        if loss.calibrate:
            coef_sd = self._calibrate(targets, calibrate_rng, division_rng)
        result = fit_mean_field(
            self._problem,
            rng=fit_rng,
            max_iter=int(self.max_iter),
            tol=TOL,
            progressbar=self.progressbar,
        )
        attrs = {
            "C": self.C_,
            "epsilon": self.epsilon_,
            "slope": self.slope_.tolist(),
            "std_factor": self.std_factor_.tolist(),
            "coef_sd": coef_sd.tolist(),
            "objective": "lower bound",
        }
        return replace(result, attrs=attrs)

    def _calibrate(
        self, targets: Targets, rng: np.random.Generator, division_rng: np.random.Generator
    ) -> FloatArray:
        """Set slopes and factors of the standard deviations from held-out predictions, and priors.

        Return the standard deviation of coefficients between folds, (K,), 0 without folds.
        """
        problem = self._problem
        n_outcomes = problem.Y.shape[1]
        training = self._training(targets, division_rng, metric=None)
        fold = np.where(np.isnan(problem.Y).all(axis=1), -1, training.divisions[0])
        least = N_FOLDS if training.groups is None else 2
        if np.count_nonzero(fold >= 0) < least:
            warn("too few samples have a target to hold some out: predictions are not calibrated")
            return np.zeros(n_outcomes)
        candidates = [problem]
        if self.priors is None and problem.n_components == problem.X.shape[1] <= FEW_FEATURES:
            noise = {"noise_shape": CERTAIN, "noise_rate": CERTAIN / SMALL_NOISE}
            candidates.append(replace(problem, priors=replace(problem.priors, **noise)))
        smallest = np.inf
        for candidate in candidates:
            mean, variance, sd = held_out(candidate, fold, rng, n_jobs=self.n_jobs)
            slope, factor = calibration(problem.Y, mean, variance)
            if (error := np.nanmean((problem.Y - slope * mean) ** 2)) < smallest:
                smallest = error
                coef_sd = sd
                self.slope_ = slope
                self.std_factor_ = factor
                self._problem = candidate
        return coef_sd

    def _make_tree(self) -> xr.DataTree:
        """Tree whose coefficients and intercepts are those of predictions.

        Mean field has them too narrow: their spread is at least that between folds.
        """
        tree = super()._make_tree()
        draws = tree["posterior"].dataset
        coef = draws["coef"].isel({FEATURE: self._scaler.varies})
        own = coef.var(("chain", "draw")).mean(FEATURE).values ** 0.5
        between = np.array(self._context.attrs["coef_sd"])
        factor = np.maximum(between / np.maximum(own, 1e-300), 1.0)
        for name in ("coef", "intercept"):
            mean = draws[name].mean(("chain", "draw"))
            draws[name].values[:] = self.slope_ * (
                mean.values + factor * (draws[name] - mean).values
            )
        return tree

    @property
    def model_(self) -> "pm.Model":
        """The model as a ``pymc.Model`` on the scaled training samples.

        ``pm.sample_posterior_predictive`` with ``idata_`` draws features and targets.
        """
        from bsdr_models.papers.bm2pca.model import build_model

        check_is_fitted(self)
        problem = self._problem
        if np.isnan(problem.X).any() or len(problem.columns) > 1:
            raise ValueError("model_ needs complete samples of one view")
        model = build_model(
            problem.X,
            problem.Y,
            n_components=problem.n_components,
            target="regression",
            priors=problem.priors,
            C=self.C_,
            epsilon=self.epsilon_,
        )
        return self._context.name_dims(model)

    @cached_property
    def _imputer(self) -> FactorModel:
        """Factor model of the fit."""
        return self._posterior.factor_model

    def _complete(self, X: Rows) -> Rows:
        return X  # the posterior integrates missing values out

    def _mean_effects(self) -> tuple[FloatArray, FloatArray]:
        coef, intercept = super()._mean_effects()
        return coef * self.slope_, intercept * self.slope_

    def _moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._posterior.score_moments(X)
        std = np.sqrt(variance + noise_variance(self.C_, self.epsilon_))
        return mean * self.slope_, std * self.std_factor_


def noise_variance(cost: float, epsilon: float) -> float:
    """Variance of y about f, under the density of the epsilon-insensitive loss."""
    total = 2.0 * epsilon**3 / 3.0 + epsilon**2 / cost + epsilon / cost**2 + 0.5 / cost**3
    return total / (2.0 * epsilon + 1.0 / cost)


def held_out(
    problem: BM2PCAProblem,
    fold: IntArray,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = 1,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Predictive mean and variance (N, K) of held-out samples, NaN for those of fold -1.

    The last is the jackknife standard deviation of coefficients (K,), root mean square over
    features. Raise KeyboardInterrupt if the user stops the fits, of a fixed number of plain sweeps.
    """
    n_folds = int(fold.max()) + 1
    streams = rng.spawn(n_folds)

    def moments(number: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        test = fold == number
        training = problem.subset(np.flatnonzero(~test))
        posterior = run_sweeps(training, SWEEPS, streams[number])
        return *posterior.score_moments(problem.X[test]), posterior.effects()[0]

    found = run_tasks(moments, range(n_folds), n_jobs=n_jobs, what="folds").complete()
    mean, variance = np.full((2, *problem.Y.shape), np.nan)
    for number, (own_mean, own_variance, _) in enumerate(found):
        mean[fold == number] = own_mean
        variance[fold == number] = own_variance
    coef = np.stack([coef for *_, coef in found])
    coef_sd = np.sqrt((n_folds - 1) * coef.var(axis=0).mean(axis=0))
    return mean, variance + noise_variance(problem.cost, problem.epsilon or 0.0), coef_sd


def calibration(
    Y: FloatArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Calibration of held-out predictions (N, K), NaN without a target or a prediction.

    These are the slopes (K,) of the regression of targets on predictions, at least 0, and factors
    (K,) that scale standard deviations to the size of its residuals.
    """
    known = ~np.isnan(Y - mean)
    Y, mean, variance = (np.where(known, each, 0.0) for each in (Y, mean, variance))
    product = np.sum(Y * mean, axis=0)
    square = np.sum(mean**2, axis=0)
    slope = np.maximum((product + PSEUDO_SAMPLES) / (square + PSEUDO_SAMPLES), 0.0)
    residual = (Y - slope * mean) ** 2
    ratio = np.sum(np.divide(residual, variance, out=np.zeros_like(Y), where=known), axis=0)
    return slope, np.sqrt((ratio + PSEUDO_SAMPLES) / (known.sum(axis=0) + PSEUDO_SAMPLES))
