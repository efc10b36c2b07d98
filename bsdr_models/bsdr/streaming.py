r"""BSDR learned from a stream: some rows at a time, each met once, none needed again.

The first rows are kept, as many as there is room for, and what is known of them is the fit to them
in memory, made when it is asked for. Rows that come after these are steps of
:mod:`bsdr_models.bsdr.natural_steps`, which go on from that fit; the rows that are kept, then a
random choice of all, are looked at but not learned from. The stream knows no total: its sums stand
for the rows seen so far, and a row that is met twice counts twice.

Features are scaled by the standard deviations of all rows seen. In steps they stay centred where
the first rows have their mean: any centre will do, the bias takes up the rest. When the scales
change, the sums and the projection are given the new units exactly: with :math:`x' = x f`,
:math:`X'^\top X' = (f f^\top) \odot X^\top X`,
:math:`X'^\top Z = \operatorname{diag}(f) X^\top Z` and
:math:`Q' = \operatorname{diag}(f)^{-1} Q`. A column that has not varied yet has added nothing, in
any units.
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bsdr import information as row_information
from bsdr_models.bsdr import mean_field, natural_steps
from bsdr_models.bsdr.mean_field import Start, State
from bsdr_models.bsdr.natural_steps import Running
from bsdr_models.bsdr.predict import MeanFieldPosterior
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.row_sums import LatentSums
from bsdr_models.bsdr.stacking import Fit, Problem
from bsdr_models.data import Data, Targets
from bsdr_models.inference.coordinate_ascent import FitResult
from bsdr_models.numerics.gram_design import GramDesign
from bsdr_models.numerics.scaled_rows import ColumnStatistics, DenseRows, column_statistics
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.typing import FloatArray, IntArray, ProjectionPrior

# Latent scale of a stream, which cannot be cross-validated.
LATENT_SCALE = 0.3
# Rows that are kept, and fitted together while they are all; rows of a step at most.
N_KEPT, BATCH_ROWS = 2000, 500
# A batch of n rows after N - n others weighs (n / N)**FORGETTING.
FORGETTING = 0.9
# Updates of the scores and positions of a batch, which is met for the first time.
N_INNER = 5
# No step is longer than one over this share of a step of EM, which grows when a step was too long
# and falls when one was not: few rows say little of the curvature.
FLOOR, SHORTER, LONGER = 0.005, 3.0, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What does not change while a stream is learned from.

    n_labels, n_components
        K, R.
    priors
        With the latent scale.
    start, n_restarts, max_iter, tol
        Of the fit to the first rows, see :func:`bsdr_models.bsdr.fit.fit_mean_field`.
    seed
        Of everything random.
    """

    n_labels: int
    n_components: int
    projection_prior: ProjectionPrior
    priors: Priors
    standardize: bool = True
    forgetting: float = FORGETTING
    start: Start = "discriminant"
    n_restarts: int = 1
    max_iter: int = 500
    tol: float = 1e-3
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What steps have led to. P features.

    state
        Without rows.
    gram
        Sum of x x' over the rows seen, scaled, (P, P).
    running
        Averages per row.
    n_steps
        Steps so far.
    floor
        Longest step, as a share; see :data:`FLOOR`.
    """

    state: State
    gram: FloatArray
    running: Running
    n_steps: int = 0
    floor: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What is carried from one batch to the next.

    statistics
        Of the columns of all rows seen; None before the first.
    scaler
        How rows enter.
    kept_X, kept_y
        Some of the rows seen, unscaled, (M, P), and their labels, (M,): all at first, later a
        random choice of :data:`N_KEPT`.
    learned
        None while all rows are kept.
    """

    settings: StreamSettings
    statistics: ColumnStatistics | None = None
    scaler: Scaler | None = None
    kept_X: FloatArray | None = None
    kept_y: IntArray | None = None
    learned: Learned | None = None

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return 0 if self.statistics is None else self.statistics.count


def begin(settings: StreamSettings) -> Stream:
    """A stream of which nothing was seen."""
    if not 0.0 <= settings.forgetting <= 1.0:
        raise ValueError(f"forgetting must be from 0 to 1, got {settings.forgetting}")
    return Stream(settings=settings)


def encode(y: np.ndarray, classes: np.ndarray) -> IntArray:
    """Indices of labels among sorted classes, (n,).

    Raises
    ------
    ValueError
        If a label is none of them.
    """
    index = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.flatnonzero(classes[index] != y)
    if unknown.size:
        raise ValueError(
            f"y holds the label {y[unknown[:1]].tolist()[0]!r}, which is not among the classes of "
            f"the first call of partial_fit: {classes.tolist()}"
        )
    return index.astype(np.int64)


def advance(stream: Stream, X: FloatArray, y: IntArray) -> Stream:
    """Learn from further rows; all of them count once more.

    Parameters
    ----------
    stream : Stream
    X : (n, P)
        Finite, not scaled; n at least 1.
    y : (n,) of int
        Indices of the labels.
    """
    room = max(0, min(len(X), N_KEPT - stream.n_rows))
    if room > 0:
        stream = _keep(_count(stream, X[:room]), X[:room], y[:room])
        assert stream.statistics is not None
        scaler = stream.statistics.scaler(standardize=stream.settings.standardize)
        stream = replace(stream, scaler=scaler)
    for part in range(room, len(X), BATCH_ROWS):
        some = slice(part, part + BATCH_ROWS)
        stream = _step(_ready(stream), X[some], y[some])
    return stream


def fit(stream: Stream) -> Fit:
    """What is known of the rows so far; its rows are those kept.

    While these are all, the fit to them in memory; after that what the steps have led to, with an
    estimate for a bound. Rows to predict are scaled by ``stream.scaler``.

    Raises
    ------
    ValueError
        If nothing was seen yet.
    """
    if stream.n_rows == 0:
        raise ValueError("nothing was seen yet")
    return _fit_kept(stream) if stream.learned is None else _settle_kept(stream, stream.learned)


def _fit_kept(stream: Stream) -> Fit:
    settings = stream.settings
    assert stream.scaler is not None
    assert stream.kept_X is not None
    assert stream.kept_y is not None
    rows = stream.scaler.transform(stream.kept_X)
    varied = len(np.unique(stream.kept_y)) > 1 and not stream.scaler.constant.all()
    problem = Problem(
        X=rows,
        y=stream.kept_y,
        n_labels=settings.n_labels,
        target="multiclass",
        projection_prior=settings.projection_prior,
        priors=settings.priors,
        options={
            "n_components": settings.n_components,
            "start": settings.start if varied else "random",
            "n_restarts": settings.n_restarts,
            "max_iter": settings.max_iter,
            "tol": settings.tol,
        },
    )
    rng = np.random.default_rng(settings.seed)
    return problem.fit(problem.data(), settings.priors.latent_scale, rng)


def _settle_kept(stream: Stream, learned: Learned) -> Fit:
    settings, priors = stream.settings, stream.settings.priors
    assert stream.scaler is not None
    assert stream.kept_X is not None
    assert stream.kept_y is not None
    rows = stream.scaler.transform(stream.kept_X)
    targets = Targets(y=stream.kept_y, n_labels=settings.n_labels)
    fitted = rows @ learned.state.projection.mean
    state = natural_steps.join(learned.state, fitted, fitted)
    state = natural_steps.settle(state, targets, priors, n_inner=N_INNER)
    state = replace(state, scores=mean_field.update_scores(state, targets))
    design = GramDesign(learned.gram, stream.n_rows)
    known = Data(design=design, y=targets.y[:0], n_labels=settings.n_labels)
    bound = natural_steps.estimate(state, mean_field.latent_sums(state), known, priors)
    found = row_information.row_information(state, targets, priors.latent_scale)
    share = stream.n_rows / len(rows)
    posterior = MeanFieldPosterior(
        state=state,
        data=replace(known, design=design.with_rows(rows), y=targets.y),
        latent_scale=priors.latent_scale,
        information=np.stack([share * (rows.T * weights) @ rows for weights in found.T]),
    )
    result = FitResult(
        state=state,
        elbo=np.array([bound]),
        terms={"estimate": np.array([bound])},
        converged=True,
        interrupted=False,
        restarts=(bound,),
    )
    return Fit(latent_scale=priors.latent_scale, posterior=posterior, result=result)


def _ready(stream: Stream) -> Stream:
    """The same with something for steps to go on from: if there is nothing, the fit so far."""
    if stream.learned is not None:
        return stream
    settings, priors = stream.settings, stream.settings.priors
    assert stream.scaler is not None
    assert stream.kept_X is not None
    rows = DenseRows(X=stream.scaler.transform(stream.kept_X))
    design = GramDesign(rows.gram(), rows.n_rows)
    state = _fit_kept(stream).result.state
    # The working coordinates of a fit need not be the features.
    cross, phi = rows.back(state.latent.mean), state.projection_precision.mean
    projection = design.ridge_from(cross, phi, priors.latent_scale**2)
    projection = replace(projection, fitted=rows.project(projection.mean))
    state = replace(state, projection=projection)
    # Rows that were fitted look surer than new ones are: their own curvature says too little.
    curvature = np.eye(settings.n_labels)
    shared = natural_steps.without_rows(state)
    running = natural_steps.summarise(
        state,
        rows,
        mean_field.latent_sums(state),
        design,
        natural_steps.observed_information(shared, curvature, priors, floor=FLOOR),
        curvature,
        priors,
    )
    return replace(stream, learned=Learned(state=shared, gram=design.gram, running=running))


def _step(stream: Stream, X: FloatArray, y: IntArray) -> Stream:
    """Count new rows and learn from them."""
    stream = _rescaled(_keep(_count(stream, X), X, y))
    assert stream.scaler is not None
    assert stream.learned is not None
    rows = DenseRows(X=stream.scaler.transform(X))
    learned = replace(stream.learned, gram=stream.learned.gram + rows.gram())
    return _learn(replace(stream, learned=learned), rows, y)


def _learn(stream: Stream, rows: DenseRows, y: IntArray) -> Stream:
    """One step from rows that were counted; none if these are the worse for it."""
    settings, priors, learned = stream.settings, stream.settings.priors, stream.learned
    assert learned is not None
    design = GramDesign(learned.gram, stream.n_rows)
    known = Data(design=design, y=y[:0], n_labels=settings.n_labels)
    targets = Targets(y=y, n_labels=settings.n_labels)

    def settled(state: State, latent: FloatArray | None = None) -> tuple[State, LatentSums, float]:
        fitted = rows.project(state.projection.mean)
        state = natural_steps.join(state, fitted, fitted if latent is None else latent)
        state = natural_steps.settle(state, targets, priors, n_inner=N_INNER)
        sums = mean_field.latent_sums(state)
        return state, sums, natural_steps.estimate(state, sums, known, priors)

    before = natural_steps.update_precisions(learned.state, design, priors)
    state, sums, bound = settled(before)
    curvature = natural_steps.mean_curvature(state, targets, priors)
    rate = float((rows.n_rows / stream.n_rows) ** settings.forgetting)
    seen = (1.0 - rate) * learned.running.curvature + rate * curvature
    information = natural_steps.observed_information(before, seen, priors, floor=learned.floor)
    found = natural_steps.summarise(state, rows, sums, design, information, curvature, priors)
    running = learned.running.blend(found, rate, rate)
    shared = natural_steps.update_means(before, running, design, priors, information)
    if settled(shared, state.latent.mean)[2] < bound:
        running = replace(learned.running, curvature=running.curvature)
        floor = min(1.0, SHORTER * learned.floor)
        learned = replace(learned, state=before, running=running, floor=floor)
    else:
        floor = max(FLOOR, LONGER * learned.floor)
        learned = replace(learned, state=shared, running=running, floor=floor)
    return replace(stream, learned=replace(learned, n_steps=learned.n_steps + 1))


def _count(stream: Stream, X: FloatArray) -> Stream:
    found = column_statistics(X)
    before = stream.statistics
    return replace(stream, statistics=found if before is None else before + found)


def _keep(stream: Stream, X: FloatArray, y: IntArray) -> Stream:
    """Keep every row with the same probability, N_KEPT of all that were counted."""
    if stream.kept_X is None or stream.kept_y is None:
        return replace(stream, kept_X=X[:N_KEPT].copy(), kept_y=y[:N_KEPT].copy())
    room = max(0, N_KEPT - len(stream.kept_y))
    kept_X = np.concatenate([stream.kept_X, X[:room]])
    kept_y = np.concatenate([stream.kept_y, y[:room]])
    rest = np.arange(room, len(y))
    if rest.size:  # the k-th row of all takes a random place among the first k, if it is kept
        rng = np.random.default_rng([stream.settings.seed, stream.n_rows])
        place = rng.integers(stream.n_rows - len(y) + rest + 1)
        taken = place < N_KEPT
        kept_X[place[taken]], kept_y[place[taken]] = X[rest[taken]], y[rest[taken]]
    return replace(stream, kept_X=kept_X, kept_y=kept_y)


def _rescaled(stream: Stream) -> Stream:
    """The same in the units of the present statistics; the centre stays."""
    before, learned = stream.scaler, stream.learned
    assert before is not None
    assert learned is not None
    assert stream.statistics is not None
    scaler = stream.statistics.scaler(standardize=stream.settings.standardize)
    scaler = replace(scaler, mean=before.location / scaler.peak)
    factor = np.where(before.constant | scaler.constant, 1.0, before.scale / scaler.scale)
    projection = learned.state.projection
    projection = replace(
        projection,
        mean=projection.mean / factor[:, None],
        variance=projection.variance / factor[:, None] ** 2,
    )
    running = learned.running
    running = replace(
        running, anchor=running.anchor / factor[:, None], pull=running.pull * factor[:, None]
    )
    learned = replace(
        learned,
        state=replace(learned.state, projection=projection),
        gram=learned.gram * np.outer(factor, factor),
        running=running,
    )
    return replace(stream, scaler=scaler, learned=learned)
