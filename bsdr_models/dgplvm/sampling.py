r"""Posterior draws of D-GPLVM by PyMC: NUTS and ADVI, initialised at the mode.

The target is exp(-F) N(U; 0, I): the objective of :mod:`~bsdr_models.dgplvm.objective` and the
auxiliary prior of the raw coordinates U.

NUTS needs a dense mass matrix: with a strong criterion some directions of U, not along its axes,
have a ten times smaller scale than others, and the length-scale has a prior fifty times narrower
than U. The mass matrix is the curvature of F at the mode, for U such that U'U = N I, about its size
under the auxiliary prior. As the posterior is invariant to rotations of U, the curvature is
averaged over all rotations. Warm-up then only adapts the step size.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.map_search import EXACT_SAMPLES, MapFit, Task, make_objective
from bsdr_models.dgplvm.objective import Objective
from bsdr_models.dgplvm.spec import SPEC
from bsdr_models.inference.sampling import Sampled, Schedule
from bsdr_models.numerics import align
from bsdr_models.numerics.linalg import cholesky

# Criteria of the PyMC model.
CRITERIA = ("trace_ratio", "total")
# Variables stored for every draw.
NAMES = ("latent", "signal_variance", "lengthscale", "noise_variance", "criterion")
KERNEL = ("signal_variance", "lengthscale", "noise_variance")
# Target acceptance rate of NUTS.
TARGET_ACCEPT = 0.9
# Steps of ADVI from each initialisation.
ADVI_STEPS = 5_000
# Initialisations are draws of the normal at the mode with its covariance times these factors.
ADVI_STARTS = (1e-6, 1.0)
# Step of finite differences of the gradient, for variables of order one.
STEP = 1e-5
# With the hand-written density full compilation takes longer than it saves.
MODE = "FAST_COMPILE"


def sample(
    engine: str, task: Task, mode: MapFit, *, schedule: Schedule, rng: np.random.Generator
) -> Sampled:
    """Posterior draws by "nuts" or "advi", with chains initialised at the mode.

    The settings of the mapping are those of the mode. Latent coordinates (chain, draw, N, R) are
    aligned to the mode; kernel parameters and criterion are (chain, draw).
    """
    check(task)
    # PyMC takes most of a second to import and is not needed for the mode.
    from bsdr_models.inference import engines

    objective = make_objective(task, mode.mapping_prior)
    model = declare_model(task, mode, density=engines.hand_written(Density(objective)))
    options: dict[str, Any] = {
        "spec": SPEC,
        "rng": rng,
        "draws": schedule.draws,
        "var_names": NAMES,
        "mode": MODE,
        "progressbar": schedule.progressbar,
    }
    x, covariance = curvature(objective, mode)
    if engine == "nuts":
        sampled = engines.sample_nuts(
            model,
            tune=schedule.tune,
            chains=schedule.chains,
            target_accept=TARGET_ACCEPT,
            covariance=covariance,
            starts=[_initial_values(objective, x, covariance, rng) for _ in range(schedule.chains)],
            **options,
        )
    else:
        # ADVI does not converge from a draw of the prior, where J is huge.
        starts = [_initial_values(objective, x, scale * covariance, rng) for scale in ADVI_STARTS]
        sampled = engines.fit_advi(model, n_iterations=ADVI_STEPS, starts=starts, **options)
    latent = align_draws(sampled.draws["latent"], mode.latent)
    return replace(sampled, draws={**sampled.draws, "latent": latent})


def check(task: Task) -> None:
    """Raise a ValueError unless the density of the task is proper and has a PyMC model."""
    if not np.isfinite(task.weight):
        raise ValueError("sampling needs a finite weight, got infinity")
    if task.criterion not in CRITERIA:
        raise ValueError(f"sampling needs a criterion in {CRITERIA}, got {task.criterion!r}")
    if task.dynamics is not None:
        raise ValueError("sampling does not support sequences; use inference='map'")
    if not task.dense:
        raise ValueError(
            "sampling needs a dense mapping (n_centres=None, kind='kernel', at most "
            f"{EXACT_SAMPLES} samples)"
        )


def declare_model(task: Task, mode: MapFit, *, density: Any = None) -> Any:
    """The PyMC model on the training samples, with the settings of the mapping of a mode."""
    from bsdr_models.dgplvm.model import build_model

    assert mode.settings is not None
    return build_model(
        task.X,
        task.y_index,
        n_components=task.n_components,
        weight=task.weight,
        criterion=task.criterion,  # type: ignore[arg-type]
        width=mode.settings.width,
        map_noise=mode.settings.noise,
        priors=task.priors,
        tempered=task.tempered,
        unlabeled=-1,
        density=density,
    )


@dataclass(frozen=True, slots=True)
class Density:
    """-F without the priors of the log parameters, which are in the PyMC model."""

    objective: Objective

    def __call__(
        self, raw: FloatArray, log_kernel: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient in U (N, R) and in the log parameters (3,).

        Minus infinity if a factorisation fails.
        """
        try:
            value, gradient = self.objective(np.concatenate([raw.ravel(), log_kernel]))
        except np.linalg.LinAlgError:
            return -np.inf, np.zeros_like(raw), np.zeros_like(log_kernel)
        by_raw, by_log = -gradient[: raw.size].reshape(raw.shape), -gradient[raw.size :]
        value = -value
        for i, prior in enumerate(self.objective.priors.kernel):
            own, slope = prior.negative_log_density(log_kernel[i])
            value += own
            by_log[i] += slope
        return value, by_raw, by_log


def curvature(objective: Objective, mode: MapFit) -> tuple[FloatArray, FloatArray]:
    """The mode with U'U = N I, (N R + 3,), and the inverse curvature there.

    By 2 (N R + 3) gradients; without correlations of coordinates and parameters.
    """
    raw, log_kernel = objective.unpack(objective.pack(mode.latent, mode.log_kernel))
    n, r = raw.shape
    left, _, right = np.linalg.svd(raw, full_matrices=False)
    x = np.concatenate([(np.sqrt(n) * left @ right).ravel(), log_kernel])
    hessian = np.empty((len(x), len(x)))
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = STEP
        hessian[i] = (objective(x + step)[1] - objective(x - step)[1]) / (2.0 * STEP)
    of_raw = hessian[: n * r, : n * r].reshape(n, r, n, r).trace(axis1=1, axis2=3) / r
    size, axes = np.linalg.eigh(0.5 * (of_raw + of_raw.T))
    # The auxiliary prior adds one; away from an exact mode a curvature may be negative.
    of_samples = (axes / (1.0 + np.maximum(size, 0.0))) @ axes.T
    covariance = np.zeros_like(hessian)
    covariance[: n * r, : n * r] = np.kron(of_samples, np.eye(r))
    for i, prior in enumerate(objective.priors.kernel):
        # At a bound of the optimiser the curvature is not meaningful; that of the prior is a limit.
        k = n * r + i
        covariance[k, k] = 1.0 / max(hessian[k, k], 0.5 / prior.log_sd**2)
    return x, covariance


def _initial_values(
    objective: Objective, x: FloatArray, covariance: FloatArray, rng: np.random.Generator
) -> dict[str, Any]:
    """A draw of the normal at the mode, by variable."""
    x = x + cholesky(covariance, name="covariance at the mode") @ rng.standard_normal(len(x))
    raw, log_kernel = objective.unpack(x)
    return {"latent_raw": raw, **dict(zip(KERNEL, np.exp(log_kernel), strict=True))}


def align_draws(latent: FloatArray, mode: FloatArray) -> FloatArray:
    """Rotate draws (chain, draw, N, R) to agree with each other, and their mean to the mode."""
    flat = latent.reshape(-1, *latent.shape[2:])
    flat = flat @ align.rotations(flat)
    left, _, right = np.linalg.svd(flat.mean(axis=0).T @ mode)
    return (flat @ (left @ right)).reshape(latent.shape)
