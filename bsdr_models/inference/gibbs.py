"""Gibbs sampling for any model: warm-up, thinning, storage.

The chains are the leading axis of every array of the state, so all are updated at once by NumPy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.inference.callbacks import ProgressBar

type Init[S] = Callable[[np.random.Generator], S]
type Step[S] = Callable[[S, np.random.Generator], S]
type Record[S] = Callable[[S], Mapping[str, FloatArray]]
type Callback[S] = Callable[[int, S], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsResult[S]:
    """Result of C chains with S draws.

    draws
        By name, (C, S, ...).
    n_draws
        S: fewer than requested if the run was interrupted.
    interrupted
        Whether the user or a callback stopped the run.
    state
        The last state, from which a run can continue.
    """

    draws: Mapping[str, FloatArray]
    n_draws: int
    interrupted: bool
    state: S


def run_gibbs[S](
    init: Init[S],
    step: Step[S],
    *,
    record: Record[S],
    draws: int,
    tune: int,
    thin: int = 1,
    rng: np.random.Generator,
    progressbar: bool = False,
    callbacks: tuple[Callback[S], ...] = (),
) -> GibbsResult[S]:
    """Sweep ``tune + draws * thin`` times and keep every ``thin``-th state after warm-up.

    Parameters
    ----------
    init : callable
        ``init(rng)`` -> initial state of all chains, a dataclass of arrays (C, ...).
    step : callable
        ``step(state, rng)`` -> next state.
    record : callable
        ``record(state)`` -> values to store, arrays (C, ...) by name.
    draws, tune, thin : int
        Stored draws per chain, warm-up sweeps, sweeps per stored draw.
    rng : numpy.random.Generator
        Spawns separate streams for initialisation and sweeps.
    progressbar : bool
    callbacks : tuple of callables
        Called with (sweep, state) after every sweep; a true value ends the run.

    Returns
    -------
    GibbsResult

    Raises
    ------
    FloatingPointError
        If a value is not finite.
    RuntimeError
        If a callback ends the run before the first draw.
    ValueError
        If a count is out of range.

    Notes
    -----
    An interrupt (Ctrl-C) after the first draw ends the run and keeps the draws so far.
    """
    if draws < 1 or tune < 0 or thin < 1:
        raise ValueError(
            f"draws and thin must be positive and tune not negative, got {draws=}, {tune=}, {thin=}"
        )
    start_stream, sweep_stream = rng.spawn(2)
    store: dict[str, FloatArray] = {}
    n_draws, interrupted = 0, False
    total = tune + draws * thin
    state = init(start_stream)
    _check_finite(state, 0)
    with ProgressBar(total, "Gibbs", enabled=progressbar) as bar:
        try:
            for sweep in range(1, total + 1):
                state = step(state, sweep_stream)
                _check_finite(state, sweep)
                if sweep > tune and (sweep - tune) % thin == 0:
                    _write(store, record(state), n_draws, draws)
                    n_draws += 1
                bar.update(stage="warm-up" if sweep <= tune else "draws")
                asked = [callback(sweep, state) for callback in callbacks]
                if any(asked):
                    interrupted = sweep < total
                    break
        except KeyboardInterrupt:
            if n_draws == 0:
                raise
            interrupted = True
    if n_draws == 0:
        raise RuntimeError("a callback ended the run before the first draw")
    kept = {name: values[:, :n_draws] for name, values in store.items()}
    return GibbsResult(draws=kept, n_draws=n_draws, interrupted=interrupted, state=state)


def _write(
    store: dict[str, FloatArray], values: Mapping[str, FloatArray], index: int, draws: int
) -> None:
    """Store one draw of every chain; the first call allocates."""
    for name, value in values.items():
        if name not in store:
            store[name] = np.empty((value.shape[0], draws, *value.shape[1:]), dtype=value.dtype)
        store[name][:, index] = value


def _check_finite(state: Any, sweep: int) -> None:
    bad = [
        field.name
        for field in fields(state)
        if isinstance(value := getattr(state, field.name), np.ndarray)
        and not np.isfinite(value).all()
    ]
    if bad:
        raise FloatingPointError(f"not finite after sweep {sweep}: {', '.join(bad)}")
