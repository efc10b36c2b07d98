"""Arguments of an estimator: option objects, checks, `get_params` and `set_params`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from bsdr_models.inference.sampling import Schedule
from bsdr_models.options import N_DRAWS, N_JOBS, Options, StrOptions, check_parameters


class Arguments(BaseEstimator):
    """Arguments, some of which are option objects whose fields are arguments too."""

    # Classes of the hyper-parameters and option objects, by argument; None is their default.
    _option_types: ClassVar[dict[str, type[Options]]] = {}
    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "metric": [StrOptions({"auto", "unit", "identity"})],
        "standardize": ["boolean"],
        "n_jobs": N_JOBS,
        "progressbar": ["boolean"],
    }

    def __init_subclass__(cls, **options: object) -> None:
        """Copy an inherited constructor and fit, so that Python's errors name this class."""
        super().__init_subclass__(**options)
        for name in ("__init__", "fit"):
            method: object = getattr(cls, name, None)
            if name in vars(cls) or not isinstance(method, FunctionType):
                continue
            if name == "__init__" and is_dataclass(cls):  # which has its own
                continue
            own = FunctionType(
                method.__code__, method.__globals__, name, method.__defaults__, method.__closure__
            )
            own.__kwdefaults__ = method.__kwdefaults__
            own.__annotations__ = method.__annotations__
            own.__doc__ = method.__doc__
            own.__qualname__ = f"{cls.__name__}.{name}"
            setattr(cls, name, own)

    def _option(self, name: str) -> Any:
        """Option object or hyper-parameters, with their defaults for None."""
        value = getattr(self, name)
        return self._option_types[name]() if value is None else value

    def _schedule(self) -> Schedule:
        """Length of a sampler's run."""
        sampling = self._option("sampling")
        return Schedule(
            draws=N_DRAWS if sampling.draws is None else int(sampling.draws),
            tune=int(sampling.tune),
            chains=sampling.n_chains(),
            progressbar=self.progressbar,
        )

    def _check_params(self) -> None:
        """Raise a ValueError if an argument has the wrong type or value."""
        options = {name: [kind, None] for name, kind in self._option_types.items()}
        check_parameters(
            {**Arguments._parameter_constraints, **options, **self._parameter_constraints},
            self.get_params(deep=False),
            type(self).__name__,
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments by name.

        Parameters
        ----------
        deep : bool
            Also those of option objects and hyper-parameters, such as ``sampling__draws``.

        """
        params: dict[str, Any] = super().get_params(deep=False)
        for name in self._option_types if deep else ():
            option = self._option(name)
            if is_dataclass(option):
                params |= {f"{name}__{f.name}": getattr(option, f.name) for f in fields(option)}
        return params

    def set_params(self, **params: object) -> Self:
        """Set arguments.

        Parameters
        ----------
        **params
            By name; ``sampling__draws=100`` replaces one of the options in ``sampling``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument or option does not exist, or an option is out of range.

        Examples
        --------
        >>> from bsdr_models import BM2PCAClassifier
        >>> BM2PCAClassifier().set_params(loss__C=10.0)
        BM2PCAClassifier(loss=HingeLoss(C=10.0, calibrate=True))
        """
        nested: dict[str, dict[str, object]] = {}
        for key in [key for key in params if "__" in key]:
            name, _, field = key.partition("__")
            nested.setdefault(name, {})[field] = params.pop(key)
        super().set_params(**params)
        for name, values in nested.items():
            option: Any = self._option(name) if name in self._option_types else None
            known = {field.name for field in fields(option)} if is_dataclass(option) else set()
            if unknown := values.keys() - known:
                argument = f"{name}__{min(unknown)}"
                raise ValueError(f"{type(self).__name__} has no argument {argument!r}")
            if option != (replaced := replace(option, **values)):  # else None stays None
                setattr(self, name, replaced)
        return self

    def _get_params_html(self, deep: bool = False, doc_link: str = "") -> object:
        """Arguments for scikit-learn's diagram, without single options."""
        return super()._get_params_html(False, doc_link)

    def _reset(self) -> None:
        """Delete the results of an earlier fit."""
        kept = {*self.get_params(deep=False), "_metadata_request", "_sklearn_output_config"}
        kept |= {"_skl_callbacks", "_parent_callback_ctx"}  # set by a Pipeline during its fit
        for name in vars(self).keys() - kept:
            delattr(self, name)

    def _config(self, **resolved: object) -> dict[str, Any]:
        """Arguments that determine the fit, apart from the random state, for the trees."""
        config = self.get_params(deep=False)
        config |= {name: asdict(self._option(name)) for name in self._option_types}
        for name in ("random_state", "n_jobs", "views"):
            config.pop(name, None)
        if config.get("unlabeled") is not None:
            config["unlabeled"] = str(config["unlabeled"])
        return config | resolved
