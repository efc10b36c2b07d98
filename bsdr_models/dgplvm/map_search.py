"""Maximum a posteriori (MAP) estimation of the well-posed model."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import (
    MappingEmbedder,
    MappingPrior,
    centroid_weights,
    make_mapping,
    median_distance,
    shrink_towards_loo,
)
from bsdr_models.dgplvm.criteria import Criterion, local_affinity, make_criterion
from bsdr_models.dgplvm.dynamics import DYNAMICS_PRIORS, Dynamics
from bsdr_models.dgplvm.fold_metric import FoldMetric, Folds, Part
from bsdr_models.dgplvm.leave_one_out import (
    Fold,
    initial_coordinates,
    leave_one_out,
    leave_out_tuples,
    predict,
    whitened_indicators,
)
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.objective import Objective, Terms
from bsdr_models.dgplvm.settings import LogNormal, Mapping, Optimization, Priors
from bsdr_models.inference.optimise import MapResult, run_map
from bsdr_models.numerics.design import SpectralDesign, standardise
from bsdr_models.numerics.folds import evenly_spaced, stratified_subset

# Maximum number of samples with a dense mapping; for more, the number of its centres.
EXACT_SAMPLES, N_CENTRES = 2000, 300
# Maximum number of samples whose density enters the objective at the mode, at cubic cost.
N_MODELLED = 700
# Weak priors of the settings; without that of the width the choice is poor for many samples.
WIDTH_PRIOR, NOISE_PRIOR = LogNormal(2.0, 0.5), LogNormal(0.03, 1.5)
# Maximum number of labelled samples for this choice, whose cost is cubic.
SETTING_SAMPLES = 1000
# Signal-to-noise variance ratio below which the latent coordinates explain no feature.
NO_SIGNAL = 0.05
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Training samples (N, B), classes (N,), -1 without a label, and options.

    Samples are in a metric, if it is given, else scaled features. ``criterion`` is that of the
    priors or what "auto" stands for; ``dynamics`` are for sequences.
    """

    X: FloatArray
    y_index: IntArray
    n_components: int
    criterion: str = "trace_ratio"
    priors: Priors = field(default_factory=Priors)
    mapping: Mapping = field(default_factory=Mapping)
    optimization: Optimization = field(default_factory=Optimization)
    dynamics: Dynamics | None = None
    metric: FoldMetric | None = None

    @property
    def features(self) -> FloatArray:
        """Scaled features (N, D)."""
        return self.X if self.metric is None else self.metric.features

    @property
    def in_fold(self) -> BoolArray:
        """Whether samples are left out by folds, and not one by one, (N,)."""
        return (
            np.zeros(len(self.X), dtype=np.bool_) if self.metric is None else self.metric.fold >= 0
        )

    @property
    def groups(self) -> IntArray | None:
        """Group of each sample, (N,), if samples of one group are left out together."""
        return None if self.metric is None else self.metric.groups

    @property
    def group_fold(self) -> IntArray | None:
        """Fold of each sample, (N,), if samples of one group are left out together."""
        return None if self.metric is None or self.groups is None else self.metric.fold

    @property
    def known(self) -> IntArray:
        """Indices of the labelled samples."""
        return np.flatnonzero(self.y_index >= 0)

    @property
    def n_labels(self) -> int:
        """Number of classes, each of which has labelled samples."""
        return int(self.y_index.max()) + 1

    @property
    def dense(self) -> bool:
        """Whether all samples are centres of the mapping."""
        return self.mapping.n_centres is None and len(self.X) <= EXACT_SAMPLES

    @property
    def dynamics_priors(self) -> tuple[LogNormal, ...]:
        """Priors of the parameters of the dynamics, if any."""
        return () if self.dynamics is None else DYNAMICS_PRIORS

    def make_criterion(self) -> Criterion:
        """Measure of class separation of latent coordinates."""
        local = self.criterion == "local_fisher"
        affinity = local_affinity(self.X, self.y_index) if local else None
        return make_criterion(self.criterion, self.y_index, affinity=affinity)

    def starts(self, n_starts: int, rng: np.random.Generator) -> list[FloatArray]:
        """Initial latent coordinates (N, R): principal components, then normal draws.

        Columns have mean 0 and variance 1; those beyond the rank of the features are random.
        """
        if n_starts == 0:
            return []
        n, r = len(self.X), self.n_components
        scores = SpectralDesign.of(self.X - self.X.mean(axis=0)).X[:, :r]
        initial = [np.hstack([scores, rng.standard_normal((n, r - scores.shape[1]))])]
        initial += [rng.standard_normal((n, r)) for _ in range(n_starts - 1)]
        return [standardise(latent) for latent in initial]


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Optimum of an objective: latent coordinates (N, R) and log parameters.

    Of the well-posed model also the ``settings`` of the mapping, by the names that the PyMC model
    and trees give them, and what is left out: ``folds``, and ``tuples`` (L, T, K) of the labelled
    samples in no fold.
    """

    objective: Objective
    latent: FloatArray
    log_parameters: FloatArray
    search: MapResult
    settings: MappingType[str, float] = field(default_factory=dict)
    tuples: IntArray = field(default_factory=lambda: np.empty((0, 0, 0), dtype=np.int64))
    folds: Iterable[Fold] = ()

    @cached_property
    def terms(self) -> Terms:
        """Terms of the objective."""
        return self.objective.terms(self.latent, self.log_parameters)


def collapse(mode: Mode) -> str | None:
    """A warning if the mode of the well-posed model is degenerate, or None."""
    signal, _, noise = np.exp(mode.log_parameters[:3])
    if signal / noise < NO_SIGNAL:
        return (
            f"the latent coordinates explain almost nothing of the features: signal variance "
            f"{signal:.2g}, noise variance {noise:.2g}"
        )
    return collapsed_classes(mode.terms.criterion, NO_SCATTER)


def collapsed_classes(criterion: float, least: float) -> str | None:
    """A warning if the criterion is smaller than a limit, or None."""
    if criterion >= least:
        return None
    return (
        f"every class has collapsed to a point (criterion {criterion:.1g}); a smaller weight keeps "
        "the structure within classes"
    )


def fit_map(task: Task, rng: np.random.Generator, **options: Any) -> Mode:
    """Choose the settings of the mapping, then compute the mode; options are of :func:`run_map`.

    Initialisations are class indicators, shrunk halfway to their leave-one-out predictions, and
    those of :meth:`Task.starts`. The generator is for centres and random initialisations.
    """
    known = task.known
    tuples = leave_out_tuples(task.y_index[known], task.features[known])
    centres = None
    if not task.dense:
        size = min(task.mapping.n_centres or N_CENTRES, len(known))
        centres = np.sort(rng.choice(known, size, replace=False))
    width, noise = choose_settings(task, tuples)
    make = partial(
        make_mapping, width=width, noise=noise, mean_variance=task.priors.map_mean_variance
    )
    prior, latent = _mapping_and_initial(task, tuples, centres, make)
    objective = make_objective(task, prior, N_MODELLED)
    if np.isinf(task.priors.weight):
        mode = _fit_kernel(objective, latent, task.optimization)
    else:
        initial = [shrink_towards_loo(prior, latent)]
        initial += task.starts(int(task.optimization.n_restarts) - 1, rng)
        mode = find_mode(objective, initial, task.optimization, **options)
    if task.metric is not None:
        folds = Folds(data=task.metric, centres=centres, make=make)
        mode = replace(mode, folds=tuple(folds) if task.dense else folds)
        tuples = tuples[~task.in_fold[known]]
    settings = {"map_width": width, "map_noise": noise}
    return replace(mode, tuples=known[tuples], settings=settings)


def find_mode(
    objective: Objective,
    initial: Sequence[FloatArray],
    optimization: Optimization,
    **options: Any,
) -> Mode:
    """Minimise an objective from initial latent coordinates (N, R)."""
    packed = [objective.pack(start, objective.log_medians) for start in initial]
    search = run_map(
        objective,
        packed,
        bounds=objective.bounds(len(packed[0])),
        max_iter=int(optimization.max_iter),
        tol=optimization.tol,
        **options,
    )
    latent, log_parameters = objective.latent(search.x), objective.unpack(search.x)[1]
    return Mode(objective=objective, latent=latent, log_parameters=log_parameters, search=search)


def _fit_kernel(objective: Objective, latent: FloatArray, optimization: Optimization) -> Mode:
    """The limit of infinite weight: latent coordinates are held fixed, the kernel is fitted."""

    def value_and_gradient(log_parameters: FloatArray) -> tuple[float, FloatArray]:
        terms = objective.terms(latent, log_parameters)
        return terms.total, terms.log_parameters

    search = run_map(
        value_and_gradient,
        [objective.log_medians],
        bounds=objective.parameter_bounds,
        max_iter=int(optimization.max_iter),
        tol=optimization.tol,
    )
    return Mode(objective=objective, latent=latent, log_parameters=search.x, search=search)


def choose_settings(task: Task, tuples: IntArray) -> tuple[float, float]:
    """Width g and noise lambda, relative to the variance of the smooth part, of the mapping.

    They minimise the penalised error of the left-out whitened class indicators, which are the
    latent coordinates of infinite weight. Samples are left out as they are of the classifier.
    """
    candidates = list(product(task.mapping.widths, task.mapping.noises))
    if len(candidates) == 1:
        return candidates[0]
    some = task.known
    if len(some) > SETTING_SAMPLES:
        some = some[stratified_subset(task.y_index[some], SETTING_SAMPLES)]
        tuples = leave_out_tuples(task.y_index[some], task.features[some])
    X, y = task.X[some], task.y_index[some]
    targets, weights = whitened_indicators(y), centroid_weights(y)
    parts = () if task.metric is None else tuple(task.metric.take(some).parts())
    make = partial(make_mapping, mean_variance=task.priors.map_mean_variance)

    def loss(settings: tuple[float, float]) -> float:
        width, noise = settings
        own = partial(make, width=width, noise=noise)
        if parts:
            residual = [_left_out_residual(part, y, targets, own) for part in parts]
        else:
            residual = [targets - leave_one_out(own(X, weights), targets, y, tuples).latent]
        square = np.concatenate(residual) ** 2
        error = 0.5 * square.size * np.log(square.mean())
        penalty, _ = WIDTH_PRIOR.negative_log_density(np.log(width))
        return float(error) + penalty + NOISE_PRIOR.negative_log_density(np.log(noise))[0]

    return min(candidates, key=loss)


def _left_out_residual(
    part: Part, y_index: IntArray, targets: FloatArray, make: Callable[..., MappingPrior]
) -> FloatArray:
    """Targets (N, P) of the left-out samples less their predictions from the others, (M, P)."""
    prior = make(part.X, centroid_weights(y_index[part.rest]))
    features = prior.features(prior.kernel(part.X_new))
    return targets[part.left_out] - predict(prior, targets[part.rest], features)


def _mapping_and_initial(
    task: Task, tuples: IntArray, centres: IntArray | None, make: Callable[..., MappingPrior]
) -> tuple[MappingPrior, FloatArray]:
    """Prior of the mapping, and initial latent coordinates."""
    X, y, known = task.X, task.y_index, task.known
    places = None if centres is None else X[centres]
    whole = labelled = make(X, centroid_weights(y), places)
    if len(known) < len(X):
        # The same kernel, although the median distance of the labelled samples differs.
        same = 2.0 * whole.decay * median_distance(X[known])
        labelled = make(X[known], centroid_weights(y[known]), places, width=same)
    initial = initial_coordinates(labelled, X[known], y[known], task.n_components, tuples)
    latent = np.empty((len(X), task.n_components))
    latent[known] = initial
    if len(known) < len(X):
        latent[y < 0] = MappingEmbedder.of(labelled, initial).latent(X[y < 0])
    return whole, latent


def make_objective(task: Task, prior: MappingPrior, most: int | None = None) -> Objective:
    """The objective F of a task, in which at most so many samples have a density."""
    n, known, weight = len(task.X), task.known, task.priors.weight
    modelled: IntArray | slice = slice(None)
    if most is not None and n > most:
        modelled = evenly_spaced(n, most)
    X = task.X[modelled]
    gram = FeatureGram.of(X - X.mean(axis=0))
    return Objective(
        gram=gram,
        temper=gram.temper * n / len(X),
        modelled=modelled,
        criterion=task.make_criterion(),
        weight=0.0 if np.isinf(weight) else weight * len(known) * gram.n_effective,
        n_components=task.n_components,
        parameter_priors=task.priors.kernel + task.dynamics_priors,
        mapping=prior,
        map_dof=task.priors.map_dof,
        known=known,
        dynamics=task.dynamics,
    )
