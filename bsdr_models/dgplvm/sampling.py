r"""Posterior draws of D-GPLVM by PyMC: NUTS and ADVI, initialised at the mode.

The target is exp(-F) N(U; 0, I) |U'U|: the objective of :mod:`~bsdr_models.dgplvm.problem` and
the auxiliary prior of the raw coordinates U. The scales of directions of U, not along its axes,
differ tenfold, so NUTS has a dense mass matrix: the curvature of F at the mode, for U such that
U'U = N I, averaged over the rotations of U, to which the posterior is invariant. Warm-up adapts the
step size.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import block_diag

from bsdr_models.dgplvm.map_search import Mode, make_objective
from bsdr_models.dgplvm.priors import KERNEL
from bsdr_models.dgplvm.problem import DGPLVMProblem, WellPosedObjective
from bsdr_models.dgplvm.trees import SPEC
from bsdr_models.inference.result import Sampled, Schedule
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import cholesky, rotations

if TYPE_CHECKING:
    import pymc as pm

# Target acceptance rate of NUTS.
TARGET_ACCEPT = 0.9
# Steps of ADVI from each initialisation.
ADVI_STEPS = 5_000
# Initialisations are draws of the normal at the mode with its covariance times these factors.
ADVI_STARTS = (1e-6, 1.0)
# Step of finite differences of the gradient, for variables of order one.
STEP = 1e-5


def sample(
    engine: str,
    problem: DGPLVMProblem,
    mode: Mode[WellPosedObjective],
    schedule: Schedule,
    rng: np.random.Generator,
) -> Sampled:
    """Posterior draws by "nuts" or "advi", from initial values at the mode and aligned to it."""
    # PyMC takes most of a second to import and is not needed for the mode.
    from bsdr_models.inference.engines import run_pymc

    objective = make_objective(problem, mode.objective.mapping)
    x, covariance = curvature(objective, mode)
    # ADVI does not converge from a draw of the prior, where J is huge.
    spreads = ADVI_STARTS if engine == "advi" else (1.0,) * schedule.chains
    starts = [_initial_values(objective, x, scale * covariance, rng) for scale in spreads]
    options: dict[str, Any] = {"n_iterations": ADVI_STEPS}
    if engine == "nuts":
        options = {"target_accept": TARGET_ACCEPT, "covariance": covariance}
    model = declare_model(problem, mode.settings)
    options |= asdict(schedule)
    sampled = run_pymc(engine, model, SPEC, rng=rng, starts=starts, **options)
    draws = dict(sampled.draws)
    latent = align_draws(draws.pop("latent"), mode.latent)
    raw = draws.pop("latent_raw")
    raw = turn_raw(raw, mode.objective.mapping.factor @ raw, latent, problem.known)
    return replace(sampled, draws={"latent_raw": raw, "latent": latent, **draws})


def declare_model(problem: DGPLVMProblem, settings: Mapping[str, float]) -> "pm.Model":
    """The PyMC model on the training samples, with the settings of the mapping of a fit."""
    from bsdr_models.dgplvm.model import build_model

    return build_model(
        problem.X,
        problem.y_index,
        n_components=problem.n_components,
        width=settings["map_width"],
        map_noise=settings["map_noise"],
        priors=problem.priors,
        unlabeled=-1,
    )


def curvature(
    objective: WellPosedObjective, mode: Mode[WellPosedObjective]
) -> tuple[FloatArray, FloatArray]:
    """The mode with U'U = N I, (N R + 3,), and the inverse curvature there.

    By 2 (N R + 3) gradients; without correlations of coordinates and parameters.
    """
    raw, log_kernel = objective.unpack(objective.pack(mode.latent, mode.log_parameters))
    n, r = raw.shape
    left, _, right = np.linalg.svd(raw, full_matrices=False)
    x = np.concatenate([(np.sqrt(n) * left @ right).ravel(), log_kernel])
    steps = STEP * np.eye(len(x))
    hessian = np.array([objective(x + e)[1] - objective(x - e)[1] for e in steps]) / (2.0 * STEP)
    of_raw = hessian[: n * r, : n * r].reshape(n, r, n, r).trace(axis1=1, axis2=3) / r
    size, axes = np.linalg.eigh(0.5 * (of_raw + of_raw.T))
    # The auxiliary prior adds one; away from an exact mode a curvature may be negative.
    of_samples = (axes / (1.0 + np.maximum(size, 0.0))) @ axes.T
    # At a bound of the optimiser the curvature is not meaningful; that of the prior is a limit.
    limits = np.array([0.5 / prior.log_sd**2 for prior in objective.parameter_priors])
    of_log = 1.0 / np.maximum(np.diagonal(hessian)[n * r :], limits)
    return x, block_diag(np.kron(of_samples, np.eye(r)), np.diag(of_log))


def _initial_values(
    objective: WellPosedObjective, x: FloatArray, covariance: FloatArray, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """A draw of the normal at the mode, by variable."""
    x = x + cholesky(covariance, name="covariance at the mode") @ rng.standard_normal(len(x))
    raw, log_kernel = objective.unpack(x)
    return {"latent_raw": raw, **dict(zip(KERNEL, np.exp(log_kernel), strict=True))}


def align_draws(latent: FloatArray, mode: FloatArray) -> FloatArray:
    """Rotate draws (chain, draw, N, R) to agree with each other, and their mean to the mode."""
    flat = stack_chains(latent)
    flat = flat @ rotations(flat)
    left, _, right = np.linalg.svd(flat.mean(axis=0).T @ mode)
    return (flat @ (left @ right)).reshape(latent.shape)


def turn_raw(raw: FloatArray, image: FloatArray, latent: FloatArray, known: IntArray) -> FloatArray:
    """Rotate raw coordinates (..., N, R) so that the PyMC model maps them to ``latent``.

    With B their ``image`` under the root of the mapping, centred, latent is B M. The model whitens
    the image of rotated coordinates U Q by L^-T, with B'B = Q L L'Q' n, so M is Q times L^-T, an
    upper triangle.
    """
    B, Z = (each[..., known, :] for each in (image, latent))
    B = B - B.mean(axis=-2, keepdims=True)
    Q, triangle = np.linalg.qr(np.linalg.solve(B.mT @ B, B.mT @ Z))
    return raw @ (Q * np.sign(np.diagonal(triangle, axis1=-2, axis2=-1))[..., None, :])


def stack_chains(values: FloatArray) -> FloatArray:
    """Concatenated chains."""
    return values.reshape(-1, *values.shape[2:])
