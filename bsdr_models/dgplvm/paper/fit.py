"""Optimisation of the paper's objective, and diagnostics of a degenerate mode."""

from typing import Any

import numpy as np

from bsdr_models.dgplvm.back_constraint import median_distance
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.map_search import Mode, Task, find_mode
from bsdr_models.dgplvm.paper.objective import THETA, KernelMapping, PaperObjective, theta_priors
from bsdr_models.dgplvm.settings import Optimization
from bsdr_models.numerics.kernels import squared_distances

# Share of explained variance below which the latent coordinates explain nothing. One direction of
# hundreds of pixels has a few hundredths; a collapsed signal has at most 1e-5.
NO_SIGNAL = 1e-3
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-6
# Distance of log theta to a bound that counts as being at it.
_AT_BOUND = 1e-3


def fit_paper(
    task: Task,
    optimization: Optimization,
    *,
    width: float,
    rng: np.random.Generator,
    **options: Any,
) -> Mode[PaperObjective]:
    """Minimise the paper's objective within bounds; options are of `run_map`.

    ``width`` is gamma of Eq. (18) times the median squared distance.
    """
    X, mapping = task.X, None
    gram = FeatureGram.of(X - X.mean(axis=0))
    criterion = task.make_criterion()
    criterion.check(task.n_components)
    if task.n_centres != 0:
        centres = X
        if task.n_centres is not None:
            size = min(task.n_centres, len(X))
            centres = X[np.sort(rng.choice(len(X), size, replace=False))]
        mapping = KernelMapping(X=X, centres=centres, width=width / median_distance(X))
    objective = PaperObjective(
        gram=gram,
        criterion=criterion,
        weight=task.weight,
        n_components=task.n_components,
        parameter_priors=theta_priors(gram) + task.dynamics_priors,
        dynamics=task.dynamics,
        kernel_mapping=mapping,
    )
    initial = task.starts(int(optimization.n_restarts), rng)
    return find_mode(objective, initial, optimization, **options)


def collapse(mode: Mode[PaperObjective], task: Task) -> str | None:
    r"""A warning if the mode is degenerate, or None.

    The share of the signal is the prior variance of a feature explained by the latent coordinates,
    :math:`\theta_1 (1 - \overline{\exp(-\theta_2 |x_i - x_j|^2 / 2)})`, relative to that and the
    noise: 0 for a vanishing signal and for coinciding latent coordinates. The bias vanishes for
    centred features, which needs no warning.
    """
    log_theta, latent, J = mode.log_parameters[:4], mode.latent, mode.terms.criterion
    output, inverse_width, _, inverse_noise = np.exp(log_theta)
    similarity = np.exp(-0.5 * inverse_width * squared_distances(latent)).mean()
    signal = output * (1.0 - similarity)
    share = float(signal / (signal + 1.0 / inverse_noise))
    if share < NO_SIGNAL:
        present = np.unique(task.y_index[task.known])
        centroids = np.array([latent[task.y_index == c].mean(axis=0) for c in present])
        pairs = squared_distances(centroids)[np.triu_indices(len(present), 1)]
        return (
            "the latent coordinates explain almost nothing of the features: signal share "
            f"{share:.2g}, distance between centroids {float(np.sqrt(pairs.mean())):.2g}"
        )
    if J < NO_SCATTER:
        return (
            f"every class has collapsed to a point (criterion {J:.1g}); a smaller "
            "weight keeps the structure within classes"
        )
    low, high = (bound[:4] for bound in mode.objective.parameter_bounds)
    near = (log_theta - low < _AT_BOUND) | (high - log_theta < _AT_BOUND)
    names = [name for name, at in zip(THETA, near, strict=True) if at and name != "bias"]
    if names:
        return (
            f"{' and '.join(names)} ended at a bound, on which the result then depends: "
            "the objective of the paper has no minimum of its own"
        )
    return None
