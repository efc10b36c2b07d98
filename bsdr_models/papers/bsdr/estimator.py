"""Scikit-learn estimators of BSDR as printed, by every inference method."""

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar, Self, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bsdr.estimator import BaseBSDR
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import (
    check_samples,
    feature_names,
    sample_labels,
    units_of_samples,
    warn_unless_mixed,
)
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.estimators.regressor import GaussianRegressor
from bsdr_models.inference.dims import FEATURE, LABEL
from bsdr_models.inference.result import Result
from bsdr_models.inference.trees import read
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, Target, TargetLike
from bsdr_models.numerics.relevance import relevance
from bsdr_models.numerics.rng import RandomState
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import COUNT, Options, Sampling, StrOptions
from bsdr_models.papers.bsdr import trees
from bsdr_models.papers.bsdr.engines import (
    Inference,
    Optimization,
    declare,
    fit_mean_field,
    sample,
)
from bsdr_models.papers.bsdr.posterior import MeanFieldPosterior, PaperPosterior
from bsdr_models.papers.bsdr.trees import PaperContext

if TYPE_CHECKING:
    import pymc as pm

# Draws of the parameters that predictions average over.
N_PREDICT = 2000


class PaperEstimator(BaseBSDR):
    """The paper's model: arguments, fit by every inference method, and trees."""

    _context: PaperContext
    _result: Result[PaperPosterior]
    _drawn: xr.DataTree  # during a fit
    _standardize_outputs: bool
    _target: ClassVar[Target]
    _option_types: ClassVar[dict[str, type[Options]]] = {
        "priors": Priors,
        "sampling": Sampling,
        "optimization": Optimization,
    }
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_components": [COUNT],
        "inference": [StrOptions(set(get_args(Inference)))],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        inference: Inference = "mean_field",
        priors: Priors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        optimization: Optimization | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.inference = inference
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.optimization = optimization
        self.progressbar = progressbar
        self.random_state = random_state

    @property
    def _method(self) -> Inference:
        return self.inference

    def _scale(self, X: FloatArray) -> FloatArray:
        scaled = super()._scale(X)
        self._check_width()
        return scaled

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[PaperPosterior]:
        priors: Priors = self._option("priors")
        scale = float(priors.latent_scale)
        context = PaperContext.of(self._context, targets.coded, priors=priors, latent_scale=scale)
        self._context = context
        n_components = int(self.n_components or 1)
        with units_of_samples(context.X, standardize=self.standardize):
            if self.inference != "mean_field":
                schedule = self._schedule()
                self._drawn = sample(
                    self.inference, context, n_components=n_components, schedule=schedule, rng=rng
                )
                return self._of_draws(self._drawn)
            data = context.data(priors.projection_prior)
            found = fit_mean_field(
                data,
                priors,
                n_components=n_components,
                rng=rng,
                progressbar=self.progressbar,
                **asdict(self._option("optimization")),
            )
        return found.with_posterior(MeanFieldPosterior.of(found.posterior, data, scale))

    def _of_draws(self, tree: xr.DataTree) -> Result[PaperPosterior]:
        """Result of a tree of draws; warns if the chains have not mixed."""
        bias = "bias_centered" if "bias_centered" in tree["posterior"] else "bias"
        converged = warn_unless_mixed(tree, ["coef", bias])
        varies = {FEATURE: self._scaler.varies}
        posterior = tree["posterior"].to_dataset().isel(varies, missing_dims="ignore")
        fit = tree["fit"]
        return Result(
            posterior=self._context.posterior(posterior, N_PREDICT),
            trace=fit["elbo"].to_numpy() if "elbo" in fit else np.array([]),
            converged=converged,
            interrupted=bool(tree.attrs.get("interrupted", 0)),
        )

    def _name_fitted(self) -> None:
        result = self._result
        posterior = result.posterior
        drawn: xr.DataTree | None = self.__dict__.pop("_drawn", None)
        if isinstance(posterior, MeanFieldPosterior):
            components = posterior.components().T
            contrast = self._context.contrast(posterior.state.weights.mean[1:])
            share = relevance(posterior.state.latent.mean, contrast)
        else:
            assert drawn is not None
            fit = drawn["fit"].to_dataset().isel({FEATURE: self._scaler.varies})
            components = fit["projection_mean"].to_numpy()
            share = fit["relevance"].to_numpy()
            self._tree = drawn
            n_draws = drawn["posterior"].sizes["draw"]
            self.n_iter_ = len(result.trace) or n_draws + self._schedule().tune
        self.latent_scale_ = self._context.latent_scale
        self.lower_bounds_ = result.trace
        self._set_components(components, share, self._context.X)
        self.n_components_ = self._n_features_out

    @classmethod
    def from_posterior(
        cls, tree: xr.DataTree, X: SamplesLike, y: TargetLike, *, latent_scale: float = 0.0
    ) -> Self:
        """A fitted estimator from draws of a model that was declared or changed by hand.

        Parameters
        ----------
        tree : xarray.DataTree
            From ``pymc.sample``. Group ``posterior`` needs ``projection`` (chain, draw, feature,
            component), ``weights`` (chain, draw, component, outcome) and ``bias`` (chain, draw,
            outcome), with these dims in any order. Of a regressor also ``noise_scale``, the
            standard deviation of the noise, or ``noise_precision`` (chain, draw, outcome). Features
            and outcomes with coordinates are matched to the columns of X (without names x0, x1,
            ...), the classes, or the columns of y, by name; numbers from 0 are positions.
        X : array-like of shape (n_samples, n_features)
            Training samples as the model has seen them. They are not scaled again, nor are new
            samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their classes, outcomes being the sorted classes; or their outputs as the model has seen
            them, in whose units predictions are.
        latent_scale : float, default=0
            Standard deviation of the latent coordinates around the projection:
            ``priors.latent_scale`` in the paper's model.

        Returns
        -------
        PaperBSDRClassifier or PaperBSDRRegressor
            With all draws in ``idata_``, whose components are aligned by signed permutations. Other
            groups and variables of the tree are kept there as they are.

        Raises
        ------
        TypeError
            If `tree` is not a DataTree.
        ValueError
            If variables are missing, have other dims, no draws, are not real and finite or do not
            fit X and y in size or names, the noise is not positive or given twice, or an output is
            constant.

        Examples
        --------
        >>> import pymc as pm
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.preprocessing import scale
        >>> from bsdr_models.papers.bsdr import build_model
        >>> from bsdr_models.papers import PaperBSDRClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> X = scale(X)
        >>> with build_model(X, y, n_components=2):
        ...     tree = pm.sample_prior_predictive(20, random_seed=0)
        >>> tree["posterior"] = tree["prior"]  # pm.sample takes longer
        >>> model = PaperBSDRClassifier.from_posterior(tree, X, y, latent_scale=1.0)
        >>> model.predict_proba(X).shape
        (150, 3)
        """
        read(tree, "posterior")  # which raises before X and y are looked at
        model = cls(inference="nuts", standardize=False)
        check_samples(X, y)
        samples = sample_labels(X)
        array = model._read(X, reset=True)
        model._standardize_outputs = False
        targets = model._read_targets(y)
        if targets.kind != cls._target:
            raise ValueError("y must hold one class of each sample, got label sets")
        names = {FEATURE: feature_names(model).tolist(), LABEL: targets.names.tolist()}
        posterior, draws = trees.read_draws(tree, cls._target, names)
        model.n_components = draws["projection"].shape[3]
        if not 0.0 <= latent_scale < np.inf:
            raise ValueError(f"latent_scale must be a finite number, not below 0: {latent_scale!r}")
        model._set_scaler(Scaler.identity(array.shape[1]))
        model._seed = 0
        context = PaperContext(
            X=array,
            y=targets.y,
            index=targets.index,
            labels=targets.names,
            target=cls._target,
            attrs=targets.attrs,
            feature_names=feature_names(model),
            config={"n_components": model.n_components, "standardize": False},
            samples=samples,
            targets=targets.coded.astype(bool) if targets.kind == "multilabel" else targets.coded,
            priors=None,
            latent_scale=float(latent_scale),
        )
        model._context = context
        model._drawn = trees.user_tree(tree, posterior, draws, context)
        model._set_result(model._of_draws(model._drawn), context)
        model._name_fitted()
        model.n_iter_ = posterior.sizes["draw"]
        return model

    def _make_tree(self) -> xr.DataTree:
        rng = np.random.default_rng(self._seed)
        return trees.mean_field_tree(self._result, self._context, rng=rng)

    def _mean_effects(self) -> tuple[FloatArray, FloatArray]:
        coef, bias = self._posterior.effects()
        return self._context.contrast(coef), self._context.contrast(bias)

    def _attrs(self) -> dict[str, object]:
        return super()._attrs() | {"latent_scale": self.latent_scale_}

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples, and on standardised real targets.

        Scale new samples by ``(X - mean_) / scale_``. ``idata_`` holds the free variables, so that
        the functions of PyMC take it; :func:`bsdr_models.papers.bsdr.build_model` says how to
        predict new samples. ``pm.compute_log_likelihood`` is given the latent coordinates, which
        the group ``log_likelihood`` of ``idata_`` integrates out, as ``arviz.loo`` needs it.
        """
        check_is_fitted(self)
        if self._context.priors is None:
            raise AttributeError("model_ is unknown: the draws are of a model of the user")
        return self._context.name_dims(declare(self._context, self.n_components_))


class PaperBSDRClassifier(ProbabilisticClassifier, PaperEstimator):
    """Bayesian supervised dimensionality reduction as printed [1]_, for classification.

    A multinomial probit classifier on latent coordinates, which are a random projection of the
    features. :class:`bsdr_models.BSDRClassifier`, at full rank, predicts better.

    Parameters
    ----------
    n_components : int, default=2
        R, dimension of the latent space, at most the number of features.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. NUTS and ADVI compile the PyMC model.
    priors : Priors, optional
        Hyper-parameters, with the kind of the projection prior and the latent scale; by default
        those of the paper. Samplers mix better with ``bsdr_models.bsdr.SAMPLING``.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over at most 2000 evenly spaced draws.
    optimization : Optimization, optional
        Initialisation, restarts, iterations and tolerance of mean field, see
        :class:`bsdr_models.bsdr.Optimization`.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    progressbar, random_state
        As for :class:`bsdr_models.BSDRClassifier`.

    Attributes
    ----------
    latent_scale_ : float
        Standard deviation of the latent coordinates given the features.
    lower_bounds_ : ndarray of shape (n_iter,)
        Bound in nats after each iteration of the best restart: exact by mean field, by ADVI an
        estimate of one draw; empty for samplers.
    n_iter_ : int
        Iterations of mean field, steps of ADVI, or sweeps of a sampler.
    converged_ : bool
        Mean field: whether it ended before ``max_iter``; otherwise it warns. Samplers: whether
        R-hat of identified quantities is below 1.05.
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection of scaled features.
    classes_, n_components_, mean_, scale_, relevance_, interrupted_, idata_, model_
        As for :class:`bsdr_models.BSDRClassifier`.

    See Also
    --------
    bsdr_models.BSDRClassifier : the recommended model.
    bsdr_models.papers.bsdr.build_model : the model in PyMC.

    Notes
    -----
    Predictions are the posterior predictive. Mean field underestimates posterior variances.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = PaperBSDRClassifier(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    >>> model.latent_scale_
    1.0
    """

    _target = "multiclass"
    _several: ClassVar[bool] = True


class PaperBSDRRegressor(GaussianRegressor, PaperEstimator):
    """The reduced-rank regression of Section II-D of the paper of :class:`PaperBSDRClassifier`.

    Outputs are standardised internally. :class:`bsdr_models.BSDRRegressor` is recommended.

    Parameters
    ----------
    n_components, inference, priors, standardize, sampling, optimization, progressbar, random_state
        As for :class:`PaperBSDRClassifier`.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; other attributes as for :class:`PaperBSDRClassifier`.

    See Also
    --------
    bsdr_models.BSDRRegressor : the recommended model.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bsdr_models.papers import PaperBSDRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = PaperBSDRRegressor(random_state=0).fit(X[:200], y[:200])
    >>> mean, std = model.predict(X[200:], return_std=True)
    >>> mean.shape, std.shape
    ((242,), (242,))
    """

    _target = "regression"

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, std = self._posterior.moments(X)
        return mean, std
