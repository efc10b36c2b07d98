"""Arguments of estimators and functions: their checks, and option objects, which group rare ones.

An estimator takes an option object or None, its defaults. ``set_params`` replaces single options,
such as ``sampling__draws``, as do the grids of a search.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import ClassVar, Literal, cast

import numpy as np


@dataclass(frozen=True, slots=True)
class Number:
    """Interval of integers or floats, to which True, False, NaN and fractions do not belong."""

    kind: type[Integral] | type[Real]
    low: float
    high: float
    closed: Literal["left", "right", "neither"]

    def __contains__(self, value: object) -> bool:
        kinds = (Integral,) if self.kind is Integral else (Integral, float, np.floating)
        if not isinstance(value, kinds) or isinstance(value, bool | np.bool_):
            return False
        at_end = value == {"left": self.low, "right": self.high}.get(self.closed)
        return at_end or bool(not value <= self.low and value < self.high)

    def __str__(self) -> str:
        left = "[" if self.closed == "left" else "("
        right = "]" if self.closed == "right" else ")"
        kind = "an int" if self.kind is Integral else "a float"
        return f"{kind} in the range {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True, slots=True)
class StrOptions:
    """Set of strings."""

    options: Collection[str]

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value in self.options

    def __str__(self) -> str:
        return f"a str among {', '.join(map(repr, sorted(self.options)))}"


def check_parameters(
    constraints: Mapping[str, Sequence[object]], values: Mapping[str, object], owner: str
) -> None:
    """Raise a ValueError that names a parameter which meets none of its constraints.

    A constraint is a `Number`, `StrOptions`, a type, None, ``"boolean"`` or ``callable``.
    """
    for name, allowed in constraints.items():
        if name in values and not any(_satisfies(values[name], one) for one in allowed):
            described = [_describe(one) for one in allowed]
            wanted = " or ".join(filter(None, [", ".join(described[:-1]), described[-1]]))
            raise ValueError(
                f"The {name!r} parameter of {owner} must be {wanted}. Got {values[name]!r} instead."
            )


def _satisfies(value: object, constraint: object) -> bool:
    if constraint is None:
        return value is None
    if constraint == "boolean":
        return isinstance(value, bool | np.bool_)
    if isinstance(constraint, type):
        return isinstance(value, constraint)
    return callable(value) if constraint is callable else value in cast(Number, constraint)


def _describe(constraint: object) -> str:
    if isinstance(constraint, type):
        return f"an instance of '{constraint.__module__}.{constraint.__qualname__}'"
    if constraint is callable:
        return "a callable"
    return "a bool" if constraint == "boolean" else str(constraint)


# Constraints for arguments of estimators and for options.
COUNT = Number(Integral, 1, math.inf, closed="left")
# Squares and sums over samples of numbers within these bounds are exact enough.
POSITIVE = Number(Real, 1e-30, 1e12, closed="neither")
TOLERANCE = Number(Real, 0.0, 1e12, closed="left")
ITERATIONS: dict[str, list[object]] = {
    "n_restarts": [COUNT],
    "max_iter": [COUNT],
    "tol": [TOLERANCE],
}
N_JOBS = [COUNT, Number(Integral, -math.inf, -1, closed="right"), None]


def check_number(name: str, value: object, allowed: Number = POSITIVE) -> None:
    """Raise a ValueError that names a number outside its interval."""
    if value not in allowed:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


type RandomState = int | np.random.RandomState | np.random.Generator | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Generator from a seed, a RandomState, a Generator (used itself, so fits differ), or None."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "random_state must be None, an int of at least 0, a RandomState or a Generator, "
            f"got {random_state!r}"
        ) from None


# Default draws of a chain, except for "hmc" and "laplace" of BSDR.
N_DRAWS = 1000
# Default chains, except for "hmc".
N_CHAINS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Base of option objects and hyper-parameters, whose fields are checked when they are made."""

    _constraints: ClassVar[dict[str, list[object]]] = {}
    _others: ClassVar[list[object]] = []  # constraints of the other fields, if there are any

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        others = dict.fromkeys(values, self._others) if self._others else {}
        check_parameters(others | self._constraints, values, type(self).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Options):
    """Length of a sampler's run.

    Parameters
    ----------
    draws : int, optional
        Draws of each chain; None is the default of the estimator and its engine.
    tune : int, default=1000
        Warm-up steps of each chain of ``"nuts"`` and ``"gibbs"``.
    chains : int, optional
        Number of chains; None is 4, or 8 for ``"hmc"`` unless the data are large. ADVI returns its
        draws as one chain.

    Raises
    ------
    ValueError
        If a number is not a positive integer.

    See Also
    --------
    DGPLVMOptimization, bsdr_models.papers.bsdr.Optimization : settings of optimisers.

    Examples
    --------
    >>> from bsdr_models import BSDRClassifier, Sampling
    >>> model = BSDRClassifier(inference="nuts", sampling=Sampling(draws=500, chains=2))
    >>> model.set_params(sampling__draws=200).sampling
    Sampling(draws=200, tune=1000, chains=2)
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "draws": [COUNT, None],
        "tune": [COUNT],
        "chains": [COUNT, None],
    }

    draws: int | None = None
    tune: int = 1000
    chains: int | None = None

    def n_chains(self, default: int = N_CHAINS) -> int:
        """Chains, by the default of an engine."""
        return default if self.chains is None else int(self.chains)
