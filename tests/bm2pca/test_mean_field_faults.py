"""Each check of the mean field catches faults planted in the code, which passes in test_mean_field.

With a fault are recorded the checks that fail, cheapest last; the others pass all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bsdr_models.bm2pca import mean_field as mf
from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.loss_augmentation import Margins

LOG_2PI = np.log(2.0 * np.pi)
CHECKS = ("monte_carlo", "monotone", "stationary")
ALL, BOUND, CLIMB, BEST = CHECKS, CHECKS[:1], CHECKS[1:], CHECKS[2:]


@dataclass(frozen=True, slots=True)
class Fault:
    """``plant``: an owner, a name in it, and a function from the correct to the faulty object."""

    what: str
    caught: tuple[str, ...]
    plant: tuple[Any, str, Callable]
    case: str = "binary"


def after(owner, name, change):
    """Change what comes out: ``change(result, *arguments)``."""
    return owner, name, lambda sound: lambda *args, **kwargs: change(sound(*args, **kwargs), *args)


def before(owner, name, change):
    """Change what goes in: ``change(*arguments)`` gives the new arguments."""
    return owner, name, lambda sound: lambda *args: sound(*change(*args))


def computed(owner, name, change):
    """Change a property: ``change(value, self)``."""
    return owner, name, lambda sound: property(lambda self: change(sound.fget(self), self))


def term(name, extra):
    """Add ``extra(state, data)`` to a term of the bound."""
    return after(
        mf, "bound_terms", lambda terms, *args: terms | {name: terms[name] + extra(*args[:2])}
    )


def view_term(name, extra):
    """Add ``extra(state of the view, view)`` to a term of the bound of a view."""
    return after(
        views,
        "bound_terms",
        lambda terms, own, moments, view, _: terms | {name: terms[name] + extra(own, view)},
    )


def gamma(owner, name, shape=lambda *_: 0.0, rate=lambda *_: 0.0):
    """Add to the shape and the rate of an update of a Gamma."""
    return after(
        owner,
        name,
        lambda q, *args: replace(q, shape=q.shape + shape(*args), rate=q.rate + rate(*args)),
    )


def uncrossed(second, weights):
    """E[eta eta'] with E[e0] E[eta] in its corner."""
    second = second.copy()
    second[..., 0, 1:] -= weights.cov[..., 0, 1:]
    second[..., 1:, 0] -= weights.cov[..., 1:, 0]
    return second


PRINTED = [
    Fault(
        "square of the mean slack for its mean square",
        ALL,
        before(Margins, "scales", lambda self, mean, variance: (self, mean, 0.0 * variance)),
    ),
    Fault(
        "C (1 + w + C w) for C (1 + C w) in the linear term of a label",
        CLIMB,
        after(Margins, "linear_terms", lambda pull, self, s: pull + self.cost * self.y / s[0]),
    ),
    Fault(
        "shape of nu without the bias",
        CLIMB,
        gamma(mf, "update_weight_precision", shape=lambda *_: -0.5),
    ),
    Fault("E[e0] E[eta] for E[e0 eta]", BEST, computed(mf.Weights, "second", uncrossed)),
]
BOUND_FAULTS = [
    Fault(
        "log 2 pi of the features dropped",
        BOUND,
        view_term("features", lambda own, view: 0.5 * view.n_observed * LOG_2PI),
    ),
    Fault(
        "variance of the offset missing from R, everywhere",
        ALL,
        after(
            views,
            "residual",
            lambda R, own, moments, view: R - view.copies * (own.offset.variance @ view.count),
        ),
    ),
    Fault(
        "S_n missing from Var f, everywhere",
        ALL,
        before(mf, "score_moments", lambda mean, cov, weights: (mean, 0.0 * cov, weights)),
    ),
    Fault(
        "normaliser of the loss dropped",
        BOUND,
        after(
            Margins,
            "bound",
            lambda value, self, *_: (
                value + np.sum(self.observed) * np.log(2.0 * self.epsilon + 1.0 / self.cost)
            ),
        ),
        "regression shared",
    ),
]
UPDATE_FAULTS = [
    Fault(
        "missing values counted in the shape of tau",
        CLIMB,
        gamma(
            views,
            "noise_precision",
            shape=lambda own, moments, view, _: 0.5 * (view.mask.size - view.n_observed),
        ),
        "missing",
    ),
    Fault(
        "second view missing from the precision of z",
        CLIMB,
        after(views, "latent_precision", lambda value, own, view: value * (view.total.size == 6)),
        "views",
    ),
    Fault(
        "unlabelled samples weighted as labelled ones",
        CLIMB,
        after(Margins, "weights", lambda value, self, s: self.cost**2 / s[0]),
        "shared",
    ),
    Fault(
        "sides of the interval swapped",
        CLIMB,
        before(Margins, "linear_terms", lambda self, s: (self, s[::-1])),
        "regression",
    ),
]


def fails(lab, fault, check):
    """Whether a check fails."""
    try:
        getattr(lab, f"check_{check}")(lab.make_problem(fault.case), seed=0)
    except AssertionError:
        return True
    return False


every_fault = pytest.mark.parametrize(
    "fault", [*PRINTED, *BOUND_FAULTS, *UPDATE_FAULTS], ids=lambda fault: fault.what
)


def plant(fault, monkeypatch):
    owner, name, wrap = fault.plant
    monkeypatch.setattr(owner, name, wrap(vars(owner)[name]))


@every_fault
def test_planted_fault_is_caught(lab, fault, monkeypatch):
    """By the last recorded check, which is the cheapest."""
    plant(fault, monkeypatch)
    assert fails(lab, fault, fault.caught[-1])


@pytest.mark.slow
@every_fault
def test_planted_fault_is_caught_by_these_checks_alone(lab, fault, monkeypatch):
    plant(fault, monkeypatch)
    assert tuple(check for check in CHECKS if fails(lab, fault, check)) == fault.caught
