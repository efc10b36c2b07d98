"""PyMC's engines for declarative models.

NUTS samples the posterior of the marginal parametrisation of a model; ADVI fits independent normals
to it on the unconstrained scale [1]_. Both are generic and slower than the hand-written engines,
for which they are the reference.

References
----------
.. [1] A. Kucukelbir et al. (2017). Automatic differentiation variational inference.
       Journal of Machine Learning Research 18(14).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.variational.approximations import MeanField
from pytensor.compile.mode import get_default_mode

from bsdr_models.inference.result import Sampled
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.process_state import recorded_warnings, warn

# The bound of an ADVI step is one draw; restarts are compared by its mean over the last tenth.
TAIL_SHARE = 0.1


def run_pymc(
    engine: str,
    model: pm.Model,
    spec: ModelSpec,
    *,
    tune: int,
    chains: int,
    excluded: Set[str] = frozenset(),
    **options: Any,
) -> Sampled:
    """Draws by "nuts" or "advi" of the variables of the specification but those ``excluded``.

    ``options`` are those of :func:`fit_advi`.
    """
    recorded = spec.variables.keys() - excluded
    available = (variable.name for variable in (*model.free_RVs, *model.deterministics))
    options["var_names"] = [name for name in available if name in recorded]
    if engine == "nuts":
        return sample_nuts(model, tune=tune, chains=chains, **options)
    return fit_advi(model, **options)


def sample_nuts(
    model: pm.Model,
    *,
    var_names: Sequence[str],
    rng: np.random.Generator,
    draws: int,
    tune: int,
    chains: int,
    target_accept: float = 0.95,
    covariance: FloatArray | None = None,
    starts: Sequence[Mapping[str, np.ndarray]] | None = None,
    progressbar: bool = False,
) -> Sampled:
    """Draw the variables ``var_names`` by NUTS: by nutpie if installed, else by PyMC.

    ``target_accept`` is high by default, since the posterior of separable classes has heavy tails.
    ``covariance`` (P, P) of the unconstrained variables, in the order of ``model.value_vars``, is a
    fixed mass matrix, and ``starts`` are initial values of each chain by variable. After a keyboard
    interrupt it returns the draws that all begun chains have.
    """
    options: dict[str, Any] = {}
    if starts is not None:
        options["initvals"] = [dict(start) for start in starts]
    with _quiet_pymc(not progressbar), recorded_warnings("Numba will use object mode"):
        if covariance is None:
            options["target_accept"] = target_accept
        else:
            options["step"] = pm.NUTS(
                scaling=covariance, is_cov=True, target_accept=target_accept, model=model
            )
        trace = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            random_seed=int(rng.integers(2**31)),
            var_names=list(var_names),
            progressbar=progressbar,
            quiet=not progressbar,
            compute_convergence_checks=False,
            model=model,
            **options,
        )
    sampled = Sampled.of(trace)
    recorded = {name: sampled.draws[name] for name in var_names}  # nutpie returns all free ones
    posterior, stats = _complete(recorded, sampled.sample_stats)
    n_chains, n_draws = next(iter(posterior.values())).shape[:2]
    if n_divergent := int(stats["diverging"].sum()):
        warn(
            f"{n_divergent} of {n_chains * n_draws} transitions diverged; raise target_accept, or "
            "use a prior with lighter tails"
        )
    interrupted = (n_chains, n_draws) != (chains, draws)
    return replace(sampled, draws=posterior, sample_stats=stats, interrupted=interrupted)


def fit_advi(
    model: pm.Model,
    *,
    var_names: Sequence[str],
    rng: np.random.Generator,
    draws: int,
    n_iterations: int = 10_000,
    learning_rate: float = 0.02,
    starts: Sequence[Mapping[str, np.ndarray] | None] = (None,),
    progressbar: bool = False,
) -> Sampled:
    """Fit independent normals by stochastic gradients (Adam), from PyMC's or given initial values.

    The result has draws of the best approximation as one chain, its noisy bound (``elbo``) and the
    mean of the last tenth of that of every restart (``restarts``). After a keyboard interrupt it is
    the best fit until then.
    """
    best: MeanField | None = None
    restarts: list[float] = []
    # A rewrite of the default mode fails in Numba for axes of length one.
    mode = get_default_mode().excluding("scalarize")
    with model, _quiet_pymc(not progressbar):
        for start in starts:
            approximation = pm.fit(
                n_iterations,
                method="advi",
                start=start,
                obj_optimizer=pm.adam(learning_rate=learning_rate),
                compile_kwargs={"mode": mode},
                random_seed=int(rng.integers(2**31)),
                progressbar=progressbar,
            )
            history = approximation.hist
            restarts.append(-float(history[-max(1, int(TAIL_SHARE * len(history))) :].mean()))
            if best is None or restarts[-1] > max(restarts[:-1]):
                best = approximation
            interrupted = len(history) < n_iterations
            if interrupted:
                break
        assert best is not None
        trace = best.sample(draws, random_seed=int(rng.integers(2**31)))
    drawn = Sampled.of(trace).draws
    return Sampled(
        draws={name: drawn[name] for name in var_names},
        fit={"elbo": -best.hist, "restarts": np.array(restarts)},
        interrupted=interrupted,
    )


def _complete(
    posterior: Mapping[str, np.ndarray], stats: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws that all begun chains of an interrupted run have; nutpie pads the others with NaN."""
    drawn = np.logical_and.reduce(
        [np.isfinite(a).all(axis=tuple(range(2, a.ndim))) for a in posterior.values()]
    )
    begun = drawn.any(axis=1)
    if not begun.any():
        raise KeyboardInterrupt("interrupted before the first draw")
    n_draws = int(drawn[begun].sum(axis=1).min())
    kept, of_kept = (
        {name: array[begun, :n_draws] for name, array in group.items()}
        for group in (posterior, stats)
    )
    return kept, of_kept


@contextmanager
def _quiet_pymc(quiet: bool) -> Iterator[None]:
    """Silence the logger, to which ``pm.fit`` writes even without a progress bar."""
    logger = logging.getLogger("pymc")
    level = logger.level
    if quiet:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
