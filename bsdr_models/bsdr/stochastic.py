"""Stochastic variational inference of BSDR over blocks of rows: a first answer, and soon.

A visit takes some of the blocks. In each the rows are cut, in random order, into small parts; each
part is a step of :mod:`bsdr_models.bsdr.natural_steps`, from where the one before has led. Blocks
of one visit start from the same place and do not hear of each other until it ends, when the
averages that they have reached are averaged; so as many blocks as there are workers learn at a
time. What a block knows of its rows stays with it, and exact sweeps
(:func:`bsdr_models.bsdr.fit.fit_blocks`, ``resume``) can go on from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import sparse

from bsdr_models.bsdr import mean_field, natural_steps
from bsdr_models.bsdr.block_starts import BlockData, find_positions
from bsdr_models.bsdr.blocks import BlockState, Message, OwnRows
from bsdr_models.bsdr.mean_field import Info, Start, State
from bsdr_models.bsdr.natural_steps import Running, SumDesign
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.row_sums import LatentSums
from bsdr_models.bsdr.settled import settle_all
from bsdr_models.data import Data
from bsdr_models.inference.row_blocks import Block
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.numerics.scaled_rows import Rows, scaled_rows
from bsdr_models.typing import FloatArray, ProjectionPrior

# Rows of a step, at most.
BATCH_ROWS = 100
# Weight of step t: (t + DELAY)**-FORGETTING.
FORGETTING, DELAY = 0.51, 10.0
# So many steps are of EM: while the weights are next to nothing the labels say nothing of the
# projection, and its prior would take it back.
FIRST_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has been learned after some visits.

    shared
        All that belongs to no row.
    running
        Averages that it was made of.
    n_steps
        Steps so far, one after the other.
    """

    shared: State
    running: Running
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Weight of step t, (t + delay)^-forgetting.

    forgetting
        Above 0.5, up to 1: the lower, the sooner early steps are forgotten.
    delay
        The larger, the less the first steps count.
    """

    forgetting: float
    delay: float

    def __post_init__(self) -> None:
        if not 0.5 < self.forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0.5 and at most 1, got {self.forgetting}")
        if not 0.0 <= self.delay < np.inf:
            raise ValueError(f"delay must be finite and not negative, got {self.delay}")

    def __call__(self, n_steps: int) -> float:
        """Of the step after so many others."""
        return float((n_steps + 1.0 + self.delay) ** -self.forgetting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the blocks of a visit are told.

    chosen
        First rows of the blocks that learn.
    complete
        Steps in the metric of the augmented data.
    """

    progress: Progress
    message: Message
    known: Data
    chosen: frozenset[int]
    rate: Rate
    batch_rows: int
    n_inner: int
    seed: int
    complete: bool = False

    @property
    def design(self) -> SumDesign:
        """By the sums over all rows."""
        assert isinstance(self.known.design, GramDesign | SpectralGramDesign)
        return self.known.design


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a visit brings back, sums over the rows that were met.

    n_rows
        How many.
    running
        Their number times the averages reached; None if there are none.
    elbo
        Their number times the estimate of the bound.
    n_steps
        Of the block with the most.
    """

    n_rows: int = 0
    running: Running | None = None
    elbo: float = 0.0
    n_steps: int = 0

    def __add__(self, other: "Learned") -> "Learned":
        if self.running is None or other.running is None:
            return self if other.running is None else other
        return Learned(
            n_rows=self.n_rows + other.n_rows,
            running=_combine(lambda ours, theirs: ours + theirs, self.running, other.running),
            elbo=self.elbo + other.elbo,
            n_steps=max(self.n_steps, other.n_steps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StochasticResult:
    """A first answer.

    state
        From which exact sweeps can go on; every row is settled.
    info
        Its exact bound.
    estimates
        Estimate of the bound from each visit, (n_visits,): of what was known when its rows were
        met, on average.
    interrupted
        Whether a callback has stopped it before the last visit.
    """

    state: BlockState
    info: Info
    estimates: FloatArray
    interrupted: bool = False


# ------------------------------------------------------------------------- what a block does


def learn(block: Block, own: OwnRows | None, lesson: Lesson) -> tuple[OwnRows | None, Learned]:
    """Visit: steps from the rows of a block, part by part. Reads X if the block is chosen."""
    if block.begin not in lesson.chosen:
        return own, Learned()
    message, progress = lesson.message, lesson.progress
    targets = message.targets(block)
    X = block.X if sparse.issparse(block.X) else np.asarray(block.X)
    n, r = X.shape[0], progress.shared.latent.mean.shape[1]
    latent = np.empty((n, r)) if own is None else own.latent.copy()
    scores = np.empty((n, targets.n_labels)) if own is None else own.scores.copy()
    mode = np.zeros(n) if own is None or own.mode is None else own.mode.copy()
    rng = np.random.default_rng([lesson.seed, block.begin, progress.n_steps])
    elbo = 0.0
    for part in np.array_split(rng.permutation(n), -(-n // lesson.batch_rows)):
        rows = scaled_rows(X[part], message.scaler, seen=True)
        shared = progress.shared
        fitted = rows.project(lesson.design.loadings(shared.projection.mean))
        warm = own is not None
        state = natural_steps.join(
            shared, fitted, latent[part] if warm else fitted, mode[part] if warm else None
        )
        some = replace(targets, y=targets.y[part])
        state = natural_steps.settle(
            state, some, message.priors, n_inner=lesson.n_inner, n_nodes=message.n_nodes
        )
        latent[part], scores[part] = state.latent.mean, state.scores.mean
        if state.scores.mode is not None:
            mode[part] = state.scores.mode
        sums = mean_field.latent_sums(state)
        elbo += len(part) * natural_steps.estimate(state, sums, lesson.known, message.priors)
        curvature = natural_steps.mean_curvature(state, some, message.priors)
        progress = _advance(progress, lesson, state, rows, sums, curvature)
    kept = OwnRows(
        latent=latent, scores=scores, mode=mode if targets.target == "multiclass" else None
    )
    running = _combine(lambda value: n * value, progress.running)
    return kept, Learned(n_rows=n, running=running, elbo=elbo, n_steps=progress.n_steps)


def _advance(
    progress: Progress,
    lesson: Lesson,
    state: State,
    rows: Rows,
    sums: LatentSums,
    curvature: FloatArray,
) -> Progress:
    """One step."""
    priors, shared = lesson.message.priors, progress.shared
    rate = lesson.rate(progress.n_steps)
    curvature_rate = max(natural_steps.CURVATURE_RATE, 1.0 / (progress.n_steps + 1.0))
    known = (1.0 - curvature_rate) * progress.running.curvature + curvature_rate * curvature
    information = (
        natural_steps.complete_information(shared, priors)
        if lesson.complete or progress.n_steps < FIRST_STEPS
        else natural_steps.observed_information(shared, known, priors)
    )
    found = natural_steps.summarise(
        state, rows, sums, lesson.design, information, curvature, priors
    )
    running = progress.running.blend(found, rate, curvature_rate)
    shared = natural_steps.update_means(shared, running, lesson.design, priors, information)
    return Progress(shared=shared, running=running, n_steps=progress.n_steps + 1)


# ------------------------------------------------------------------------------------ the fit


def fit_stochastic(
    data: BlockData,
    priors: Priors,
    *,
    n_components: int,
    projection_prior: ProjectionPrior,
    rng: np.random.Generator,
    start: Start = "discriminant",
    passes: int = 5,
    at_once: int = 1,
    batch_rows: int = BATCH_ROWS,
    n_inner: int = natural_steps.N_INNER,
    forgetting: float = FORGETTING,
    delay: float = DELAY,
    callbacks: Sequence[Callable[[int, Progress, float], bool | None]] = (),
) -> StochasticResult:
    """Learn from the blocks in random order; at the end one pass that settles every row.

    Rows of a block should be as mixed as all rows are; if they are sorted by label, take all
    blocks at once.

    Parameters
    ----------
    data : BlockData
        Of labels.
    priors : Priors
    n_components : int
        R.
    projection_prior : {"entrywise", "columnwise", "rowwise"}
    rng : numpy.random.Generator
    start : {"discriminant", "pca", "random"}
    passes : int
        Times that every block learns.
    at_once : int
        Blocks of a visit: 1 where one process visits them, the number of workers elsewhere.
    batch_rows : int
        Rows of a step, at most.
    n_inner : int
        Updates of the scores and positions of these rows before it.
    forgetting, delay : float
        See :class:`Rate`.
    callbacks : sequence of callables
        Called with (number of the visit from 1, :class:`Progress`, estimate of the bound); a
        true value ends the passes.

    Returns
    -------
    StochasticResult

    Raises
    ------
    ValueError
        If targets are real, or an argument is out of range.
    """
    if data.known.target == "regression":
        raise ValueError("stochastic steps are for labels; real targets converge in few sweeps")
    if min(passes, at_once, batch_rows, n_inner) < 1:
        raise ValueError(
            f"counts must be positive, got {passes=}, {at_once=}, {batch_rows=}, {n_inner=}"
        )
    rate = Rate(forgetting=forgetting, delay=delay)
    progress = first_progress(
        data, priors, rng, start=start, n_components=n_components, projection_prior=projection_prior
    )
    rows = data.blocks.map(_nothing)
    begins = np.concatenate([[0], np.cumsum(data.blocks.sizes)[:-1]])
    estimates: list[float] = []
    stopped = False
    for _ in range(passes):
        for chosen in _groups(rng.permutation(begins), at_once):
            lesson = Lesson(
                progress=progress,
                message=Message.of(progress.shared, data, priors, n_nodes=natural_steps.N_NODES),
                known=data.known,
                chosen=chosen,
                rate=rate,
                batch_rows=batch_rows,
                n_inner=n_inner,
                seed=int(rng.integers(2**63)),
            )
            rows, learned = data.blocks.visit(learn, rows, shared=lesson)
            progress = next_progress(progress, learned, data, priors)
            estimates.append(learned.elbo / learned.n_rows)
            for callback in callbacks:
                stopped |= bool(callback(len(estimates), progress, estimates[-1]))
            if stopped:
                break
        if stopped:
            break
    state, info = settle_all(progress.shared, rows, data, priors)
    return StochasticResult(
        state=state, info=info, estimates=np.array(estimates), interrupted=stopped
    )


def first_progress(
    data: BlockData,
    priors: Priors,
    rng: np.random.Generator,
    *,
    start: Start,
    n_components: int,
    projection_prior: ProjectionPrior,
) -> Progress:
    """Globals to start from, made of the sums over all rows. Reads no rows."""
    design, r = data.design, n_components
    positions = find_positions(data, start, n_components=r, rng=rng)
    # A random direction of unit variance for each component that the start says nothing of.
    spread = np.sqrt(design.mean_eigenvalue / design.n_rows * design.n_features)
    axes = rng.standard_normal((design.n_features, r)) * (positions.spread / spread)
    if positions.axes is not None:
        axes[:, list(positions.columns)] = data.inside(positions.axes)
    precision = mean_field.vague_precision(design.n_features, r, projection_prior, priors)
    cross = natural_steps.gram_times(design, axes)
    projection = design.ridge_from(cross, precision.mean, priors.latent_scale**2)
    shared = mean_field.begin(np.empty((0, r)), precision, projection, data.known)
    shared = replace(shared, latent=mean_field.update_latent(shared, priors))
    k = data.known.n_labels
    nothing = Running(
        anchor=axes,
        pull=np.zeros_like(axes),
        moment=np.eye(1 + r),
        drive=np.zeros((1 + r, k)),
        curvature=np.eye(k),
    )
    return Progress(shared=shared, running=nothing, n_steps=0)


def next_progress(
    progress: Progress, learned: Learned, data: BlockData, priors: Priors
) -> Progress:
    """What a visit has led to, with Cov(Q) and the precisions made new."""
    assert learned.running is not None
    running = _combine(lambda value: value / learned.n_rows, learned.running)
    information = natural_steps.observed_information(progress.shared, running.curvature, priors)
    shared = natural_steps.update_means(progress.shared, running, data.design, priors, information)
    shared = natural_steps.update_precisions(shared, data.design, priors)
    return Progress(shared=shared, running=running, n_steps=learned.n_steps)


def _nothing(block: Block, shared: None) -> None:
    """No row has been met."""


def _groups(begins: np.ndarray, size: int) -> list[frozenset[int]]:
    return [
        frozenset(int(begin) for begin in begins[first : first + size])
        for first in range(0, len(begins), size)
    ]


def _combine(function: Callable[..., FloatArray], *runnings: Running) -> Running:
    """A function of every average."""
    names = [field.name for field in fields(Running)]
    return Running(
        **{name: function(*(getattr(running, name) for running in runnings)) for name in names}
    )
