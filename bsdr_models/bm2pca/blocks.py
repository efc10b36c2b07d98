"""BM2PCA by blocks of rows: the updates of the mean field, each where its numbers are.

All that belongs to no row is a :class:`~bsdr_models.bm2pca.mean_field.State` of no rows, whose
moments of q(Z) are those of all rows. A sweep updates the views from these; visits every block for
new positions and what they add up to, which is the one time that X is read; updates the weights
from the sums; and visits the blocks again for slacks and bound. Rotations change sums alone: what
rows keep of old coordinates, the next sweep replaces.

One complete view. P problems, n rows of a block, D features, R components, K outcomes.
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bm2pca import mean_field, rotation
from bsdr_models.bm2pca.block_problem import Problem
from bsdr_models.bm2pca.block_starts import Spots, find_spots, place
from bsdr_models.bm2pca.generative import Generative
from bsdr_models.bm2pca.mean_field import Data, Info, Latent, Start, State
from bsdr_models.bm2pca.predict import MarginPosterior
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.sums import BoundSums, LatentSums, SweepSums
from bsdr_models.bm2pca.views import Moments
from bsdr_models.inference.block_vector import BlockVector, CarryingVector
from bsdr_models.inference.coordinate_ascent import Extrapolation
from bsdr_models.inference.row_blocks import Block, Parts, RowBlocks
from bsdr_models.numerics.row_covariances import RowCovariances
from bsdr_models.typing import FloatArray

# Mean (P, n, R) and covariances of new positions, kept between the two visits of a sweep.
type Positions = tuple[FloatArray, RowCovariances]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockState:
    """All factors of q, those of rows in blocks.

    shared
        What belongs to no row; moments of q(Z) are those of all.
    rows
        Of every block one vector: means of positions (P, n, R), then logarithms of slacks
        (P, n, K) or (2, P, n, K). It is what is extrapolated, so that no copy of it is made.
    sums
        Of the last positions, pooled rows left out.
    """

    shared: State
    rows: Parts
    sums: SweepSums


def init(
    blocks: RowBlocks,
    problem: Problem,
    *,
    n_components: int,
    seed: int,
    start: Start | FloatArray = "label",
) -> BlockState:
    """State to start from, the same however the rows are cut; reads X once, "pca" twice.

    Parameters
    ----------
    blocks : RowBlocks
    problem : Problem
        What :func:`~bsdr_models.bm2pca.block_problem.prepare` makes of the blocks.
    n_components : int
        R.
    seed : int
    start : {"label", "pca", "random"} or (P, N, R)
        As in memory, or the positions themselves.
    """
    data, light = problem.data, problem.light()
    spots = find_spots(blocks, problem, start, n_components=n_components, seed=seed)
    kept, sums = blocks.visit(_place, shared=(light, spots))
    shared = _first_state(data, sums)
    rows, _ = blocks.visit(_update_slack, kept, shared=(_for_rows(shared), light))
    return BlockState(shared=shared, rows=rows, sums=sums)


def _first_state(data: Data, sums: SweepSums) -> State:
    """Factors of no row to match the positions of all."""
    p, r, _ = sums.spread.shape
    latent = mean_field.latent_of_sums(
        np.empty((p, 0, r)),
        mean_field.unit_covariances(p, 0, r),
        mean_field.vague_pool(data, p, r) if data.n_pooled else None,
        sums.latent,
        data,
    )
    shared = mean_field.first_state(latent, sums.weights, data)
    return replace(shared, slack=mean_field.update_slack(shared, data))


def empty_state(problem: Problem, *, n_components: int) -> BlockState:
    """A state as a problem has it, of no rows."""
    data = problem.data
    mean = np.empty((len(data.margins.y), 0, n_components))
    sums = _start_sums(mean, data)
    return BlockState(shared=_first_state(data, sums), rows=(), sums=sums)


def step(
    state: BlockState, blocks: RowBlocks, problem: Problem, priors: Priors
) -> tuple[BlockState, Info]:
    """One sweep of coordinate ascent; reads X once."""
    data, light = problem.data, problem.light()
    shared = mean_field.update_views(state.shared, data, priors)
    kept, sums = blocks.visit(_update_latent, state.rows, shared=(_for_rows(shared), light))
    pooled = mean_field.pooled_rows(shared, data, mean_field.latent_base(shared, data))
    old = shared.latent
    latent = mean_field.latent_of_sums(old.mean, old.cov, pooled, sums.latent, data)
    weights = mean_field.weights_of_sums(sums.weights, shared.weight_precision)
    shared = replace(shared, latent=latent, weights=weights)
    precision = mean_field.update_weight_precision(shared, priors)
    shared = replace(shared, weight_precision=precision)
    rows, bound = blocks.visit(_update_slack, kept, shared=(_for_rows(shared), light))
    info = mean_field.info_of_terms(mean_field.terms_of_sums(shared, data, priors, bound))
    return BlockState(shared=shared, rows=rows, sums=sums), info


def rotate(state: BlockState, problem: Problem, priors: Priors) -> BlockState:
    """Better coordinates of the latent space for the sweep that has to come next.

    Means of positions stay in the old ones: no sweep reads them.
    """
    return replace(state, shared=rotation.rotate(state.shared, problem.data, priors))


def posterior(state: BlockState, problem: Problem) -> MarginPosterior:
    """What a state says of new rows, seen through the scaler of the problem."""
    generative = Generative.of(state.shared.views, problem.data.views, (None,))
    return MarginPosterior(generative=generative, weights=state.shared.weights)


# ------------------------------------------------------------------------- what is done to a block


def _for_rows(shared: State) -> State:
    """The state without what rows never see: sums of the size of all features."""
    latent = replace(shared.latent, pooled=None, moments=(), second=np.zeros(()))
    return replace(shared, latent=latent)


def _place(block: Block, shared: tuple[Problem, Spots]) -> tuple[Positions, SweepSums]:
    """Positions to start from."""
    problem, spots = shared
    data = problem.of_block(block)
    mean = place(block, data, problem, spots)
    return (mean, mean_field.unit_covariances(*mean.shape)), _start_sums(mean, data)


def _start_sums(mean: FloatArray, data: Data) -> SweepSums:
    cov = mean_field.unit_covariances(*mean.shape)
    return SweepSums(
        latent=mean_field.latent_sums(mean, cov, data),
        weights=mean_field.ridge_sums(mean, data.margins.y),
        spread=cov.total(),
    )


def _update_latent(
    block: Block, rows: FloatArray, shared: tuple[State, Problem]
) -> tuple[Positions, SweepSums]:
    """New positions from old slacks."""
    state, problem = shared
    data = problem.of_block(block)
    state = replace(state, slack=_split(rows, state, data)[1])
    mean, cov = mean_field.latent_rows(state, data, mean_field.latent_base(state, data))
    state = _with_positions(state, (mean, cov))
    return (mean, cov), SweepSums(
        latent=mean_field.latent_sums(mean, cov, data),
        weights=mean_field.weight_sums(state, data),
        spread=cov.total(),
    )


def _update_slack(
    block: Block, positions: Positions, shared: tuple[State, Problem]
) -> tuple[FloatArray, BoundSums]:
    """New slacks from new positions and weights, and the bound; X is not read."""
    state, problem = shared
    data = problem.without_rows(block)
    state = _with_positions(state, positions)
    scores = mean_field.score_moments(state)
    state = replace(state, slack=data.margins.scales(*scores))
    rows = np.concatenate([positions[0].ravel(), np.log(state.slack).ravel()])
    return rows, mean_field.bound_sums(state, data, scores)


def _with_positions(state: State, positions: Positions) -> State:
    mean, cov = positions
    return replace(state, latent=replace(state.latent, mean=mean, cov=cov))


def _split(rows: FloatArray, state: State, data: Data) -> tuple[FloatArray, FloatArray]:
    """Means of positions and slacks from the vector of a block."""
    (p, n, k), r = data.margins.y.shape, state.weights.mean.shape[1] - 1
    mean, log_slack = rows[: p * n * r], rows[p * n * r :]
    sides = state.slack.shape[:-3]  # two for a tube
    return mean.reshape(p, n, r), np.exp(log_slack).reshape(*sides, p, n, k)


# ---------------------------------------------------------------------------------- extrapolation


def extrapolation(blocks: RowBlocks, problem: Problem) -> Extrapolation[BlockState]:
    """How SQUAREM moves a state that a sweep has made; X'Z, linear in it, moves along."""

    def pack(state: BlockState) -> CarryingVector:
        vector = BlockVector(mean_field.pack(state.shared), state.rows, blocks)
        return CarryingVector(vector=vector, carried=state.sums.latent.moments[0].cross)

    def unpack(point: CarryingVector, state: BlockState) -> BlockState:
        rows = point.vector.parts()
        return moved(state, point.vector.shared, rows, point.carried, blocks, problem)

    return Extrapolation(pack=pack, unpack=unpack, norm=CarryingVector.norm)


def moved(
    state: BlockState,
    vector: FloatArray,
    rows: Parts,
    cross: FloatArray,
    blocks: RowBlocks,
    problem: Problem,
) -> BlockState:
    """State like the given one with other means; see :func:`.mean_field.unpack`.

    Parameters
    ----------
    state : BlockState
    vector : ndarray
        As :func:`.mean_field.pack` makes it of a state of no rows.
    rows : Parts
        As :class:`BlockState` holds them.
    cross : (P, D, R)
        X'Z of these rows.
    blocks : RowBlocks
    problem : Problem
    """
    shared = mean_field.unpack(vector, state.shared, problem.data)
    _, found = blocks.visit(_add_positions, rows, shared=(_for_rows(shared), problem.light()))
    second = found.second + state.sums.spread
    moments = replace(found.moments[0], second=second[:, None], cross=cross)
    sums = LatentSums(moments=(moments,), second=second)
    old: Latent = shared.latent
    latent = mean_field.latent_of_sums(old.mean, old.cov, old.pooled, sums, problem.data)
    return BlockState(
        shared=replace(shared, latent=latent), rows=rows, sums=replace(state.sums, latent=sums)
    )


def _add_positions(
    block: Block, rows: FloatArray, shared: tuple[State, Problem]
) -> tuple[None, LatentSums]:
    """Sums of z and of z z', covariances left out; X is not read."""
    state, problem = shared
    mean, _ = _split(rows, state, problem.without_rows(block))
    second = np.swapaxes(mean, 1, 2) @ mean
    moments = Moments(total=mean.sum(axis=1)[:, None], second=second[:, None], cross=np.zeros(()))
    return None, LatentSums(moments=(moments,), second=second)
