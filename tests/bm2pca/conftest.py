"""Toy problems for BM2PCA, an independent joint density, and the three checks of a mean field.

Nothing here uses the algebra of the package: the joint is written with SciPy densities over all
features, samples and slack scales, whatever the data format of the package. The fixture ``lab``
has all of this.
"""

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from bsdr_models import BM2PCAClassifier
from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.views import Loadings, Offset, ViewState
from bsdr_models.papers import PaperBM2PCAClassifier
from bsdr_models.papers.bm2pca import mean_field as mf
from bsdr_models.papers.bm2pca.loss_augmentation import Margins
from bsdr_models.papers.factors import NormalColumns
from tests import mean_field_lab as shared

# No two hyper-parameters agree, and none is its own inverse.
PRIORS = BM2PCAPriors(
    loading_shape=2.5,
    loading_rate=0.7,
    noise_shape=1.7,
    noise_rate=2.9,
    weight_shape=1.6,
    weight_rate=2.2,
    offset_precision=0.6,
)
# R, with R + 1, the rows, features and outcomes (5) all different.
N_COMPONENTS = 3
CASES = {
    "binary": {},
    "shared": {"outcomes": 5, "blank": 0.3},
    "regression": {"regression": True},
    "regression shared": {"regression": True, "outcomes": 5, "blank": 0.3},
    "missing": {"missing": 0.3},
    "missing shared": {"outcomes": 5, "blank": 0.3, "missing": 0.3},
    "views": {"features": (6, 8)},
    "views with missing": {"features": (6, 8), "missing": 0.3},
    "wide": {"features": (13,), "rows": 7},
}
VIEW_FACTORS = ("loadings", "loading_precision", "offset", "noise_precision")
FACTORS = (*VIEW_FACTORS, "latent", "weights", "weight_precision", "slack")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Samples for the joint density, and as the package holds them in ``data``.

    ``X``: samples of each view over all features, NaN if missing. ``y``: targets (N, K), 0
    without one. ``known``: mask of the targets.
    """

    X: tuple[np.ndarray, ...]
    y: np.ndarray
    known: np.ndarray
    cost: float
    epsilon: float | None
    n_components: int
    data: mf.ViewData
    priors: BM2PCAPriors

    def bound(self, state):
        return sum(mf.bound_terms(state, self.data, self.priors).values())


def make_problem(case="binary", *, priors=PRIORS, seed=0, n_components=N_COMPONENTS, cost=0.8):
    """Random samples, targets of both signs, missing values in the last view only."""
    spec = {
        "outcomes": 1,
        "blank": 0.0,
        "regression": False,
        "missing": 0.0,
        "features": (6,),
        "rows": 9,
    } | CASES[case]
    rng = np.random.default_rng([17, seed])
    n = spec["rows"]
    X = [rng.standard_normal((n, d)) + rng.standard_normal(d) for d in spec["features"]]
    if spec["missing"]:
        X[-1][rng.random(X[-1].shape) < spec["missing"]] = np.nan
    shape = (n, spec["outcomes"])
    known = rng.random(shape) >= spec["blank"]
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    y = known * rng.permuted(np.broadcast_to(signs, shape[::-1]), axis=1).T
    epsilon = None
    if spec["regression"]:
        epsilon = 0.4
        y = known * (1.5 * rng.standard_normal(shape) + 0.5)
    margins = Margins(y=y, observed=known, cost=cost, epsilon=epsilon)
    held = tuple(views.make_view(x) for x in X)
    return Problem(
        X=tuple(X),
        y=y,
        known=known,
        cost=cost,
        epsilon=epsilon,
        n_components=n_components,
        data=mf.ViewData(X=np.hstack(X), views=held, margins=margins),
        priors=priors,
    )


# --------------------------------------------------------------------------------- the joint


def log_joint(problem, draws):
    """Log density of data, targets and all unknowns, (S,), from the definition of the model."""
    p, Z, eta, lam = problem.priors, draws["latent"], draws["weights"], draws["slack"]
    nu = draws["weight_precision"]
    size = len(Z)

    def normal(x, mean, precision):
        return stats.norm.logpdf(x, mean, np.asarray(precision) ** -0.5)

    parts = [
        normal(Z, 0.0, 1.0),
        shared.log_gamma(nu, p.weight_shape, p.weight_rate),
        normal(eta, 0.0, nu[:, None]),
    ]
    for X, own in zip(problem.X, draws["views"], strict=True):
        W, r, t, tau = (own[name] for name in VIEW_FACTORS)
        seen = ~np.isnan(X)
        fitted = Z @ W.swapaxes(1, 2) + t[:, None]
        parts += [
            shared.log_gamma(r, p.loading_shape, p.loading_rate),
            normal(W, 0.0, r[:, None]),
            normal(t, 0.0, p.offset_precision),
            shared.log_gamma(tau, p.noise_shape, p.noise_rate),
            normal(X[seen], fitted[..., seen], tau[:, None]),
        ]
    y, C = problem.y, problem.cost
    f = Z @ eta[:, 1:] + eta[:, :1]  # (S, N, K)
    if problem.epsilon is None:
        u = C * (1.0 - y * f)[:, None]
    else:
        u = np.stack([C * (y - f - problem.epsilon), C * (f - y - problem.epsilon)], axis=1)
        constant = np.broadcast_to(np.log(2.0 * problem.epsilon + 1.0 / C), y.shape)
        parts.append(np.full(size, -constant[problem.known].sum()))
    # exp(-2 max(0, u)) is the integral of N(u; -lambda, lambda) over lambda.
    parts.append(stats.norm.logpdf(u, -lam, np.sqrt(lam))[..., problem.known])
    return sum(part.reshape(size, -1).sum(axis=1) for part in parts)


def draw_q(problem, state, *, size, rng):
    """Draws of every factor over all features and samples, and their log density under q, (S,)."""
    q, found = shared.Draws(size, rng), {"views": []}
    for own, view in zip(state.views, problem.data.views, strict=True):
        t = own.offset
        found["views"].append(
            {
                "loadings": q.normals(view.to_features(own.loadings.mean), own.loadings.cov),
                "loading_precision": q.gamma(own.loading_precision),
                "offset": q.normals(view.to_features(t.mean)[:, None], t.variance[:, None, None])[
                    ..., 0
                ],
                "noise_precision": q.gamma(own.noise_precision),
            }
        )
    found["latent"] = q.normals(state.latent.mean, state.latent.cov)
    eta = q.normals(state.weights.mean.T, state.weights.cov)
    found["weights"] = eta.swapaxes(1, 2)
    found["weight_precision"] = q.gamma(state.weight_precision)
    # GIG(1/2, 1, s**2) is the law of 1 / v for an inverse Gaussian v of mean 1 / s and shape 1.
    v = rng.wald(1.0 / state.slack, 1.0, size=(size, *state.slack.shape))
    found["slack"] = 1.0 / v
    each = stats.invgauss.logpdf(v, 1.0 / state.slack) + 2.0 * np.log(v)
    q.add(each[..., problem.known])
    return found, q.log_q


# --------------------------------------------------------------------------------- the states


def updates(problem):
    """Factor by name -> its single update, state -> state."""
    data, priors = problem.data, problem.priors

    def by_view(name, update):
        return lambda s: replace(
            s,
            views=tuple(
                replace(q, **{name: update(q, z, view)})
                for q, z, view in zip(s.views, s.latent.moments, data.views, strict=True)
            ),
        )

    return {
        "loadings": by_view("loadings", lambda q, z, view: views.loadings(q, z, view)),
        "loading_precision": by_view(
            "loading_precision", lambda q, _, view: views.loading_precision(q, view, priors)
        ),
        "offset": by_view("offset", lambda q, z, view: views.offset(q, z, view, priors)),
        "noise_precision": by_view(
            "noise_precision", lambda q, z, view: views.noise_precision(q, z, view, priors)
        ),
        "latent": lambda s: replace(s, latent=mf.update_latent(s, data)),
        "weights": lambda s: replace(s, weights=mf.update_weights(s, data)),
        "weight_precision": lambda s: replace(
            s, weight_precision=mf.update_weight_precision(s, priors)
        ),
        "slack": lambda s: replace(s, slack=mf.update_slack(s, data)),
    }


def updated(problem, state, *names):
    for name in names:
        state = updates(problem)[name](state)
    return state


def scrambled(problem, rng):
    """A state of independent random factors."""
    (n, k), r = problem.y.shape, problem.n_components
    own = []
    for view in problem.data.views:
        d, j = view.total.size, view.count.size
        cov = shared.random_covs(rng, j, r)
        own.append(
            ViewState(
                loadings=Loadings(
                    mean=0.5 * rng.standard_normal((d, r)),
                    cov=cov,
                    log_det=shared.log_dets(cov),
                    copies=view.copies,
                ),
                loading_precision=shared.random_gammas(rng, r),
                offset=Offset(mean=rng.standard_normal(d), variance=rng.uniform(0.1, 0.5, j)),
                noise_precision=shared.random_gammas(rng),
            )
        )
    mean = rng.standard_normal((n, r))
    cov = shared.random_covs(rng, k, 1 + r)
    z_cov = shared.random_covs(rng, n, r)
    return mf.FactorState(
        views=tuple(own),
        latent=mf.make_latent(mean, z_cov, shared.log_dets(z_cov), problem.data),
        weights=NormalColumns(
            mean=rng.standard_normal((1 + r, k)), cov=cov, log_det=shared.log_dets(cov)
        ),
        weight_precision=shared.random_gammas(rng, k),
        slack=rng.uniform(0.5, 3.0, (1 if problem.epsilon is None else 2, n, k)),
    )


def unfinished(problem, rng):
    """A state in the middle of a fit: every factor updated twice, in no order."""
    return updated(problem, scrambled(problem, rng), *rng.permutation(2 * FACTORS))


# --------------------------------------------------------------------------------- the checks


def check_monte_carlo(problem, *, seed, max_error=0.1, size=4_000):
    rng = np.random.default_rng([23, seed])
    state = unfinished(problem, rng)

    def draw():
        draws, log_q = draw_q(problem, state, size=size, rng=rng)
        return log_joint(problem, draws) - log_q

    shared.check_monte_carlo(problem.bound(state), draw, max_error=max_error)


def check_monotone(problem, *, seed, n_updates=40, initial=False):
    """No single update lowers the bound, in any order, from any state."""
    rng = np.random.default_rng([29, seed])
    state = scrambled(problem, rng)
    if initial:
        state = mf.init(problem.data, problem.priors, n_components=problem.n_components, rng=rng)
    names = rng.choice(FACTORS, n_updates)
    shared.check_monotone(problem.bound, state, partial(updated, problem), names)


def check_stationary(problem, *, seed, n_directions=4):
    """In some random directions."""
    rng = np.random.default_rng([31, seed])
    state = unfinished(problem, rng)

    def directions(_, shape):
        return rng.standard_normal((n_directions, *shape))

    for name in FACTORS:
        best = updated(problem, state, name)
        moved = moves_of(problem, best, name)
        shared.check_stationary(name, problem.bound, best, moved, directions)


def moves_of(problem, state, name):
    """Parameters of one factor: name, shape, and the state with that parameter moved by a step."""
    data, z = problem.data, state.latent
    if name == "slack":
        s = state.slack
        yield "scale", s.shape, lambda step: replace(state, slack=s * (1.0 + step))
    elif name == "latent":

        def latent(mean=z.mean, cov=z.cov):
            return replace(state, latent=mf.make_latent(mean, cov, shared.log_dets(cov), data))

        yield "mean", z.mean.shape, lambda step: latent(mean=z.mean + step)
        yield "cov", z.cov.shape, lambda step: latent(cov=shared.stretched(z.cov, step))
    elif name in VIEW_FACTORS:
        for v, own in enumerate(state.views):
            for what, shape, move in shared.moves(getattr(own, name)):

                def whole(step, v=v, own=own, move=move):
                    new = replace(own, **{name: move(step)})
                    return replace(state, views=(*state.views[:v], new, *state.views[v + 1 :]))

                yield f"{what} of view {v}", shape, whole
    else:
        for what, shape, move in shared.moves(getattr(state, name)):
            yield what, shape, lambda step, move=move: replace(state, **{name: move(step)})


@pytest.fixture(scope="session")
def lab():
    """Everything above by name."""
    names = {k: v for k, v in globals().items() if callable(v)}
    return SimpleNamespace(**names, PRIORS=PRIORS, CASES=CASES, FACTORS=FACTORS)


@pytest.fixture(params=CASES)
def case(request):
    """Every kind of problem in turn."""
    return request.param


# ---------------------------------------------------------------------------------- estimators


@pytest.fixture(scope="session")
def make_form():
    """Classifiers by form, with one candidate setting, and uncalibrated unless said otherwise."""

    def make(form, **more):
        fixed = {"loss__C": 10.0, "loss__calibrate": False, "random_state": 0}
        if form == "default":
            return BM2PCAClassifier().set_params(**fixed | more)
        return PaperBM2PCAClassifier(random_state=0).set_params(**more)

    return make
