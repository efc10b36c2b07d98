"""A vectorised Gibbs kernel as a PyMC step method, so that ``pm.sample(step=...)`` drives it.

Every variable of the kernel has to be declared without a transform: the kernel writes plain
values where PyMC keeps those of its value variables.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pymc.model import modelcontext
from pymc.step_methods import BlockedStep
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator

from bsdr_models.typing import FloatArray

type Kernel = Callable[[Mapping[str, FloatArray], np.random.Generator], Mapping[str, FloatArray]]


@dataclass_state
class GibbsStepState(StepMethodState):
    """Nothing but the stream has to be kept between steps."""


class GibbsStep(BlockedStep):
    """Move all variables at once by a kernel with a leading chain axis.

    Parameters
    ----------
    vars : sequence of variables
        All free variables of the model: ``model.value_vars``.
    kernel : callable
        ``kernel(values, rng)`` -> new values, arrays (C, ...) by variable name. Has to be
        picklable to sample in several processes.
    model : pymc.Model, optional
        Taken from the context by default.
    blocked : bool
        As every step method of PyMC; this one is always blocked.
    rng : numpy.random.Generator or seed, optional

    Raises
    ------
    ValueError
        If a variable is transformed.
    """

    name = "gibbs"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"tune": (bool, [])}
    _state_class = GibbsStepState

    def __init__(
        self,
        vars: Sequence[Any],  # noqa: A002 (the name that PyMC passes)
        kernel: Kernel,
        *,
        model: Any = None,
        blocked: bool = True,
        rng: Any = None,
    ) -> None:
        model = modelcontext(model)
        transformed = [rv.name for rv in model.free_RVs if model.rvs_to_transforms[rv] is not None]
        if transformed:
            raise ValueError(f"declare these without a transform: {', '.join(transformed)}")
        self.vars = list(vars)
        self.names = [variable.name for variable in vars]
        self.kernel = kernel
        self.blocked = blocked
        self.tune = True
        self.rng = get_random_generator(rng)

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One sweep of one chain."""
        values = self.kernel({name: point[name][None] for name in self.names}, self.rng)
        moved = {name: values[name][0] for name in self.names}
        return {**point, **moved}, [{"tune": self.tune}]

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never chosen by PyMC itself."""
        return Competence.INCOMPATIBLE
