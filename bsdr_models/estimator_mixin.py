"""Methods of every estimator beyond those of scikit-learn."""

import base64
import io
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar

import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bsdr_models.dims import OBS
from bsdr_models.latent_grid import VARIABLE, add_class_probability
from bsdr_models.spec import ModelSpec
from bsdr_models.summary import Summary, SummaryParts, summarise

# Training samples in the map of a notebook.
MOST_DRAWN = 2000

logger = logging.getLogger(__name__)


class EstimatorMixin(ABC):
    """Methods that need only the model's specification and fitted attributes."""

    _spec: ClassVar[ModelSpec]

    @classmethod
    def citation(cls) -> str:
        """The paper of the model, as a BibTeX entry.

        Examples
        --------
        >>> from bsdr_models import BSDRClassifier
        >>> print(BSDRClassifier.citation().splitlines()[0])
        @article{gonen2013bsdr,
        """
        return cls._spec.citation_bibtex

    def summary(self) -> Summary:
        """Summary of the fit: data, engine, diagnostics, components.

        Returns
        -------
        Summary
            Shown by ``print`` and by notebooks; ``to_frame`` makes a data frame.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import MNPClassifier
        >>> model = MNPClassifier().fit(*load_wine(return_X_y=True))
        >>> print(model.summary().sections["data"][2][1])
        3: 0 (59), 1 (71), 2 (48)
        """
        check_is_fitted(self)
        return summarise(self, self._spec.paper)

    def selected_params(self) -> dict[str, Any]:
        """Arguments with which another fit skips what this one has selected from the samples.

        With ``clone(model).set_params(**model.selected_params())`` the number of components, the
        settings of a cross-validation and the calibration of probabilities are given; all else is
        fitted. Held-out scores of samples that took part in the selection are optimistic.

        Returns
        -------
        dict
            For `set_params`; empty if nothing was selected.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.base import clone
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import DGPLVMClassifier
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DGPLVMClassifier().fit(X[::3], y[::3])
        >>> model.selected_params()
        {'map_width': 2.0, 'map_noise': 0.1, 'standardize': True}
        >>> again = clone(model).set_params(**model.selected_params()).fit(X[1::3], y[1::3])
        """
        check_is_fitted(self)
        return self._selected_params()

    def _selected_params(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _summary_parts(self) -> SummaryParts:
        """Sections and remarks of the summary."""

    def _repr_html_inner(self) -> str:
        """Scikit-learn's diagram, and below it the summary of a fit."""
        return super()._repr_html_inner() + self._summary_html()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """The same for notebooks; only text if scikit-learn is so configured."""
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self._summary_html()
        return bundle

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Fitted attributes for scikit-learn's diagram, without computing properties."""
        bare: Any = BaseEstimator()
        vars(bare).update(vars(self))
        shown = bare._get_fitted_attr_html(doc_link)
        shown.estimator_class = type(self)
        return shown

    def _summary_html(self) -> str:
        return self.summary()._repr_html_() if self.__sklearn_is_fitted__() else ""

    @abstractmethod
    def __sklearn_is_fitted__(self) -> bool:
        """Whether the estimator is fitted."""

    @abstractmethod
    def _reset(self) -> None:
        """Delete the fit."""

    @contextmanager
    def _fitting(self, shape: tuple[int, int]) -> Iterator[None]:
        """Log the fit, and reset the estimator after an error or interrupt."""
        name, begin = type(self).__name__, time.perf_counter()
        logger.info("%s: fit to %d samples of %d features", name, *shape)
        try:
            yield
        except BaseException:
            self._reset()
            raise
        fit: Any = self
        logger.info(
            "%s: %s after %d iterations, %.2f s",
            name,
            "interrupted"
            if fit.interrupted_
            else "converged"
            if fit.converged_
            else "not converged",
            fit.n_iter_,
            time.perf_counter() - begin,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, which :func:`bsdr_models.load` reads.

        The file is a zip archive of skops, without code. **It holds the training samples**, scaled,
        which `idata_`, `model_` and some predictions need. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path-like
            Usually with the extension ``.skops``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If an argument of the estimator cannot be stored, such as a user's function.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from sklearn.datasets import load_wine
        >>> import bsdr_models
        >>> X, y = load_wine(return_X_y=True)
        >>> model = bsdr_models.BM2PCAClassifier(random_state=0).fit(X[::3], y[::3])
        >>> with TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/wine.skops")
        ...     again = bsdr_models.load(f"{folder}/wine.skops")
        >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
        True
        """
        from bsdr_models.persistence import save

        save(self, path)


class LatentSpaceMixin(EstimatorMixin):
    """Methods of the estimators that embed samples in a latent space."""

    @property
    @abstractmethod
    def idata_(self) -> xr.DataTree:
        """Posterior, fit and data."""

    @abstractmethod
    def predict_idata(self, X: Any, y: Any = None) -> xr.DataTree:
        """Latent coordinates and predictions of new samples."""

    def plot_map(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """Plot samples in the latent space, see :func:`bsdr_models.plots.plot_map`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            New samples; by default the training samples.
        y : array-like, optional
            Their true targets.
        **options
            As for :func:`bsdr_models.plots.plot_map`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bsdr_models import DGPLVMClassifier
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DGPLVMClassifier(random_state=0).fit(X[::2], y[::2])
        >>> ax = model.plot_map(X[1::2], y[1::2])
        """
        from bsdr_models.plots import plot_map

        if X is None and y is not None:
            raise ValueError("y is given without the samples X")
        check_is_fitted(self)
        tree = self.idata_ if X is None else self.predict_idata(X, y)
        return plot_map(tree, **options)

    def plot_features(self, **options: Any) -> Any:
        """Plot the effect of each feature, see :func:`bsdr_models.plots.plot_features`.

        Parameters
        ----------
        **options
            As for :func:`bsdr_models.plots.plot_features`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        from bsdr_models.plots import plot_features

        check_is_fitted(self)
        return plot_features(self.idata_, **options)

    def _with_class_probability(self, tree: xr.DataTree) -> xr.DataTree:
        """Add class probabilities over the map of the training samples to a tree of classes."""
        log_proba_at = getattr(copy(self), "_log_proba_at", None)  # of this fit, not of later ones
        fit = tree["fit"]
        if log_proba_at is not None and "y_index" in fit and VARIABLE not in fit:
            add_class_probability(tree, "fit", log_proba_at)
        return tree

    def _summary_html(self) -> str:
        """Summary and a small map of the training samples."""
        return super()._summary_html() + self._map_html() if self.__sklearn_is_fitted__() else ""

    def _map_html(self) -> str:
        from matplotlib.figure import Figure

        if self.idata_["fit"].sizes[OBS] > MOST_DRAWN:
            return ""
        figure = Figure(figsize=(4.6, 3.4), dpi=70, layout="constrained")
        self.plot_map(names=False, ax=figure.add_subplot())
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        code = base64.b64encode(picture.getvalue()).decode()
        return f'<img alt="Map of the training samples" src="data:image/png;base64,{code}">'
