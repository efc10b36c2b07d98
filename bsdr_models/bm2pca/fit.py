"""One mean-field fit: the model's steps handed to the driver of coordinate ascent.

Alone, sweeps crawl along changes of coordinates of the latent space and along valleys of the
bound: hence the rotations (:mod:`bsdr_models.bm2pca.rotation`) and the extrapolations.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bsdr_models.bm2pca import blocks, mean_field, rotation
from bsdr_models.bm2pca.block_problem import Problem
from bsdr_models.bm2pca.blocks import BlockState
from bsdr_models.bm2pca.mean_field import Data, Info, Start, State
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.inference.checkpoint import Checkpoint, run_resumable
from bsdr_models.inference.coordinate_ascent import Extrapolation, FitResult, run_coordinate_ascent
from bsdr_models.inference.row_blocks import RowBlocks
from bsdr_models.typing import FloatArray

# Rounds before the first rotation. Columns of loadings that have not found a direction yet are
# switched off if they are told apart sooner, and do not come back.
PLAIN_ROUNDS = 3


def fit_mean_field(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start = "label",
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    accelerate: bool = True,
    callbacks: Sequence[Any] = (),
    n_jobs: int | None = 1,
    on_restart: Callable[[FitResult[State]], object] = lambda result: None,
) -> FitResult[State]:
    """Maximise the bound of BM2PCA: rounds of a rotation and four sweeps, one extrapolated.

    Parameters
    ----------
    data : Data
    priors : Priors
    n_components : int
        R.
    rng : numpy.random.Generator
    start : {"label", "pca", "random"}
        Of the first restart; further ones are random.
    n_restarts : int
    max_iter : int
        Sweeps per restart.
    tol : float
        Gain of the bound per round, in nats and summed over problems, that counts as none.
    accelerate : bool
        Climb by rotations and SQUAREM as well; else by plain sweeps, whose number is then a
        choice that means something.
    callbacks : sequence of callables
        Called with (iteration, state, info).
    n_jobs : int, optional
        Restarts side by side.
    on_restart : callable
        Called with each restart as it ends.

    Returns
    -------
    FitResult
    """

    def init(stream: np.random.Generator, restart: int) -> State:
        return mean_field.init(
            data,
            priors,
            n_components=n_components,
            rng=stream,
            start=start if restart == 0 else "random",
        )

    squarem = Extrapolation(
        pack=mean_field.pack,
        unpack=lambda vector, state: mean_field.unpack(vector, state, data),
    )

    def step(state: State) -> tuple[State, Info]:
        return mean_field.step(state, data, priors)

    leap = _turn_and_step(lambda state: rotation.rotate(state, data, priors), step)
    return run_coordinate_ascent(
        init,
        step,
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        extrapolation=squarem if accelerate else None,
        leap=leap if accelerate else None,
        callbacks=callbacks,
        n_jobs=n_jobs,
        on_restart=on_restart,
    )


def fit_blocks(
    row_blocks: RowBlocks,
    problem: Problem,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start | FloatArray = "label",
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    accelerate: bool = True,
    callbacks: Sequence[Any] = (),
    on_restart: Callable[[FitResult[BlockState]], object] = lambda result: None,
    resume: BlockState | None = None,
    checkpoint: Checkpoint[BlockState] | None = None,
) -> FitResult[BlockState]:
    """The same climb over rows in blocks.

    Every sweep reads X once; rotations and extrapolations do not.

    Parameters
    ----------
    row_blocks : RowBlocks
    problem : Problem
        What :func:`~bsdr_models.bm2pca.block_problem.prepare` makes of them.
    priors : Priors
    n_components : int
        R.
    rng : numpy.random.Generator
    start : {"label", "pca", "random"} or (P, N, R)
        Of the first restart, the latter being positions; further ones are random.
    n_restarts, max_iter, tol, accelerate, callbacks, on_restart
        See :func:`fit_mean_field`; restarts run one after the other.
    resume : BlockState, optional
        Where the first restart begins, in place of ``start``.
    checkpoint : Checkpoint, optional
        Where restarts are written to, and begin if they were.

    Returns
    -------
    FitResult
    """

    def init(stream: np.random.Generator, restart: int) -> BlockState:
        return blocks.init(
            row_blocks,
            problem,
            n_components=n_components,
            seed=int(stream.integers(2**63)),
            start=start if restart == 0 else "random",
        )

    def step(state: BlockState) -> tuple[BlockState, Info]:
        return blocks.step(state, row_blocks, problem, priors)

    leap = _turn_and_step(lambda state: blocks.rotate(state, problem, priors), step)
    return run_resumable(
        init,
        step,
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        extrapolation=blocks.extrapolation(row_blocks, problem) if accelerate else None,
        leap=leap if accelerate else None,
        callbacks=callbacks,
        on_restart=on_restart,
        resume=resume,
        checkpoint=checkpoint,
    )


def _turn_and_step[S](
    rotate: Callable[[S], S], step: Callable[[S], tuple[S, Info]]
) -> Callable[..., tuple[S, Info]]:
    """A leap: the best coordinates of the latent space, then a sweep."""

    def leap(state: S, number: int, budget: int, on_step: Any) -> tuple[S, Info]:
        if number >= PLAIN_ROUNDS:
            state = rotate(state)
        state, info = step(state)
        on_step(state, info)
        return state, info

    return leap
