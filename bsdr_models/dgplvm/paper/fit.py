"""Optimisation of the paper's objective, and diagnostics of a degenerate mode."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import median_distance
from bsdr_models.dgplvm.criteria import local_affinity, make_criterion
from bsdr_models.dgplvm.dynamics import Dynamics
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.paper.objective import (
    THETA,
    KernelMapping,
    PaperObjective,
    initial_log_theta,
    log_theta_bounds,
)
from bsdr_models.dgplvm.settings import Optimization
from bsdr_models.dgplvm.starts import NAMES
from bsdr_models.dgplvm.starts import starts as initial_coordinates
from bsdr_models.inference.optimise import MapResult, run_map
from bsdr_models.numerics.kernels import squared_distances

# Share of explained variance below which the latent coordinates explain nothing. One direction of
# hundreds of pixels has a few hundredths; a collapsed signal has at most 1e-5.
NO_SIGNAL = 1e-3
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-6
# Distance of log theta to a bound that counts as being at it.
_AT_BOUND = 1e-3
# Index of the bias, which vanishes for centred features; this needs no warning.
_BIAS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    r"""Diagnostics of a degenerate mode.

    ``signal_share`` is the prior variance of a feature explained by the latent coordinates,
    :math:`\theta_1 (1 - \overline{\exp(-\theta_2 |x_i - x_j|^2 / 2)})`, relative to that and the
    noise: 0 for a vanishing signal and for coinciding latent coordinates. Parameters ``at_bounds``
    are at their lowest or highest value; the distance of centroids is a root mean square.
    """

    signal_share: float
    at_bounds: tuple[str, ...]
    centroid_distance: float
    criterion: float

    @property
    def warning(self) -> str | None:
        """A warning if the mode is degenerate, or None."""
        if self.signal_share < NO_SIGNAL:
            return (
                "the latent coordinates explain almost nothing of the features: signal share "
                f"{self.signal_share:.2g}, distance between centroids {self.centroid_distance:.2g}"
            )
        if self.criterion < NO_SCATTER:
            return (
                f"every class has collapsed to a point (criterion {self.criterion:.1g}); a smaller "
                "weight keeps the structure within classes"
            )
        names = [name for name in self.at_bounds if name != THETA[_BIAS]]
        if names:
            return (
                f"{' and '.join(names)} ended at a bound, on which the result then depends: "
                "the objective of the paper has no minimum of its own"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFit:
    """The optimum of the paper's objective: X (N, R) and theta (4,), in the units of the features.

    ``weights`` (M, R) are a of the mapping; None for free latent coordinates, as the mapping.
    """

    latent: FloatArray
    theta: FloatArray
    kernel_mapping: KernelMapping | None
    weights: FloatArray | None
    objective: PaperObjective
    search: MapResult
    collapse: Collapse


def fit_paper(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    n_components: int,
    weight: float = 1e4,
    width: float = 2.0,
    criterion: str = "trace_ratio",
    n_centres: int | None = None,
    spherical: float = 0.0,
    hold_width: bool = False,
    dynamics: Dynamics | None = None,
    starts: Sequence[str] = NAMES,
    optimization: Optimization | None = None,
    rng: np.random.Generator,
    progressbar: bool = False,
    n_jobs: int | None = 1,
) -> PaperFit:
    """Minimise the paper's objective within bounds, from the named initialisations.

    Features are (N, D), classes (N,), -1 without a label; ``width`` is gamma of Eq. (18) times the
    median squared distance, and kernels are at all samples (None), at some, or at none (0).
    """
    gram = FeatureGram.of(X - X.mean(axis=0))
    affinity = local_affinity(X, y_index) if criterion == "local_fisher" else None
    criterion_function = make_criterion(criterion, y_index, n_labels, affinity=affinity)
    criterion_function.check(n_components)
    objective = PaperObjective(
        gram=gram,
        criterion=criterion_function,
        weight=weight,
        n_components=n_components,
        kernel_mapping=_make_mapping(X, n_centres, width, rng),
        spherical=spherical,
        dynamics=dynamics,
        hold_width=hold_width,
    )
    initial = initial_coordinates(
        X, y_index, n_labels, n_components=n_components, names=starts, rng=rng
    )
    optimization = Optimization() if optimization is None else optimization
    search = run_map(
        objective,
        [objective.pack(latent, initial_log_theta(gram)) for latent in initial],
        bounds=objective.bounds,
        max_iter=int(optimization.max_iter),
        tol=optimization.tol,
        progressbar=progressbar,
        n_jobs=n_jobs,
    )
    u, log_theta, _ = objective.unpack(search.x)
    latent, kernel_mapping = objective.latent(search.x), objective.kernel_mapping
    return PaperFit(
        latent=latent,
        theta=np.exp(log_theta),
        kernel_mapping=kernel_mapping,
        weights=None if kernel_mapping is None else kernel_mapping.weights(u),
        objective=objective,
        search=search,
        collapse=_diagnose(objective, latent, log_theta, y_index),
    )


def _make_mapping(
    X: FloatArray, n_centres: int | None, width: float, rng: np.random.Generator
) -> KernelMapping | None:
    if n_centres == 0:
        return None
    centres = X
    if n_centres is not None:
        centres = X[np.sort(rng.choice(len(X), min(n_centres, len(X)), replace=False))]
    return KernelMapping(X=X, centres=centres, width=width / median_distance(X))


def _diagnose(
    objective: PaperObjective, latent: FloatArray, log_theta: FloatArray, y_index: IntArray
) -> Collapse:
    output, inverse_width, _, inverse_noise = np.exp(log_theta)
    similarity = np.exp(-0.5 * inverse_width * squared_distances(latent)).mean()
    signal = output * (1.0 - similarity)
    low, high = log_theta_bounds(objective.gram, hold_width=objective.hold_width)
    near = (log_theta - low < _AT_BOUND) | (high - log_theta < _AT_BOUND)
    present = np.unique(y_index[y_index >= 0])
    centroids = np.array([latent[y_index == c].mean(axis=0) for c in present])
    pairs = squared_distances(centroids)[np.triu_indices(len(present), 1)]
    return Collapse(
        signal_share=float(signal / (signal + 1.0 / inverse_noise)),
        at_bounds=tuple(THETA[i] for i in np.flatnonzero(near & (low < high))),
        centroid_distance=float(np.sqrt(pairs.mean())),
        criterion=objective.criterion(latent)[0],
    )
