r"""Steps on the global factors of BSDR from some of the rows, for streams and first answers.

Given the globals, rows are independent and their factors have an optimum, the same for every row
whatever the others are. With the rows there, the bound has a gradient in :math:`A = E[Q]` and
:math:`B = E[b, W]`, whose mean over some rows estimates that over all. A natural-gradient step on
a conjugate model [1]_ averages sums over rows, :math:`S \leftarrow (1 - \rho) S + \rho S_b`, and
puts the globals where the averaged sums say. That is a step of EM, and as slow as EM: the metric is
the information of the *augmented* data, with Z and T known, of which the labels often hold a
hundredth. Here the sums are of *targets* that are further away,

.. math::
    X^\top Z \to X^\top X A + X^\top (Z - X A)\, (v a)^{-1}, \qquad
    \tilde Z^\top t_c \to \tilde Z^\top \tilde Z\, b_c
        + (\tilde Z^\top t_c - \tilde Z^\top \tilde Z\, b_c)\, k_c^{-1},

and the globals solve the ridge systems of precision a and k in place of 1 / v and 1: steps of
Newton, with the information of the *observed* labels as metric. Each target estimates the optimum
from wherever it is made, so old ones hold nothing back. With a = 1 / v, k = 1 they are steps of
EM. The fixed points are the same.

With :math:`H_n = I - \operatorname{Cov}(t_n)` the information is, on average over rows,
:math:`\bar K = \operatorname{mean}_n\, (H_n^{-1} + v W^\top W)^{-1}`, of which the diagonals of
:math:`\bar K` (for k) and :math:`W \bar K W^\top` (for a) are used.

References
----------
.. [1] M. D. Hoffman, D. M. Blei, C. Wang, J. Paisley (2013). Stochastic variational inference.
       Journal of Machine Learning Research 14.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.mean_field import Scores, State
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.row_sums import LatentSums, ScoreSums
from bsdr_models.data import Data, Targets
from bsdr_models.numerics.factors import NormalColumns
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.numerics.scaled_rows import Rows
from bsdr_models.typing import FloatArray

type SumDesign = GramDesign | SpectralGramDesign

# Quadrature nodes of the cone moments: the noise of a step is larger than their error.
N_NODES = 8
# Updates of the scores and positions of some rows before a step.
N_INNER = 3
# Rows whose curvature is looked at in a step, and the weight of a step in its average.
CURVATURE_ROWS, CURVATURE_RATE = 64, 0.1
# Step of the differences in the scores, which are in units of the probit noise.
_STEP = 1e-3
# No target is further away than one over this share.
FLOOR = 2e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Averages per row. D working coordinates, R components, K labels.

    anchor, pull
        Targets of X'Z are X'X times the one plus the other, each (D, R): so the Gram matrix may
        come to be known better later.
    moment
        E[z~ z~'] with z~ = [1; z], (1 + R, 1 + R).
    drive
        Targets of z~ t', (1 + R, K).
    curvature
        K-bar, (K, K).
    """

    anchor: FloatArray
    pull: FloatArray
    moment: FloatArray
    drive: FloatArray
    curvature: FloatArray

    def blend(self, other: "Running", rate: float, curvature_rate: float) -> "Running":
        """(1 - rate) of this and rate of the other."""
        weights = {field.name: rate for field in fields(self)} | {"curvature": curvature_rate}
        return Running(
            **{
                name: (1.0 - weight) * getattr(self, name) + weight * getattr(other, name)
                for name, weight in weights.items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Information:
    """Per row, what the labels say of one column.

    projection
        a, (R,), in units of 1 / position**2.
    weights
        k, (K,).
    """

    projection: FloatArray
    weights: FloatArray


def complete_information(state: State, priors: Priors) -> Information:
    """That of the augmented data, which makes a step one of EM."""
    r, k = state.projection.mean.shape[1], state.weights.mean.shape[1]
    return Information(projection=np.full(r, priors.latent_scale**-2), weights=np.ones(k))


def observed_information(
    state: State, curvature: FloatArray, priors: Priors, *, floor: float = FLOOR
) -> Information:
    """That of the labels, from K-bar (K, K)."""
    W, v = state.weights.mean[1:], priors.latent_scale**2
    return Information(
        projection=np.clip(np.einsum("rk,kl,rl->r", W, curvature, W), floor / v, 1.0 / v),
        weights=np.clip(np.diag(curvature), floor, 1.0),
    )


def join(
    state: State, fitted: FloatArray, latent: FloatArray, mode: FloatArray | None = None
) -> State:
    """State of some rows: their X E[Q], and positions to start from, each (n, R)."""
    n, k = len(latent), state.weights.mean.shape[1]
    none = np.zeros((n, k))
    return replace(
        state,
        projection=replace(state.projection, fitted=fitted),
        latent=replace(state.latent, mean=latent),
        scores=Scores(mean=none, origin=none, log_prob=0.0, mode=mode),
    )


def settle(
    state: State,
    targets: Targets,
    priors: Priors,
    *,
    n_inner: int = N_INNER,
    n_nodes: int = N_NODES,
) -> State:
    """Scores and positions of rows near their optimum given the globals."""
    for _ in range(n_inner):
        scores = mean_field.update_scores(state, targets, n_nodes=n_nodes)
        state = replace(state, scores=scores)
        state = replace(state, latent=mean_field.update_latent(state, priors))
    return state


def estimate(state: State, sums: LatentSums, known: Data, priors: Priors) -> float:
    """The bound of all rows as if they were like those of a state."""
    share = known.n_rows / sums.n_rows
    scores = _scaled(mean_field.score_sums(state), share)
    return mean_field.info(state, known, priors, sums=_scaled(sums, share), scores=scores).elbo


def mean_curvature(state: State, targets: Targets, priors: Priors) -> FloatArray:
    """K-bar of the first rows of a state, (K, K)."""
    few, t = slice(CURVATURE_ROWS), state.scores
    some = replace(t, mean=t.mean[few], mode=None if t.mode is None else t.mode[few])
    latent = replace(state.latent, mean=state.latent.mean[few])
    first = replace(state, latent=latent, scores=some)
    found: FloatArray = curvatures(first, replace(targets, y=targets.y[few]), priors).mean(axis=0)
    return found


def curvatures(state: State, targets: Targets, priors: Priors) -> FloatArray:
    """(H_n^-1 + v W'W)^-1 of every row of a state, (n, K, K)."""
    W, eta, mode = state.weights.mean[1:], mean_field.score_mean(state), state.scores.mode

    def mean(moved: FloatArray) -> FloatArray:
        return mean_field.make_scores(moved, targets, start=mode, n_nodes=N_NODES).mean

    eye = np.eye(eta.shape[1])
    here = mean(eta)
    H = eye - np.stack([mean(eta + _STEP * unit) - here for unit in eye], axis=2) / _STEP
    H = 0.5 * (H + np.swapaxes(H, 1, 2))
    side = H @ W.T  # (n, K, R)
    inner = np.eye(len(W)) / priors.latent_scale**2 + W @ side
    found: FloatArray = H - side @ np.linalg.solve(inner, np.swapaxes(side, 1, 2))
    return found


def summarise(
    state: State,
    rows: Rows,
    sums: LatentSums,
    design: SumDesign,
    information: Information,
    curvature: FloatArray,
    priors: Priors,
) -> Running:
    """What settled rows say, per row.

    Parameters
    ----------
    state : State
        Of these rows.
    rows : Rows
    sums : LatentSums
        Of these rows.
    design : GramDesign or SpectralGramDesign
        Of all rows.
    information : Information
    curvature : (K, K)
    priors : Priors
    """
    n = sums.n_rows
    gap = (state.latent.mean - state.projection.fitted) / (
        priors.latent_scale**2 * information.projection
    )
    beyond = design.coordinates(rows.back(gap).T).T
    moment = mean_field.latent_moment(state.latent, sums) / n
    here = moment @ state.weights.mean
    drive = np.vstack([sums.score_total, sums.score_cross]) / n
    return Running(
        anchor=state.projection.mean,
        pull=beyond / n,
        moment=moment,
        drive=here + (drive - here) / information.weights,
        curvature=curvature,
    )


def update_precisions(state: State, design: SumDesign, priors: Priors) -> State:
    """Precisions and covariance of the projection, its mean held."""
    phi = mean_field.update_projection_precision(state, priors)
    mean = state.projection.mean
    ridge = design.ridge_from(np.zeros_like(mean), phi.mean, priors.latent_scale**2)
    return replace(state, projection_precision=phi, projection=replace(ridge, mean=mean))


def update_means(
    state: State,
    running: Running,
    design: SumDesign,
    priors: Priors,
    information: Information,
) -> State:
    """The globals where averages over rows put them, Cov(Q) and its precisions held.

    Parameters
    ----------
    state : State
        Without rows.
    running : Running
    design : GramDesign or SpectralGramDesign
        Of all rows that the averages stand for.
    priors : Priors
    information : Information
        The one that the newest targets were made with.
    """
    n = design.n_rows
    cross = gram_times(design, running.anchor) + n * running.pull
    phi = np.broadcast_to(state.projection_precision.mean, cross.shape)
    columns = zip(phi.T, information.projection, cross.T, strict=True)
    mean = np.stack([_solve(design, *column) for column in columns], axis=1)
    projection = replace(state.projection, mean=mean, fitted=np.empty((0, mean.shape[1])))
    psi = mean_field.update_weight_precision(state, priors)
    moment = n * running.moment
    cov, log_det = mean_field.weights_cov(moment, psi, np.ones(len(information.weights)))
    weights = [
        np.linalg.solve(np.diag(precision) + k * moment, k * n * drive)
        for precision, k, drive in zip(
            psi.mean.T, information.weights, running.drive.T, strict=True
        )
    ]
    state = replace(
        state,
        projection=projection,
        weight_precision=psi,
        weights=NormalColumns(mean=np.stack(weights, axis=1), cov=cov, log_det=log_det),
    )
    return replace(state, latent=mean_field.update_latent(without_rows(state), priors))


def without_rows(state: State) -> State:
    """The globals of a state."""
    r, k = state.projection.mean.shape[1], state.weights.mean.shape[1]
    none = np.empty((0, k))
    return replace(
        state,
        projection=replace(state.projection, fitted=np.empty((0, r))),
        latent=replace(state.latent, mean=np.empty((0, r))),
        scores=Scores(mean=none, origin=none, log_prob=0.0),
    )


def gram_times(design: SumDesign, A: FloatArray) -> FloatArray:
    """X'X A, (D, R)."""
    if isinstance(design, SpectralGramDesign):
        return design.eigenvalues[:, None] * A
    return design.gram @ A


def _solve(design: SumDesign, phi: FloatArray, a: float, target: FloatArray) -> FloatArray:
    """(diag phi + a X'X)^-1 a target, (D,)."""
    if isinstance(design, SpectralGramDesign):
        return a * target / (phi + a * design.eigenvalues)
    matrix = a * design.gram
    matrix[np.diag_indices(len(matrix))] += phi
    return np.linalg.solve(matrix, a * target)


def _scaled[S: (LatentSums, ScoreSums)](sums: S, factor: float) -> S:
    """Sums over so many times the rows."""
    values = {field.name: getattr(sums, field.name) for field in fields(sums)}
    scaled: Any = {name: None if v is None else factor * v for name, v in values.items()}
    return replace(sums, **scaled)
