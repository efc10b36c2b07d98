"""What the estimators of BSDR have in common: targets, scaling, components."""

from abc import abstractmethod
from typing import Any, ClassVar, Self, cast

import numpy as np
import xarray as xr
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.base import Estimator
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.bsdr.trees import Context
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.dask_arrays import is_dask, not_in_memory
from bsdr_models.groups import read_groups
from bsdr_models.inference.datatree import output_attrs
from bsdr_models.regressor import GaussianRegressor
from bsdr_models.rng import as_generator
from bsdr_models.validation import (
    encode_labels,
    feature_names,
    label_names,
    read_labels,
    require_targets,
    sample_labels,
    validate_samples,
)


class BaseBSDR(Estimator):
    """Data and components of a fit; subclasses validate targets, fit and predict."""

    _spec = SPEC
    _context: Any
    _context_type: ClassVar[type[Context]] = Context

    def _samples_of_fit(self, X: SamplesLike) -> FloatArray:
        """Validate training samples, which may lack views."""
        missing = getattr(self, "views", None) is not None
        return validate_samples(self, X, reset=True, least=2, missing=missing)

    @abstractmethod
    def _fit(self, X: FloatArray, targets: np.ndarray, **context: Any) -> Self:
        """Fit to validated features and encoded targets, with fields of the context."""

    def _check_width(self) -> None:
        n = np.count_nonzero(self._scaler.varies)
        if self.n_components is not None and self.n_components > n:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )

    def _set_context(
        self, X: FloatArray, targets: np.ndarray, **context: Any
    ) -> np.random.Generator:
        """Set the context of a fit, given further fields; returns a generator for the fit."""
        self.mean_ = self._scaler.location
        self.scale_ = self._scaler.scale
        fit_rng, tree_rng = as_generator(self.random_state).spawn(2)
        self._tree_seed = int(tree_rng.integers(2**63))
        self._context = self._context_type(
            X=X,
            targets=targets,
            feature_names=feature_names(self),
            constant=self._scaler.constant,
            **{"index": None, "config": self._config(), **context},
        )
        self._tree: xr.DataTree | None = None
        return fit_rng


class BaseBSDRClassifier(ProbabilisticClassifier, BaseBSDR):
    """Classes and labels of both classifiers."""

    def fit(self, X: SamplesLike, y: TargetLike, *, groups: TargetLike | None = None) -> Self:
        """Fit projection and classifier jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples.
        y : array-like of shape (n_samples,), or (n_samples, n_labels) of 0 and 1
            Labels of any type; an indicator matrix is a multi-label problem, with an independent
            probit for each label in one shared latent space.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, or an argument is out of range; if ``groups`` has gaps or one value.
        """
        self._reset()
        self._check_params()
        require_targets(self, X, y)
        if is_dask(X):
            if groups is not None:
                raise ValueError("groups are not for Dask arrays, of which no samples are held out")
            return self._fit_chunks(X, y)
        table = X
        X = self._samples_of_fit(X)
        targets = y
        y = read_labels(y)
        check_consistent_length(X, y)
        more = {"samples": sample_labels(table), "groups": read_groups(groups, table)}
        if type_of_target(y) != "multilabel-indicator":
            index, context = self._read_given(y)
            return self._fit(X, index, target="multiclass", **more, **context)
        on = y.astype(bool)
        fixed = np.flatnonzero(on.all(axis=0) | ~on.any(axis=0))
        if fixed.size:
            raise ValueError(f"label {int(fixed[0])} of y is the same in every sample")
        self.classes_ = np.arange(on.shape[1])
        more |= {"labels": label_names(targets, on.shape[1]), "y": on.astype(np.int64)}
        return self._fit(X, on, target="multilabel", **more)

    def _fit_chunks(self, X: SamplesLike, y: TargetLike) -> Self:
        """Fit to a Dask array, or raise a TypeError."""
        raise not_in_memory(self)

    def _read_given(self, y: TargetLike) -> tuple[np.ndarray, dict[str, Any]]:
        """Index of the class of each sample, (N,), and what the context holds of the classes."""
        self.classes_, index = encode_labels(column_or_1d(read_labels(y), warn=True))
        return index, {"labels": self.classes_, "y": self.classes_[index], "index": index}

    @property
    def _exclusive(self) -> bool:  # type: ignore[override]
        return self._context.target != "multilabel"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class BaseBSDRRegressor(GaussianRegressor, BaseBSDR):
    """Outputs of both regressors."""

    def fit(self, X: SamplesLike, y: TargetLike, *, groups: TargetLike | None = None) -> Self:
        """Fit projection and regression jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Outputs, in any units.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the input is not finite, an output or every feature is constant, or an argument is
            out of range; if ``groups`` has gaps or one value.
        """
        self._reset()
        self._check_params()
        require_targets(self, X, y)
        table = X
        X = self._samples_of_fit(X)
        Y, context = self._read_given(y, standardize=True)
        check_consistent_length(X, Y)
        more = {"samples": sample_labels(table), "groups": read_groups(groups, table)}
        return self._fit(X, Y, target="regression", **more, **context)

    def _read_given(
        self, y: TargetLike, *, standardize: bool = False
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Outputs as the model sees them, (N, K), and what the context holds of them."""
        given, Y = self._scale_outputs(y, standardize=standardize)
        attrs = output_attrs(self._output_scaler)
        return Y, {"labels": self._outputs, "y": given, "attrs": attrs}

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return cast(tuple[FloatArray, FloatArray], self._posterior.moments(X))
