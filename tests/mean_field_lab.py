"""What the labs of mean fields share: random factors, draws from factors, moves, three checks."""

from dataclasses import fields, replace
from functools import partial

import numpy as np
from scipy import stats

from bsdr_models.numerics.factors import Gamma


def log_gamma(x, shape, rate):
    return stats.gamma.logpdf(x, shape, scale=1.0 / rate)


class Draws:
    """Draws of factors, and the log density of all that were drawn, (S,)."""

    def __init__(self, size, rng):
        self.size, self.rng, self.log_q = size, rng, np.zeros(size)

    def add(self, log_q):
        self.log_q += log_q.reshape(self.size, -1).sum(axis=1)

    def gamma(self, factor):
        size = (self.size, *factor.shape.shape)
        x = self.rng.gamma(factor.shape, 1.0 / factor.rate, size=size)
        self.add(log_gamma(x, factor.shape, factor.rate))
        return x

    def normals(self, means, covs):
        """Normals with means (..., M) and covariances (..., M, M)."""
        factor = np.broadcast_to(np.linalg.cholesky(covs), (*means.shape, means.shape[-1]))
        noise = self.rng.standard_normal((self.size, *means.shape))
        self.add(stats.norm.logpdf(noise))
        self.log_q -= np.log(np.einsum("...mm->...m", factor)).sum()
        return means + np.einsum("...mq,s...q->s...m", factor, noise)


def random_gammas(rng, *shape):
    return Gamma(shape=rng.uniform(1.0, 4.0, shape), rate=rng.uniform(0.5, 3.0, shape))


def random_covs(rng, *shape):
    root = rng.standard_normal((*shape, shape[-1])) / np.sqrt(shape[-1])
    return 0.3 * root @ root.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])


def log_dets(cov):
    return np.linalg.slogdet(cov)[1]


def stretched(cov, step):
    """Covariances L L' moved to L (I + step) (I + step)' L'."""
    root = np.linalg.cholesky(cov) @ (np.eye(cov.shape[-1]) + step)
    return root @ root.swapaxes(-1, -2)


def moves(factor):
    """Parameters of a factor: name, shape, and the factor with that parameter moved by a step.

    Positive numbers move by a factor 1 + step, means by the step, covariances are stretched.
    """
    for f in fields(factor):
        if f.name in ("shape", "rate", "variance", "mean", "cov"):
            yield f.name, getattr(factor, f.name).shape, partial(moved, factor, f.name)


def moved(factor, name, step):
    value = getattr(factor, name)
    if name == "cov":
        cov = stretched(value, step)
        return replace(factor, cov=cov, log_det=log_dets(cov))
    return replace(factor, **{name: value + step if name == "mean" else value * (1.0 + step)})


def check_monte_carlo(bound, draw, *, max_error):
    """The bound is E_q[log joint - log q] to 4 standard errors, drawn until they are this small."""
    differences, error = np.empty(0), np.inf
    while error > max_error:
        differences = np.append(differences, draw())
        error = differences.std() / np.sqrt(len(differences))
        assert len(differences) < 400 / max_error**2, f"no mean of such tails: {error}"
    assert abs(differences.mean() - bound) < 4.0 * error, (bound, differences.mean(), error)


def check_monotone(bound, state, updated, names):
    """No single update lowers the bound, in this order."""
    value = bound(state)
    for name in names:
        state = updated(state, name)
        before, value = value, bound(state)
        assert value >= before - 1e-9 * abs(before), (name, value - before)


def check_stationary(name, bound, best, moves, directions):
    """No parameter of a factor that was just updated can be moved to a higher bound."""
    top = bound(best)
    for what, shape, move in moves:
        for direction in directions(what, shape):
            step = 1e-4 * direction
            up, down = bound(move(step)), bound(move(-step))
            slope, rise = (up - down) / 2e-4, max(up, down) - top
            assert abs(slope) < 1e-5, (name, what, slope)
            assert rise < 1e-11 * abs(top), (name, what, rise)
