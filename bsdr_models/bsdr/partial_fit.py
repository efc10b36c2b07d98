"""Incremental fits of BSDR, whose fitted attributes are computed on first access."""

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.hierarchical import N_LAPLACE
from bsdr_models.bsdr.laplace_blocks import Model, Stream
from bsdr_models.bsdr.pooling import as_power
from bsdr_models.checks import check_classes, one_thread
from bsdr_models.frames import require_targets, validate_samples
from bsdr_models.rng import as_generator
from bsdr_models.unlabeled import read_labels

# Fitted attributes that are computed on first access after new samples.
LAZY_ATTRIBUTES = frozenset(
    {
        "_context",
        "_hierarchical",
        "_n_features_out",
        "_posterior",
        "_reference",
        "_scaler",
        "_tree",
        "_tree_seed",
        "components_",
        "converged_",
        "held_out_gain_",
        "held_out_gain_se_",
        "held_out_score_",
        "interrupted_",
        "log_bayes_factor_",
        "log_evidence_",
        "mean_",
        "n_components_",
        "n_iter_",
        "pooling_power_",
        "relevance_",
        "scale_",
    }
)


def _may_be_laplace(model: "PartialFit") -> bool:
    return model.variant == "hierarchical" and model.inference in (None, "laplace")


class PartialFit(BaseBSDR):
    """``partial_fit`` of :class:`~bsdr_models.bsdr.estimator.BSDRClassifier`."""

    classes_: np.ndarray

    @available_if(_may_be_laplace)
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Update the fit with further samples, each of which is read once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any number of samples.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), optional
            All classes. Required in the first call, unless it follows :meth:`fit`.

        Returns
        -------
        self : BSDRClassifier

        Raises
        ------
        ValueError
            As for :meth:`fit`; or if ``classes`` is missing in the first call or differs later, or
            does not contain a label.

        Notes
        -----
        For the hierarchical model with ``inference=None`` or ``"laplace"``. Up to 2000 samples are
        fitted as by :meth:`fit`, when a prediction or an attribute is first requested. Beyond,
        every 2000 samples update the posterior by Laplace's method, with the posterior so far as
        their prior, so that the result does not depend on how the stream was cut into batches.
        Features are scaled as in the first 2000 samples; ``idata_`` contains a random subsample of
        2000. The first call after :meth:`fit` starts a new stream.
        """
        require_targets(self, y)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is None:
            classes = getattr(self, "classes_", None) if classes is None else classes
            self._reset()
        self._check_arguments()
        self._check_laplace_only("partial_fit")
        if stream is None and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        X = validate_samples(self, X, reset=stream is None)
        y = column_or_1d(read_labels(y), warn=True)
        check_consistent_length(X, y)
        known = None if classes is None else np.unique(classes)
        if stream is None:
            assert known is not None
            check_classes(known, np.full(len(known), 2))
            self._check_width(X.shape[1])
            seed = int(as_generator(self.random_state).integers(2**31))
            stream = Stream.begin(
                self._laplace_model(len(known)),
                X.shape[1],
                standardize=self.standardize,
                seed=seed,
            )
        elif known is not None and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes are {known.tolist()}, and were {self.classes_.tolist()}")
        else:
            known = self.classes_
        unknown = ~np.isin(y, known)
        if unknown.any():
            label = y[unknown].tolist()[0]
            raise ValueError(
                f"y has the label {label!r}, which is not among the classes {known.tolist()}"
            )
        with one_thread():
            stream = stream.add(X, np.searchsorted(known, y))
        for name in LAZY_ATTRIBUTES & vars(self).keys():
            delattr(self, name)
        self._stream, self.classes_ = stream, known
        return self

    def _check_laplace_only(self, what: str) -> None:
        """Raise a ValueError unless the arguments are those of Laplace's method."""
        if self.variant != "hierarchical":
            raise ValueError(f"{what} needs variant='hierarchical'")
        self._check_linear(what)
        if self.inference not in (None, "laplace"):
            raise ValueError(f"{what} needs inference='laplace', got {self.inference!r}")
        if self.n_components == "auto":
            raise ValueError(f"{what} needs a number of components, got n_components='auto'")

    def _laplace_model(self, n_labels: int) -> Model:
        power, draws = as_power(self.pooling), self._option("sampling").draws
        return Model(
            n_labels=n_labels,
            n_components=self._n_asked,
            priors=self._option("priors"),
            power=1.0 if power is None else power,
            n_draws=N_LAPLACE if draws is None else int(draws),
        )

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            if name in LAZY_ATTRIBUTES and "_stream" in vars(self):
                vars(self).update(self._lazy_attributes())
            return super().__getattribute__(name)

    def __sklearn_is_fitted__(self) -> bool:
        return "_stream" in vars(self) or super().__sklearn_is_fitted__()

    def _lazy_attributes(self) -> dict[str, Any]:
        """Fitted attributes of the stream, by name."""
        model, stream = copy(self), self._stream
        del model._stream
        model.random_state = stream.seed
        if stream.learned is None:
            model._fit_hierarchical(stream.X, stream.y, target="multiclass", labels=self.classes_)
        else:
            model._set_fitted_stream(stream)
        return {name: value for name, value in vars(model).items() if name in LAZY_ATTRIBUTES}

    def _set_fitted_stream(self, stream: Stream) -> None:
        assert stream.learned is not None
        self._scaler = stream.learned.scaler
        X, y = stream.subsample()
        self._set_context(
            X,
            y,
            target="multiclass",
            labels=self.classes_,
            variant="hierarchical",
            config=self._config(inference=self._engine),
            kept=np.arange(len(y)),
            n_samples=stream.n_samples,
        )
        with one_thread():
            self._set_fitted_hierarchical(stream.fit())
