"""Fits of the papers' models, as trees and by estimators of scikit-learn: what all have."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from inspect import cleandoc
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import warn_unless_mixed
from bsdr_models.estimators.base import warn_of
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.datatree import MAX_NUMBERS, Context, Coordinate
from bsdr_models.inference.dims import DRAW, FEATURE, SCORE, TERM
from bsdr_models.inference.result import Result, Sampled
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.options import COUNT, RandomState, Sampling, StrOptions, as_generator
from bsdr_models.papers.coordinate_ascent import maximise
from bsdr_models.papers.sampler import sample
from bsdr_models.papers.training import read_training, units_of_samples
from bsdr_models.papers.trees import Located, add_effects, align, make_tree, name_dims

if TYPE_CHECKING:
    import pymc as pm


EXAMPLE = """
Examples
--------
>>> import warnings
>>> from sklearn.datasets import load_iris
>>> from sklearn.preprocessing import scale
>>> from bsdr_models.papers import {folder}
>>> X, y = load_iris(return_X_y=True)
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")  # the objective of D-GPLVM has no minimum
...     tree = {folder}.fit(scale(X)[::3], y[::3], n_components=2, random_state=0)
"""
FIT = """

Parameters
----------
X : array-like of shape (N, D)
    Samples as the model sees them: scale features before.
y : array-like of shape (N,), or (N, K)
    {targets}
{more}**arguments
    Those of :class:`bsdr_models.papers.{estimator}`, but for ``standardize``.

Returns
-------
xarray.DataTree
    With ``posterior``, {posterior}, ``fit``, ``observed_data`` and ``constant_data``, of
    samplers also ``sample_stats`` and, if the model has one, ``log_likelihood``.

Raises
------
TypeError
    If there is no such argument.
ValueError
    If samples or targets are not finite, their shapes disagree, or an argument is out of range.

See Also
--------
predict : predictions from the tree.
bsdr_models.papers.{estimator} : the same fit as an estimator.
"""
FIT += (
    EXAMPLE
    + """>>> tree["posterior/latent"].sizes["component"]
2
"""
)

PREDICT = """

Parameters
----------
tree : xarray.DataTree
    From `fit` or :func:`bsdr_models.from_trace`{draws}.
X : array-like of shape (M, D)
    Samples, scaled as those of the fit.
{more}
Returns
-------
ndarray of shape (M, K)
    Probabilities of the classes, or that each label is one; means of real outputs.

Raises
------
TypeError
    If `tree` is no tree.
ValueError
    If variables are missing, or X has other features than the tree.

See Also
--------
fit : the fit.
"""
PREDICT += (
    EXAMPLE
    + """>>> {folder}.predict(tree, scale(X)[1::3]).shape
(50, 3)
"""
)


def with_sections[F: Callable[..., Any]](sections: str, **parts: str) -> Callable[[F], F]:
    """Add sections to the docstring of a function; "{name}" stands for a part."""

    def add(function: F) -> F:
        function.__doc__ = cleandoc(function.__doc__ or "") + sections.format(**parts)
        return function

    return add


Inference = Literal["mean_field", "gibbs", "nuts", "advi"]
# Latent coordinates, of unit variance under the prior, that are rounding errors.
NO_COMPONENT = 1e-8
EMPTY = (
    "all components are zero: where the bound is largest the features explain nothing, and all new "
    "samples get the same probabilities, as with too few samples of a class for this model; a "
    "recommended model may do better"
)


@dataclass(eq=False, repr=False)
class PaperClassifier(ProbabilisticClassifier):
    """Arguments of a fit, and how it runs, of features that are scaled or, by `fit_tree`, given."""

    _: KW_ONLY
    standardize: Any = True
    progressbar: bool = False
    random_state: RandomState = None

    _several: ClassVar[bool] = True

    @abstractmethod
    def _declare(self, context: Context) -> "pm.Model":
        """The PyMC model of the training samples."""

    @abstractmethod
    def _run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        """Result, which predicts those features that vary, and tree, of coded targets."""

    @property
    def _method(self) -> Any:
        return getattr(self, "inference", "map")

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        with units_of_samples(self._context.X, standardize=bool(self.standardize)):
            result, self._fitted_tree = self._run(self._context, targets.coded, rng)
        return result

    def _name_fitted(self) -> None:
        self._tree = tree = self.__dict__.pop("_fitted_tree")
        fit = tree["fit"].to_dataset().isel({FEATURE: self._context.varies}, missing_dims="ignore")
        share = fit["relevance"].to_numpy()
        if "projection_mean" in fit:
            self._set_components(fit["projection_mean"].to_numpy(), share, self._context.X)
            self.lower_bounds_ = self._result.trace
        else:
            self.relevance_ = share
            self._n_features_out = len(share)
            self.log_density_ = self._result.trace
        if "sample_stats" in tree:
            self.n_iter_ = tree["posterior"].sizes[DRAW] + self._schedule().tune

    def _make_tree(self) -> xr.DataTree:
        assert self._tree is not None
        return self._tree

    def _mean_effects(self) -> tuple[FloatArray, FloatArray] | None:
        if not hasattr(self._posterior, "effects"):
            return None
        coef, intercept = self._posterior.effects()
        return self._context.contrast(coef), self._context.contrast(intercept)

    @property
    def model_(self) -> "pm.Model":
        """The ``pymc.Model`` on the scaled training samples.

        Scale new samples by ``(X - mean_) / scale_``. ``idata_`` holds the free variables, so that
        the functions of PyMC take it; ``build_model`` of the paper says what they compute.
        """
        check_is_fitted(self)
        return self._context.name_dims(self._declare(self._context))


def fit_tree(
    kind: Callable[..., PaperClassifier],
    X: SamplesLike,
    y: TargetLike,
    *,
    regression: bool = False,
    **arguments: Any,
) -> xr.DataTree:
    """Tree of a fit to samples as they are, of a name or number for each feature."""
    model = kind(standardize=False, **arguments)
    model._check_params()
    context, coded = read_training(
        X,
        y,
        getattr(model, "n_components", None) or 1,
        regression=regression,
        unlabeled=getattr(model, "unlabeled", None),
        several=model._several,
        config=model._config(),
    )
    result, tree = model._run(context, coded, as_generator(model.random_state))
    warn_of(result)
    return tree


@dataclass(eq=False, repr=False)
class SampledClassifier(PaperClassifier):
    """A fit by mean field, from whose optimum draws are taken, or by a sampler."""

    n_components: int = 2
    _: KW_ONLY
    inference: Inference = "mean_field"
    sampling: Sampling | None = None

    _mean_field: ClassVar[ModuleType]
    _gibbs: ClassVar[ModuleType]
    _unrecorded: ClassVar[frozenset[str]]  # variables of the sampler that the tree does not hold
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "n_components": [COUNT],
        "inference": [StrOptions(set(get_args(Inference)))],
    }

    @abstractmethod
    def _make_data(self, context: Context, targets: np.ndarray) -> Any:
        """Data of the step functions."""

    @abstractmethod
    def _limits(self) -> dict[str, Any]:
        """Options of `maximise`, and ``n_restarts`` if there may be several."""

    @abstractmethod
    def _draw(self, state: Any, data: Any, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of a state of mean field by name, (S, ...)."""

    @abstractmethod
    def _describe(
        self, draws: xr.Dataset, context: Context, data: Any, result: Result[Any]
    ) -> tuple[Any, Located]:
        """What predicts, and what the tree has beside the draws, whose components are aligned."""

    def _size(self, context: Context) -> int:
        """Number of components."""
        return int(self.n_components)

    def _dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of the variables."""
        return self._spec.variables

    def _align(self, draws: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
        """Draws of a sampler with their components aligned."""
        return align(draws, self._spec)

    def _run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        data = self._make_data(context, targets)
        by_mean_field = self.inference == "mean_field"
        if by_mean_field:
            result = self._maximise(context, data, rng)
            drawn = self._draw(result.posterior, data, rng)
            sampled = Sampled(
                draws={name: values[None] for name, values in drawn.items()},
                fit={
                    "elbo": result.trace,
                    "elbo_terms": np.column_stack(list(result.terms.values())),
                },
                attrs={"converged": int(result.converged)},
            )
        else:
            sampled = self._sample(data, context, rng)
            result = Result(
                posterior=None,
                trace=np.asarray(sampled.fit.get("elbo", [])),
                converged=False,
                interrupted=sampled.interrupted,
            )
        draws = name_dims(sampled.draws, self._dims())
        draws = add_effects(draws if by_mean_field else self._align(draws, rng), context)
        posterior, located = self._describe(draws, context, data, result)
        if np.abs(located.latent.mean).max() < NO_COMPONENT:
            result = replace(result, messages=(*result.messages, EMPTY))
        coords: dict[str, Coordinate] = {TERM: list(result.terms)}
        if SCORE in draws.sizes:
            coords[SCORE] = list(context.labels[1:])
        if "loadings" in draws and draws["loadings"].size > MAX_NUMBERS:  # predictions have no need
            draws = draws.drop_vars("loadings")
        tree = make_tree(
            draws,
            located,
            sampled,
            context,
            self._spec,
            aligned=not by_mean_field,
            attrs={"interrupted": int(result.interrupted)},
            inference_method=self.inference,
            coords=coords,
            dims=self._dims(),
        )
        if not by_mean_field:
            identified = [*self._spec.identified]
            if "bias_centered" not in draws:
                identified.append("bias")  # of labels and real outputs
            names = [name for name in identified if name in tree["posterior"].data_vars]
            result = replace(result, converged=warn_unless_mixed(tree, names))
        return replace(result, posterior=posterior), tree

    def _maximise(self, context: Context, data: Any, rng: np.random.Generator) -> Result[Any]:
        """The state of mean field with the largest bound, of one start or also of random ones."""
        steps = self._mean_field
        priors = self._option("priors")
        options = self._limits()
        init = partial(steps.init, data, priors, n_components=self._size(context))
        others = [partial(init, at_random=True)] * (options.pop("n_restarts", 1) - 1)
        return maximise(
            [init, *others],
            partial(steps.step, data=data, priors=priors),
            extrapolation=steps.extrapolation(data),
            progressbar=self.progressbar,
            rng=rng,
            **options,
        )

    def _sample(self, data: Any, context: Context, rng: np.random.Generator) -> Sampled:
        """Draws of those variables that the tree holds, latent coordinates unless too many."""
        schedule = self._schedule()
        priors = self._option("priors")
        size = {"n_components": self._size(context), "n_chains": schedule.chains}
        excluded = self._unrecorded
        if schedule.chains * schedule.draws * size["n_components"] * len(context.X) > MAX_NUMBERS:
            excluded = excluded | {"latent"}
        if self.inference != "gibbs":
            # PyMC takes most of a second to load.
            from bsdr_models.inference.engines import run_pymc

            declared = self._declare(context)
            options = {"rng": rng, "excluded": excluded, **asdict(schedule)}
            return run_pymc(self.inference, declared, self._spec, **options)
        gibbs = self._gibbs

        def record(state: Any) -> dict[str, FloatArray]:
            values = gibbs.to_variables(state, priors)
            return {name: value for name, value in values.items() if name not in excluded}

        return sample(
            partial(gibbs.init, data, priors, **size),
            partial(gibbs.step, data=data, priors=priors),
            record=record,
            stats=partial(gibbs.sample_stats, data=data, priors=priors),
            draws=schedule.draws,
            tune=schedule.tune,
            progressbar=schedule.progressbar,
            rng=rng,
        )
