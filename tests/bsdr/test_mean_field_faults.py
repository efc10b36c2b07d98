"""Each check of the mean field catches faults planted in the code, which passes in test_mean_field.

``check`` is the check that must fail, ``blind`` are checks that pass all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.papers.bsdr import mean_field as mf


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
    gain = factor.negative_divergence(*wrong) - factor.negative_divergence(*right)
    return gain.sum()


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


FAULTS = [
    # ------------------------------------------------------------------------------ the bound
    Fault(
        name="trace of Cov(Q) dropped",
        plant=term("latent", lambda s, p: 0.5 * s.projection.gram_trace.sum() / p.latent_scale**2),
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
        name="prior of Psi used for lambda, in the bound",
        plant=term("bias_precision", bias_of_psi),
        seed=1,
        check="monte_carlo",
    ),
    Fault(
        name="log determinant of Woodbury without N log v",
        plant=after(
            DenseDesign,
            "ridge",
            lambda q, self, target, precision, variance: replace(
                q, log_det=q.log_det - len(self.X) * np.log(variance)
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
        name="E[w] E[w]' for E[w w'] in the update of Z",
        plant=before(mf, "update_latent", lambda state, p: (certain(state, "weights"), p)),
        check="stationary",
        blind=("monte_carlo",),
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
