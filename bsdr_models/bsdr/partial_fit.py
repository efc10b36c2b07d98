"""A classifier that learns from a stream, whose answers are made when one is first asked for."""

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.bsdr import streaming
from bsdr_models.bsdr.base import BaseBSDR
from bsdr_models.bsdr.predict import NoFeatures
from bsdr_models.bsdr.settings import Settings, start_in_memory
from bsdr_models.bsdr.stacking import Mixture
from bsdr_models.bsdr.streaming import Stream, StreamSettings
from bsdr_models.checks import check_classes, one_thread
from bsdr_models.frames import require_targets, validate_rows
from bsdr_models.random import as_generator
from bsdr_models.unlabeled import read_labels

# What is known of a stream, made of it when one of these is first asked for after new rows.
ANSWERS = frozenset(
    {
        "_context",
        "_leading",
        "_mixture",
        "_reference",
        "_scaler",
        "_tree",
        "_tree_seed",
        "components_",
        "converged_",
        "interrupted_",
        "latent_scale_",
        "lower_bounds_",
        "mean_",
        "n_iter_",
        "relevance_",
        "scale_",
    }
)


def _by_mean_field(model: "PartialFit") -> bool:
    return model.inference == "mean_field"


class PartialFit(BaseBSDR):
    """``partial_fit`` of :class:`~bsdr_models.bsdr.estimator.BSDRClassifier`."""

    classes_: np.ndarray

    @available_if(_by_mean_field)
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from further rows, each of which is met once, by mean field.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any number of rows.
        y : array-like of shape (n_samples,)
            One label each.
        classes : array-like of shape (n_classes,), optional
            All labels that may come. Needed in the first call; after :meth:`fit` those of the fit.

        Returns
        -------
        self : BSDRClassifier

        Raises
        ------
        ValueError
            As :meth:`fit`; or if ``classes`` is missing in the first call, another one later, or a
            label is none of them.

        Notes
        -----
        A stream cannot be cross-validated: unless ``latent_scale`` is a number it is 0.3. Up to
        2000 rows are kept; a call costs next to nothing, and the first prediction or attribute
        that is asked for after it waits for a :meth:`fit` to all rows so far. The call that brings
        more rows than these fits them once. From there on each batch is a step or a few, and 2000
        rows, chosen at random, are what ``idata_`` shows; ``n_iter_`` counts the steps, and the one
        entry of ``lower_bounds_`` is an estimate. After :meth:`fit` a new stream begins.
        """
        require_targets(self, y)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is None:
            classes = getattr(self, "classes_", None) if classes is None else classes
            self._forget()
        settings = self._settings()
        start_in_memory(settings.start)
        if stream is None and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        rows = validate_rows(self, X, reset=stream is None)
        y = column_or_1d(read_labels(y), warn=True)
        check_consistent_length(rows, y)
        known = None if classes is None else np.unique(classes)
        if stream is None:
            assert known is not None
            check_classes(known, np.full(len(known), 2))
            self._check_width(rows.shape[1])
            stream = streaming.begin(self._stream_settings(settings, len(known)))
        elif known is not None and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes are {known.tolist()}, and were {self.classes_.tolist()}")
        else:
            known = self.classes_
        index = streaming.encode(y, known)
        with one_thread():
            stream = streaming.advance(stream, rows, index)
        for name in ANSWERS & vars(self).keys():
            delattr(self, name)
        self._stream, self.classes_ = stream, known
        self._n_features_out = self.n_components
        return self

    def _stream_settings(self, settings: Settings, n_labels: int) -> StreamSettings:
        scale = settings.latent_scale
        scale = streaming.LATENT_SCALE if isinstance(scale, str) else float(scale)
        seed = as_generator(self.random_state).integers(2**31)
        return StreamSettings(
            n_labels=n_labels,
            n_components=self.n_components,
            projection_prior=settings.projection_prior,
            priors=replace(settings.priors, latent_scale=scale),
            standardize=self.standardize,
            start=start_in_memory(settings.start),
            n_restarts=self.n_restarts,
            max_iter=self.max_iter,
            tol=settings.tol,
            seed=int(seed),
        )

    if not TYPE_CHECKING:  # which would otherwise believe in every name

        def __getattr__(self, name: str) -> Any:
            if name in ANSWERS and "_stream" in vars(self):
                vars(self).update(self._answers())
            return super().__getattribute__(name)

    def __sklearn_is_fitted__(self) -> bool:
        return "_stream" in vars(self) or super().__sklearn_is_fitted__()

    def _answers(self) -> dict[str, Any]:
        """What is known of the stream, by the names of a fit."""
        twin, stream = copy(self), self._stream
        del twin._stream
        twin.random_state = stream.settings.seed
        twin._adopt_stream(stream)
        return {name: value for name, value in vars(twin).items() if name in ANSWERS}

    def _adopt_stream(self, stream: Stream) -> None:
        settings = self._settings()
        assert stream.scaler is not None
        assert stream.kept_X is not None
        assert stream.kept_y is not None
        with one_thread():
            fit = streaming.fit(stream)
        y, steps = stream.kept_y, stream.learned
        self._scaler = stream.scaler
        self._begin(
            stream.scaler.transform(stream.kept_X),
            y,
            target="multiclass",
            labels=self.classes_,
            settings=settings,
            kept=None if steps is None else np.arange(len(y)),
            n_rows=stream.n_rows,
        )
        guess = NoFeatures.learn(y, stream.settings.n_labels, "multiclass")
        # What is asked for is asked for again and again: converged_ says it, no warning does.
        self._adopt(Mixture.of_one(fit, guess), settings, quiet=True)
        if steps is not None:
            self.n_iter_ = steps.n_steps
