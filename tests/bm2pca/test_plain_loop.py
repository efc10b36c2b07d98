"""The mean field of BM2PCA against a plain loop over problems, rows, features and outcomes.

The loop holds all features of all rows, and inverts one covariance after another. Its formulas
are those of the model; the terms of q(lambda) are written with the special functions that cancel
in the package.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import digamma, exp1, gammaln

from bsdr_models.bm2pca.paper import mean_field as mf

LOG_2PI = np.log(2.0 * np.pi)


def second(mean, cov):
    return cov + np.outer(mean, mean)


def mean_log(shape, rate):
    return digamma(shape) - np.log(rate)


def gamma_term(q, shape, rate):
    """E[log prior] plus entropy of a Gamma q = (shape, rate)."""
    a, b = q
    log_x = mean_log(a, b)
    prior = shape * np.log(rate) - gammaln(shape) + (shape - 1.0) * log_x - rate * a / b
    return prior + a - np.log(b) + gammaln(a) + (1.0 - a) * digamma(a)


def normal_entropy(cov):
    return 0.5 * (np.linalg.slogdet(cov)[1] + len(cov) * (1.0 + LOG_2PI))


@dataclass
class Plain:
    """One problem. Normals are (mean, cov), Gammas (shape, rate), in lists over what they index."""

    X: list
    y: np.ndarray
    known: np.ndarray
    C: float
    epsilon: float | None
    priors: object
    views: list  # of namespaces W, r, t, tau
    z: list
    eta: list
    nu: list
    s: np.ndarray  # (N, K), or (2, N, K)

    def seen(self, v):
        return ~np.isnan(self.X[v])

    def extended(self, n):
        """E[z~] and E[z~ z~'] with z~ = [1; z]."""
        mean, cov = self.z[n]
        full = np.append(1.0, mean)
        return full, second(full, np.pad(cov, ((1, 0), (1, 0))))

    def factor(self, n, c):
        """Precision w and linear term g that the margins of (n, c) give to f."""
        if not self.known[n, c]:
            return 0.0, 0.0
        y, C = self.y[n, c], self.C
        if self.epsilon is None:
            w = 1.0 / self.s[n, c]
            return C**2 * w, C * (1.0 + C * w) * y
        w, v = 1.0 / self.s[:, n, c]
        return C**2 * (w + v), C**2 * ((y - self.epsilon) * w + (y + self.epsilon) * v)

    def score(self, n, c):
        """E[f] and E[f**2]."""
        full, square = self.extended(n)
        mean, cov = self.eta[c]
        return mean @ full, np.trace(second(mean, cov) @ square)

    def squares(self, n, c):
        """E[u**2] and E[u] of each side."""
        (f, ff), y, C = self.score(n, c), self.y[n, c], self.C
        if self.epsilon is None:
            return [C**2 * (1.0 - 2.0 * y * f + ff)], [C * (1.0 - y * f)]
        low, high = y - self.epsilon, y + self.epsilon
        squares = [C**2 * (a**2 - 2.0 * a * f + ff) for a in (low, high)]
        return squares, [C * (low - f), C * (f - high)]

    def residual(self, v):
        W, t = self.views[v].W, self.views[v].t
        total = 0.0
        for n, j in zip(*np.nonzero(self.seen(v)), strict=True):
            (m, S), (M, V), (mu, var) = self.z[n], W[j], t[j]
            gap = self.X[v][n, j] - mu - M @ m
            total += gap**2 + var + M @ S @ M + np.trace(V @ second(m, S))
        return total

    # ---------------------------------------------------------------------------- the updates

    def loadings(self):
        for v, own in enumerate(self.views):
            tau = own.tau[0] / own.tau[1]
            for j, (rows, (mu, _)) in enumerate(zip(self.seen(v).T, own.t, strict=True)):
                rows = np.flatnonzero(rows)
                precision = np.diag([a / b for a, b in own.r])
                precision += tau * sum(second(*self.z[n]) for n in rows)
                linear_term = tau * sum((self.X[v][n, j] - mu) * self.z[n][0] for n in rows)
                cov = np.linalg.inv(precision)
                own.W[j] = cov @ linear_term, cov

    def loading_precision(self):
        for own in self.views:
            square = np.diag(sum(second(*w) for w in own.W))
            shape = self.priors.loading_shape + 0.5 * len(own.W)
            own.r = [(shape, self.priors.loading_rate + 0.5 * each) for each in square]

    def offset(self):
        for v, own in enumerate(self.views):
            tau = own.tau[0] / own.tau[1]
            for j, rows in enumerate(self.seen(v).T):
                rows = np.flatnonzero(rows)
                var = 1.0 / (self.priors.offset_precision + len(rows) * tau)
                rest = sum(self.X[v][n, j] - own.W[j][0] @ self.z[n][0] for n in rows)
                own.t[j] = var * tau * rest, var

    def noise_precision(self):
        for v, own in enumerate(self.views):
            own.tau = (
                self.priors.noise_shape + 0.5 * self.seen(v).sum(),
                self.priors.noise_rate + 0.5 * self.residual(v),
            )

    def latent(self):
        for n in range(len(self.z)):
            r = len(self.z[n][0])
            precision, linear_term = np.eye(r), np.zeros(r)
            for v, own in enumerate(self.views):
                tau = own.tau[0] / own.tau[1]
                for j in np.flatnonzero(self.seen(v)[n]):
                    precision += tau * second(*own.W[j])
                    linear_term += tau * (self.X[v][n, j] - own.t[j][0]) * own.W[j][0]
            for c in range(self.y.shape[1]) if n < len(self.y) else ():
                w, g = self.factor(n, c)
                moment = second(*self.eta[c])
                precision += w * moment[1:, 1:]
                linear_term += g * self.eta[c][0][1:] - w * moment[1:, 0]
            cov = np.linalg.inv(precision)
            self.z[n] = cov @ linear_term, cov

    def weights(self):
        for c, (a, b) in enumerate(self.nu):
            precision, linear_term = a / b * np.eye(len(self.eta[c][0])), 0.0
            for n in range(len(self.y)):
                (w, g), (full, square) = self.factor(n, c), self.extended(n)
                precision += w * square
                linear_term = linear_term + g * full
            cov = np.linalg.inv(precision)
            self.eta[c] = cov @ linear_term, cov

    def weight_precision(self):
        for c, q in enumerate(self.eta):
            self.nu[c] = (
                self.priors.weight_shape + 0.5 * len(q[0]),
                self.priors.weight_rate + 0.5 * np.trace(second(*q)),
            )

    def slack(self):
        for n, c in zip(*np.nonzero(self.known), strict=True):
            self.s[..., n, c] = np.sqrt(np.squeeze(self.squares(n, c)[0]))

    # ------------------------------------------------------------------------------ the bound

    def bound(self):
        p = self.priors
        terms = dict.fromkeys(("features", "offset", "loadings", "loading_precision"), 0.0)
        terms |= dict.fromkeys(("noise_precision", "latent", "weights", "weight_precision"), 0.0)
        for v, own in enumerate(self.views):
            each = 0.5 * self.seen(v).sum() * (mean_log(*own.tau) - LOG_2PI)
            terms["features"] += each - 0.5 * own.tau[0] / own.tau[1] * self.residual(v)
            terms["noise_precision"] += gamma_term(own.tau, p.noise_shape, p.noise_rate)
            for mu, var in own.t:
                prior = np.log(p.offset_precision) - LOG_2PI - p.offset_precision * (mu**2 + var)
                terms["offset"] += 0.5 * prior + normal_entropy(np.array([[var]]))
            for w in own.W:
                for (a, b), square in zip(own.r, np.diag(second(*w)), strict=True):
                    terms["loadings"] += 0.5 * (mean_log(a, b) - LOG_2PI - a / b * square)
                terms["loadings"] += normal_entropy(w[1])
            for q in own.r:
                terms["loading_precision"] += gamma_term(q, p.loading_shape, p.loading_rate)
        for m, S in self.z:
            prior = len(m) * LOG_2PI + np.trace(second(m, S))
            terms["latent"] += normal_entropy(S) - 0.5 * prior
        for (mu, S), (a, b) in zip(self.eta, self.nu, strict=True):
            prior = len(mu) * (mean_log(a, b) - LOG_2PI) - a / b * np.trace(second(mu, S))
            terms["weights"] += 0.5 * prior + normal_entropy(S)
            terms["weight_precision"] += gamma_term((a, b), p.weight_shape, p.weight_rate)
        terms["margins"] = sum(
            self.margin(n, c) for n, c in zip(*np.nonzero(self.known), strict=True)
        )
        return terms

    def margin(self, n, c):
        """E[log N(u; -lambda, lambda)] plus the entropy of q(lambda), of each side."""
        total = 0.0 if self.epsilon is None else -np.log(2.0 * self.epsilon + 1.0 / self.C)
        s = np.atleast_1d(self.s[..., n, c])
        for side, square, mean in zip(s, *self.squares(n, c), strict=True):
            log_lam = np.log(side) + np.exp(2.0 * side) * exp1(2.0 * side)
            total += -0.5 * (LOG_2PI + log_lam + side + 1.0) - mean - 0.5 * square / side
            total += 0.5 * (LOG_2PI + log_lam + 1.0)
        return total


def plain_problems(problem, state):
    """The state of each problem, over all features and rows, as the loop holds it."""
    z = state.latent
    for p in range(len(problem.y)):
        views = []
        for own, view in zip(state.views, problem.data.views, strict=True):
            M, t = view.to_features(own.loadings.mean)[p], own.offset
            V = np.broadcast_to(own.loadings.cov[p], (len(M), *own.loadings.cov.shape[2:]))
            mu = view.to_features(t.mean[p][:, None])[:, 0]
            views.append(
                SimpleNamespace(
                    W=list(zip(M, V, strict=True)),
                    r=gammas(own.loading_precision, p),
                    t=list(zip(mu, np.broadcast_to(t.variance[p], mu.shape), strict=True)),
                    tau=(own.noise_precision.shape[p], own.noise_precision.rate[p]),
                )
            )
        rows = list(zip(z.mean[p], z.cov.dense()[p], strict=True))
        yield Plain(
            X=list(problem.X),
            y=problem.y[p],
            known=problem.known[p],
            C=problem.cost[p, 0, 0],
            epsilon=problem.epsilon,
            priors=problem.priors,
            views=views,
            z=rows,
            eta=list(zip(state.weights.mean[p].T, state.weights.cov[p], strict=True)),
            nu=gammas(state.weight_precision, p),
            s=state.slack[..., p, :, :].copy(),
        )


def gammas(factor, p):
    return list(zip(factor.shape[p], factor.rate[p], strict=True))


def numbers(value):
    """All numbers in nested lists, in order."""
    if isinstance(value, list | tuple):
        return np.concatenate([numbers(each) for each in value])
    return np.ravel(value)


def factors(plain):
    """All numbers of the loop, by factor."""
    found = {"z": plain.z, "eta": plain.eta, "nu": plain.nu, "s": plain.s[..., plain.known]}
    for v, own in enumerate(plain.views):
        found |= {f"{name} {v}": value for name, value in vars(own).items()}
    return {name: numbers(value) for name, value in found.items()}


def assert_close(problem, state, loops):
    """All factors and all terms, to 1e-9 of the largest number of a factor."""
    terms = mf.bound_terms(state, problem.data, problem.priors)
    for p, (found, loop) in enumerate(zip(plain_problems(problem, state), loops, strict=True)):
        expected = factors(loop)
        for name, value in factors(found).items():
            scale = np.abs(expected[name]).max()
            np.testing.assert_allclose(value, expected[name], atol=1e-9 * scale, err_msg=name)
        bound = loop.bound()
        assert terms.keys() == bound.keys()
        for name, value in bound.items():
            assert terms[name][p] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_factors_and_bound_equal_those_of_a_plain_loop(lab, case):
    problem = lab.make_problem(case)
    state = lab.scrambled(problem, np.random.default_rng(1))
    loops = list(plain_problems(problem, state))
    assert_close(problem, state, loops)
    for _ in range(4):
        state = mf.sweep(state, problem.data, problem.priors)
        for loop in loops:
            for name in lab.FACTORS:
                getattr(loop, name)()
        assert_close(problem, state, loops)
