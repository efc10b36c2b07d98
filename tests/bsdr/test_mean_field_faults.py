"""Mutation tests: each check of the mean field catches faults planted in the code.

A fault wraps one function, method or property. ``check`` is the check that must fail:
``monte_carlo`` (the bound is wrong) or ``stationary`` (an update is not the best). ``blind`` are
checks that pass all the same. At the same problems and seeds the code itself passes, in
test_mean_field.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln

from bsdr_models.bsdr.paper import mean_field as mf
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.factors import LOG_2PI, Gamma, NormalRows, RidgeColumns


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``plant``: an owner, a name in it, and a function from the correct to the faulty object."""

    name: str
    plant: tuple[Any, str, Callable]
    check: str
    blind: tuple[str, ...] = ()
    seed: int = 0
    problem: dict = field(default_factory=lambda: {"kind": "entrywise", "target": "multiclass"})


def after(owner, name, change):
    """Change what comes out: ``change(result, *arguments)``."""
    return owner, name, lambda sound: lambda *args, **kwargs: change(sound(*args, **kwargs), *args)


def before(owner, name, change):
    """Change what goes in: ``change(*arguments)`` gives the new arguments."""
    return owner, name, lambda sound: lambda *args, **kwargs: sound(*change(*args), **kwargs)


def term(name, extra):
    """Add ``extra(state, priors)`` to a term of the bound."""
    return after(
        mf,
        "elbo_terms",
        lambda terms, state, data, priors: terms | {name: terms[name] + extra(state, priors)},
    )


def certain(state, name):
    """The state with one factor of no covariance."""
    factor = getattr(state, name)
    return replace(state, **{name: replace(factor, cov=0.0 * factor.cov)})


def other_prior(factor, right, wrong):
    """What a bound gains by the wrong shape and rate of a prior."""
    return factor.expected_log_prior(*wrong) - factor.expected_log_prior(*right)


def bias_of_psi(state, priors):
    psi = state.weight_precision
    return other_prior(
        Gamma(shape=psi.shape[:1], rate=psi.rate[:1]),
        (priors.bias_shape, priors.bias_rate),
        (priors.weight_shape, priors.weight_rate),
    )


def pulled(z, pull):
    """q(Z) with ``pull`` added to its linear term."""
    return replace(z, mean=z.mean + pull @ z.cov)


def precise_latent(z, state, priors):
    """q(Z) with E[w] E[w]' for E[w w'] in its precision."""
    second = mf.second_moment(state.weights) - state.weights.cov
    cov, log_det = mf.latent_cov(second, mf.noise_mean(state), priors)
    return NormalRows(mean=np.linalg.solve(z.cov, z.mean.T).T @ cov, cov=cov, log_det=log_det)


def unlinked(moment):
    """A moment of [1; z] with no entry that links bias and weights."""
    moment = moment.copy()
    moment[0, 1:] = moment[1:, 0] = 0.0
    return moment


FAULTS = [
    # ------------------------------------------------------------------------------ the bound
    Fault(
        name="trace of Cov(Q) dropped",
        plant=term("latent", lambda s, p: 0.5 * s.projection.gram_trace.sum() / p.latent_scale**2),
        check="monte_carlo",
    ),
    Fault(
        name="trace of Cov(z) counted for one sample",
        plant=term(
            "latent",
            lambda s, p: (
                0.5 * (len(s.latent.mean) - 1) * np.trace(s.latent.cov) / p.latent_scale**2
            ),
        ),
        check="monte_carlo",
    ),
    Fault(
        name="N D for N R in the constant",
        plant=term(
            "latent",
            lambda s, p: (
                -0.5
                * (len(s.latent.mean) * len(s.projection.mean) - s.latent.mean.size)
                * (LOG_2PI + 2.0 * np.log(p.latent_scale))
            ),
        ),
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="entropy of Z missing",
        plant=term("latent", lambda s, p: -s.latent.entropy()),
        check="monte_carlo",
    ),
    Fault(
        name="entropy of Phi missing",
        plant=term("projection_precision", lambda s, p: -s.projection_precision.entropy()),
        check="monte_carlo",
    ),
    Fault(
        name="entropy of (b, W) missing",
        plant=term("weights", lambda s, p: -s.weights.entropy()),
        check="monte_carlo",
    ),
    Fault(
        name="scale for rate in the prior of Phi, in the bound",
        plant=term(
            "projection_precision",
            lambda s, p: other_prior(
                s.projection_precision,
                (p.projection_shape, p.projection_rate),
                (p.projection_shape, 1.0 / p.projection_rate),
            ),
        ),
        check="monte_carlo",
    ),
    Fault(
        name="prior of Psi used for lambda, in the bound",
        plant=term("bias_precision", bias_of_psi),
        seed=1,
        check="monte_carlo",
    ),
    Fault(
        name="bias missing from the utilities",
        plant=after(mf, "linear_predictor_mean", lambda eta, state: eta - state.weights.mean[0]),
        check="monte_carlo",
    ),
    Fault(
        name="plain instead of truncated entropy of T",
        plant=term("utilities", lambda s, p: -s.utilities.log_prob),
        check="monte_carlo",
    ),
    Fault(
        name="plain instead of truncated entropy of T, two-sided labels",
        plant=term("utilities", lambda s, p: -s.utilities.log_prob),
        problem={"kind": "rowwise", "target": "multilabel", "size": "wide"},
        check="monte_carlo",
    ),
    Fault(
        name="origin of T taken to be its present mean",
        plant=term(
            "utilities",
            lambda s, p: (
                -np.vdot(s.utilities.mean, mf.linear_predictor_mean(s) - s.utilities.origin)
            ),
        ),
        check="monte_carlo",
    ),
    Fault(
        name="off-diagonal of E[b~ b~'] dropped",
        plant=after(
            mf,
            "expected_square",
            lambda _, state: np.einsum(
                "kpp,pp->k", mf.second_moment(state.weights), mf.latent_moment(state.latent)
            ),
        ),
        check="monte_carlo",
    ),
    Fault(
        name="covariance of the weights dropped from the square of the utilities",
        plant=before(mf, "expected_square", lambda state: (certain(state, "weights"),)),
        check="monte_carlo",
    ),
    Fault(
        name="log 2 pi per output instead of per entry",
        plant=term(
            "utilities",
            lambda s, p: 0.5 * LOG_2PI * (s.utilities.mean.size - s.utilities.mean.shape[1]),
        ),
        problem={"kind": "entrywise", "target": "regression"},
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="variance of Q missing from E[Q**2] everywhere",
        plant=(RidgeColumns, "mean_square", lambda sound: property(lambda self: self.mean**2)),
        seed=1,
        check="monte_carlo",
    ),
    Fault(
        name="Cov(z) of one sample for the sum of all, everywhere",
        plant=after(
            mf,
            "latent_moment",
            lambda moment, latent: (
                moment - (len(latent.mean) - 1) * np.pad(latent.cov, ((1, 0), (1, 0)))
            ),
        ),
        check="monte_carlo",
    ),
    Fault(
        name="sign of log rate in the entropy of a Gamma",
        plant=after(
            Gamma, "entropy", lambda value, self: value + 2.0 * float(np.log(self.rate).sum())
        ),
        check="monte_carlo",
    ),
    Fault(
        name="normaliser of a Gamma prior counted once",
        plant=after(
            Gamma,
            "expected_log_prior",
            lambda value, self, a, b: (
                value - (self.shape.size - 1) * (a * np.log(b) - float(gammaln(a)))
            ),
        ),
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="log determinant of Woodbury without N log v",
        plant=after(
            DenseDesign,
            "ridge",
            lambda q, self, target, precision, variance: replace(
                q, log_det=q.log_det - self.n_samples * np.log(variance)
            ),
        ),
        problem={"kind": "rowwise", "target": "multiclass", "size": "wide"},
        check="monte_carlo",
        blind=("monotone",),
    ),
    # ---------------------------------------------------------------------------- the updates
    Fault(
        name="untruncated T",
        plant=after(mf, "make_utilities", lambda t, origin, data: replace(t, mean=origin)),
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="present labels taken for absent ones",
        plant=before(mf, "make_utilities", lambda origin, data: (origin, replace(data, y=~data.y))),
        problem={"kind": "entrywise", "target": "multilabel"},
        check="monte_carlo",
        blind=("monotone",),
    ),
    Fault(
        name="Cov(b, w) missing from the update of Z",
        plant=after(
            mf,
            "update_latent",
            lambda z, state, _: pulled(
                z, np.einsum("k,kr->r", mf.noise_mean(state), state.weights.cov[:, 1:, 0])
            ),
        ),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="E[w] E[w]' for E[w w'] in the update of Z",
        plant=after(mf, "update_latent", precise_latent),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="latent scale for latent variance in the update of Q",
        plant=before(
            mf,
            "update_projection",
            lambda state, data, p: (state, data, replace(p, latent_scale=p.latent_scale**0.5)),
        ),
        check="stationary",
    ),
    *(
        Fault(
            name=f"ARD shape of one entry for all that share a precision, {kind}",
            plant=after(
                mf,
                "update_projection_precision",
                lambda phi, state, p: replace(
                    phi, shape=np.full_like(phi.shape, p.projection_shape + 0.5)
                ),
            ),
            problem={"kind": kind, "target": "multiclass"},
            check="stationary",
            blind=("monte_carlo",),
        )
        for kind in ("columnwise", "rowwise")
    ),
    Fault(
        name="scale for rate in the update of Phi",
        plant=before(
            mf,
            "update_projection_precision",
            lambda state, p: (state, replace(p, projection_rate=1.0 / p.projection_rate)),
        ),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="variance missing from the update of the weight precisions",
        plant=before(mf, "update_weight_precision", lambda s, p: (certain(s, "weights"), p)),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="shape of the prior of Psi used for lambda, in the update",
        plant=before(
            mf,
            "update_weight_precision",
            lambda state, p: (state, replace(p, bias_shape=p.weight_shape)),
        ),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="sum of z z' without Cov(z) in the update of (b, W)",
        plant=before(mf, "update_weights", lambda state: (certain(state, "latent"),)),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="bias and weights independent in q(b, W)",
        plant=before(mf, "weights_cov", lambda moment, *rest: (unlinked(moment), *rest)),
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="noise shape counts a sample twice",
        plant=before(mf, "noise_gamma", lambda residual, n, p: (residual, 2 * n, p)),
        problem={"kind": "entrywise", "target": "regression"},
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="noise precision missing from the update of Z",
        plant=after(
            mf,
            "update_latent",
            lambda z, s, _: pulled(
                z, (s.utilities.mean * (1.0 - mf.noise_mean(s))) @ s.weights.mean[1:].T
            ),
        ),
        problem={"kind": "entrywise", "target": "regression"},
        check="stationary",
        blind=("monte_carlo",),
    ),
]


def fails(lab, fault, check):
    """Whether a check fails."""
    try:
        getattr(lab, f"check_{check}")(mf, lab.make_problem(**fault.problem), seed=fault.seed)
    except AssertionError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_caught(lab, fault, monkeypatch):
    owner, name, wrap = fault.plant
    monkeypatch.setattr(owner, name, wrap(vars(owner)[name]))
    assert fails(lab, fault, fault.check)
    assert not any(fails(lab, fault, check) for check in fault.blind)
