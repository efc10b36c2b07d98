"""The paper's model fitted to more rows than memory holds.

The parameters are learned from all rows, block by block. Some rows, evenly spaced, are kept in
memory besides: settings and temperature are chosen on them as they are on rows in memory, and
they are what the tree of the fit and its plots show. Where few rows have a label, half of those
that are kept have one; the rows without, if they are many, take part in the choice by the sums
of all of them, for how many there are decides how many sweeps are best.
"""

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.bm2pca import blocks as row_blocks
from bsdr_models.bm2pca.block_arrays import codec
from bsdr_models.bm2pca.block_problem import Problem, Targets, prepare
from bsdr_models.bm2pca.blocks import BlockState
from bsdr_models.bm2pca.fit import fit_blocks
from bsdr_models.bm2pca.generative import Rows
from bsdr_models.bm2pca.labels import Labels
from bsdr_models.bm2pca.task import Learned, Strategy, Task
from bsdr_models.bm2pca.views import Pool
from bsdr_models.checks import check_classes, check_variation
from bsdr_models.inference.checkpoint import Checkpoint
from bsdr_models.inference.coordinate_ascent import FitResult
from bsdr_models.inference.row_blocks import RowBlocks
from bsdr_models.kept_rows import keep_rows
from bsdr_models.numerics.scaling import TOO_LARGE, Scaler
from bsdr_models.row_checks import Checked, check_blocks
from bsdr_models.typing import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows:
    """All rows of a fit, and what is known of them.

    checked
        Their y is the index of each row's class, -1 without a label.
    scaler
        None for sparse rows, which are taken as they are.
    kept
        Which rows are in memory, (n,).
    X
        These, as the model sees them.
    labels
        Of these rows; the classes are those of all.
    problem
        Sums of all rows, for one subspace and a C of 1.
    """

    checked: Checked
    scaler: Scaler | None
    kept: IntArray
    X: Rows
    labels: Labels
    problem: Problem

    @property
    def blocks(self) -> RowBlocks:
        """Where the rows are."""
        return self.checked.blocks

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features of all blocks."""
        return sum(self.blocks.sizes), self.blocks.n_features

    @property
    def pool(self) -> Pool | None:
        """Rows without a label, if they are held as sums."""
        return self.problem.data.views[0].pool

    def problem_of(self, strategy: Strategy, cost: float) -> Problem:
        """The problem for one subspace or one for each class, and a C."""
        targets = replace(self.problem.targets, strategy=strategy, cost=cost)
        margins = targets.margins(np.empty((0, self.labels.signs.shape[1])))
        data = replace(self.problem.data, margins=margins)
        return replace(self.problem, targets=targets, data=data)

    @property
    def counts(self) -> IntArray:
        """Rows of each class in all blocks, (K,)."""
        assert self.checked.counts is not None
        return self.checked.counts


def look(blocks: RowBlocks, *, unlabeled: Any, standardize: bool) -> BlockRows:
    """Check all rows, learn their scaling and sums, and keep some. Reads X three times.

    Parameters
    ----------
    blocks : RowBlocks
        Their targets are labels, one for a row.
    unlabeled : scalar, optional
        Marks rows without a label.
    standardize : bool
        Scale each feature to unit variance; otherwise all by one number.

    Raises
    ------
    ValueError
        If an entry is missing or not finite, there are no two classes, or no feature varies.
    """
    if np.ndim(unlabeled) != 0:
        raise ValueError(f"unlabeled must be a single value, got {unlabeled!r}")
    try:
        checked = check_blocks(blocks, unlabeled=unlabeled)
    except ValueError as error:
        if "X contains nan" not in str(error):
            raise
        raise ValueError(
            f"{error}; gaps are integrated out of rows in memory, without block_rows, only"
        ) from error
    assert checked.classes is not None
    assert checked.counts is not None
    check_classes(checked.classes, checked.counts, stacklevel=5)
    kept = keep_rows(checked)
    scaler = checked.statistics.scaler(standardize=standardize, common=not standardize)
    if sparse.issparse(kept.X):
        if scaler.constant.all():
            raise ValueError("X has no variation: all rows are equal")
        if checked.statistics.peak.max() > TOO_LARGE:
            raise ValueError("X is sparse, so never scaled, and too large to compute with")
        X: Rows = sparse.csr_array(kept.X, dtype=np.float64)
    else:
        check_variation(scaler, stacklevel=5)
        X = scaler.transform(np.asarray(kept.X, dtype=np.float64))
    own = None if sparse.issparse(kept.X) else scaler
    targets = Targets(strategy="shared", cost=1.0, n_labels=len(checked.classes))
    return BlockRows(
        checked=checked,
        scaler=own,
        kept=kept.index,
        X=X,
        labels=_labels(kept.y, checked.classes, unlabeled),
        problem=prepare(checked.blocks, targets, scaler=own),
    )


def _labels(y: IntArray, classes: np.ndarray, unlabeled: Any) -> Labels:
    """Labels of rows by the numbers of their classes."""
    given = classes[np.maximum(y, 0)]
    if (y < 0).any():
        given = given.astype(object)
        given[y < 0] = unlabeled
        if (classes.dtype.kind in "OUS") == isinstance(unlabeled, str):
            given = np.array(given.tolist())  # all text, or all numbers
    targets = Targets(strategy="shared", cost=1.0, n_labels=len(classes))
    return Labels(given=given, classes=classes, signs=targets.columns(y), groups=y, exclusive=True)


# ------------------------------------------------------------------------------------- the fit


def fit(
    task: Task,
    rows: BlockRows,
    *,
    cost: float,
    rng: np.random.Generator,
    max_iter: int,
    tol: float,
    n_restarts: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    **watched: Any,
) -> Learned:
    """The paper's model for all rows; a few plain sweeps if ``tol`` is 0, else to convergence.

    Parameters
    ----------
    task : Task
        Of the kept rows; what it says of the fit holds for all.
    rows : BlockRows
    cost : float
        C.
    rng : numpy.random.Generator
    max_iter, tol, n_restarts
        As for :func:`~bsdr_models.bm2pca.paper.fit`; restarts run one after the other.
    checkpoint : path, optional
        Folder to which the fit is written as it goes, and from which it goes on.
    **watched
        Callbacks.
    """
    problem = rows.problem_of(task.strategy, cost)
    watched.pop("n_jobs", None)
    options: dict[str, Any] = {"n_components": task.n_components, "start": task.start, **watched}
    if checkpoint is not None:
        options["checkpoint"] = _checkpoint(
            checkpoint, task, rows, problem, n_sweeps=None if tol > 0.0 else max_iter
        )
    result = fit_blocks(
        rows.blocks,
        problem,
        task.priors,
        rng=rng,
        n_restarts=n_restarts,
        max_iter=max_iter,
        tol=tol,
        accelerate=tol > 0.0,
        **options,
    )
    return _learned(result, problem)


def _learned(result: FitResult[BlockState], problem: Problem) -> Learned:
    posterior = row_blocks.posterior(result.state, problem)
    return Learned(
        posterior=posterior,
        generative=posterior.generative,
        state=result.state.shared,
        elbo=result.elbo,
        terms=dict(result.terms),
        converged=result.converged,
        interrupted=result.interrupted,
        restarts=result.restarts,
    )


def _checkpoint(
    folder: str | os.PathLike[str],
    task: Task,
    rows: BlockRows,
    problem: Problem,
    *,
    n_sweeps: int | None,
) -> Checkpoint[BlockState]:
    """Where a fit is written, and begins again; not if the data or the model are others."""
    strategy: Strategy = task.strategy
    settings = {
        "model": "bm2pca",
        "strategy": strategy,
        "n_components": task.n_components,
        "C": float(problem.targets.cost),
        "n_sweeps": n_sweeps,
        "start": task.start,
        "priors": asdict(task.priors),
        "rows of each class": rows.counts.tolist(),
        "scaled": rows.scaler is not None,
    }
    how = codec(problem, n_components=task.n_components)
    return Checkpoint(folder, rows.blocks, how, settings=settings)
