r"""Predictions of BSDR with group effects, from draws of its posterior.

The effects of a known group are those of the draws. Those of a new one are drawn from their prior,
:math:`u \sim N(0, \sigma_g^2)` in each contrast, with the :math:`\sigma_g` of each draw. Labels
that came after the fit weight the draws by their likelihood, in place of another fit: importance
sampling of the posterior given these labels, whose largest weights are smoothed [1]_.

References
----------
.. [1] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry (2024). Pareto smoothed importance
       sampling. Journal of Machine Learning Research 25(72).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length

from bsdr_models.bsdr.posterior import class_log_probabilities
from bsdr_models.bsdr.problem import (
    label_log_likelihood,
    make_contrasts,
    regression_log_likelihood,
)
from bsdr_models.data.targets import name_groups
from bsdr_models.data.validation import find_classes, read_numbers, sample_labels
from bsdr_models.inference.datatree import read_draws
from bsdr_models.inference.dims import GROUP, LABEL, OBS
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, Target, TargetLike
from bsdr_models.numerics.process_state import warn
from bsdr_models.papers.bsdr.draws import N_DRAWS, standard_normals
from bsdr_models.papers.reading import read_new, take_draws

# Draws of the effect of a new group from which those that predict are chosen by their weights.
N_EFFECTS = 8192
# Largest Pareto k of reliable weights.
PARETO_K = 0.7
# Linear predictors held in memory at once.
_BLOCK = 1 << 21


def predict_groups(
    tree: xr.DataTree,
    X: SamplesLike,
    groups: TargetLike,
    *,
    labelled: tuple[SamplesLike, TargetLike, TargetLike] | None = None,
) -> xr.Dataset:
    """Predictions for samples of known and of new groups.

    Parameters
    ----------
    tree : xarray.DataTree
        From :func:`bsdr_models.from_trace`, of ``bsdr.build_model(X, y, groups=...)``.
    X : array-like of shape (M, D)
        Samples, scaled as those of the fit.
    groups : array-like of shape (M,)
        Group of each sample, named as in the fit; all other groups are new.
    labelled : tuple of (X, y, groups), optional
        Samples (L, D) whose targets became known after the fit, these targets, and their groups.
        They inform predictions of their own group only.

    Returns
    -------
    xarray.Dataset
        ``probability`` (obs, outcome) of the classes, or that each label is one; of real outputs
        ``prediction`` and ``prediction_sd``. ``pareto_k`` (group,) tells whether the labelled
        samples of a group could be used without another fit; NaN for groups that have none.

    Raises
    ------
    ValueError
        If the tree has no group effects, or lengths, features or classes are not those of the fit.

    Warns
    -----
    UserWarning
        If a Pareto k is above 0.7, as with many labelled samples: the model has to be fitted again.

    See Also
    --------
    bsdr_models.bsdr.build_model : the model.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import bsdr, from_trace, predict_groups
    >>> X, y = load_iris(return_X_y=True)
    >>> X = scale(X)
    >>> garden = ["north", "south", "west"] * 50
    >>> with bsdr.build_model(X, y, groups=garden):
    ...     prior = pm.sample_prior_predictive(20, random_seed=0)
    >>> tree = from_trace(prior["prior"].to_dataset(), X, y, bsdr.SPEC)
    >>> predict_groups(tree, X[:2], ["north", "east"])["probability"].shape
    (2, 3)
    """
    draws = GroupDraws.of(tree)
    array = read_new(tree, X)
    names, index = name_groups(groups, X)
    new_X, new_y, new_groups = array[:0], None, np.array([])
    if labelled is not None:
        given, y, their_groups = labelled
        new_X = read_new(tree, given)
        check_consistent_length(new_X, y)
        new_y = draws.read(y)
        their_names, number = name_groups(their_groups, given)
        new_groups = np.array(their_names, dtype=object)[number]
    k = np.full(len(names), np.nan)
    found: dict[str, FloatArray] = {}
    for g, name in enumerate(names):
        here = new_groups == name
        of_draw, effect = draws.effects(name, N_EFFECTS if here.any() else N_DRAWS)
        if here.any():
            assert new_y is not None
            log_weights = draws.log_likelihood(new_X[here], new_y[here], of_draw, effect)
            chosen, k[g] = choose(log_weights)
            of_draw = of_draw[chosen]
            effect = effect[chosen]
        rows = np.flatnonzero(index == g)
        for part in gen_batches(len(rows), max(1, _BLOCK // effect.size)):
            for variable, values in draws.predict(array[rows[part]], of_draw, effect).items():
                every = found.setdefault(variable, np.empty((len(array), len(draws.labels))))
                every[rows[part]] = values
    if (k > PARETO_K).any():
        unreliable = ", ".join(f"{names[g]} ({k[g]:.2f})" for g in np.flatnonzero(k > PARETO_K))
        warn(
            f"Pareto k above {PARETO_K} of the group {unreliable}: the draws do not have what its "
            "labelled samples tell; fit the model again with them"
        )
    return xr.Dataset(
        {**{name: ((OBS, LABEL), each) for name, each in found.items()}, "pareto_k": (GROUP, k)},
        coords={
            LABEL: draws.labels,
            GROUP: names,
            **({} if (samples := sample_labels(X)) is None else {OBS: samples}),
        },
    )


def choose(log_weights: FloatArray) -> tuple[IntArray, float]:
    """Indices of draws by their smoothed weights, each as often as its weight says, and Pareto k.

    The points of systematic resampling are at the centres of their intervals.
    """
    from arviz_stats.base import array_stats

    try:
        smoothed, k = array_stats.psislw(-log_weights)  # as of leave-one-out
    except ValueError:  # of equal largest weights, those of draws that are certain of the labels
        smoothed, k = log_weights, -np.inf
    share = np.cumsum(np.exp(smoothed - smoothed.max()))
    at = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
    return np.searchsorted(share / share[-1], at), float(k)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDraws:
    """S draws of BSDR with group effects."""

    # coef (S, D, K), bias (S, K), group_scale (S,), group_effect (S, G, K); of real outputs
    # noise_scale (S, K)
    draws: Mapping[str, FloatArray]
    groups: list[object]
    labels: np.ndarray  # of the classes or outputs, (K,)
    target: Target
    lapse: float

    @classmethod
    def of(cls, tree: xr.DataTree) -> Self:
        """At most `N_DRAWS` draws of a tree."""
        drawn = read_draws(tree, "posterior")
        if "target" not in tree.attrs:
            raise ValueError("the tree is no tree of a fit: from_trace makes one of a trace")
        if "group_effect" not in drawn:
            raise ValueError("the tree has no group effects: give groups= to bsdr.build_model")
        names = ["coef", "bias", "group_scale", "group_effect"]
        if tree.attrs["target"] == "regression":
            names.append("noise_scale")
        return cls(
            draws=take_draws(tree, names, N_DRAWS),
            groups=drawn[GROUP].values.tolist(),
            labels=drawn[LABEL].values,
            target=tree.attrs["target"],
            lapse=tree.attrs.get("lapse", 0.0),
        )

    def read(self, y: TargetLike) -> np.ndarray:
        """Targets as in the likelihood: class indices (L,), zeros and ones or real (L, K)."""
        if self.target == "multiclass":
            values = np.asarray(y)
            index = find_classes(values, self.labels)
            if unknown := sorted({*values[index < 0].tolist()}):
                raise ValueError(f"y has classes that the fit does not know: {unknown}")
            return index
        numbers = read_numbers(y).reshape(len(np.asarray(y)), -1)
        if numbers.shape[1] != len(self.labels):
            raise ValueError(f"y has {numbers.shape[1]} outcomes, the tree has {len(self.labels)}")
        if self.target == "multilabel" and not np.isin(numbers, (0, 1)).all():
            raise ValueError("y must hold 0 and 1 only")
        return numbers

    def effects(self, group: object, at_least: int) -> tuple[IntArray, FloatArray]:
        """Draws of the effect of a group, (T, K), and that of the parameters with each, (T,).

        Effects of a new group are quasi-random, in random order, so that any part of them is fair.
        """
        scale = self.draws["group_scale"]
        if group in self.groups:
            effect = self.draws["group_effect"][:, self.groups.index(group)]
            return np.arange(len(scale)), effect
        of_draw = np.repeat(np.arange(len(scale)), -(-at_least // len(scale)))
        contrasts = make_contrasts(len(self.labels), self.target)
        normal = standard_normals(len(of_draw), len(contrasts))
        normal = np.random.default_rng(0).permutation(normal)
        return of_draw, scale[of_draw, None] * normal @ contrasts

    def linear_predictor(self, X: FloatArray, of_draw: IntArray, effect: FloatArray) -> FloatArray:
        """That of samples (M, D) of one group by draw, (T, M, K)."""
        each = X @ self.draws["coef"] + self.draws["bias"][:, None]
        return each[of_draw] + effect[:, None]

    def log_likelihood(
        self, X: FloatArray, y: np.ndarray, of_draw: IntArray, effect: FloatArray
    ) -> FloatArray:
        """Log likelihood of labelled samples of one group under each draw, (T,)."""
        eta = self.linear_predictor(X, of_draw, effect)
        if self.target == "regression":
            each = regression_log_likelihood(eta, y, self.draws["noise_scale"][of_draw])
        else:
            each = label_log_likelihood(eta, y, self.target, self.lapse)[0]
        return each.sum(axis=1)

    def predict(
        self, X: FloatArray, of_draw: IntArray, effect: FloatArray
    ) -> dict[str, FloatArray]:
        """Predictions by name, (M, K), for samples (M, D) of one group."""
        eta = self.linear_predictor(X, of_draw, effect)
        if self.target != "regression":
            log_p = class_log_probabilities(np.swapaxes(eta, 0, 1), self.target, self.lapse)
            return {"probability": np.exp(log_p)}
        noise = np.mean(self.draws["noise_scale"][of_draw] ** 2, axis=0)
        sd = np.sqrt(eta.var(axis=0) + noise)
        return {"prediction": eta.mean(axis=0), "prediction_sd": sd}
