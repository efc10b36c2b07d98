"""Maximum a posteriori (MAP) estimation of the well-posed model."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, median_distance, shrink_towards_loo
from bsdr_models.dgplvm.criteria import local_affinity, make_criterion
from bsdr_models.dgplvm.dynamics import Dynamics, DynamicsPriors
from bsdr_models.dgplvm.leave_one_out import leave_out_tuples
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.mapping_selection import (
    MappingSettings,
    choose_settings,
    extend,
    initial_coordinates,
    make_mapping,
)
from bsdr_models.dgplvm.objective import N_KERNEL, Objective
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.settings import Mapping, Optimization
from bsdr_models.dgplvm.starts import first_names, starts
from bsdr_models.inference.optimise import MapResult, run_map

# Maximum number of samples with a dense mapping; for more, the number of its centres.
EXACT_SAMPLES, N_CENTRES = 2000, 300
# Maximum number of samples whose density enters the objective at the mode, at cubic cost.
N_MODELLED = 700
# Signal-to-noise variance ratio below which the latent coordinates explain no feature.
NO_SIGNAL = 0.05
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Training data, scaled and centred (N, D), classes (N,), -1 without a label, and settings.

    ``weight`` is kappa, per labelled sample and effective feature, and may be infinite;
    ``tempered`` is whether the likelihood is tempered by the share of effective features. The
    mapping has ``n_centres``, None for all up to ``EXACT_SAMPLES``, 0 for no mapping; ``dynamics``
    are for sequences.
    """

    X: FloatArray
    y_index: IntArray
    n_labels: int
    n_components: int
    priors: Priors
    weight: float = 10.0
    criterion: str = "trace_ratio"
    tempered: bool = True
    n_centres: int | None = None
    dynamics: Dynamics | None = None

    @property
    def known(self) -> IntArray:
        """Indices of the labelled samples."""
        return np.flatnonzero(self.y_index >= 0)

    @property
    def dense(self) -> bool:
        """Whether all samples are centres of the mapping."""
        return self.n_centres is None and len(self.X) <= EXACT_SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFit:
    """Latent coordinates (N, R), whitened over labelled samples, and parameters at the mode.

    ``log_kernel`` are logarithms of signal variance, length-scale and noise variance,
    ``log_dynamics`` those of the dynamics, empty without sequences; ``tuples`` (N_labelled, T, L)
    are left out together, and ``mapping_prior`` is None without a mapping.
    """

    latent: FloatArray
    log_kernel: FloatArray
    log_dynamics: FloatArray
    gram: FeatureGram
    tuples: IntArray
    mapping_prior: MappingPrior | None
    settings: MappingSettings
    terms: dict[str, float]
    criterion: float
    search: MapResult

    @property
    def collapse(self) -> str | None:
        """A warning if the mode is degenerate, or None."""
        signal, _, noise = np.exp(self.log_kernel)
        if signal / noise < NO_SIGNAL:
            return (
                f"the latent coordinates explain almost nothing of the features: signal variance "
                f"{signal:.2g}, noise variance {noise:.2g}"
            )
        if self.criterion < NO_SCATTER:
            return (
                f"every class has collapsed to a point (criterion {self.criterion:.1g}); "
                "a smaller weight keeps the structure within classes"
            )
        return None


def fit_map(
    task: Task,
    mapping: Mapping,
    optimization: Optimization,
    *,
    rng: np.random.Generator,
    progressbar: bool = False,
    n_jobs: int | None = 1,
) -> MapFit:
    """Choose the settings of the mapping, then compute the mode.

    Initialisations are class indicators, shrunk halfway to their leave-one-out predictions, and
    those of `starts.first_names`. The generator is for centres and random initialisations.
    """
    known = task.known
    tuples = leave_out_tuples(task.y_index[known], task.X[known])
    prior, settings, latent = _mapping_and_initial(task, mapping, tuples, rng)
    objective = make_objective(task, prior, N_MODELLED)
    if np.isinf(task.weight):
        return _closed_form(objective, latent, known[tuples], settings, optimization)
    initial = [shrink_towards_loo(prior, latent) if prior is not None else latent]
    initial += starts(
        task.X,
        task.y_index,
        task.n_labels,
        n_components=task.n_components,
        names=first_names(int(optimization.n_restarts) - 1),
        rng=rng,
    )
    packed = [objective.pack(start, objective.log_medians) for start in initial]
    search = run_map(
        objective,
        packed,
        bounds=objective.bounds(len(packed[0])),
        max_iter=int(optimization.max_iter),
        tol=optimization.tol,
        progressbar=progressbar,
        n_jobs=n_jobs,
    )
    latent, log_parameters = objective.latent(search.x), objective.unpack(search.x)[1]
    return _result(objective, latent, log_parameters, known[tuples], settings, search)


def _mapping_and_initial(
    task: Task, mapping: Mapping, tuples: IntArray, rng: np.random.Generator
) -> tuple[MappingPrior | None, MappingSettings, FloatArray]:
    """Prior of the mapping or None, its settings, and initial latent coordinates."""
    X, y, known = task.X, task.y_index, task.known
    centres = None
    if not task.dense:
        size = min(task.n_centres or N_CENTRES, len(known))
        centres = X[np.sort(rng.choice(known, size, replace=False))]
    mean_variance = task.priors.map_mean_variance
    settings = choose_settings(
        X[known],
        y[known],
        task.n_labels,
        mean_variance=mean_variance,
        tuples=tuples,
        widths=mapping.widths,
        noises=mapping.noises,
    )
    make = partial(
        make_mapping, n_labels=task.n_labels, mean_variance=mean_variance, centres=centres
    )
    whole = labelled = make(X, y, settings=settings)
    if len(known) < len(X):
        # The same kernel, although the median distance of the labelled samples differs.
        width = 2.0 * whole.decay * median_distance(X[known])
        labelled = make(X[known], y[known], settings=settings._replace(width=width))
    initial = initial_coordinates(
        labelled, X[known], y[known], task.n_labels, task.n_components, tuples
    )
    prior = None if task.n_centres == 0 else whole
    if len(known) == len(X):
        return prior, settings, initial
    latent = np.empty((len(X), task.n_components))
    latent[known] = initial
    latent[y < 0] = extend(labelled, initial, X[y < 0])
    return prior, settings, latent


def evenly_spaced(n_samples: int, most: int) -> IntArray:
    """Indices of all samples, or of ``most`` evenly spaced ones."""
    return np.unique(np.linspace(0, n_samples - 1, min(n_samples, most)).astype(np.int64))


def make_objective(task: Task, prior: MappingPrior | None, most: int | None = None) -> Objective:
    """The objective F of a task; with a mapping, at most so many samples have a density in it."""
    n, known, modelled, X = len(task.X), task.known, None, task.X
    if most is not None and n > most and prior is not None:
        modelled = evenly_spaced(n, most)
        X = X[modelled] - X[modelled].mean(axis=0)
    gram = FeatureGram.of(X)
    options = {}
    if task.criterion == "local_fisher":
        options["affinity"] = local_affinity(task.X, task.y_index)
    return Objective(
        gram=gram,
        mapping_prior=prior,
        criterion=make_criterion(task.criterion, task.y_index, task.n_labels, **options),
        weight=0.0 if np.isinf(task.weight) else task.weight * len(known) * gram.n_effective,
        known=known,
        priors=task.priors,
        n_components=task.n_components,
        temper=(gram.n_effective / gram.n_features if task.tempered else 1.0) * n / len(X),
        modelled=modelled,
        dynamics=task.dynamics,
        dynamics_priors=None if task.dynamics is None else DynamicsPriors(),
    )


def _closed_form(
    objective: Objective,
    latent: FloatArray,
    tuples: IntArray,
    settings: MappingSettings,
    optimization: Optimization,
) -> MapFit:
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
    return _result(objective, latent, search.x, tuples, settings, search)


def _result(
    objective: Objective,
    latent: FloatArray,
    log_parameters: FloatArray,
    tuples: IntArray,
    settings: MappingSettings,
    search: MapResult,
) -> MapFit:
    terms = objective.terms(latent, log_parameters)
    return MapFit(
        latent=latent,
        log_kernel=log_parameters[:N_KERNEL],
        log_dynamics=log_parameters[N_KERNEL:],
        gram=objective.gram,
        tuples=tuples,
        mapping_prior=objective.mapping_prior,
        settings=settings,
        terms=terms.values,
        criterion=terms.criterion,
        search=search,
    )
