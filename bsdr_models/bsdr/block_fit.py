"""A classifier fitted to more rows than memory holds, in blocks.

The parameters are learned from all rows, block by block. Some rows, evenly spaced, are kept in
memory besides: the latent scale is chosen on them, by the cross-validation that chooses it for
rows in memory, and they are what the tree of the fit and its plots show.
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models import kept_rows
from bsdr_models.bsdr import blocks as row_blocks
from bsdr_models.bsdr.block_arrays import make_checkpoint
from bsdr_models.bsdr.block_starts import prepare
from bsdr_models.bsdr.blocks import OwnRows
from bsdr_models.bsdr.fit import fit_blocks
from bsdr_models.bsdr.predict import MeanFieldPosterior, NoFeatures
from bsdr_models.bsdr.stacking import Fit, Mixture, Problem, fit_mixture
from bsdr_models.inference.callbacks import watched_climb
from bsdr_models.inference.coordinate_ascent import FitResult
from bsdr_models.inference.row_blocks import Block
from bsdr_models.kept_rows import KeptRows
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.row_checks import Checked
from bsdr_models.typing import FloatArray, IntArray


def keep_rows(checked: Checked, scaler: Scaler) -> KeptRows:
    """Some rows, scaled. Reads X once."""
    kept = kept_rows.keep_rows(checked)
    X = kept.X.toarray() if issparse(kept.X) else kept.X
    return replace(kept, X=scaler.transform(np.asarray(X, dtype=np.float64)))


def _positions(block: Block, own: OwnRows, index: IntArray) -> FloatArray:
    first, past = np.searchsorted(index, [block.begin, block.begin + len(own.latent)])
    return own.latent[index[first:past] - block.begin]


def choose_scale(problem: Problem, rng: np.random.Generator, **options: Any) -> float:
    """Latent scale with the best held-out log score on the rows of a problem."""
    if problem.options["start"] == "stochastic":  # which rows in memory do without
        problem = replace(problem, options={**problem.options, "start": "discriminant"})
    return fit_mixture(problem, rng, select=True, **options).fits[0].latent_scale


def fit_to_blocks(
    checked: Checked,
    scaler: Scaler,
    problem: Problem,
    kept: KeptRows,
    latent_scale: float,
    rng: np.random.Generator,
    *,
    progressbar: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Mixture:
    """One mean-field fit to all rows, as the mixture of it alone.

    Parameters
    ----------
    checked : Checked
        Rows with the indices of their classes.
    scaler : Scaler
    problem : Problem
        Of the kept rows; what it says of the fit holds for all.
    kept : KeptRows
    latent_scale : float
    rng : numpy.random.Generator
    progressbar : bool
    checkpoint : path, optional
        Folder to which the fit is written as it goes, and from which it goes on.
    """
    assert checked.counts is not None
    priors = replace(problem.priors, latent_scale=latent_scale)
    data = prepare(
        checked.blocks,
        scaler,
        n_labels=problem.n_labels,
        projection_prior=problem.projection_prior,
    )
    options = {name: value for name, value in problem.options.items() if name != "quasi_newton"}
    written = None
    if checkpoint is not None:
        written = make_checkpoint(
            checkpoint,
            data,
            priors,
            n_components=options["n_components"],
            projection_prior=problem.projection_prior,
        )
    with watched_climb(
        "BSDR, fit in blocks",
        n_restarts=options["n_restarts"],
        max_iter=options["max_iter"],
        n_jobs=1,
        enabled=progressbar,
    ) as watched:
        del watched["n_jobs"]
        result: FitResult[Any] = fit_blocks(
            data,
            priors,
            projection_prior=problem.projection_prior,
            rng=rng,
            checkpoint=written,
            **options,
            **watched,
        )
    posterior = row_blocks.posterior(result.state, data, priors)
    latent = data.blocks.map(_positions, result.state.rows, shared=kept.index)
    posterior = _seen_by(posterior, kept, np.concatenate(data.blocks.collect(latent)))
    fit = Fit(
        latent_scale=latent_scale,
        posterior=posterior,
        result=replace(result, state=posterior.state),
    )
    guess = np.log((checked.counts + 1.0) / (checked.counts + 1.0).sum())
    return Mixture.of_one(fit, NoFeatures(target="multiclass", log_prob=guess))


def _seen_by(
    posterior: MeanFieldPosterior, kept: KeptRows, latent: FloatArray
) -> MeanFieldPosterior:
    """The posterior with the kept rows as its rows, of which latent (n, R) are the positions."""
    design, state = posterior.data.design, posterior.state
    assert isinstance(design, GramDesign | SpectralGramDesign)
    design = design.with_rows(design.coordinates(kept.X))
    state = replace(
        state,
        latent=replace(state.latent, mean=latent),
        projection=replace(state.projection, fitted=design.rows @ state.projection.mean),
    )
    return replace(posterior, state=state, data=replace(posterior.data, design=design, y=kept.y))
