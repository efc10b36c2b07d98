"""Conversion of scikit-learn's kinds of `random_state` to a NumPy Generator."""

import numpy as np

type RandomState = int | np.random.RandomState | np.random.Generator | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Generator from a seed, a RandomState, a Generator (used itself, so fits differ), or None."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if random_state is None or isinstance(random_state, int | np.integer):
        if random_state is not None and random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}")
        return np.random.default_rng(random_state)
    raise TypeError(
        "random_state must be None, an int, a RandomState or a Generator, "
        f"got {type(random_state).__name__}"
    )
