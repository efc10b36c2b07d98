"""Posterior draws of the whole model, as a fit result."""

from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm import sampling
from bsdr_models.dgplvm.learn import (
    FitResult,
    Options,
    draws_posterior,
    make_decoder,
    score_left_out,
)
from bsdr_models.dgplvm.map_search import MapFit, Task, fit_map
from bsdr_models.inference.sampling import Schedule
from bsdr_models.metrics import lack_of_signal, no_signal


def find_mode(task: Task, options: Options, *, rng: np.random.Generator) -> MapFit:
    """The posterior mode, at which chains are initialised.

    Raises
    ------
    KeyboardInterrupt
        If the user interrupts the optimiser: there are no draws yet to return.
    """
    mode = fit_map(
        task,
        widths=options.widths,
        noises=options.noises,
        max_iter=options.max_iter,
        tol=options.tol,
        rng=rng,
        progressbar=options.progressbar,
    )
    if mode.search.interrupted:
        raise KeyboardInterrupt
    return mode


def learn_draws(
    engine: str,
    task: Task,
    options: Options,
    *,
    schedule: Schedule,
    rng: np.random.Generator,
) -> FitResult:
    """Posterior draws of the well-posed model.

    Parameters
    ----------
    engine : {"nuts", "advi"}
    schedule : Schedule
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        If the density has no finite integral, or samples are not embedded by the mapping.
    """
    if options.placement != "map":
        raise ValueError(
            "inference='nuts' and 'advi' need samples that are embedded by the mapping, with "
            "placement='map' and kind='kernel'"
        )
    sampling.check(task)
    mode = find_mode(task, options, rng=rng)
    sampled = sampling.sample(engine, task, mode, schedule=schedule, rng=rng)
    latents = _stacked(sampled.draws["latent"])
    assert mode.mapping_prior is not None
    posterior, left_out = draws_posterior(
        mode.mapping_prior,
        latents,
        mode.latent,
        mode.tuples,
        task,
        approximation=options.approximation,
    )
    held_out = score_left_out(posterior, task.y_index)
    reason = lack_of_signal(held_out.named())
    mean = latents.mean(axis=0)
    typical = int(((latents - mean) ** 2).sum(axis=(1, 2)).argmin())
    kernel = {
        name: _stacked(sampled.draws[name])
        for name in ("signal_variance", "lengthscale", "noise_variance")
    }
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
        terms=mode.terms,
        trace=-mode.search.trace,
        restarts=tuple(-value for value in mode.search.values),
        settings={"map_width": mode.settings.width, "map_noise": mode.settings.noise},
        converged=False,
        interrupted=sampled.interrupted,
        held_out=held_out,
        warnings=() if reason is None else (no_signal(reason),),
        sampled=sampled,
    )


def declare_model(task: Task, options: Options, *, rng: np.random.Generator) -> Any:
    """The well-posed model of a task as a ``pymc.Model``."""
    sampling.check(task)
    mode = find_mode(task, options, rng=rng)
    return sampling.declare_model(task, mode)


def _stacked(values: FloatArray) -> FloatArray:
    """Concatenated chains."""
    return values.reshape(-1, *values.shape[2:])
