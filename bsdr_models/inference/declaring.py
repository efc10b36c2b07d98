"""What PyMC models share: priors given by name, initial values, and the probit of a sign."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from bsdr_models.data.validation import column_names, known_entries, read_labels, read_numbers
from bsdr_models.numerics.arrays import DeclaredTarget, TargetLike
from bsdr_models.options import check_parameters

# A symbolic variable; the annotations of PyTensor are partial.
type Tensor = Any
# Declares the variable of a name with dims, as ``functools.partial(pm.Laplace, mu=0, b=1)`` does.
type Declaration = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPriors:
    """Declares variables of a model, by priors that are given for their names or by its own."""

    given: Mapping[str, Declaration] = field(default_factory=dict)
    replaceable: list[str] = field(default_factory=list)  # names of the variables declared so far

    def declare(
        self, kind: Declaration, name: str, *parameters: Any, dims: Any = (), **options: Any
    ) -> Tensor:
        """The variable of a name with dims, of the class ``kind`` unless a prior is given."""
        dims = (dims,) if isinstance(dims, str) else tuple(dims)
        if self.given:
            self.replaceable.append(name)
        if name not in self.given:
            return kind(name, *parameters, dims=dims, **options)
        variable = self.given[name](name, dims=dims)
        if getattr(variable, "ndim", None) != len(dims):
            raise ValueError(f"the prior of {name!r} must have the dims {dims}, got {variable!r}")
        return variable

    def check(self, **reasons: str) -> None:
        """Raise a ValueError, with the reason if there is one, if a given prior was not used."""
        for name in self.given:
            if name not in self.replaceable:
                reason = reasons.get(name, f"replaceable are {', '.join(self.replaceable)}")
                raise ValueError(f"priors cannot replace {name!r} in this model: {reason}")


NO_PRIORS = OwnPriors()


def read_priors[P](priors: Any, default: P) -> tuple[P, OwnPriors]:
    """Numbers and own priors from those numbers, a dictionary of some of both, or None.

    The default numbers are None for a model without any.
    """
    if priors is None or isinstance(priors, type(default)):
        return priors or default, NO_PRIORS
    if not isinstance(priors, Mapping):
        allowed = "a dict" if default is None else f"a {type(default).__name__} or a dict"
        raise ValueError(f"priors must be {allowed}, got {type(priors).__name__}")
    given = {}
    for name, prior in priors.items():
        if callable(prior):
            given[name] = prior
        elif hasattr(prior, "create_variable"):
            given[name] = lambda name, dims, prior=prior: prior.create_variable(name)
    numbers = {name: value for name, value in priors.items() if name not in given}
    known = [] if default is None else [each.name for each in fields(default)]  # type: ignore[arg-type]
    for name in numbers:
        if name not in known:
            raise ValueError(
                f"priors has {name!r}, which is no number of {known}; a prior is a function of "
                "name and dims, such as functools.partial(pm.Laplace, mu=0, b=1), or a Prior of "
                "pymc-extras with dims"
            )
    if numbers:
        default = replace(default, **numbers)  # type: ignore[type-var]
    return default, OwnPriors(given=given)


def named_model(name: str, coords: Mapping[str, Any]) -> pm.Model:
    """Model whose variables have a prefix; ValueError unless that is text."""
    check_parameters({"name": [str]}, {"name": name}, "build_model")
    return pm.Model(name, coords=coords)


def declare_constant(name: str, value: ArrayLike, dims: Sequence[str] = ()) -> Tensor:
    """Data of the model in context that traces hold, as a constant: ``pm.set_data`` refuses it."""
    model = pm.modelcontext(None)
    constant = pt.constant(value, name=model.name_for(name))
    model.register_data_var(constant, dims=tuple(dims) or None)
    return constant


def starting_at(start: ArrayLike, kind: Any = pm.Normal) -> Declaration:
    """A distribution of PyMC whose variables have the initial value ``start`` in place of the mean.

    A model with ``initval=`` cannot be copied, as ``pm.do`` and ``pm.observe`` do.
    """

    def declare(name: str, *, dims: Any, **parameters: Any) -> Tensor:
        # PyTensor would take a Python float in single precision.
        given = [np.float64(x) if isinstance(x, float) else x for x in parameters.values()]
        return pm.CustomDist(
            name,
            *given,
            dist=lambda *x: kind.dist(**dict(zip((*parameters, "size"), x, strict=True))),
            support_point=lambda variable, *_: pt.constant(start, dtype=variable.dtype),
            class_name=kind.__name__,
            dims=dims,
        )

    return declare


def draw_sign(eta: Tensor, size: Any) -> Tensor:
    """Whether the utility N(eta, 1) is positive, of the shape of eta."""
    return pt.gt(eta + pm.Normal.dist(0.0, 1.0, shape=eta.shape), 0.0).astype("int64")


def log_sign_probability(y: Tensor, eta: Tensor) -> Tensor:
    """Log probability that the utility N(eta, 1) is positive iff y is 1, of the shape of eta."""
    return log_phi(pt.switch(pt.gt(y, 0), eta, -eta))


def log_phi(x: Tensor) -> Tensor:
    """Log of the standard normal distribution function, with finite gradients in both tails.

    Both branches get finite arguments, since the gradient of a ``switch`` multiplies the branch not
    taken by zero.
    """
    left = pt.minimum(x, -1.0)
    right = pt.maximum(x, -1.0)
    return pt.switch(
        x < -1.0,
        pt.log(pt.erfcx(-left / math.sqrt(2.0)) / 2.0) - 0.5 * left**2,
        pt.log1p(-pt.erfc(right / math.sqrt(2.0)) / 2.0),
    )


def read_declared(
    y: TargetLike,
    target: DeclaredTarget,
    *,
    n_samples: int,
    unlabeled: object = None,
    missing: bool = False,
) -> tuple[np.ndarray, list[Any]]:
    """Targets of a model, and the names of their classes, labels or outputs.

    They are class indices (N,), or zeros and ones of labels (N, K), -1 where y is ``unlabeled``; or
    real outputs (N, K), which may be NaN if ``missing``.
    """
    if target not in get_args(DeclaredTarget):
        raise ValueError(f"target must be one of {get_args(DeclaredTarget)}, got {target!r}")
    if np.shape(y)[:1] != (n_samples,):
        raise ValueError(f"X has {n_samples} samples and y has shape {np.shape(y)}")
    if target == "regression":
        outputs = read_numbers(y, missing=missing).reshape(n_samples, -1)
        return outputs, column_names(y, "y", outputs.shape[1])
    given, known = known_entries(y, unlabeled)
    if (given.ndim == 2) != (target == "multilabel"):
        raise ValueError(
            "y must be a vector (N,) of classes, or a matrix (N, K) of zeros and ones with "
            f"target='multilabel', got shape {given.shape} for target={target!r}"
        )
    if target == "multilabel":
        if not np.isin(given[known], (0, 1)).all():
            raise ValueError("y must hold 0 and 1 only for target='multilabel'")
        labels = np.full(given.shape, -1, dtype=np.int64)
        labels[known] = given[known]
        return labels, column_names(y, "y", labels.shape[1])
    names, index = np.unique(read_labels(given[known]), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"y must hold at least two classes, got {names.tolist()}")
    classes = np.full(n_samples, -1, dtype=np.int64)
    classes[known] = index
    if target == "binary" and len(names) != 2:
        raise ValueError(f"target='binary' needs two classes, got {len(names)}")
    return classes, names.tolist()
