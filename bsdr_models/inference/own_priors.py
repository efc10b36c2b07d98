"""Priors that a user gives for the variables of a PyMC model, in place of its own."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any
# Declares the variable of a name with dims, as ``functools.partial(pm.Laplace, mu=0, b=1)`` does.
type Declaration = Callable[..., Tensor]

HOW = (
    "a prior is a function of name and dims, such as functools.partial(pm.Laplace, mu=0, b=1), or "
    "a Prior of pymc-extras"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPriors:
    """Declares variables of a model, by priors that are given for their names or by its own."""

    given: Mapping[str, Declaration] = field(default_factory=dict)
    replaceable: list[str] = field(default_factory=list)  # names of the variables declared so far

    def declare(
        self, kind: Declaration, name: str, *parameters: Any, dims: Any = (), **options: Any
    ) -> Tensor:
        """The variable of a name with dims, of the class ``kind`` unless a prior is given."""
        dims = (dims,) if isinstance(dims, str) else tuple(dims)
        self.replaceable.append(name)
        if name not in self.given:
            return kind(name, *parameters, dims=dims, **options)
        variable = self.given[name](name, dims=dims)
        if getattr(variable, "ndim", None) != len(dims):
            raise ValueError(f"the prior of {name!r} must have the dims {dims}, got {variable!r}")
        return variable

    def check(self, **reasons: str) -> None:
        """Raise a ValueError, with the reason if there is one, if a given prior was not used."""
        for name in self.given:
            if name not in self.replaceable:
                reason = reasons.get(name, f"replaceable are {', '.join(self.replaceable)}")
                raise ValueError(f"priors cannot replace {name!r} in this model: {reason}")


def read_priors[P](priors: Any, default: P) -> tuple[P, OwnPriors]:
    """Numbers and own priors from those numbers, a dictionary of some of both, or None.

    The default numbers are None for a model without any.
    """
    if priors is None or isinstance(priors, type(default)):
        return priors or default, OwnPriors()
    if not isinstance(priors, Mapping):
        allowed = "a dict" if default is None else f"a {type(default).__name__} or a dict"
        raise ValueError(f"priors must be {allowed}, got {type(priors).__name__}")
    given = {}
    for name, prior in priors.items():
        if callable(prior):
            given[name] = prior
        elif hasattr(prior, "create_variable"):
            given[name] = partial(_create, prior)
    numbers = {name: value for name, value in priors.items() if name not in given}
    known = [] if default is None else [each.name for each in fields(default)]  # type: ignore[arg-type]
    for name in numbers:
        if name not in known:
            raise ValueError(f"priors has {name!r}, which is no number of {known}; {HOW}")
    if numbers:
        default = replace(default, **numbers)  # type: ignore[type-var]
    return default, OwnPriors(given=given)


def _create(prior: Any, name: str, *, dims: Sequence[str]) -> Tensor:
    """The variable of a Prior of pymc-extras, with these dims unless it has some."""
    if not prior.dims:
        prior = deepcopy(prior)
        prior.dims = dims
    return prior.create_variable(name)
