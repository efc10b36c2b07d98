"""Scikit-learn estimators of BSDR: validate, delegate, name the results."""

from typing import Any, Self

import numpy as np
import xarray as xr
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.arrays import FloatArray
from bsdr_models.block_checks import check_blocks
from bsdr_models.block_sources import (
    is_block_source,
    is_read_by_block,
    make_blocks,
    read_block_labels,
)
from bsdr_models.bsdr import laplace_blocks, predict
from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.partial_fit import PartialFit
from bsdr_models.checks import check_classes, check_variation, encode_labels, one_thread
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.frames import read_numbers, read_truth, require_targets
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.subsample import take_subsample
from bsdr_models.unlabeled import read_labels


class BSDRClassifier(ProbabilisticClassifier, PartialFit):
    """Bayesian supervised dimensionality reduction for labels.

    Samples are projected linearly to ``n_components`` dimensions and classified there by a
    multinomial probit; projection and classifier are learned together [1]_. The default is a
    hierarchical model with one scale of the projection, sampled exactly by tempered sequential
    Monte Carlo, or approximated by Laplace's method where samples are many; the model of the paper
    is ``variant="paper"``.

    Parameters
    ----------
    n_components : int or "auto", default=2
        R, dimension of the latent space; of the hierarchical model at most the number of classes
        less one is used (of labels that do not exclude each other, their number), see
        ``n_components_``. ``"auto"`` is the number with the largest evidence; not for
        ``inference="laplace"``, ``"nuts"`` and ``"advi"``.
    variant : {"hierarchical", "paper"}, default="hierarchical"
        The model, see :func:`bsdr_models.bsdr.build_model`. Arguments that say "of the paper's
        model" below are refused for the other.
    inference : {"smc", "laplace", "nuts", "advi", "mean_field", "gibbs"}, optional
        Engine. Of the hierarchical model ``"smc"``, tempered sequential Monte Carlo, or
        ``"laplace"``, a normal approximation around the mode, for at most 10 000 features times
        components; if None the first up to about 5000 samples (ten classes, 64 features), and the
        second beyond, where the first would take minutes. Of the paper's model ``"mean_field"``,
        the default, and ``"gibbs"``. ``"nuts"`` and ``"advi"`` compile the PyMC model of either.
    pooling : {"auto", "linear", "log"} or float from 0 to 1, default="auto"
        How probabilities are averaged over posterior draws: the mean of their powers a, to the
        power 1 / a (:mod:`bsdr_models.bsdr.pooling`). ``"linear"``, a = 1, is the posterior
        predictive distribution; ``"log"``, a = 0, the normalised geometric mean. ``"auto"`` weighs
        a by the likelihood of labels that are held out, which takes up to five more fits with fewer
        draws; by Laplace's method it is 1. Of the hierarchical model; the other is pooled linearly.
    projection_prior : {"entrywise", "columnwise", "rowwise"}, optional
        Of the paper's model: which entries of the projection share a precision, namely none (the
        default), those of a component (automatic relevance determination), or those of a feature
        (feature selection).
    latent_scale : float, optional
        Of the paper's model: standard deviation of the latent coordinates given the features, 1 if
        None.
    priors : HierarchicalPriors or Priors, optional
        Hyper-parameters: a :class:`HierarchicalPriors` for the hierarchical model, a
        :class:`Priors` for the paper's, where its ``latent_scale`` is overruled by the argument of
        that name. Samplers of the paper's model do better with ``bsdr_models.bsdr.SAMPLING``.
    start : {"discriminant", "pca", "random"}, optional
        Of the paper's model: where mean field starts, discriminant directions if None; further
        restarts are random.
    n_restarts : int, default=1
        Of the paper's model: restarts of mean field; the highest bound is kept.
    max_iter : int, default=500
        Of the paper's model: iterations of mean field per restart.
    tol : float, optional
        Of the paper's model: mean field stops when a round gains less than this many nats, 0.001
        if None.
    integrate_latent : bool, default=True
        Of the paper's model: average predictions over the latent coordinates; otherwise plug their
        mean in. The hierarchical model has no noise there.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    draws : int, optional
        Of each chain. By ``"smc"`` rounded up to a multiple of its particles, and sized by the
        problem if None (384 for small ones, fewer for more work); of ``"laplace"`` 400 if None,
        and otherwise 1000.
    tune : int, default=1000
        Warm-up of ``"nuts"`` and ``"gibbs"``.
    chains : int, default=4
        Chains, or independent populations of particles of ``"smc"``.
    block_size : int, optional
        Laplace's method on blocks of so many samples, of an array that is mapped from a file,
        sparse, or too large to be copied. Dask and Zarr arrays are always fitted in blocks, their
        chunks if None; see :meth:`fit`.
    checkpoint : path, optional
        Folder to which a fit in blocks writes its best point every 10 evaluations, and from which
        it goes on if it was stopped, or lost its cluster.
    n_jobs : int, optional
        Populations, folds and restarts that run side by side, by joblib as in scikit-learn:
        None is 1 unless a ``joblib.parallel_config`` says otherwise, -1 is all cores. The result
        does not depend on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so that two fits differ.

    Attributes
    ----------
    variant_ : str
        The model that was fitted.
    classes_ : ndarray of shape (n_classes,)
    n_components_ : int
        Columns of what :meth:`transform` returns. Of the hierarchical model at most the number of
        classes less one: one for two classes, however many were asked for.
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection, for scaled features. Of the hierarchical model: loadings
        of the coordinates that :meth:`transform` returns.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the class means of the utilities (of the
        hierarchical model), or of the utilities.
    pooling_power_ : float
        Power at which probabilities are pooled, 1 being the posterior predictive. This and the next
        three: of the hierarchical model.
    log_evidence_ : float
        Log marginal likelihood of the training labels, in nats; NaN unless by ``"smc"`` or
        ``"laplace"``.
    log_bayes_factor_ : float
        The same less that of the model without features. Below log 3 there is next to no evidence
        that the features tell anything of the labels, and the fit warns.
    held_out_score_ : float
        Mean log probability of the labels that were held out to choose the power; NaN if none was.
    latent_scale_ : float
        Latent scale of the fit. This and the next: of the paper's model.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound of mean field in nats after each iteration, of the best restart; empty for other
        engines.
    n_iter_ : int
        Temperatures of the longest run of ``"smc"``, evaluations of ``"laplace"``, sweeps of a
        sampler, or iterations of mean field.
    converged_ : bool
        Of draws: whether R-hat of what the likelihood identifies is below 1.05. Of ``"laplace"``:
        whether a mode was found and the Pareto k of its importance ratios is below 0.7. Of mean
        field: whether it ended before ``max_iter``; otherwise it warns.
    interrupted_ : bool
        Whether the fit was stopped by the user; it is usable all the same.
    idata_ : xarray.DataTree
        Posterior draws, diagnostics and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The same model, declared.

    Notes
    -----
    The likelihood knows the latent space only up to an affine map. The hierarchical model therefore
    reports it in coordinates that are identified: canonical variates of the posterior mean of the
    utilities, in units of the probit noise and ordered by ``relevance_``, with a covariance that
    says how far the draws place a sample elsewhere.

    On real data single draws are overconfident, and contradict each other by more than the data
    warrant, so that the posterior predictive is under-confident. Pooling with a power below one
    corrects the probabilities for it; draws, intervals and latent coordinates are those of the
    posterior, whatever the power.

    The priors assume features of unit variance.

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
    >>> linear = BSDRClassifier(n_components="auto", pooling="linear", random_state=0).fit(X, y)
    >>> linear.n_components_, linear.pooling_power_
    (2, 1.0)

    The model of the paper, by mean field:

    >>> paper = BSDRClassifier(n_components=2, variant="paper", random_state=0).fit(X, y)
    >>> paper.latent_scale_
    1.0
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn projection and classifier jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask or Zarr array
        y : array-like of shape (n_samples,), or (n_samples, n_labels) of 0 and 1
            Labels of any kind; an indicator matrix makes the problem multi-label, each label an
            independent probit in one shared space.

        Returns
        -------
        self : BSDRClassifier

        Notes
        -----
        Samples in blocks (a Dask or Zarr array, or any with ``block_size``) are fitted by Laplace's
        method, need one label each and a number of components. They are read once an evaluation,
        on the workers of an active ``distributed.Client`` if X is a Dask array. ``idata_`` shows
        2000 of them, evenly spaced.

        Warns if the Bayes factor against the model without features is below 3, and if populations
        or chains contradict each other.

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, an argument is out of range, or features times components are more than
            10 000 for Laplace's method.
        """
        self._reset()
        require_targets(self, y)
        if is_block_source(X) or self.block_size is not None:
            return self._fit_blocks(X, y)
        X, y = self._samples_of_fit(X), read_labels(y)
        check_consistent_length(X, y)
        if type_of_target(y) == "multilabel-indicator":
            return self._fit_multilabel(X, y)
        y = column_or_1d(y, warn=True)
        self.classes_, index = encode_labels(y)
        return self._fit(X, index, target="multiclass", labels=self.classes_)

    def _fit_blocks(self, X: Any, y: Any) -> Self:
        """Fit to classes, the samples a block at a time."""
        self._check_arguments()
        priors = self._check_by_laplace("samples in blocks")
        if is_read_by_block(X):
            self.n_features_in_ = int(X.shape[1])
        else:
            X = self._samples_of_fit(X)
        y = read_block_labels(X, y)
        checked = check_blocks(make_blocks(X, y, block_size=self.block_size))
        check_classes(checked.classes, checked.counts, stacklevel=4)
        self._check_width(self.n_features_in_)
        self.classes_ = checked.classes
        self._scaler = checked.statistics.scaler(standardize=self.standardize)
        check_variation(self._scaler, stacklevel=4)
        kept = take_subsample(checked)
        X = kept.X.toarray() if issparse(kept.X) else np.asarray(kept.X, dtype=np.float64)
        n_samples = sum(checked.blocks.sizes)
        rng = self._note(
            self._scaler.transform(X),
            kept.y,
            target="multiclass",
            labels=self.classes_,
            variant="hierarchical",
            config=self._config({"priors": priors}),
            kept=kept.index,
            n_samples=n_samples,
        )
        with one_thread(), self._fitting((n_samples, self.n_features_in_)):
            fit = laplace_blocks.fit_blocks(
                checked.blocks,
                self._scaler,
                (self._context.X, kept.y),
                checked.counts,
                self._model_by_laplace(priors, len(self.classes_)),
                rng=rng,
                checkpoint=self.checkpoint,
                progressbar=self.progressbar,
            )
            self._set_fitted_hierarchical(fit)
        return self

    def _fit_multilabel(self, X: FloatArray, Y: np.ndarray) -> Self:
        on = Y.astype(bool)
        fixed = np.flatnonzero(on.all(axis=0) | ~on.any(axis=0))
        if fixed.size:
            raise ValueError(f"label {int(fixed[0])} of y is the same in every row")
        self.classes_ = np.arange(Y.shape[1])
        return self._fit(X, on, target="multilabel", labels=self.classes_)

    @property
    def _exclusive(self) -> bool:  # type: ignore[override]
        return self._context.target != "multilabel"

    def _log_proba(self, rows: FloatArray) -> FloatArray:
        if self.variant_ == "hierarchical":
            log_p = self._hierarchical.posterior.log_probabilities(rows)
        else:
            log_p = predict.label_log_probabilities(
                self._posterior, rows, integrate_latent=self.integrate_latent
            )
        if not self._exclusive:
            return np.minimum(log_p, 0.0)
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """LatentCoordinates and probabilities of new rows as a DataTree, for the plots.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like, optional
            True labels, for confusion and reliability.

        Returns
        -------
        xarray.DataTree
            With group ``predictions``: latent_mean, latent_cov, probability, predicted, y; and how
            unusual the rows are, t2, q_residual and tail_probability
            (:mod:`bsdr_models.numerics.outliers`).
        """
        rows = self._samples(X)
        log_p = self._log_proba(rows)
        return self._context.predictions_tree(
            self._spec,
            latent=self._embed(rows),
            values={
                "probability": np.exp(log_p),
                "predicted": self._most_probable(log_p),
                **self._outliers(rows),
            },
            y=read_truth(y, classes=self._exclusive),
            inference_method=self._method,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        tags.input_tags.sparse = self.block_size is not None
        return tags


class BSDRRegressor(RegressorMixin, BaseBSDR):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian reduced-rank regression: samples are projected to ``n_components`` dimensions and the
    outputs are linear there with Gaussian noise [1]_, Section II-D. Outputs are scaled inside.

    Parameters
    ----------
    n_components, variant, inference, projection_prior, latent_scale, priors, start, \
n_restarts, max_iter, tol, integrate_latent, standardize, draws, tune, chains, n_jobs, \
progressbar, random_state
        As for :class:`BSDRClassifier`; the hierarchical model uses at most as many components as
        there are outputs.
    pooling : {"auto", "linear", "log"} or float
        Of no effect: what is predicted are the mean and standard deviation of the posterior
        predictive distribution.
    block_size, checkpoint : None
        For classifiers only.

    Attributes
    ----------
    n_components_ : int
        At most the number of outputs for the hierarchical model: one for one output.
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; the others as for :class:`BSDRClassifier`.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.

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
        """Learn projection and regression jointly.

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
            If the input is not finite, an output or every feature is constant, or an argument
            is out of range.
        """
        self._reset()
        require_targets(self, y)
        X, y = self._samples_of_fit(X), read_numbers(y)
        check_consistent_length(X, y)
        self._one_output = y.ndim == 1
        Y = y.reshape(len(X), -1)
        self._output_scaler = Scaler.fit(Y)
        if self._output_scaler.constant.any():
            raise ValueError(
                f"output {int(self._output_scaler.constant.argmax())} of y is constant"
            )
        self.y_mean_, self.y_scale_ = self._output_scaler.location, self._output_scaler.scale
        labels = np.array([f"y{i}" for i in range(Y.shape[1])])
        return self._fit(X, self._output_scaler.transform(Y), target="regression", labels=labels)

    def predict(
        self, X: Any, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Posterior predictive mean of the outputs, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool
            Also return the standard deviation of a new observation.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        mean, std = self._moments(self._samples(X))
        if self._one_output:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of new outputs, in the units of y: (M, K)."""
        if self.variant_ == "hierarchical":
            mean, std = self._hierarchical.posterior.moments(rows)
            return mean * self.y_scale_ + self.y_mean_, std * self.y_scale_
        mean, std = predict.score_moments(
            self._posterior, rows, integrate_latent=self.integrate_latent
        )
        return mean * self.y_scale_ + self.y_mean_, std * self.y_scale_

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """LatentCoordinates and predictions of new rows as a DataTree, for the plots."""
        rows = self._samples(X)
        mean, std = self._moments(rows)
        return self._context.predictions_tree(
            self._spec,
            latent=self._embed(rows),
            values={"prediction": mean, "prediction_sd": std, **self._outliers(rows)},
            y=read_truth(y, classes=False),
            inference_method=self._method,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
