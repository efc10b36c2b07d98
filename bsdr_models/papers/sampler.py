"""The driver of Gibbs sampling: warm-up, what is kept, interrupts.

For any model with a ``step`` that draws the next state. The chains are the leading axis of every
array of the state, so all are updated at once by NumPy.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from bsdr_models.inference.result import Sampled
from bsdr_models.inference.tasks import ProgressBar
from bsdr_models.numerics.arrays import FloatArray


def arrays_of(state: Any) -> dict[str, FloatArray]:
    """Those fields of a dataclass that are arrays, by name."""
    values = ((each.name, getattr(state, each.name)) for each in fields(state))
    return {name: value for name, value in values if isinstance(value, np.ndarray)}


def sample[S](
    init: Callable[..., S],
    step: Callable[..., S],
    *,
    rng: np.random.Generator,
    record: Callable[[S], Mapping[str, FloatArray]] = arrays_of,
    stats: Callable[[S], Mapping[str, FloatArray]] = lambda state: {},
    draws: int = 1000,
    tune: int = 1000,
    progressbar: bool = False,
) -> Sampled:
    """Draw by Gibbs sampling, or by any other step that leaves a posterior invariant.

    Parameters
    ----------
    init : callable
        ``init(rng=rng)`` returns the initial state of all C chains, a dataclass of arrays (C, ...).
    step : callable
        ``step(state, rng=rng)`` returns the next state.
    rng : numpy.random.Generator
        Source of two separate streams, for the initial state and the steps.
    record : callable, optional
        ``record(state)`` returns what to keep of a state, arrays (C, ...) by name; by default all
        arrays.
    stats : callable, optional
        ``stats(state)`` returns statistics of a sweep, (C,) each by name.
    draws : int, default=1000
        States that are kept.
    tune : int, default=1000
        States before them, which are not.
    progressbar : bool, default=False
        Whether to show progress.

    Returns
    -------
    Sampled
        ``draws`` and ``sample_stats`` hold arrays (C, draws, ...) by name. An interrupt after the
        first draw keeps the draws until then, and is told by ``interrupted``.

    Raises
    ------
    FloatingPointError
        If a value of a state is not finite.

    See Also
    --------
    maximise : the driver of mean field.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> from bsdr_models.papers.bsdr import SAMPLING, gibbs, mean_field
    >>> X, y = load_iris(return_X_y=True)
    >>> data = mean_field.make_data(scale(X), y)
    >>> init = partial(gibbs.init, data, SAMPLING, n_components=2, n_chains=4)
    >>> step = partial(gibbs.step, data=data, priors=SAMPLING)
    >>> rng = np.random.default_rng(0)
    >>> sampled = papers.sample(init, step, draws=20, tune=10, rng=rng)
    >>> sampled.draws["weights"].shape
    (4, 20, 2, 3)
    """
    start_stream, sweep_stream = rng.spawn(2)
    begin = time.perf_counter()
    kept: list[dict[str, FloatArray]] = []
    kept_stats: list[Mapping[str, FloatArray]] = []
    interrupted = False
    total = tune + draws
    state = init(rng=start_stream)
    _check_finite(state, 0)
    with ProgressBar(total, "Gibbs", enabled=progressbar) as bar:
        try:
            for sweep in range(1, total + 1):
                state = step(state, rng=sweep_stream)
                _check_finite(state, sweep)
                if sweep > tune:
                    kept_stats.append(stats(state))
                    kept.append({name: np.copy(value) for name, value in record(state).items()})
                bar.update(stage="warm-up" if sweep <= tune else "draws")
        except KeyboardInterrupt:
            if not kept:
                raise
            interrupted = True
    by_name, by_stat = (
        {name: np.stack([one[name] for one in each[: len(kept)]], axis=1) for name in each[0]}
        for each in (kept, kept_stats)
    )
    return Sampled(
        draws=by_name,
        sample_stats=by_stat,
        interrupted=interrupted,
        attrs={"sampling_time": time.perf_counter() - begin, "tuning_steps": tune},
    )


def _check_finite(state: Any, sweep: int) -> None:
    if bad := [name for name, each in arrays_of(state).items() if not np.isfinite(each).all()]:
        raise FloatingPointError(f"not finite after sweep {sweep}: {', '.join(bad)}")
