"""What a paper's module must offer to the drivers; the modules themselves are the instances.

``init`` takes ``(data, priors, *, n_components, rng)`` and options that belong to the paper; a
driver sees it as a closure over all of them.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from bsdr_models.inference.coordinate_ascent import BoundInfo


@runtime_checkable
class MeanFieldModule[S, D, P](Protocol):
    """S the factors, D the data, P the priors."""

    @property
    def init(self) -> Callable[..., S]:
        """Make a state to start from."""

    def step(self, state: S, data: D, priors: P) -> tuple[S, BoundInfo]:
        """One sweep over the factors, which never lowers the bound."""


@runtime_checkable
class GibbsModule[S, D, P](Protocol):
    """S the values in every chain (leading axis), D the data, P the priors."""

    @property
    def init(self) -> Callable[..., S]:
        """Make dispersed states to start from; takes ``n_chains`` besides."""

    def step(self, state: S, data: D, priors: P, *, rng: np.random.Generator) -> S:
        """One sweep over the full conditionals."""
