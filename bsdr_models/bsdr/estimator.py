"""Scikit-learn estimators of BSDR."""

from pathlib import Path
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
    is_read_by_block,
    make_blocks,
    read_block_labels,
)
from bsdr_models.bsdr import laplace_blocks
from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.partial_fit import PartialFit
from bsdr_models.checks import check_classes, check_variation, encode_labels, one_thread
from bsdr_models.frames import require_targets, sample_labels
from bsdr_models.inference.checkpoint import check_folder
from bsdr_models.inference.datatree import output_attrs
from bsdr_models.unlabeled import read_labels


class BSDRClassifier(ProbabilisticClassifier, PartialFit):
    """Bayesian supervised dimensionality reduction for classification.

    A linear projection to ``n_components`` dimensions and a multinomial probit classifier there
    are learned jointly [1]_. The default is a hierarchical model with one scale of the projection,
    sampled by tempered sequential Monte Carlo, or approximated by Laplace's method for many
    samples; ``variant="paper"`` is the model of the paper.

    Parameters
    ----------
    n_components : int or "auto", default=2
        R, dimension of the latent space. The hierarchical model uses at most the number of classes
        less one (for multi-label targets, the number of labels), see ``n_components_``. ``"auto"``
        selects the fewest within a standard error of the largest evidence, for
        ``inference="smc"`` only.
    variant : {"hierarchical", "paper"}, default="hierarchical"
        The model, see :func:`bsdr_models.bsdr.build_model`. Arguments marked "paper's model" below
        raise an error for the other.
    inference : {"smc", "laplace", "nuts", "advi", "mean_field", "gibbs"}, optional
        Inference method. Hierarchical model: ``"smc"``, tempered sequential Monte Carlo, or
        ``"laplace"``, a normal approximation around the mode, for at most 10 000 features times
        components. None is ``"smc"`` up to about 5000 samples (ten classes, 64 features) and
        ``"laplace"`` beyond. Paper's model: ``"mean_field"``, the default, or ``"gibbs"``.
        ``"nuts"`` and ``"advi"`` compile the PyMC model of either.
    kernel : str, Kernel, callable, or list of these, default="linear"
        Kernel of the Gaussian process prior of the latent functions. ``"linear"`` is the linear
        projection; ``"rbf"``, ``"matern"``, ``"polynomial"`` and ``"cosine"`` stand for a
        :class:`bsdr_models.bsdr.Kernel` with its defaults. A function, such as a kernel of
        scikit-learn's Gaussian processes, gets scaled samples. ``"precomputed"``: X is the kernel
        matrix of the training samples, later that of new samples with them. ``"auto"`` selects
        among the linear kernel and three widths of ``"matern"`` by the log score of held-out
        samples, at the cost of four choices of the pooling power. A list gives the sum of kernels,
        each with its own scale. Above 1500 training samples kernels have 500 landmarks. Neither
        for samples in blocks nor for the paper's model, as ``views``.
    views : mapping, sequence or array-like of shape (n_features,), optional
        Groups of features, each with a scale of its own: columns by the name of the view, the
        columns of each view, or the name of the view of each feature. A new sample may lack views
        (NaN), which are integrated out. If every training sample has exactly one view, the views
        are instruments that measure the same classes. Not for ``inference="laplace"``.
    pooling : {"auto", "linear", "log"} or float from 0 to 1, default="auto"
        How class probabilities are averaged over posterior draws: the mean of their powers a, to
        the power 1 / a (:mod:`bsdr_models.bsdr.pooling`). ``"linear"``, a = 1, is the posterior
        predictive distribution; ``"log"``, a = 0, the normalised geometric mean. ``"auto"`` weights
        a by the likelihood of held-out labels, at the cost of up to five more fits with fewer
        draws; it is 1 for ``"laplace"``. The paper's model is always pooled linearly.
    priors : HierarchicalPriors or Priors, optional
        Hyper-parameters: :class:`HierarchicalPriors` for the hierarchical model, :class:`Priors`
        for the paper's, which include the kind of its projection prior and the latent scale.
        Samplers of the paper's model mix better with ``bsdr_models.bsdr.SAMPLING``.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    sampling : Sampling, optional
        Draws, warm-up and chains. ``"smc"`` rounds the draws of each chain up to a multiple of its
        particles; by default they are 384 for small problems and fewer for large ones, 400 for
        ``"laplace"``, otherwise 1000. Predictions average over at most 500 evenly spaced ones (256
        of the hierarchical model).
    optimization : Optimization, optional
        Paper's model: restarts, iterations and tolerance of mean field, see
        :class:`bsdr_models.bsdr.Optimization`.
    out_of_core : OutOfCore, optional
        Size of blocks and checkpoint of a fit by Laplace's method to samples in blocks, see
        :class:`bsdr_models.bsdr.OutOfCore`.
    n_jobs : int, optional
        Populations, folds and restarts run in parallel, by joblib as in scikit-learn: None is 1
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
        Number of columns of :meth:`transform`. Hierarchical model: at most the number of classes
        less one.
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection of scaled features; hierarchical model: loadings of the
        coordinates returned by :meth:`transform`. Of a kernel mean gradients over the training
        samples, if they are known.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the linear predictor, for the hierarchical model
        of its class means.
    kernel_ : str, Kernel, callable or list
        The kernel of the fit. This and the next three: hierarchical model only.
    views_ : list of str
        Names of the views, or of several kernels, if there are any; with the next.
    view_share_ : ndarray of shape (n_views,)
        Posterior mean of the share of each view in the variance of the linear predictor, see
        :func:`bsdr_models.plots.plot_views`.
    pooling_power_ : float
        Power at which probabilities are pooled; 1 is the posterior predictive. This and the next
        four: hierarchical model only.
    log_evidence_ : float
        Log marginal likelihood of the training labels, in nats; NaN unless by ``"smc"`` or
        ``"laplace"``.
    log_bayes_factor_ : float
        Log Bayes factor against the model without features. Below log 3 there is little evidence
        that the labels depend on the features, and the fit warns.
    held_out_score_ : float
        Held-out log score: mean log probability of the labels that were held out to choose the
        power, at the selected one; NaN if none was. None is held out without a signal, or by
        ``"laplace"``. For several labels, per label.
    held_out_gain_, held_out_gain_se_ : float
        How much better it is than that of the class frequencies, and its standard error. Where
        there is no Bayes factor, the fit warns if the gain less 1.28 standard errors is at most
        0.01.
    latent_scale_ : float
        Latent scale of the fit. This and the next: paper's model only.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound of mean field in nats after each iteration of the best restart; empty for other
        inference methods.
    n_iter_ : int
        Temperatures of the longest run of ``"smc"``, evaluations of ``"laplace"``, sweeps of a
        sampler, or iterations of mean field.
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
    The likelihood identifies the latent space only up to an affine map. The hierarchical model
    therefore reports identified coordinates: canonical variates of the posterior mean of the linear
    predictor, in units of the probit noise and ordered by ``relevance_``. Their covariance is that
    over draws.

    On real data single draws are overconfident and differ more than the data justify, so that the
    posterior predictive is under-confident. Pooling with a power below one corrects the
    probabilities; draws, intervals and latent coordinates do not depend on the power.

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
    >>> model = BSDRClassifier(n_components=2, random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    >>> bool(model.log_bayes_factor_ > 100.0)  # against the model without features, in nats
    True
    >>> curved = BSDRClassifier(kernel="matern", random_state=0).fit(X, y)
    >>> linear = BSDRClassifier(n_components="auto", pooling="linear", random_state=0).fit(X, y)
    >>> linear.n_components_, linear.pooling_power_
    (2, 1.0)

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
        Samples in blocks (a Dask or Zarr array, or a ``block_size``) are fitted by Laplace's
        method and need single labels and a given ``n_components``. They are read once per
        evaluation, on the workers of an active ``distributed.Client`` if X is a Dask array.
        ``idata_`` contains an evenly spaced subsample of 2000.

        Warns if the Bayes factor against the model without features is below 3, and if R-hat
        exceeds its limit.

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
        if is_block_source(X) or self._option("out_of_core").block_size is not None:
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
            With the paper's probit for predictions, linear pooling, and all draws in ``idata_``,
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
        >>> with build_model(X, y, n_components=2):
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
        """Fit to classes, with samples in blocks."""
        self._check_laplace_only("samples in blocks")
        out_of_core = self._option("out_of_core")
        if out_of_core.checkpoint is not None:
            check_folder(Path(out_of_core.checkpoint))
        samples = sample_labels(X)
        if is_read_by_block(X):
            check_two_axes(X)
            self.n_features_in_ = int(X.shape[1])
        else:
            X = self._samples_of_fit(X)
        y = read_block_labels(X, y)
        checked = check_blocks(make_blocks(X, y, block_size=out_of_core.block_size))
        check_classes(checked.classes, checked.counts, stacklevel=4)
        self._check_width(self.n_features_in_)
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
            config=self._config(inference=self._engine),
            samples=None if samples is None else samples[subsample.index],
            kept=subsample.index,
            n_samples=n_samples,
        )
        with one_thread(), self._fitting((n_samples, self.n_features_in_)):
            fit = laplace_blocks.fit_blocks(
                checked.blocks,
                self._scaler,
                (self._context.X, subsample.y),
                checked.counts,
                self._laplace_model(len(self.classes_)),
                rng=rng,
                checkpoint=out_of_core.checkpoint,
                progressbar=self.progressbar,
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
        tags.input_tags.sparse = self._option("out_of_core").block_size is not None
        return tags


class BSDRRegressor(GaussianRegressor, BaseBSDR):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian reduced-rank regression: samples are projected to ``n_components`` dimensions, in
    which the outputs are linear with Gaussian noise (Section II-D of the paper of
    :class:`BSDRClassifier`). Outputs are standardised internally.

    Parameters
    ----------
    n_components, variant, inference, kernel, views, priors, standardize, sampling, \
optimization, n_jobs, progressbar, random_state
        As for :class:`BSDRClassifier`; the hierarchical model uses at most one component per
        output.
    pooling : {"auto", "linear", "log"} or float
        Ignored: predictions are the mean and standard deviation of the posterior predictive.
    out_of_core : None
        For classifiers only.

    Attributes
    ----------
    n_components_ : int
        Hierarchical model: at most the number of outputs.
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
        >>> with build_model(X, y, n_components=1, target="regression"):
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
