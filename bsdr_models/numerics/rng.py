"""Conversion of scikit-learn's kinds of `random_state` to a NumPy Generator."""

import numpy as np

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
