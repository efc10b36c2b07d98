"""Scikit-learn estimators of BSDR."""

from typing import Any, Self

import numpy as np
import xarray as xr
from scipy.sparse import issparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.arrays import FloatArray
from bsdr_models.base import GaussianRegressor, ProbabilisticClassifier
from bsdr_models.block_checks import check_blocks, take_subsample
from bsdr_models.block_sources import (
    check_two_axes,
    is_block_source,
    make_blocks,
    read_block_labels,
)
from bsdr_models.bsdr import hierarchical
from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.laplace import check_size, fit_laplace_blocks
from bsdr_models.bsdr.posterior import Problem
from bsdr_models.checks import check_classes, check_variation, encode_labels, one_thread
from bsdr_models.frames import require_targets, sample_labels
from bsdr_models.inference.datatree import output_attrs
from bsdr_models.unlabeled import read_labels


class BSDRClassifier(ProbabilisticClassifier, BaseBSDR):
    """Bayesian supervised dimensionality reduction for classification.

    A multinomial probit classifier whose linear predictor has one projection of the features for
    each contrast of classes, with a matrix-normal prior whose scale is learned: a regression whose
    rank the prior reduces by shrinkage. Latent coordinates are its canonical variates. The
    posterior is sampled by Hamiltonian Monte Carlo, or approximated by Laplace's method for many
    samples.
    ``variant="paper"`` is the model of the paper [1]_.

    Parameters
    ----------
    n_components : int, optional
        Number of latent coordinates, the leading canonical variates. None is all of them, the
        number of classes less one (for multi-label targets, the number of labels); see
        ``n_components_``. Predictions do not depend on it. For the paper's model the dimension of
        the latent space, 2 by default.
    variant : {"hierarchical", "paper"}, default="hierarchical"
        The model, see :func:`bsdr_models.bsdr.build_model`. Arguments marked "paper's model" below
        raise an error for the other.
    inference : {"hmc", "laplace", "nuts", "advi", "mean_field", "gibbs"}, optional
        Inference method. Model at full rank: ``"hmc"``, Hamiltonian Monte Carlo, or ``"laplace"``,
        a normal approximation around the mode, for at most 10 000 features times contrasts. None is
        ``"hmc"`` up to about 25 000 samples (ten classes, 64 features) and ``"laplace"`` beyond.
        Paper's model: ``"mean_field"``, the default, or ``"gibbs"``. ``"nuts"`` and ``"advi"``
        compile the PyMC model of either.
    kernel : str, Kernel, callable, or list of these, default="linear"
        Kernel of the Gaussian process prior of the linear predictor. ``"linear"`` is linear in the
        features; ``"rbf"``, ``"matern"``, ``"polynomial"`` and ``"cosine"`` stand for a
        :class:`bsdr_models.bsdr.Kernel` with its defaults. A function, such as a kernel of
        scikit-learn's Gaussian processes, gets scaled samples. ``"precomputed"``: X is the kernel
        matrix of the training samples, later that of new samples with them. ``"auto"`` selects
        among the linear kernel and three widths of ``"matern"`` by the log score of held-out
        samples. A list gives the sum of kernels, each with its own scale. Above 1500 training
        samples kernels have 500 landmarks. Neither for Dask arrays nor for the paper's model, as
        ``views``.
    views : mapping, sequence or array-like of shape (n_features,), optional
        Groups of features, each with a scale of its own: columns by the name of the view, the
        columns of each view, or the name of the view of each feature. A new sample may lack views
        (NaN), which are integrated out. If every training sample has exactly one view, the views
        are instruments that measure the same classes. Relative scales are those of the largest
        marginal posterior density, but for ``"nuts"`` and ``"advi"``, which sample them. Not for
        ``inference="laplace"``.
    temperature : "auto" or float, default="auto"
        The log of class probabilities is divided by it. 1 is the posterior predictive, which is
        under-confident on most real data; ``"auto"`` selects a value by held-out samples
        (:mod:`bsdr_models.bsdr.held_out`), by ``"hmc"`` only, and at least 1 without a signal.
    priors : HierarchicalPriors or Priors, optional
        Hyper-parameters: :class:`HierarchicalPriors` for the hierarchical model, :class:`Priors`
        for the paper's, which include the kind of its projection prior and the latent scale.
        Samplers of the paper's model mix better with ``bsdr_models.bsdr.SAMPLING``.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    sampling : Sampling, optional
        Draws, warm-up and chains. By default 160 to 800 draws of each chain of ``"hmc"``, by the
        size of the problem, 1000 of other engines. A chain of ``"hmc"`` holds the draws of four
        chains that run side by side, one after the other.
    optimization : Optimization, optional
        Paper's model: restarts, iterations and tolerance of mean field, see
        :class:`bsdr_models.bsdr.Optimization`.
    n_jobs : int, optional
        Restarts of the paper's model run in parallel, by joblib as in scikit-learn: None is 1
        unless in a ``joblib.parallel_config``, -1 is all cores. The result does not depend on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is advanced by each fit, so that two fits differ.

    Attributes
    ----------
    variant_ : str
        The model that was fitted.
    classes_ : ndarray of shape (n_classes,)
    n_components_ : int
        Number of columns of :meth:`transform`.
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection of scaled features; hierarchical model: loadings of the
        coordinates returned by :meth:`transform`. Of a kernel mean gradients over the training
        samples, if they are known.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the linear predictor, for the model at full rank
        of its class means.
    kernel_ : str, Kernel, callable or list
        The kernel of the fit. This and the next three: hierarchical model only.
    views_ : list of str
        Names of the views, or of several kernels, if there are any; with the next.
    view_share_ : ndarray of shape (n_views,)
        Posterior mean of the share of each view in the variance of the linear predictor, see
        :func:`bsdr_models.plots.plot_views`.
    temperature_ : float
        Temperature of class probabilities; 1 is the posterior predictive. This and the next four:
        model at full rank only.
    log_evidence_, log_evidence_error_ : float
        Log marginal likelihood of the training labels, in nats, with its standard error; NaN unless
        by ``"hmc"``, ``"conjugate"`` or ``"laplace"``.
    log_bayes_factor_ : float
        Log Bayes factor against the model without features. Below log 3 there is little evidence
        that the labels depend on the features.
    held_out_score_ : float
        Held-out log score: mean log probability of the labels that were held out to choose the
        temperature, at the selected one; NaN if none was. For several labels, per label.
    held_out_gain_, held_out_gain_se_ : float
        How much better it is than that of the class frequencies, and its standard error. The fit
        warns if neither it nor the Bayes factor shows a signal.
    latent_scale_ : float
        Latent scale of the fit. This and the next: paper's model only.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound of mean field in nats after each iteration of the best restart; empty for other
        inference methods.
    n_iter_ : int
        Draws of a chain, evaluations of ``"laplace"``, sweeps of a sampler, or iterations of mean
        field.
    converged_ : bool
        Samplers: whether R-hat of identified quantities is below 1.05. ``"laplace"``: whether a
        mode was found and the Pareto k of the importance ratios is below 0.7. Mean field: whether
        it ended before ``max_iter``; otherwise it warns.
    interrupted_ : bool
        Whether the fit was stopped by the user; it can still be used.
    idata_ : xarray.DataTree
        Posterior draws, diagnostics and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The PyMC model on the training samples.

    See Also
    --------
    BM2PCAClassifier : few samples, missing values, unlabelled samples.
    DGPLVMClassifier : a nonlinear map.
    cross_validated_map : a map of samples that the model has not seen.
    bsdr_models.bsdr.build_model : the model in PyMC.

    Notes
    -----
    The model identifies the linear predictor. Its latent coordinates are the canonical variates of
    its posterior mean, in units of the probit noise and ordered by ``relevance_``; their covariance
    is that over draws, without the scale and shear that a draw gives all samples.

    On real data draws of the linear predictor differ more than the data justify, so that the
    posterior predictive is under-confident. The temperature corrects the probabilities; draws,
    intervals and latent coordinates do not depend on it. Whether the prior covariance of the
    projection is the identity or a power of that of the features is chosen by held-out samples.

    The priors assume features of unit variance.

    With a kernel the latent coordinates are nonlinear functions of the features
    (:mod:`bsdr_models.bsdr.kernels`); the effects of features are then mean gradients over the
    training samples.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.log_bayes_factor_ > 100.0)  # against the model without features, in nats
    True
    >>> curved = BSDRClassifier(kernel="matern", random_state=0).fit(X, y)
    >>> predictive = BSDRClassifier(temperature=1.0, random_state=0).fit(X, y)
    >>> predictive.temperature_
    1.0

    The model of the paper, by mean field:

    >>> paper = BSDRClassifier(n_components=2, variant="paper", random_state=0).fit(X, y)
    >>> paper.latent_scale_
    1.0
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit projection and classifier jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array
        y : array-like of shape (n_samples,), or (n_samples, n_labels) of 0 and 1
            Labels of any type; an indicator matrix is a multi-label problem, with an independent
            probit for each label in one shared latent space.

        Returns
        -------
        self : BSDRClassifier

        Notes
        -----
        Dask and Zarr arrays are fitted by Laplace's method, chunk by chunk, and need single labels.
        They are read once per evaluation, on the workers of an active ``distributed.Client`` if X
        is a Dask array. ``idata_`` contains an evenly spaced subsample of 2000.

        Warns if chains have not mixed, and if there is no signal or too few samples to tell.

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, an argument is out of range, or features times components are more than
            10 000 for Laplace's method.
        """
        self._reset()
        self._check_arguments()
        require_targets(self, y)
        if is_block_source(X):
            return self._fit_blocks(X, y)
        samples = sample_labels(X)
        X, y = self._samples_of_fit(X), read_labels(y)
        check_consistent_length(X, y)
        if type_of_target(y) == "multilabel-indicator":
            return self._fit_multilabel(X, y, samples)
        y = column_or_1d(y, warn=True)
        self.classes_, index = encode_labels(y)
        return self._fit(X, index, target="multiclass", labels=self.classes_, samples=samples)

    @classmethod
    def from_posterior(
        cls, tree: xr.DataTree, X: Any, y: Any, *, latent_scale: float = 0.0
    ) -> Self:
        """A fitted classifier from draws of a model that was declared or changed by hand.

        Parameters
        ----------
        tree : xarray.DataTree
            From ``pymc.sample``. Group ``posterior`` needs ``projection`` (chain, draw, feature,
            component), ``weights`` (chain, draw, component, outcome) and ``bias`` (chain, draw,
            outcome), in this order of their own axes, whatever the names of these.
        X : array-like of shape (n_samples, n_features)
            Training samples as the model has seen them. They are not scaled again, nor are new
            samples.
        y : array-like of shape (n_samples,)
            Their classes; outcomes are the sorted classes.
        latent_scale : float, default=0
            Standard deviation of the latent coordinates around the projection.

        Returns
        -------
        BSDRClassifier
            With the paper's probit for predictions, and all draws in ``idata_``,
            whose components are aligned by signed permutations. Other groups and variables of the
            tree are kept there as they are.

        Raises
        ------
        TypeError
            If `tree` is not a DataTree.
        ValueError
            If variables are missing, not finite or do not fit X and y.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.preprocessing import scale
        >>> from bsdr_models import BSDRClassifier
        >>> from bsdr_models.bsdr import build_model
        >>> X, y = load_iris(return_X_y=True)
        >>> X = scale(X)
        >>> with build_model(X, y, n_components=2, variant="paper"):
        ...     tree = pm.sample_prior_predictive(20, random_seed=0)
        >>> tree["posterior"] = tree["prior"]  # pm.sample takes longer
        >>> model = BSDRClassifier.from_posterior(tree, X, y)
        >>> model.predict_proba(X).shape
        (150, 3)
        """
        return cls._from_posterior(tree, X, y, target="multiclass", latent_scale=latent_scale)

    def _read_given(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.classes_, index = encode_labels(column_or_1d(read_labels(y), warn=True))
        return index, {"labels": self.classes_}

    def _fit_blocks(self, X: Any, y: Any) -> Self:
        """Fit to classes, with samples in blocks, by Laplace's method."""
        if self.variant != "hierarchical":
            raise ValueError("samples in blocks need variant='hierarchical'")
        self._check_linear("samples in blocks")
        if self.inference not in (None, "laplace"):
            raise ValueError(f"samples in blocks need inference='laplace', got {self.inference!r}")
        samples = sample_labels(X)
        check_two_axes(X)
        self.n_features_in_ = int(X.shape[1])
        checked = check_blocks(make_blocks(X, read_block_labels(X, y)))
        check_classes(checked.classes, checked.counts, stacklevel=4)
        self._check_width(self.n_features_in_)
        check_size(self.n_features_in_, len(checked.classes) - 1)
        self.classes_ = checked.classes
        self._scaler = checked.statistics.scaler(standardize=self.standardize)
        check_variation(self._scaler, stacklevel=4)
        subsample = take_subsample(checked)
        X = subsample.X
        X = X.toarray() if issparse(X) else np.asarray(X, dtype=np.float64)
        n_samples = sum(checked.blocks.sizes)
        rng = self._set_context(
            self._scaler.transform(X),
            subsample.y,
            target="multiclass",
            labels=self.classes_,
            variant="hierarchical",
            config=self._config(inference="laplace"),
            samples=None if samples is None else samples[subsample.index],
            kept=subsample.index,
            n_samples=n_samples,
        )
        priors, draws = self._option("priors"), self._option("sampling").draws
        sample_rng, outside_rng = rng.spawn(2)
        with (
            one_thread(),
            self._fitting((n_samples, self.n_features_in_)),
            hierarchical.search_progress(self.progressbar) as on_evaluation,
        ):
            normal = fit_laplace_blocks(
                checked.blocks,
                self._scaler,
                n_labels=len(self.classes_),
                target="multiclass",
                priors=priors,
                rng=sample_rng,
                n_draws=hierarchical.N_INDEPENDENT if draws is None else int(draws),
                on_evaluation=on_evaluation,
            )
            assert normal.metric is not None
            problem = Problem.build(
                normal.metric.whiten(self._context.X),
                subsample.y,
                n_labels=len(self.classes_),
                target="multiclass",
                priors=priors,
            )
            fit = hierarchical.fit_from_laplace(
                normal,
                problem,
                normal.metric,
                counts=checked.counts,
                n_components=self.n_components,
                temperature=1.0 if self.temperature == "auto" else float(self.temperature),
                rng=outside_rng,
            )
            self._set_fitted_hierarchical(fit)
        return self

    def _fit_multilabel(self, X: FloatArray, Y: np.ndarray, samples: np.ndarray | None) -> Self:
        on = Y.astype(bool)
        fixed = np.flatnonzero(on.all(axis=0) | ~on.any(axis=0))
        if fixed.size:
            raise ValueError(f"label {int(fixed[0])} of y is the same in every sample")
        self.classes_ = np.arange(Y.shape[1])
        return self._fit(X, on, target="multilabel", labels=self.classes_, samples=samples)

    @property
    def _exclusive(self) -> bool:  # type: ignore[override]
        return self._context.target != "multilabel"

    def _log_proba(self, X: FloatArray) -> FloatArray:
        log_p = super()._log_proba(X)
        if not self._exclusive:
            return np.minimum(log_p, 0.0)
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


class BSDRRegressor(GaussianRegressor, BaseBSDR):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian linear regression of several outputs that share the scale of their coefficients.
    Latent coordinates are the principal components of the linear predictor. ``variant="paper"`` is
    the reduced-rank regression of Section II-D of the paper of :class:`BSDRClassifier`. Outputs are
    standardised internally.

    Parameters
    ----------
    n_components, variant, kernel, views, priors, standardize, sampling, optimization, n_jobs, \
progressbar, random_state
        As for :class:`BSDRClassifier`, with one contrast per output.
    inference : {"conjugate", "nuts", "advi", "mean_field", "gibbs"}, optional
        ``"conjugate"``, the default, are independent draws of the exact posterior: all but the
        scales of projection and noise is integrated out, and these are on a grid. Scales of views
        are those of the highest marginal likelihood. Others as for :class:`BSDRClassifier`.
    temperature : "auto" or 1.0
        Ignored: predictions are the mean and standard deviation of the posterior predictive.

    Attributes
    ----------
    n_components_ : int
        At most the number of outputs.
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; other attributes as for :class:`BSDRClassifier`.

    See Also
    --------
    BM2PCARegressor : models the features too, and takes missing values.
    bsdr_models.bsdr.build_model : the model in PyMC.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bsdr_models import BSDRRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BSDRRegressor(random_state=0).fit(X[:200], y[:200])
    >>> mean, std = model.predict(X[200:], return_std=True)
    >>> mean.shape, std.shape
    ((242,), (242,))
    >>> model.transform(X).shape  # one output has one direction
    (442, 1)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit projection and regression jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self : BSDRRegressor

        Raises
        ------
        ValueError
            If the input is not finite, an output or every feature is constant, or an argument is
            out of range.
        """
        self._reset()
        self._check_arguments()
        require_targets(self, y)
        samples = sample_labels(X)
        X = self._samples_of_fit(X)
        Y, context = self._read_outputs(y, standardize=True)
        check_consistent_length(X, Y)
        return self._fit(X, Y, target="regression", samples=samples, **context)

    @classmethod
    def from_posterior(
        cls, tree: xr.DataTree, X: Any, y: Any, *, latent_scale: float = 0.0
    ) -> Self:
        """A fitted regressor from draws of a model that was declared or changed by hand.

        Parameters
        ----------
        tree : xarray.DataTree
            From ``pymc.sample``. Group ``posterior`` needs ``projection`` (chain, draw, feature,
            component), ``weights`` (chain, draw, component, outcome), ``bias`` (chain, draw,
            outcome), and either ``noise_scale``, the standard deviation of the noise, or
            ``noise_precision`` (chain, draw, outcome), in this order of their own axes, whatever
            the names of these.
        X : array-like of shape (n_samples, n_features)
            Training samples as the model has seen them. They are not scaled again, nor are new
            samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their outputs as the model has seen them, in whose units predictions are:
            ``y_mean_`` is 0 and ``y_scale_`` is 1.
        latent_scale : float, default=0
            Standard deviation of the latent coordinates around the projection: 0 for the
            hierarchical model, ``priors.latent_scale`` for the paper's.

        Returns
        -------
        BSDRRegressor
            With all draws in ``idata_``, whose components are aligned by signed permutations. Other
            groups and variables of the tree are kept there as they are.

        Raises
        ------
        TypeError
            If `tree` is not a DataTree.
        ValueError
            If variables are missing, not finite or do not fit X and y, the noise is not positive
            or given twice, or an output is constant.

        Examples
        --------
        >>> import pymc as pm
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.preprocessing import scale
        >>> from bsdr_models import BSDRRegressor
        >>> from bsdr_models.bsdr import build_model
        >>> X, y = load_diabetes(return_X_y=True)
        >>> X, y = scale(X), scale(y)
        >>> with build_model(X, y, n_components=1, variant="paper", target="regression"):
        ...     tree = pm.sample_prior_predictive(20, random_seed=0)
        >>> tree["posterior"] = tree["prior"]  # pm.sample takes longer
        >>> model = BSDRRegressor.from_posterior(tree, X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape
        ((442,), (442,))
        """
        return cls._from_posterior(tree, X, y, target="regression", latent_scale=latent_scale)

    def _read_given(self, y: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return self._read_outputs(y, standardize=False)

    def _read_outputs(self, y: Any, *, standardize: bool) -> tuple[FloatArray, dict[str, Any]]:
        """Outputs as the model sees them, (N, K), and what the context holds of them."""
        given, Y = self._scale_outputs(y, standardize=standardize)
        labels = np.array([f"y{i}" for i in range(Y.shape[1])])
        return Y, {"labels": labels, "given": given, "attrs": output_attrs(self._output_scaler)}

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        found: tuple[FloatArray, FloatArray] = self._posterior.moments(X)
        return found
