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
from bsdr_models.inference.row_blocks import Block, RowBlocks
from bsdr_models.numerics.scaling import TOO_LARGE, Scaler
from bsdr_models.row_checks import Checked, check_blocks
from bsdr_models.typing import IntArray

# Rows that are kept in memory.
N_KEPT = 2000
# Share of them that have a label, as far as there are such.
LEAST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Some rows of all blocks, in their order.

    index
        Which they are, (n,).
    X
        As they were given, (n, P), or SciPy's CSR.
    y
        Index of the class, (n,), -1 without a label.
    """

    index: IntArray
    X: Any
    y: IntArray

    def __add__(self, other: "KeptRows") -> "KeptRows":
        join = sparse.vstack if sparse.issparse(self.X) else np.concatenate
        return KeptRows(
            index=np.concatenate([self.index, other.index]),
            X=join([self.X, other.X]),
            y=np.concatenate([self.y, other.y]),
        )


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
    kept = _keep_rows(checked)
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


def _keep_rows(checked: Checked) -> KeptRows:
    """At most `N_KEPT` rows, evenly spaced. Reads X once."""
    blocks = checked.blocks
    known = np.array(blocks.collect(blocks.map(_count_known)))
    sizes = np.array(blocks.sizes)
    n_known, n_free = int(known.sum()), int((sizes - known).sum())
    share = max(LEAST, n_known / (n_known + n_free))
    take = min(n_known, max(round(share * N_KEPT), N_KEPT - n_free))
    chosen = [
        _spread(known, take),
        _spread(sizes - known, min(n_free, N_KEPT - take)),
    ]
    begins = np.cumsum(sizes) - sizes
    plan = {int(b): [own[i] for own in chosen] for i, b in enumerate(begins)}
    _, kept = blocks.visit(_keep, shared=plan)
    return kept


def _spread(sizes: IntArray, take: int) -> list[IntArray]:
    """Numbers, within each part, of so many entries evenly spaced over parts of these sizes."""
    ends = np.cumsum(sizes)
    index = np.unique(np.linspace(0, ends[-1] - 1, take).astype(np.int64))
    parts = np.split(index, np.searchsorted(index, ends[:-1]))
    return [part - begin for part, begin in zip(parts, ends - sizes, strict=True)]


def _count_known(block: Block, shared: None) -> int:
    return int(np.count_nonzero(np.asarray(block.y) >= 0))


def _keep(block: Block, plan: dict[int, list[IntArray]]) -> tuple[None, KeptRows]:
    y = np.asarray(block.y)
    known, free = plan[block.begin]
    own = np.sort(np.concatenate([np.flatnonzero(y >= 0)[known], np.flatnonzero(y < 0)[free]]))
    X = block.X[own]
    return None, KeptRows(index=block.begin + own, X=X, y=y[own])


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
    n_sweeps = None if tol > 0.0 else max_iter
    if checkpoint is not None:
        written = _checkpoint(checkpoint, task, rows, problem, n_sweeps=n_sweeps)
        if n_sweeps is None:
            options["checkpoint"] = written
        else:
            options["resume"], max_iter = _go_on(written, task, rows, problem, n_sweeps, rng)
            before_the_last = _until(written, max_iter)
            options["callbacks"] = [*watched.get("callbacks", ()), before_the_last]
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


def _go_on(
    written: Checkpoint[BlockState],
    task: Task,
    rows: BlockRows,
    problem: Problem,
    n_sweeps: int,
    rng: np.random.Generator,
) -> tuple[BlockState, int]:
    """Where a fit of so many sweeps begins, and how many are left."""

    def begin() -> BlockState:
        return row_blocks.init(
            rows.blocks,
            problem,
            n_components=task.n_components,
            seed=int(rng.spawn(1)[0].integers(2**63)),
            start=task.start,
        )

    state = written.begin(0, begin)
    return state, n_sweeps - written.sweeps


def _until(written: Checkpoint[BlockState], last: int) -> Any:
    """A callback that writes no state from which no sweep is left."""

    def save(iteration: int, state: BlockState, info: Any) -> None:
        if iteration < last:
            written(iteration, state, info)

    return save
