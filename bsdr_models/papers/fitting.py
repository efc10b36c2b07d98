"""Fits of the papers' models, as trees and by estimators of scikit-learn: what all have."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.data.targets import Targets
from bsdr_models.data.validation import MAX_RAW, warn_unless_mixed
from bsdr_models.estimators.base import warn_of
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference import datatree
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.dims import DRAW, FEATURE, TERM
from bsdr_models.inference.result import Result, Sampled
from bsdr_models.numerics.arrays import FloatArray, SamplesLike, TargetLike
from bsdr_models.options import COUNT, RandomState, Sampling, StrOptions, as_generator
from bsdr_models.papers.coordinate_ascent import maximise
from bsdr_models.papers.reading import read_training
from bsdr_models.papers.sampler import sample
from bsdr_models.papers.trees import add_effects, align, locate, make_tree, name_dims, read_factors

if TYPE_CHECKING:
    import pymc as pm

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
    _folder: ClassVar[ModuleType]  # of the model
    _of_model: ClassVar[tuple[str, ...]]  # arguments of the fit that `build_model` takes, too

    @abstractmethod
    def _run(
        self, context: Context, targets: np.ndarray, rng: np.random.Generator
    ) -> tuple[Result[Any], xr.DataTree]:
        """Result, which predicts those features that vary, and tree, of coded targets."""

    def _size(self, context: Context) -> int:
        """Number of components."""
        return int(self.n_components)

    def _declare(self, context: Context) -> "pm.Model":
        """The PyMC model of the training samples."""
        return self._folder.build_model(
            context.X,
            context.targets.y,
            n_components=self._size(context),
            target=context.targets.kind,
            **{name: self._option(name) for name in self._of_model},
        )

    def _option(self, name: str) -> Any:
        return super()._option(name) if name in self._option_types else getattr(self, name)

    @property
    def _method(self) -> Any:
        return getattr(self, "inference", "map")

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Any]:
        size = float(np.abs(self._context.X).max())
        if not (self.standardize or 1.0 / MAX_RAW <= size <= MAX_RAW):  # else squares overflow
            raise ValueError(
                f"X is not standardised, and samples are {size:.3g} from their mean: give "
                "standardize=True, or other units"
            )
        try:
            result, self._fitted_tree = self._run(self._context, targets.coded, rng)
        except (np.linalg.LinAlgError, RuntimeError) as error:  # no factorisation, a falling bound
            if self.standardize:
                raise
            raise ValueError(
                "X is not standardised, and its units are too far from those of the priors "
                f"({error}): give standardize=True, or other units"
            ) from error
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
    context = read_training(
        X,
        y,
        getattr(model, "n_components", None) or 1,
        regression=regression,
        unlabeled=getattr(model, "unlabeled", None),
        several=model._several,
        config=model._config(),
    )
    result, tree = model._run(context, context.targets.coded, as_generator(model.random_state))
    warn_of(result)
    return tree


@dataclass(eq=False, repr=False)
class SampledClassifier(PaperClassifier):
    """A fit by mean field, from whose optimum draws are taken, or by a sampler."""

    n_components: int = 2
    _: KW_ONLY
    inference: Inference = "mean_field"
    sampling: Sampling | None = None

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
    def _count_draws(self, context: Context, data: Any) -> int:
        """Draws of mean field, fewer of many features."""

    def _factors(self, draws: xr.Dataset, context: Context, data: Any, state: Any) -> Any:
        """What embeds and predicts samples, by draws or also by the state of mean field."""
        return read_factors(draws, context, getattr(self._option("priors"), "latent_scale", 0.0))

    @abstractmethod
    def _more(
        self, draws: xr.Dataset, factors: Any, context: Context, data: Any, result: Result[Any]
    ) -> tuple[xr.Dataset, dict[str, Any]]:
        """Draws with further variables, and options of `make_tree`."""

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
            sampled = self._draw(result, data, self._count_draws(context, data), rng)
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
        factors = self._factors(draws, context, data, result.posterior)
        located = locate(draws, context, self._spec, factors)
        if np.abs(located.latent.mean).max() < NO_COMPONENT:
            result = replace(result, messages=(*result.messages, EMPTY))
        draws, more = self._more(draws, factors, context, data, result)
        tree = make_tree(
            draws,
            located,
            sampled,
            context,
            self._spec,
            aligned=not by_mean_field,
            inference_method=self.inference,
            coords={TERM: list(result.terms)},
            **more,
        )
        tree.attrs["interrupted"] = int(result.interrupted)
        if not by_mean_field:
            identified = [*self._spec.identified]
            if "bias_centered" not in draws:
                identified.append("bias")  # of labels and real outputs
            names = [name for name in identified if name in tree["posterior"].data_vars]
            result = replace(result, converged=warn_unless_mixed(tree, names))
        return replace(result, posterior=factors), tree

    def _maximise(self, context: Context, data: Any, rng: np.random.Generator) -> Result[Any]:
        """The state of mean field with the largest bound, of one start or also of random ones."""
        steps = self._folder.mean_field
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

    def _draw(
        self, result: Result[Any], data: Any, n_draws: int, rng: np.random.Generator
    ) -> Sampled:
        """Draws of the optimum of mean field, of latent coordinates unless too many."""
        state = result.posterior
        drawn = self._folder.mean_field.draw(
            state,
            data,
            self._option("priors"),
            n_draws=n_draws,
            latent=n_draws * state.latent.mean.size <= datatree.MAX_NUMBERS,
            rng=rng,
        )
        return Sampled(
            draws={name: values[None] for name, values in drawn.items()},
            fit={
                "elbo": result.trace,
                "elbo_terms": np.column_stack(list(result.terms.values())),
            },
            attrs={"converged": int(result.converged)},
        )

    def _sample(self, data: Any, context: Context, rng: np.random.Generator) -> Sampled:
        """Draws of those variables that the tree holds, latent coordinates unless too many."""
        schedule = self._schedule()
        priors = self._option("priors")
        size = {"n_components": self._size(context), "n_chains": schedule.chains}
        of_latent = schedule.chains * schedule.draws * len(context.X) * size["n_components"]
        excluded = self._unrecorded
        if of_latent > datatree.MAX_NUMBERS:
            excluded = excluded | {"latent"}
        if self.inference != "gibbs":
            # PyMC takes most of a second to load.
            from bsdr_models.inference.engines import run_pymc

            declared = self._declare(context)
            options = {"rng": rng, "excluded": excluded, **asdict(schedule)}
            return run_pymc(self.inference, declared, self._spec, **options)
        gibbs = self._folder.gibbs

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
