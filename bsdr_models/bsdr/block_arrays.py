"""A state over blocks as arrays by name, and back: what a checkpoint of a fit writes."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.block_starts import BlockData
from bsdr_models.bsdr.blocks import BlockState, OwnRows
from bsdr_models.bsdr.priors import Priors
from bsdr_models.inference.checkpoint import Checkpoint, Codec
from bsdr_models.inference.row_blocks import Parts
from bsdr_models.inference.state_arrays import Arrays, fill, flatten
from bsdr_models.typing import ProjectionPrior


def make_checkpoint(
    folder: str | os.PathLike[str],
    data: BlockData,
    priors: Priors,
    *,
    n_components: int,
    projection_prior: ProjectionPrior,
) -> Checkpoint[BlockState]:
    """Where a fit is written, and begins again; not if the data or the model are others."""
    settings = {
        "model": "bsdr",
        "n_components": n_components,
        "projection_prior": projection_prior,
        "priors": asdict(priors),
        "n_labels": data.known.n_labels,
        "target": data.known.target,
        "sums of targets": data.sums.target_total.tolist(),
    }
    return Checkpoint(
        folder,
        data.blocks,
        codec(data, priors, n_components=n_components, projection_prior=projection_prior),
        settings=settings,
    )


def codec(
    data: BlockData, priors: Priors, *, n_components: int, projection_prior: ProjectionPrior
) -> Codec[BlockState]:
    """How the states of a fit are written and read."""
    known = data.known
    precision = mean_field.vague_precision(known.n_features, n_components, projection_prior, priors)
    cross = np.zeros((len(data.sums.total), n_components))
    projection = data.design.ridge_from(data.inside(cross), precision.mean, priors.latent_scale**2)
    like = mean_field.begin(np.empty((0, n_components)), precision, projection, known)

    def shared(state: BlockState) -> dict[str, Any]:
        return {**flatten(state.shared, "shared"), "cross": state.cross}

    def state(arrays: Arrays, rows: Parts) -> BlockState:
        return BlockState(shared=fill(like, "shared", arrays), rows=rows, cross=arrays["cross"])

    return Codec(
        shared=shared,
        rows=lambda state: state.rows,
        write_rows=_row_arrays,
        read_rows=_own_rows,
        state=state,
    )


def _row_arrays(own: OwnRows) -> Mapping[str, Any]:
    arrays = {"latent": own.latent, "scores": own.scores}
    return arrays if own.mode is None else {**arrays, "mode": own.mode}


def _own_rows(arrays: Arrays) -> OwnRows:
    return OwnRows(latent=arrays["latent"], scores=arrays["scores"], mode=dict(arrays).get("mode"))
