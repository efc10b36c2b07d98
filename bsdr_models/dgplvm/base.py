"""What the recommended classifier and that of the paper have in common."""

import sys
from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from bsdr_models.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.classifier import ProbabilisticClassifier
from bsdr_models.dgplvm import settings
from bsdr_models.dgplvm.back_constraint import MappingEmbedder
from bsdr_models.dgplvm.criteria import choose_criterion
from bsdr_models.dgplvm.dynamics import Dynamics
from bsdr_models.dgplvm.engines import FitResult
from bsdr_models.dgplvm.fold_metric import FoldMetric
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.dgplvm.select import subsample
from bsdr_models.dgplvm.settings import Mapping
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dgplvm.trees import make_tree, relevance
from bsdr_models.groups import warn_of_replicates
from bsdr_models.inference.datatree import Context
from bsdr_models.metric import Metric
from bsdr_models.numerics.scaling import Scaler, pad
from bsdr_models.rng import as_generator
from bsdr_models.validation import (
    check_latent,
    check_order,
    fit_scaler,
    one_thread,
    warn_unless_mixed,
)


class BaseDGPLVM(ProbabilisticClassifier):
    """Validation of the data, fitted attributes and predictions."""

    _spec = SPEC
    _result: FitResult
    _problem: Problem
    # Dims of free variables of the PyMC model, if not those of the specification.
    _free_dims: ClassVar[dict[str, tuple[str, ...]]] = {}
    _most_components: ClassVar[int]  # of the default
    _most_samples: ClassVar[int] = sys.maxsize  # of more a fit takes a subsample
    n_components: int | None
    optimization: settings.Optimization | None
    unlabeled: object
    _metric: Metric

    def fit(
        self,
        X: SamplesLike,
        y: TargetLike,
        *,
        groups: TargetLike | None = None,
        sequence: TargetLike | None = None,
    ) -> Self:
        """Fit latent coordinates, mapping and classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the training samples.
        y : array-like of shape (n_samples,)
            Classes; entries equal to ``unlabeled`` have none.
        groups : array-like of shape (n_samples,), optional
            Group of each sample, such as a patient or a batch. Samples of one group are held out
            together wherever the fit holds samples out, so that what it says of new samples is
            true of new groups.
        sequence : array-like of shape (n_samples,), optional
            Sequence of each sample; those of one sequence are in order of time. Latent coordinates
            then have Gaussian process dynamics, Eqs. (19) and (20) of the paper.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the input is not finite or of the wrong shape, fewer than two classes are labelled,
            no feature varies, or an argument is out of range; if ``groups`` has gaps or one value.
        """
        check_order(X, sequence)
        X, index, known = self._read_training(X, y, self.unlabeled, groups)
        most = self._most_samples
        if sequence is not None:
            check_consistent_length(X, sequence)
            check_array(sequence, ensure_2d=False, dtype=None, input_name="sequence")
            if len(X) > most:
                raise ValueError(f"sequence needs at most {most} samples, got {len(X)}")
        if len(X) > most:
            kept = subsample(index, most)
            of_each = ("y", "index", "samples", "groups")
            given = {name: known[name] for name in of_each if known[name] is not None}
            known |= {name: values[kept] for name, values in given.items()}
            known |= {"kept": kept, "n_samples": len(X)}
            X = X[kept]
            index = index[kept]
        group_index: IntArray | None = known["groups"]
        rng = as_generator(self.random_state)
        n_classes = len(self.classes_)
        n_components = int(self.n_components or min(self._most_components, n_classes - 1))
        priors, mapping = self._model_options()
        n_labelled = int((index >= 0).sum())
        criterion = choose_criterion(priors.criterion, n_components, n_classes, n_labelled)
        self._scaler = self._choose_scale(fit_scaler(X, standardize=True))
        X = self._scaler.transform(X)
        if group_index is None:
            warn_of_replicates(X, index, stacklevel=3)
        with one_thread(), self._fitting(X.shape):
            Z, metric = self._in_metric(X, index, group_index)
            problem = self._problem = Problem(
                X=Z,
                metric=metric,
                y_index=index,
                n_components=n_components,
                criterion=criterion,
                optimization=self._option("optimization"),
                dynamics=None if sequence is None else Dynamics.of(sequence),
                priors=priors,
                mapping=mapping,
            )
            result = self._learn(problem, rng)
            context = Context(
                X=X,
                constant=self._scaler.constant,
                config=self._config(),
                **known,
                attrs={
                    "weight": problem.priors.weight,
                    "criterion": criterion,
                    "objective": "log posterior density",
                    **result.settings,
                },
            )
            self._set_fitted(result, context)
        return self

    def _choose_scale(self, scaler: Scaler) -> Scaler:
        """Scaler of the features, of one that scales each to unit variance."""
        return scaler

    def _in_metric(
        self, X: FloatArray, index: IntArray, groups: IntArray | None
    ) -> tuple[FloatArray, FoldMetric | None]:
        """Samples of the problem, and their metric, from scaled samples (N, D) and classes (N,)."""
        return X, None

    @abstractmethod
    def _model_options(self) -> tuple[Priors, Mapping]:
        """Hyper-parameters and mapping of the problem."""

    @abstractmethod
    def _learn(self, problem: Problem, rng: np.random.Generator) -> FitResult:
        """Fit to scaled samples."""

    def _set_fitted(self, result: FitResult, context: Context) -> None:
        """Set the fitted attributes."""
        assert context.index is not None
        self._set_result(result, context)
        self.latent_ = result.latent
        self.log_density_ = result.trace
        self._n_features_out = result.latent.shape[1]
        self.relevance_ = relevance(result.left_out.mean, context.index)
        for name, value in result.settings.items():
            setattr(self, f"{name}_", value)
        embedder = result.posterior.embedder
        if result.sampled is not None:
            mixed = warn_unless_mixed(self.idata_, SPEC.identified, stacklevel=4)
            self.converged_ = mixed and result.posterior.classified
            draws = self.idata_["posterior"].sizes["draw"]
            steps = result.sampled.fit.get("elbo")
            self.n_iter_ = draws + self._schedule().tune if steps is None else len(steps)
        elif isinstance(embedder, MappingEmbedder):
            derivative = self._sensitivity()[0]
            self.components_ = pad(derivative, context.constant, axis=0).T

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Mean features at latent coordinates, Eq. (15) of the paper.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Latent coordinates.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        latent = check_latent(Z, self._n_features_out)
        return self._scaler.inverse(self._result.decoder.features(latent))

    def _sensitivity(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of the mapping in the scaled features, over the training samples."""
        effects = np.pad(self._metric.effects, ((0, 0), (0, 1)))  # none outside of their span
        embedder = self._posterior.embedder
        assert isinstance(embedder, MappingEmbedder)
        return embedder.sensitivity(self._problem.X, effects)

    def _latent_means(self, X: FloatArray) -> FloatArray:
        latent: FloatArray = self._posterior.latent(X)
        return latent

    def _outliers(self, X: FloatArray) -> dict[str, FloatArray]:
        """Relative variance, and the share of training samples with at least as much."""
        embedder = self._posterior.embedder
        if not isinstance(embedder, MappingEmbedder):
            return {}
        return embedder.outliers(embedder.out_of_range(X))

    def _make_tree(self) -> xr.DataTree:
        embedder = self._posterior.embedder
        fit: dict[str, FloatArray] = {"relevance": self.relevance_}
        if isinstance(embedder, MappingEmbedder):
            with one_thread():
                derivative, sd, share = self._sensitivity()
                fit |= embedder.outliers(embedder.out_of_range_left_out())
            fit |= {"projection_mean": derivative, "projection_sd": sd, "feature_relevance": share}
        return make_tree(
            self._result, self._context, fit=fit, method=self._method, dims=self._free_dims
        )
