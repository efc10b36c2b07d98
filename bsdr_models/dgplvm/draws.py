"""Posterior draws of the whole model, as a fit result."""

from dataclasses import replace

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm import sampling
from bsdr_models.dgplvm.learn import (
    FitResult,
    draws_posterior,
    make_decoder,
    score_left_out,
    search_fields,
)
from bsdr_models.dgplvm.map_search import MapFit, Task, fit_map
from bsdr_models.dgplvm.settings import Mapping, Optimization
from bsdr_models.inference.sampling import Schedule
from bsdr_models.metrics import lack_of_signal, no_signal


def find_mode(
    task: Task, mapping: Mapping, optimization: Optimization, *, rng: np.random.Generator
) -> MapFit:
    """The posterior mode, at which chains are initialised, from one initialisation.

    An interrupt is raised again: there are no draws yet to return.
    """
    sampling.check(task)
    mode = fit_map(task, mapping, replace(optimization, n_restarts=1), rng=rng)
    if mode.search.interrupted:
        raise KeyboardInterrupt
    return mode


def learn_draws(
    engine: str,
    task: Task,
    mapping: Mapping,
    optimization: Optimization,
    *,
    schedule: Schedule,
    rng: np.random.Generator,
) -> FitResult:
    """Posterior draws by "nuts" or "advi"; the density must be proper, see `sampling.check`."""
    if mapping.embedding != "map":
        raise ValueError(
            "inference='nuts' and 'advi' need samples that are embedded by the mapping, with "
            "placement='map' and kind='kernel'"
        )
    mode = find_mode(task, mapping, optimization, rng=rng)
    sampled = sampling.sample(engine, task, mode, schedule=schedule, rng=rng)
    latents = _stacked(sampled.draws["latent"])
    assert mode.mapping_prior is not None
    posterior, left_out = draws_posterior(
        mode.mapping_prior, latents, mode.latent, mode.tuples, task
    )
    held_out = score_left_out(posterior, task.y_index)
    reason = lack_of_signal(held_out.named())
    mean = latents.mean(axis=0)
    typical = int(((latents - mean) ** 2).sum(axis=(1, 2)).argmin())
    kernel = {name: _stacked(sampled.draws[name]) for name in sampling.KERNEL}
    log_kernel = np.log([values[typical] for values in kernel.values()])
    return FitResult(
        posterior=posterior,
        latent=mean,
        left_out=left_out,
        variables={
            **{name: float(values.mean()) for name, values in kernel.items()},
            "criterion": float(sampled.draws["criterion"].mean()),
        },
        decoder=make_decoder(latents[typical], task.X, log_kernel, mode.gram.variance),
        converged=False,
        interrupted=sampled.interrupted,
        held_out=held_out,
        messages=() if reason is None else (no_signal(reason),),
        sampled=sampled,
        **search_fields(task, mode),
    )


def _stacked(values: FloatArray) -> FloatArray:
    """Concatenated chains."""
    return values.reshape(-1, *values.shape[2:])
