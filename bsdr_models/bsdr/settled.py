r"""The bound over blocks as a function of the means of the globals alone, for L-BFGS.

Given the globals every row has an optimum of its own, which it finds where it lies. So with
Cov(Q) and Cov(b, W) held at the values of the last sweep, and precisions and Cov(z) at their
optimum, the bound is a function of

.. math:: A = E[Q], \qquad B = E[b, W],

as few numbers as there are parameters, however many rows. By the envelope theorem its gradient is
the partial derivative at the settled rows,

.. math::
    \nabla_A = X^\top (Z - X A) / v - \Phi \circ A, \qquad
    \nabla_{b_c} = \tilde Z^\top (t_c - \tilde Z b_c) - n\,\tilde S_z b_c - \psi_c \circ b_c,

with :math:`\tilde Z = [1, Z]` and :math:`\tilde S_z` its covariance of a row: sums over rows, which
one visit brings. The coordinates of the climb are whitened by the information of the observed
labels (:mod:`bsdr_models.bsdr.natural_steps`), in which sweeps creep.

In memory :mod:`bsdr_models.bsdr.frozen` leaves the positions free instead: an evaluation then costs
one update of the scores in place of some, but the vector of the search is as long as the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from bsdr_models.bsdr import mean_field, natural_steps
from bsdr_models.bsdr.block_starts import BlockData
from bsdr_models.bsdr.blocks import BlockState, Message, OwnRows
from bsdr_models.bsdr.mean_field import Info, State
from bsdr_models.bsdr.natural_steps import SumDesign
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.row_sums import LatentSums, ScoreSums
from bsdr_models.inference.row_blocks import Block, Parts
from bsdr_models.numerics.gram_design import SpectralGramDesign, feature_factor
from bsdr_models.numerics.linalg import cholesky, inv_spd
from bsdr_models.numerics.scaled_rows import scaled_rows
from bsdr_models.typing import FloatArray, IntArray

# Updates of scores and positions of each row when all rows are settled at the end of a climb.
N_SETTLE = 5
# The same at each evaluation, from where the one before has left them; of two, the gradient is
# too far off near the end of a climb. Nodes of the quadrature.
N_INNER, N_NODES = 3, 16
# Rows whose curvature is looked at before a climb.
N_CURVED = 512
# Pairs of steps and gradients that L-BFGS remembers.
MEMORY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Sums over rows that were brought to their optimum given the globals."""

    latent: LatentSums
    scores: ScoreSums

    def __add__(self, other: "Settled") -> "Settled":
        """Sums over the rows of both."""
        return Settled(latent=self.latent + other.latent, scores=self.scores + other.scores)


# ------------------------------------------------------------------------- what a block does


def settle_rows(
    block: Block, own: OwnRows | None, shared: tuple[Message, int]
) -> tuple[OwnRows, Settled]:
    """Visit: rows near their optimum given the globals. Reads X."""
    message, n_inner = shared
    rows = scaled_rows(block.X, message.scaler, seen=True)
    fitted = rows.project(message.loadings)
    state = natural_steps.join(
        message.state,
        fitted,
        fitted if own is None else own.latent,
        None if own is None else own.mode,
    )
    targets = message.targets(block)
    state = natural_steps.settle(
        state, targets, message.priors, n_inner=n_inner, n_nodes=message.n_nodes
    )
    scores = mean_field.update_scores(state, targets, n_nodes=message.n_nodes)
    state = replace(state, scores=scores)
    latent = state.latent.mean
    settled = Settled(
        latent=mean_field.latent_sums(state, cross=rows.back(latent)),
        scores=mean_field.score_sums(state),
    )
    return OwnRows(latent=latent, scores=scores.mean, mode=scores.mode), settled


def curve_rows(
    block: Block, own: OwnRows, shared: tuple[Message, IntArray]
) -> tuple[None, FloatArray]:
    """Visit: sum of the curvatures of those rows of the given numbers that are here, (K, K)."""
    message, numbers = shared
    some = numbers[np.searchsorted(numbers, block.begin) :] - block.begin
    some = some[: np.searchsorted(some, len(own.latent))]
    mode = None if own.mode is None else own.mode[some]
    chosen = OwnRows(latent=own.latent[some], scores=own.scores[some], mode=mode)
    targets = message.targets(block)
    targets = replace(targets, y=targets.y[some])
    state = message.joined(chosen, chosen.latent[:0])
    return None, natural_steps.curvatures(state, targets, message.priors).sum(axis=0)


# ---------------------------------------------------------------------------------- the climb


def settle_all(
    shared: State, rows: Parts, data: BlockData, priors: Priors, *, n_inner: int = N_SETTLE
) -> tuple[BlockState, Info]:
    """All rows near their optimum given the globals, and the exact bound. Reads X once."""
    message = Message.of(shared, data, priors)
    state, info, _ = _settle(rows, message, data, n_inner=n_inner)
    return state, info


def _settle(
    rows: Parts, message: Message, data: BlockData, *, n_inner: int
) -> tuple[BlockState, Info, LatentSums]:
    """The same with the sums over rows, by the quadrature that a message asks for."""
    rows, found = data.blocks.visit(settle_rows, rows, shared=(message, n_inner))
    sums, shared = found.latent, message.state
    info = mean_field.info(shared, data.known, message.priors, sums=sums, scores=found.scores)
    assert sums.cross is not None
    return BlockState(shared=shared, rows=rows, cross=sums.cross), info, sums


def complete(shared: State, priors: Priors, projection: FloatArray, weights: FloatArray) -> State:
    """The globals with the given means (D, R) and (1 + R, K), and what follows from them."""
    shared = replace(
        shared,
        projection=replace(shared.projection, mean=projection),
        weights=replace(shared.weights, mean=weights),
    )
    phi = mean_field.update_projection_precision(shared, priors)
    psi = mean_field.update_weight_precision(shared, priors)
    shared = replace(shared, projection_precision=phi, weight_precision=psi)
    return replace(shared, latent=mean_field.update_latent(shared, priors))


def gradient(
    shared: State, sums: LatentSums, data: BlockData, priors: Priors
) -> tuple[FloatArray, FloatArray]:
    """Derivatives of the bound in E[Q], (D, R), and E[b, W], (1 + R, K), at settled rows."""
    A, B = shared.projection.mean, shared.weights.mean
    assert sums.cross is not None
    pull = data.inside(sums.cross) - natural_steps.gram_times(data.design, A)
    moment = mean_field.latent_moment(shared.latent, sums)
    drive = np.vstack([sums.score_total, sums.score_cross])
    return (
        pull / priors.latent_scale**2 - shared.projection_precision.mean * A,
        drive - moment @ B - shared.weight_precision.mean * B,
    )


def maximise(
    state: BlockState,
    data: BlockData,
    priors: Priors,
    *,
    max_evaluations: int,
    on_step: Callable[[BlockState, Info], bool | None] | None = None,
) -> tuple[BlockState, Info]:
    """Climb the bound by L-BFGS from a state, its Cov(Q) and Cov(b, W) held.

    Parameters
    ----------
    state : BlockState
        From a sweep.
    data : BlockData
        Of labels.
    priors : Priors
    max_evaluations : int
        Limit on evaluations of bound and gradient, each of which reads X once.
    on_step : callable, optional
        Called with the state and its bound after every accepted step; a true value stops.

    Returns
    -------
    state : BlockState
        The best one seen, its rows settled once more. Reads X once.
    info : Info
        Its exact bound.
    """
    frame = _Frame.at(state.shared, _curvature(state, data, priors), data.design, priors)
    best, best_info, rows = state, Info(elbo=-np.inf, terms={}), state.rows

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, best_info, rows
        shared = complete(state.shared, priors, *frame.unpack(x))
        message = Message.of(shared, data, priors, n_nodes=N_NODES)
        got, info, sums = _settle(rows, message, data, n_inner=N_INNER)
        rows = got.rows
        if info.elbo > best_info.elbo:
            best, best_info = got, info
        return -info.elbo, -frame.pull(*gradient(shared, sums, data, priors))

    def after_step(intermediate_result: object) -> None:
        nonlocal rows
        rows = best.rows  # which a callback may have written, so that the next go on from there
        if on_step is not None and on_step(best, best_info):
            raise StopIteration

    minimize(
        objective,
        frame.pack(state.shared),
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={
            "maxcor": MEMORY,
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
            "ftol": 1e-12,
            "gtol": 1e-6,
        },
    )
    return settle_all(best.shared, best.rows, data, priors, n_inner=N_INNER)


def _curvature(state: BlockState, data: BlockData, priors: Priors) -> FloatArray:
    """K-bar (K, K) by rows evenly spaced over all blocks, however they are cut."""
    numbers = np.unique(np.linspace(0, data.known.n_rows - 1, N_CURVED).astype(np.int64))
    message = Message.of(state.shared, data, priors, n_nodes=N_NODES)
    _, total = data.blocks.visit(curve_rows, state.rows, shared=(message, numbers))
    return np.asarray(total / len(numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Coordinates in which a column has unit information L L'.

    factor
        L, lower (D, D); or (D,) if it is diagonal.
    """

    factor: FloatArray

    def into(self, column: FloatArray) -> FloatArray:
        """L' times a column."""
        return self.factor.T * column if self.factor.ndim == 1 else self.factor.T @ column

    def out(self, coordinates: FloatArray) -> FloatArray:
        """The column at coordinates."""
        return self._solve(coordinates, "T")

    def pull(self, slope: FloatArray) -> FloatArray:
        """Gradient in the coordinates from that in the column."""
        return self._solve(slope, "N")

    def _solve(self, right: FloatArray, trans: str) -> FloatArray:
        if self.factor.ndim == 1:
            return right / self.factor
        return np.asarray(solve_triangular(self.factor, right, lower=True, trans=trans))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Coordinates in which the observed information of every column is about I.

    projection, weights
        Of each column, R and K of them.
    """

    projection: tuple[_Axes, ...]
    weights: tuple[_Axes, ...]

    @classmethod
    def at(
        cls, shared: State, curvature: FloatArray, design: SumDesign, priors: Priors
    ) -> "_Frame":
        """Frame at the globals after a sweep, with K-bar (K, K)."""
        known = natural_steps.observed_information(shared, curvature, priors)
        phi = np.broadcast_to(shared.projection_precision.mean, shared.projection.mean.shape)
        psi = shared.weight_precision.mean
        # A sweep has left Cov(b_c, w_c)^-1 = diag psi_c + Z~'Z~.
        full, _ = inv_spd(shared.weights.cov, name="covariance of the weights")
        return cls(
            projection=tuple(
                _projection_axes(design, column, a)
                for column, a in zip(phi.T, known.projection, strict=True)
            ),
            weights=tuple(
                _Axes(factor=cholesky((1.0 - k) * np.diag(column) + k * matrix, name="weights"))
                for column, matrix, k in zip(psi.T, full, known.weights, strict=True)
            ),
        )

    def pack(self, shared: State) -> FloatArray:
        """Coordinates of the globals."""
        return self._joined("into", shared.projection.mean, shared.weights.mean)

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E[Q], (D, R), and E[b, W], (1 + R, K), at coordinates."""
        r, k = len(self.projection), len(self.weights)
        first, second = np.split(x, [len(x) - k * (1 + r)])
        return (
            _columns(self.projection, first.reshape(r, -1)),
            _columns(self.weights, second.reshape(k, -1)),
        )

    def pull(self, projection: FloatArray, weights: FloatArray) -> FloatArray:
        """Gradient in the coordinates."""
        return self._joined("pull", projection, weights)

    def _joined(self, what: str, projection: FloatArray, weights: FloatArray) -> FloatArray:
        axes, columns = (*self.projection, *self.weights), (*projection.T, *weights.T)
        return np.concatenate(
            [getattr(own, what)(column) for own, column in zip(axes, columns, strict=True)]
        )


def _columns(axes: tuple[_Axes, ...], coordinates: FloatArray) -> FloatArray:
    return np.stack([own.out(x) for own, x in zip(axes, coordinates, strict=True)], axis=1)


def _projection_axes(design: SumDesign, phi: FloatArray, a: float) -> _Axes:
    """Of diag phi + a X'X."""
    if isinstance(design, SpectralGramDesign):
        return _Axes(factor=np.sqrt(phi + a * design.eigenvalues))
    return _Axes(factor=feature_factor(design.gram, phi, 1.0 / a)[0])
