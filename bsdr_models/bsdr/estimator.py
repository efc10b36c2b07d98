"""Scikit-learn estimators of BSDR: validate, delegate, name the results."""

from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.bsdr import block_fit, predict, trees
from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.partial_fit import PartialFit
from bsdr_models.by_blocks import by_blocks
from bsdr_models.checks import check_classes, check_variation, encode_labels, one_thread
from bsdr_models.frames import read_numbers, read_truth, require_targets
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.row_checks import check_blocks
from bsdr_models.row_sources import (
    is_read_by_block,
    is_row_source,
    make_blocks,
    read_block_labels,
)
from bsdr_models.typing import FloatArray
from bsdr_models.unlabeled import read_labels


class BSDRClassifier(ClassifierMixin, PartialFit):
    """Bayesian supervised dimensionality reduction for labels.

    Rows are projected linearly to ``n_components`` dimensions and classified there by a
    multinomial probit; projection and classifier are learned together [1]_.

    Parameters
    ----------
    n_components : int, default=2
        R, dimension of the latent space.
    preset : {"recommended", "paper"}, default="recommended"
        What the arguments left at None stand for. ``"recommended"``: for mean field a columnwise
        prior and several latent scales stacked with a model without features by cross-validated
        log score; for samplers an entrywise prior with moderate tails and a unit latent scale.
        ``"paper"``: entrywise prior, all shapes and rates one, unit latent scale.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Engine. The last two compile the PyMC model.
    sampler : {"averaged", "joint", "paper"}, optional
        Kernel of ``inference="gibbs"``. ``"averaged"``: Hamiltonian Monte Carlo, positions and
        scores averaged over, precisions integrated out; for classes only, where it is the default
        up to about 5000 rows (three classes, ten features) or 1000 (ten classes, 64 features),
        which take five minutes. ``"joint"``: a Gibbs sweep, projection and positions as a block,
        and a move of scale; the default otherwise. Its sweeps are 15 times faster and mix a
        thousand times more slowly. ``"paper"``: the paper's sweep.
    projection_prior : {"entrywise", "columnwise", "rowwise"}, optional
        Which entries of the projection share a precision: none, those of a component
        (automatic relevance determination), or those of a feature (feature selection).
    latent_scale : float, "stack" or "estimate", optional
        Standard deviation of a position given the features, in latent units. It decides the
        calibration with few rows. ``"stack"`` mixes a grid, ``"estimate"`` picks from it, both
        by cross-validation.
    priors : Priors, optional
        Hyper-parameters; their ``latent_scale`` is overruled by the argument of that name.
    start : {"discriminant", "pca", "random", "stochastic"}, optional
        Where mean field starts, discriminant directions unless said otherwise; further restarts
        are random. ``"stochastic"``, of rows in blocks alone: five passes of steps from a hundred
        rows at a time, from where sweeps and climbs go on.
    n_restarts : int, default=1
        Restarts of mean field; the highest bound is kept.
    max_iter : int, default=500
        Iterations of mean field per restart. Of the fits that a stack mixes, those by sweeps end
        at a hundred, where cross-validation has scored them.
    tol : float, optional
        Mean field stops when a round gains less than this many nats.
    integrate_latent : bool, default=True
        Average predictions over the position; otherwise plug its mean in.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    draws, tune, chains : int
        Of the samplers.
    block_rows : int, optional
        Mean field on blocks of so many rows, of an array that is mapped from a file, sparse, or
        too large to be copied. Dask and Zarr arrays are always fitted in blocks, their chunks if
        None; see :meth:`fit`.
    checkpoint : path, optional
        Folder to which a fit in blocks is written every 20 iterations and after a stochastic start,
        and from which it goes on if it was stopped, or lost its cluster. All workers must see it.
    n_jobs : int, optional
        Folds, fits and restarts of mean field that run side by side, by joblib as in scikit-learn:
        None is 1 unless a ``joblib.parallel_config`` says otherwise, -1 is all cores. The result
        does not depend on it.
    progressbar : bool, default=False
    random_state : int, RandomState, Generator or None
        A Generator is used as it is, so that two fits differ.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    components_ : ndarray of shape (n_components, n_features)
        Posterior mean of the projection, for scaled features.
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    relevance_ : ndarray of shape (n_components,)
        Share of each component in the variance of the scores.
    latent_scale_ : float
        Latent scale of the fit that gives the map (of a stack, the one with most weight).
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound in nats after each iteration of that fit.
    n_iter_ : int
    converged_ : bool
        Whether every fit came to rest. One that cross-validation wants short does not, and no
        warning is due; one that ``max_iter`` stops warns.
    interrupted_ : bool
        Whether the fit was stopped by the user; it is usable all the same.
    idata_ : xarray.DataTree
        Posterior draws, diagnostics and data, for ArviZ and :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The same model, declared.

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
        Rows in blocks (a Dask or Zarr array, or any with ``block_rows``) need one label each. They
        are read once a sweep, on the workers of an active ``distributed.Client`` if X is a Dask
        array; ``latent_scale="stack"`` is then ``"estimate"``, chosen on 2000 rows, which are also
        those that ``idata_`` shows.

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, or an argument is out of range.
        """
        self._forget()
        require_targets(self, y)
        if is_row_source(X) or self.block_rows is not None:
            return self._fit_blocks(X, y)
        X, y = self._rows_of_fit(X), read_labels(y)
        check_consistent_length(X, y)
        if type_of_target(y) == "multilabel-indicator":
            return self._fit_multilabel(X, y)
        y = column_or_1d(y, warn=True)
        self.classes_, index = encode_labels(y)
        return self._fit(X, index, target="multiclass", labels=self.classes_)

    def _fit_blocks(self, X: Any, y: Any) -> Self:
        """Fit to classes, the rows a block at a time."""
        settings = self._settings()
        if self.inference != "mean_field":
            raise ValueError(
                f"rows in blocks are fitted by inference='mean_field', not {self.inference!r}"
            )
        if is_read_by_block(X):
            self.n_features_in_ = int(X.shape[1])
        else:
            X = self._rows_of_fit(X)
        y = read_block_labels(X, y)
        checked = check_blocks(make_blocks(X, y, block_rows=self.block_rows))
        assert checked.classes is not None
        assert checked.counts is not None
        check_classes(checked.classes, checked.counts, stacklevel=4)
        self._check_width(self.n_features_in_)
        self.classes_ = checked.classes
        self._scaler = checked.statistics.scaler(standardize=self.standardize)
        check_variation(self._scaler, stacklevel=4)
        kept = block_fit.keep_rows(checked, self._scaler)
        rng = self._begin(
            kept.X,
            kept.y,
            target="multiclass",
            labels=self.classes_,
            settings=settings,
            kept=kept.index,
            n_rows=sum(checked.blocks.sizes),
        )
        problem, scale = self._problem(settings), settings.latent_scale
        with one_thread(), self._fitting((sum(checked.blocks.sizes), self.n_features_in_)):
            if isinstance(scale, str):
                scale = block_fit.choose_scale(
                    problem, rng, progressbar=self.progressbar, n_jobs=self.n_jobs
                )
            mixture = block_fit.fit_to_blocks(
                checked,
                self._scaler,
                problem,
                kept,
                scale,
                rng,
                progressbar=self.progressbar,
                checkpoint=self.checkpoint,
            )
            self._adopt(mixture, settings)
        self._n_features_out = self.n_components
        return self

    def _fit_multilabel(self, X: FloatArray, Y: np.ndarray) -> Self:
        on = Y.astype(bool)
        fixed = np.flatnonzero(on.all(axis=0) | ~on.any(axis=0))
        if fixed.size:
            raise ValueError(f"label {int(fixed[0])} of y is the same in every row")
        self.classes_ = np.arange(Y.shape[1])
        return self._fit(X, on, target="multilabel", labels=self.classes_)

    @by_blocks
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probabilities of the classes, or of each label being on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Computed from the latent position alone.
        """
        return self._log_probabilities(self._rows(X))

    def _log_probabilities(self, rows: FloatArray) -> FloatArray:
        """The same for rows that were validated and scaled."""
        log_p = self._mixture.log_average(
            lambda part: predict.label_log_probabilities(
                part, rows, integrate_latent=self.integrate_latent
            )
        )
        if self._context.target == "multilabel":
            return np.minimum(log_p, 0.0)
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)

    @by_blocks
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, or of each label being on: see `predict_log_proba`."""
        return np.exp(self.predict_log_proba(X))

    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row; for a multi-label fit, which labels are on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
        """
        return self._most_probable(self.predict_log_proba(X))

    def _most_probable(self, log_p: FloatArray) -> np.ndarray:
        if self._context.target == "multilabel":
            return (log_p > np.log(0.5)).astype(int)
        return self.classes_[log_p.argmax(axis=1)]

    @by_blocks
    def decision_function(self, X: Any) -> FloatArray:
        """Log odds for two classes or multi-label, else log probabilities.

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, else (n_samples, n_classes)
        """
        log_p = self.predict_log_proba(X)
        if self._context.target == "multilabel":
            return log_p - np.log(-np.expm1(np.minimum(log_p, -1e-300)))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Positions and probabilities of new rows as a DataTree, for the plots.

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
        rows = self._rows(X)
        log_p = self._log_probabilities(rows)
        return trees.predictions_tree(
            self._context,
            positions=self._leading_positions(rows),
            values={
                "probability": np.exp(log_p),
                "predicted": self._most_probable(log_p),
                **self._unusual(rows),
            },
            y=read_truth(y, classes=self._context.target == "multiclass"),
            inference_method=self.inference,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        tags.input_tags.sparse = self.block_rows is not None
        return tags


class BSDRRegressor(RegressorMixin, BaseBSDR):
    """Bayesian supervised dimensionality reduction for real targets.

    A Bayesian reduced-rank regression: rows are projected to ``n_components`` dimensions and the
    outputs are linear there with Gaussian noise [1]_, Section II-D. Outputs are scaled inside.

    Parameters
    ----------
    n_components, preset, inference, sampler, projection_prior, latent_scale, priors, start, \
n_restarts, max_iter, tol, integrate_latent, standardize, draws, tune, chains, n_jobs, \
progressbar, random_state
        As for :class:`BSDRClassifier`.
    block_rows, checkpoint : None
        For classifiers only.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Centre and scale of the outputs; the others as for :class:`BSDRClassifier`.

    References
    ----------
    .. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
           IEEE Transactions on Cybernetics 43(6), 2179-2189.
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
        self._forget()
        require_targets(self, y)
        X, y = self._rows_of_fit(X), read_numbers(y)
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
        mean, std = self._moments(self._rows(X))
        if self._one_output:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the mixture, in the units of y: (M, K)."""
        mixture = self._mixture
        weights = mixture.weights[mixture.weights > 0.0]
        means, stds = zip(
            *(
                predict.score_moments(part, rows, integrate_latent=self.integrate_latent)
                for part, weight in zip(mixture.components, mixture.weights, strict=True)
                if weight > 0.0
            ),
            strict=True,
        )
        mean = np.tensordot(weights, means, axes=1)
        variance = np.tensordot(weights, np.square(stds) + np.square(means - mean), axes=1)
        return mean * self.y_scale_ + self.y_mean_, np.sqrt(variance) * self.y_scale_

    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Positions and predictions of new rows as a DataTree, for the plots."""
        rows = self._rows(X)
        mean, std = self._moments(rows)
        return trees.predictions_tree(
            self._context,
            positions=self._leading_positions(rows),
            values={"prediction": mean, "prediction_sd": std, **self._unusual(rows)},
            y=read_truth(y, classes=False),
            inference_method=self.inference,
            attrs=self._attrs(),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
