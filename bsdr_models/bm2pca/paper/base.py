"""What the estimators of the paper's conjugate model have in common."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.base import BaseBM2PCA
from bsdr_models.bm2pca.paper import sampling
from bsdr_models.bm2pca.paper.factor_model import Rows
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.callbacks import ascent_progress
from bsdr_models.validation import feature_names, read_views


class ConjugateEstimator(BaseBM2PCA):
    """Views, hyper-parameters and settings of mean field, and the PyMC model."""

    def _view_columns(self) -> tuple[IntArray | None, ...]:
        """Features of each view."""
        groups = read_views(self.views, list(feature_names(self)))
        if groups is None or len(groups) == 1:
            return (None,)
        return tuple(columns for _, columns in groups)

    def _make_task(self, X: Rows, Y: FloatArray, **options: Any) -> Task:
        columns = self._view_columns()
        return super()._make_task(
            X,
            Y,
            columns=columns,
            n_features=(None,) * len(columns),
            start=self._option("optimization").start,
            priors=self._option("priors"),
            **options,
        )

    def _progress_options(self, *, n_restarts: int, max_iter: int) -> Any:
        """Progress bar of mean field, as options of the coordinate ascent."""
        return ascent_progress(
            "BM2PCA, mean field",
            n_restarts=n_restarts,
            max_iter=max_iter,
            n_jobs=self.n_jobs,
            enabled=self.progressbar,
        )

    @property
    def model_(self) -> Any:
        """The model with one subspace as a ``pymc.Model`` on the training samples."""
        check_is_fitted(self)
        if self._task.strategy != "shared":
            raise AttributeError("model_ needs strategy='shared'")
        return sampling.declare_task(self._task, self.C_)
