"""What a paper's module must offer to the drivers; the modules themselves are the instances.

The initialisers take further keywords (prior of the projection, start) that belong to the paper.
"""

from typing import Any, Protocol

import numpy as np

from bsdr_models.inference.coordinate_ascent import BoundInfo


class MeanFieldModule[S, D, P](Protocol):
    """S the factors, D the data, P the priors."""

    def init(
        self, data: D, priors: P, *, n_components: int, rng: np.random.Generator, **options: Any
    ) -> S:
        """A state to start from."""

    def step(self, state: S, data: D, priors: P) -> tuple[S, BoundInfo]:
        """One sweep over the factors, which never lowers the bound."""


class GibbsModule[S, D, P](Protocol):
    """S the values in every chain (leading axis), D the data, P the priors."""

    def init(
        self,
        data: D,
        priors: P,
        *,
        n_components: int,
        n_chains: int,
        rng: np.random.Generator,
        **options: Any,
    ) -> S:
        """Dispersed states to start from."""

    def step(self, state: S, data: D, priors: P, *, rng: np.random.Generator) -> S:
        """One sweep over the full conditionals."""
