"""The mean field of BSDR over blocks of rows.

All that belongs to no row is a state without rows (:class:`~bsdr_models.bsdr.mean_field.State`);
a block keeps the positions and scores of its own. A sweep visits the blocks twice: for the
positions, which reads X, its only time, and for the scores, which does not. Every update is that
of :mod:`bsdr_models.bsdr.mean_field`, on a block's state or on the one without rows.

Letters: n rows of a block, P features, D working coordinates, R components, K labels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.bsdr import information, mean_field
from bsdr_models.bsdr.block_starts import BlockData, Positions, find_positions
from bsdr_models.bsdr.mean_field import N_NODES, Info, Scores, Start, State
from bsdr_models.bsdr.predict import MeanFieldPosterior
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.row_sums import LatentSums, ScoreSums
from bsdr_models.data import Targets
from bsdr_models.inference.block_vector import BlockVector, CarryingVector
from bsdr_models.inference.coordinate_ascent import Extrapolation
from bsdr_models.inference.row_blocks import Block, Parts, RowBlocks
from bsdr_models.numerics.scaled_rows import scaled_rows
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.typing import FloatArray, ProjectionPrior, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRows:
    """What a block keeps of its rows.

    latent
        E[Z], (n, R).
    scores
        E[T], (n, K).
    mode
        Where the cone quadrature was centred, (n,); None where there is none.
    """

    latent: FloatArray
    scores: FloatArray
    mode: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockState:
    """All factors of q, over blocks.

    shared
        Those of no row; its factors of rows have no rows.
    rows
        :class:`OwnRows` of every block.
    cross
        X'E[Z] over the features, (P, R).
    """

    shared: State
    rows: Parts
    cross: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What every block is told before a visit.

    state
        Without rows.
    loadings
        E[Q] over the features, (P, R).
    """

    state: State
    loadings: FloatArray
    scaler: Scaler | None
    priors: Priors
    n_labels: int
    target: Target
    n_nodes: int = N_NODES

    @classmethod
    def of(
        cls, state: State, data: BlockData, priors: Priors, *, n_nodes: int = N_NODES
    ) -> "Message":
        """The message of a state without rows."""
        return cls(
            state=state,
            loadings=data.design.loadings(state.projection.mean),
            scaler=data.scaler,
            priors=priors,
            n_labels=data.known.n_labels,
            target=data.known.target,
            n_nodes=n_nodes,
        )

    def targets(self, block: Block) -> Targets:
        """Targets of a block."""
        assert block.y is not None
        return Targets(y=block.y, n_labels=self.n_labels, target=self.target)

    def joined(self, own: OwnRows, fitted: FloatArray) -> State:
        """State of a block, with ``fitted`` its X E[Q]; the origin of its scores is not kept."""
        scores = Scores(mean=own.scores, origin=own.scores[:0], log_prob=0.0, mode=own.mode)
        return replace(
            self.state,
            projection=replace(self.state.projection, fitted=fitted),
            latent=replace(self.state.latent, mean=own.latent),
            scores=scores,
        )


# ------------------------------------------------------------------------- what a block does


def place_rows(
    block: Block, shared: tuple[Positions, Scaler | None, int]
) -> tuple[OwnRows, FloatArray]:
    """Visit: rows at their start; X'E[Z]. Reads X."""
    positions, scaler, n_labels = shared
    rows = scaled_rows(block.X, scaler, seen=True)
    latent = positions.of(block, rows)
    own = OwnRows(latent=latent, scores=np.zeros((rows.n_rows, n_labels)))
    return own, rows.back(latent)


def move_rows(block: Block, own: OwnRows, message: Message) -> tuple[OwnRows, LatentSums]:
    """Visit: the update of the positions. Reads X."""
    rows = scaled_rows(block.X, message.scaler, seen=True)
    state = message.joined(own, rows.project(message.loadings))
    state = replace(state, latent=mean_field.update_latent(state, message.priors))
    latent = state.latent.mean
    return replace(own, latent=latent), mean_field.latent_sums(state, cross=rows.back(latent))


def score_rows(block: Block, own: OwnRows, message: Message) -> tuple[OwnRows, ScoreSums]:
    """Visit: the update of the scores."""
    state = message.joined(own, own.latent[:0])
    scores = mean_field.update_scores(state, message.targets(block), n_nodes=message.n_nodes)
    sums = mean_field.score_sums(replace(state, scores=scores))
    return replace(own, scores=scores.mean, mode=scores.mode), sums


def inform(block: Block, own: OwnRows, message: Message) -> tuple[None, FloatArray]:
    """Visit: what the rows say of each column of the projection, (R, P, P). Reads X."""
    rows = scaled_rows(block.X, message.scaler, seen=True)
    state = message.joined(own, rows.project(message.loadings))
    found = information.row_information(state, message.targets(block), message.priors.latent_scale)
    return None, np.stack([rows.gram(weights) for weights in found.T])


# ------------------------------------------------------------------------------------ the fit


def init(
    data: BlockData,
    priors: Priors,
    *,
    n_components: int,
    projection_prior: ProjectionPrior,
    rng: np.random.Generator,
    start: Start | FloatArray = "discriminant",
) -> BlockState:
    """State to start from; see :func:`bsdr_models.bsdr.mean_field.init`. Reads X once.

    Parameters
    ----------
    data : BlockData
    priors : Priors
    n_components : int
        R.
    projection_prior : {"entrywise", "columnwise", "rowwise"}
    rng : numpy.random.Generator
    start : {"discriminant", "pca", "random"} or (N, R)
        The latter are positions.
    """
    known = data.known
    positions = find_positions(data, start, n_components=n_components, rng=rng)
    rows, cross = data.blocks.visit(place_rows, shared=(positions, data.scaler, known.n_labels))
    precision = mean_field.vague_precision(known.n_features, n_components, projection_prior, priors)
    projection = data.design.ridge_from(data.inside(cross), precision.mean, priors.latent_scale**2)
    shared = mean_field.begin(np.empty((0, n_components)), precision, projection, known)
    rows, _ = data.blocks.visit(score_rows, rows, shared=Message.of(shared, data, priors))
    return BlockState(shared=shared, rows=rows, cross=cross)


def step(
    state: BlockState, data: BlockData, priors: Priors, *, n_nodes: int = N_NODES
) -> tuple[BlockState, Info]:
    """One sweep of coordinate ascent; see :func:`bsdr_models.bsdr.mean_field.step`."""
    shared = state.shared
    phi = mean_field.update_projection_precision(shared, priors)
    projection = data.design.ridge_from(data.inside(state.cross), phi.mean, priors.latent_scale**2)
    shared = replace(shared, projection_precision=phi, projection=projection)
    shared = replace(shared, latent=mean_field.update_latent(shared, priors))
    message = Message.of(shared, data, priors, n_nodes=n_nodes)
    rows, sums = data.blocks.visit(move_rows, state.rows, shared=message)
    shared = mean_field.update_labelling(shared, priors, sums)
    rows, scores = data.blocks.visit(score_rows, rows, shared=replace(message, state=shared))
    info = mean_field.info(shared, data.known, priors, sums=sums, scores=scores)
    assert sums.cross is not None
    return BlockState(shared=shared, rows=rows, cross=sums.cross), info


def posterior(
    state: BlockState, data: BlockData, priors: Priors, *, outside: bool = True
) -> MeanFieldPosterior:
    """What prediction needs of a fit. Reads X once.

    Parameters
    ----------
    state : BlockState
    data : BlockData
    priors : Priors
    outside : bool
        See :class:`~bsdr_models.bsdr.predict.MeanFieldPosterior`.
    """
    message = Message.of(state.shared, data, priors)
    _, found = data.blocks.visit(inform, state.rows, shared=message)
    inside = np.stack([data.inside(data.inside(matrix).T) for matrix in found])
    return MeanFieldPosterior(
        state=state.shared,
        data=data.known,
        latent_scale=priors.latent_scale,
        outside=outside,
        information=inside,
    )


# ------------------------------------------------------------------------------ extrapolation


def extrapolation(blocks: RowBlocks) -> Extrapolation[BlockState]:
    """How SQUAREM runs over blocks; X'E[Z] moves with the positions, so that X is not read."""

    def pack(state: BlockState) -> CarryingVector:
        parts = blocks.map(_pack_rows, state.rows)
        vector = BlockVector(mean_field.pack(state.shared), parts, blocks)
        return CarryingVector(vector=vector, carried=state.cross)

    def unpack(found: CarryingVector, state: BlockState) -> BlockState:
        rows = blocks.map(_unpack_rows, state.rows, found.vector.parts())
        shared = mean_field.unpack(found.vector.shared, state.shared)
        return BlockState(shared=shared, rows=rows, cross=found.carried)

    return Extrapolation(pack=pack, unpack=unpack, norm=CarryingVector.norm)


def _pack_rows(block: Block, own: OwnRows, shared: Any) -> FloatArray:
    return np.hstack([own.latent, own.scores])


def _unpack_rows(block: Block, own: OwnRows, found: FloatArray, shared: Any) -> OwnRows:
    latent, scores = np.hsplit(found, [own.latent.shape[1]])
    return replace(own, latent=latent, scores=scores)
