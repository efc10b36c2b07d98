"""What the recommended classifier and that of the paper have in common."""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
import xarray as xr

from bsdr_models.data.targets import Targets
from bsdr_models.data.training import Training
from bsdr_models.data.validation import one_thread, warn_unless_mixed
from bsdr_models.dgplvm import settings
from bsdr_models.dgplvm.back_constraint import MappingEmbedder
from bsdr_models.dgplvm.criteria import choose_criterion
from bsdr_models.dgplvm.engines import FitResult
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.problem import Problem
from bsdr_models.dgplvm.settings import Mapping
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.dgplvm.trees import make_tree, relevance
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.learned_metric.metric import Metric, MetricName
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.scaling import pad


class BaseDGPLVM(ProbabilisticClassifier):
    """Validation of the data, fitted attributes and predictions."""

    _spec = SPEC
    _result: FitResult
    _problem: Problem
    # Dims of free variables of the PyMC model, if not those of the specification.
    _free_dims: ClassVar[dict[str, tuple[str, ...]]] = {}
    _most_components: ClassVar[int]  # of the default
    n_components: int | None
    optimization: settings.Optimization | None
    unlabeled: object
    _metric: Metric

    def _learn(self, targets: Targets, rng: np.random.Generator) -> FitResult:
        index = targets.coded
        n_classes = len(targets.names)
        n_components = int(self.n_components or min(self._most_components, n_classes - 1))
        priors, mapping = self._model_options()
        n_labelled = int((index >= 0).sum())
        criterion = choose_criterion(priors.criterion, n_components, n_classes, n_labelled)
        training = Training.of(
            self._context.X,
            index,
            n_classes,
            self._scaler.units,
            metric=self._metric_name,
            rng=rng,
            groups=self._context.groups,
        )
        problem = self._problem = Problem(
            X=self._in_metric(training),
            y_index=index,
            n_components=n_components,
            criterion=criterion,
            optimization=self._option("optimization"),
            priors=priors,
            mapping=mapping,
            training=training,
        )
        result = self._run(problem, rng)
        self._problem = replace(problem, training=None)  # only the fit needs what it has held out
        attrs = {
            "weight": problem.priors.weight,
            "criterion": criterion,
            "objective": "log posterior density",
            **result.settings,
            **result.posterior.calibration.attrs(),
        }
        return replace(result, attrs=attrs)

    def _in_metric(self, training: Training) -> FloatArray:
        """Samples of the problem, from scaled samples."""
        return training.X

    @property
    def _metric_name(self) -> MetricName | None:
        """The metric, if the model has one."""
        return None

    @abstractmethod
    def _model_options(self) -> tuple[Priors, Mapping]:
        """Hyper-parameters and mapping of the problem."""

    @abstractmethod
    def _run(self, problem: Problem, rng: np.random.Generator) -> FitResult:
        """Fit by an engine."""

    def _name_fitted(self) -> None:
        result = self._result
        index = self._context.index
        assert index is not None
        self.latent_ = result.latent
        self.log_density_ = result.trace
        self._n_features_out = result.latent.shape[1]
        self.relevance_ = relevance(result.left_out.mean, index)
        self.temperature_ = result.posterior.calibration.temperature
        for name, value in result.settings.items():
            setattr(self, f"{name}_", value)
        embedder = result.posterior.embedder
        if result.sampled is not None:
            mixed = warn_unless_mixed(self.idata_, SPEC.identified)
            self.converged_ = mixed and result.posterior.classified
            draws = self.idata_["posterior"].sizes["draw"]
            steps = result.sampled.fit.get("elbo")
            self.n_iter_ = draws + self._schedule().tune if steps is None else len(steps)
        elif isinstance(embedder, MappingEmbedder):
            derivative = self._sensitivity()[0]
            self.components_ = pad(derivative, self._context.constant, axis=0).T

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
