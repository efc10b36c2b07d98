"""Draws of a paper's model by Gibbs sampling, or by NUTS and ADVI through PyMC.

The chains of a Gibbs sampler are the leading axis of every array of the state, so all are updated
at once by NumPy.
"""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.sampling import Sampled, Schedule
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray

if TYPE_CHECKING:
    import pymc as pm

type Init[S] = Callable[[np.random.Generator], S]
type Step[S] = Callable[[S, np.random.Generator], S]
type Record[S] = Callable[[S], Mapping[str, FloatArray]]


def run_sampler[S](
    engine: str,
    schedule: Schedule,
    *,
    init: Init[S],
    step: Step[S],
    record: Record[S],
    stats: Record[S],
    excluded: Set[str],
    declare: Callable[[], "pm.Model"],
    spec: ModelSpec,
    rng: np.random.Generator,
) -> Sampled:
    """Draws by "gibbs", as :func:`run_gibbs`, or by "nuts" or "advi" of the declared PyMC model.

    Variables of the specification are kept, but for those ``excluded``.
    """
    if engine == "gibbs":
        return run_gibbs(
            init,
            step,
            schedule,
            record=lambda state: {k: v for k, v in record(state).items() if k not in excluded},
            stats=stats,
            rng=rng,
        )
    # PyMC takes most of a second to load.
    from bsdr_models.inference.engines import run_pymc

    return run_pymc(engine, declare(), spec, rng=rng, excluded=excluded, **asdict(schedule))


def run_gibbs[S](
    init: Init[S],
    step: Step[S],
    schedule: Schedule,
    *,
    record: Record[S],
    stats: Record[S] = lambda state: {},
    rng: np.random.Generator,
) -> Sampled:
    """Sweep ``tune + draws`` times, and keep the states after warm-up.

    ``init`` and ``step`` return a state of all C chains, a dataclass of arrays (C, ...), and get
    separate streams; ``record`` returns the values to keep, (C, ...) by name, and ``stats`` the
    statistics of a sweep, (C,) each. An interrupt after the first draw keeps the draws until then.
    FloatingPointError if a value is not finite.
    """
    start_stream, sweep_stream = rng.spawn(2)
    begin = time.perf_counter()
    kept: list[dict[str, FloatArray]] = []
    kept_stats: list[Mapping[str, FloatArray]] = []
    interrupted = False
    tune = schedule.tune
    total = tune + schedule.draws
    state = init(start_stream)
    _check_finite(state, 0)
    with ProgressBar(total, "Gibbs", enabled=schedule.progressbar) as bar:
        try:
            for sweep in range(1, total + 1):
                state = step(state, sweep_stream)
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
    values = ((each.name, getattr(state, each.name)) for each in fields(state))
    arrays = ((name, value) for name, value in values if isinstance(value, np.ndarray))
    if bad := [name for name, value in arrays if not np.isfinite(value).all()]:
        raise FloatingPointError(f"not finite after sweep {sweep}: {', '.join(bad)}")
