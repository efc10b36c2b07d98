"""Maximum a posteriori (MAP) estimation of the well-posed model."""

from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from bsdr_models.dgplvm.back_constraint import (
    MappingPrior,
    centroid_weights,
    make_mapping,
    typical_distance,
)
from bsdr_models.dgplvm.left_out import (
    Part,
    initial_coordinates,
    make_parts,
    mean_settings,
)
from bsdr_models.dgplvm.priors import DGPLVMOptimization
from bsdr_models.dgplvm.problem import (
    DGPLVMProblem,
    FeatureGram,
    Objective,
    Terms,
    WellPosedObjective,
    make_criterion,
)
from bsdr_models.inference.optimise import MapResult, run_map
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.linalg import squared_distances

# Maximum number of samples whose density enters the objective at the mode, at cubic cost.
N_MODELLED = 700
# Maximum number of labelled samples by which the mapping is set, at cubic cost.
SETTING_SAMPLES = 1000
# Signal-to-noise variance ratio below which the latent coordinates explain no feature.
NO_SIGNAL = 0.05
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-9


@dataclass(frozen=True, kw_only=True)
class Mode[O: Objective]:
    """Optimum of an objective: latent coordinates (N, R) and log parameters.

    Of the well-posed model also the ``settings`` of the mapping, by the names that the PyMC model
    and trees give them, the ``parts`` that are left out, of each division, and those without regard
    to the groups of the user, if there are any.
    """

    objective: O
    latent: FloatArray
    log_parameters: FloatArray
    search: MapResult
    settings: MappingType[str, float] = field(default_factory=dict)
    parts: Sequence[Sequence[Part]] = ()
    single_parts: Sequence[Part] = ()

    @cached_property
    def terms(self) -> Terms:
        """Terms of the objective."""
        return self.objective.terms(self.latent, self.log_parameters)


def collapse(mode: Mode[WellPosedObjective]) -> str | None:
    """A warning if the mode of the well-posed model is degenerate, or None."""
    signal, _, noise = np.exp(mode.log_parameters)
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


def fit_map(
    problem: DGPLVMProblem, rng: np.random.Generator, *, progressbar: bool = False
) -> Mode[WellPosedObjective]:
    """Choose the settings of the mapping, then compute the mode.

    Initialisations are class indicators, shrunk halfway to their left-out predictions, and those
    of :meth:`Problem.starts`. The generator is for random initialisations.
    """
    training = problem.training
    assert training is not None
    numbers = range(len(training.divisions))
    parts = [make_parts(training, number) for number in numbers]
    some = training.limited(SETTING_SAMPLES)
    judging = parts if some is training else [make_parts(some, number) for number in numbers]
    width, noise = mean_settings(
        [part for division in judging for part in division],
        problem.y_index[some.kept],
        problem.mapping.widths,
        problem.mapping.noises,
        n_divisions=len(parts),
        share=training.share,
    )
    make = partial(make_mapping, width=width, noise=noise)
    prior, latent = _mapping_and_initial(problem, make)
    objective = make_objective(problem, prior, N_MODELLED)
    if np.isinf(problem.priors.weight):
        mode = _fit_kernel(objective, latent, problem.optimization)
    else:
        initial = [prior.shrink_towards_loo(latent)]
        initial += problem.starts(int(problem.optimization.n_restarts) - 1, rng)
        objective = objective.conditioned(initial[0])
        mode = find_mode(objective, initial, problem.optimization, progressbar=progressbar)
    return replace(
        mode,
        parts=parts,
        single_parts=() if training.singly is None else make_parts(training, None),
        settings={"map_width": width, "map_noise": noise},
    )


def find_mode[O: Objective](
    objective: O,
    initial: Sequence[FloatArray],
    optimization: DGPLVMOptimization,
    *,
    progressbar: bool = False,
) -> Mode[O]:
    """Minimise an objective from initial latent coordinates (N, R)."""
    packed = [objective.pack(start, objective.log_medians) for start in initial]
    search = run_map(
        objective,
        packed,
        bounds=objective.bounds(len(packed[0])),
        max_iter=int(optimization.max_iter),
        tol=optimization.tol,
        progressbar=progressbar,
    )
    latent = objective.latent(search.x)
    log_parameters = objective.unpack(search.x)[1]
    return Mode(objective=objective, latent=latent, log_parameters=log_parameters, search=search)


def _fit_kernel(
    objective: WellPosedObjective, latent: FloatArray, optimization: DGPLVMOptimization
) -> Mode[WellPosedObjective]:
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


def _mapping_and_initial(
    problem: DGPLVMProblem, make: Callable[..., MappingPrior]
) -> tuple[MappingPrior, FloatArray]:
    """Prior of the mapping, and initial latent coordinates."""
    X = problem.X
    y = problem.y_index
    known = problem.known
    whole = labelled = make(X, centroid_weights(y))
    if len(known) < len(X):
        # The same kernel, although the median distance of the labelled samples differs.
        same = 2.0 * whole.decay * typical_distance(squared_distances(X[known]))
        labelled = make(X[known], centroid_weights(y[known]), width=same)
    initial = initial_coordinates(labelled, X[known], y[known], problem.n_components)
    latent = np.empty((len(X), problem.n_components))
    latent[known] = initial
    if len(known) < len(X):
        latent[y < 0] = labelled.predict(initial, labelled.covariances(X[y < 0]))
    return whole, latent


def make_objective(
    problem: DGPLVMProblem, prior: MappingPrior, most: int | None = None
) -> WellPosedObjective:
    """The objective F of a problem, in which at most so many samples have a density."""
    n = len(problem.X)
    known = problem.known
    weight = problem.priors.weight
    modelled: IntArray | slice = slice(None)
    if most is not None and n > most:
        modelled = evenly_spaced(n, most)
    X = problem.X[modelled]
    gram = FeatureGram.of(X - X.mean(axis=0))
    return WellPosedObjective(
        gram=gram,
        temper=gram.temper * n / len(X),
        modelled=modelled,
        criterion=make_criterion(problem.criterion, problem.y_index),
        weight=0.0 if np.isinf(weight) else weight * len(known) * gram.n_effective,
        n_components=problem.n_components,
        parameter_priors=problem.priors.kernel,
        mapping=prior,
        root=prior.factor,
        known=known,
    )
