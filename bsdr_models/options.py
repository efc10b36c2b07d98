"""Option objects: arguments of the estimators that are rarely changed, in groups.

An estimator takes an option object or None, its defaults. ``set_params`` replaces single options,
such as ``sampling__draws``, as do the grids of a search.
"""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints


class Number(Interval):
    """Interval of numbers, to which True and False do not belong."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether the value is a number in the interval."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)


# Constraints for arguments of estimators and for options.
COUNT = Number(Integral, 1, None, closed="left")
POSITIVE = Number(Real, 0.0, np.inf, closed="neither")
TOLERANCE = Number(Real, 0.0, np.inf, closed="left")
ITERATIONS: dict[str, list[Any]] = {"n_restarts": [COUNT], "max_iter": [COUNT], "tol": [TOLERANCE]}
N_JOBS = [COUNT, Number(Integral, None, -1, closed="right"), None]


# Default draws of a chain, except for "hmc" and "laplace" of BSDR.
N_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Base of the option objects, whose fields are checked when they are made."""

    _constraints: ClassVar[dict[str, list[Any]]] = {}

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        name = type(self).__name__
        validate_parameter_constraints(self._constraints, values, caller_name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Options):
    """Length of a sampler's run.

    Parameters
    ----------
    draws : int, optional
        Draws of each chain; None is the default of the estimator and its engine.
    tune : int, default=1000
        Warm-up of each chain of ``"nuts"`` and ``"gibbs"``.
    chains : int, default=4
        Chains; each of ``"hmc"`` holds the draws of four. ADVI returns its draws as one chain.

    Raises
    ------
    ValueError
        If a number is not a positive integer.

    See Also
    --------
    BSDROptimization, BM2PCAOptimization, DGPLVMOptimization : settings of optimisers.

    Examples
    --------
    >>> from bsdr_models import BSDRClassifier, Sampling
    >>> model = BSDRClassifier(inference="nuts", sampling=Sampling(draws=500, chains=2))
    >>> model.set_params(sampling__draws=200).sampling
    Sampling(draws=200, tune=1000, chains=2)
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "draws": [COUNT, None],
        "tune": [COUNT],
        "chains": [COUNT],
    }

    draws: int | None = None
    tune: int = 1000
    chains: int = 4
