"""Arguments of estimators and functions: their checks, and option objects, which group rare ones.

An estimator takes an option object or None, its defaults. ``set_params`` replaces single options,
such as ``sampling__draws``, as do the grids of a search.
"""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.utils import _param_validation as constraints

# Raises a ValueError that names an argument which meets none of its constraints.
check_parameters = constraints.validate_parameter_constraints


class Number(constraints.Interval):
    """Interval of integers or floats, to which True, False, NaN and fractions do not belong."""

    def is_satisfied_by(self, value: object) -> bool:
        """Whether a value is one of these numbers."""
        kinds = (Integral, float, np.floating)
        is_number = isinstance(value, kinds) and not isinstance(value, bool | np.bool_)
        return is_number and bool(super().is_satisfied_by(value))


class StrOptions(constraints.StrOptions):
    """Set of strings, listed in order."""

    def __str__(self) -> str:
        return f"a str among {', '.join(map(repr, sorted(self.options)))}"


# Constraints for arguments of estimators and for options.
COUNT = Number(Integral, 1, None, closed="left")
# Squares and sums over samples of numbers within these bounds are exact enough.
POSITIVE = Number(Real, 1e-30, 1e12, closed="neither")
TOLERANCE = Number(Real, 0.0, 1e12, closed="left")
ITERATIONS: dict[str, list[object]] = {
    "n_restarts": [COUNT],
    "max_iter": [COUNT],
    "tol": [TOLERANCE],
}
N_JOBS = [COUNT, Number(Integral, None, -1, closed="right"), None]


def check_number(name: str, value: object, allowed: Number = POSITIVE) -> None:
    """Raise a ValueError that names a number outside its interval."""
    if not allowed.is_satisfied_by(value):
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
