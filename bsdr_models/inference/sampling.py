"""Draws of any model by Gibbs sampling, or by NUTS and ADVI through PyMC.

The chains of a Gibbs sampler are the leading axis of every array of the state, so all are updated
at once by NumPy.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.spec import ModelSpec

type Init[S] = Callable[[np.random.Generator], S]
type Step[S] = Callable[[S, np.random.Generator], S]
type Record[S] = Callable[[S], Mapping[str, FloatArray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length of a run: draws that are kept and warm-up of each chain; ADVI has a single chain."""

    draws: int
    tune: int
    chains: int
    progressbar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Draws of a sampler, (chain, draw, ...) by name, and statistics of each, (chain, draw).

    ``fit`` is of ADVI: ``elbo`` by iteration, and of each restart.
    """

    draws: Mapping[str, FloatArray]
    sample_stats: Mapping[str, FloatArray] = field(default_factory=dict)
    fit: Mapping[str, FloatArray] = field(default_factory=dict)
    interrupted: bool = False


def run_sampler[S](
    engine: str,
    schedule: Schedule,
    *,
    init: Init[S],
    step: Step[S],
    record: Record[S],
    excluded: Set[str],
    declare: Callable[[], Any],
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
            record=lambda state: {k: v for k, v in record(state).items() if k not in excluded},
            rng=rng,
            draws=schedule.draws,
            tune=schedule.tune,
            progressbar=schedule.progressbar,
        )
    # PyMC takes most of a second to load.
    from bsdr_models.inference import engines

    model = declare()
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    kept = [name for name in names if name in spec.variables.keys() - excluded]
    options = {"var_names": kept, **asdict(schedule)}
    return engines.run_pymc(engine, model, spec, rng=rng, **options)


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
) -> Sampled:
    """Sweep ``tune + draws * thin`` times and keep every ``thin``-th state after warm-up.

    ``init`` and ``step`` return a state of all C chains, a dataclass of arrays (C, ...), and get
    separate streams; ``record`` returns the values to keep, (C, ...) by name. An interrupt after
    the first draw keeps the draws until then. FloatingPointError if a value is not finite.
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
                    for name, value in record(state).items():
                        if name not in store:
                            shape = (value.shape[0], draws, *value.shape[1:])
                            store[name] = np.empty(shape, dtype=value.dtype)
                        store[name][:, n_draws] = value
                    n_draws += 1
                bar.update(stage="warm-up" if sweep <= tune else "draws")
        except KeyboardInterrupt:
            if n_draws == 0:
                raise
            interrupted = True
    taken = {name: values[:, :n_draws] for name, values in store.items()}
    return Sampled(draws=taken, interrupted=interrupted)


def _check_finite(state: Any, sweep: int) -> None:
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    bad = [
        name
        for name, value in values.items()
        if isinstance(value, np.ndarray) and not np.isfinite(value).all()
    ]
    if bad:
        raise FloatingPointError(f"not finite after sweep {sweep}: {', '.join(bad)}")
