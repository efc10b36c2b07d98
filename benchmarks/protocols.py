"""The splits for all methods: training and test samples.

A protocol is a function of the name of a set, its sizes, and the number of the split.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks import simulated
from benchmarks.datasets import SETS, load

# Roles of seeds: choices (defaults, priors, grids, methods) are made by the first alone, figures
# are of the second.
TUNING_SEEDS, REPORTING_SEEDS = range(200, 212), range(300, 320)
# Of `few_samples`: sets whose features are standardised; others are centred or of unit length.
STANDARDISED = ("mfeat",)
# Limit of test samples, drawn at random.
N_TEST = {"Yale B": 2000, "20 News": 2000}
# Of `first_samples`: sets whose features are standardised for all methods.
UNIT_VARIANCE = ("wine",)
# Samples of a permutation that are reserved for training.
N_FIRST = 100
# Test samples of fits to noise.
N_NOISE_TEST = 600
# Groups of the test of grouped samples.
N_NEW_GROUPS = 60


def seed_range(text: str) -> range:
    """``first:past`` as a range."""
    return range(*map(int, text.split(":")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Features (N, D), perhaps sparse, and labels of 0..K-1, some of which may not occur.

    They are `prepared` if the protocol has scaled the features as in its paper. ``groups`` (N,) are
    subjects or studies, if a method is told of them: new samples are of other ones.
    """

    X: Any
    y: np.ndarray
    n_classes: int
    prepared: bool = False
    groups: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Training and test samples."""

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    prepared: bool = False
    groups: np.ndarray | None = None  # of the training samples

    @property
    def training(self) -> Training:
        """Input of a method; of the test samples only the existence of their classes."""
        return Training(
            X=self.X_train,
            y=self.y_train,
            n_classes=int(max(self.y_train.max(), self.y_test.max())) + 1,
            prepared=self.prepared,
            groups=self.groups,
        )

    def standardised(self) -> "Split":
        """Features of mean zero and variance one over the training samples."""
        scaler = StandardScaler().fit(self.X_train)
        return replace(
            self, X_train=scaler.transform(self.X_train), X_test=scaler.transform(self.X_test)
        )


def _split(X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Split:
    return Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])


def _orders(y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Samples of each class in random order."""
    return [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]


def per_class(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """Draw ``sizes[0]`` samples per class; test on ``sizes[1]`` further ones, or all others."""
    n_train, *n_test = sizes
    X, y = load(name)
    orders = _orders(y, np.random.default_rng(1000 + repeat))
    end = n_train + n_test[0] if n_test else None
    train = np.concatenate([order[:n_train] for order in orders])
    return _split(X, y, train, np.concatenate([order[n_train:end] for order in orders]))


def halves(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """Train on one half of each class, test on the other."""
    X, y = load(name)
    orders = _orders(y, np.random.default_rng(1000 + repeat))
    train = np.concatenate([order[: len(order) // 2] for order in orders])
    return _split(X, y, train, np.concatenate([order[len(order) // 2 :] for order in orders]))


def few_samples(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """The protocol of Du et al. (2015): some samples per class, all others for the test.

    A smaller class gives all its samples.
    """
    X, y = load(name)
    rng = np.random.default_rng(repeat)
    train = np.concatenate([order[: sizes[0]] for order in _orders(y, rng)])
    test = np.setdiff1d(np.arange(len(y)), train)
    if name in N_TEST:
        test = rng.permutation(test)[: N_TEST[name]]
    split = replace(_split(X, y, train, test), prepared=True)
    if name in STANDARDISED:
        return split.standardised()
    if SETS[name].rows != "as they are":
        return split
    mean = split.X_train.mean(axis=0)
    return replace(split, X_train=split.X_train - mean, X_test=split.X_test - mean)


def first_samples(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """The protocol of Urtasun and Darrell (2007): the first samples of a permutation for training.

    All after the first 100 are for the test, for any size. Classes are not balanced.
    """
    X, y = load(name)
    order = np.random.default_rng(repeat).permutation(len(y))
    split = replace(_split(X, y, order[: sizes[0]], order[N_FIRST:]), prepared=True)
    return split.standardised() if name in UNIT_VARIANCE else split


def noise(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """Normal features (N, D) and K independent labels, balanced in training."""
    n_train, n_features, n_classes = sizes
    rng = np.random.default_rng(1000 + repeat)
    X = rng.standard_normal((n_train + N_NOISE_TEST, n_features))
    y_train = rng.permutation(np.arange(n_train) % n_classes)
    y_test = rng.permutation(np.arange(N_NOISE_TEST) % n_classes)
    return Split(X_train=X[:n_train], y_train=y_train, X_test=X[n_train:], y_test=y_test)


def design(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """Simulated samples, `sizes` of them in each class for training and for the test."""
    n_train, n_test = sizes
    X, y = simulated.DESIGNS[name](n_train + n_test, np.random.default_rng(1000 + repeat))
    train = np.concatenate([np.flatnonzero(y == label)[:n_train] for label in np.unique(y)])
    return _split(X, y, train, np.setdiff1d(np.arange(len(y)), train))


def groups_given(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """Simulated samples of some subjects or studies, which methods are told; the test has others.

    `sizes` are the numbers of groups for training and of samples in each.
    """
    n_groups, n_samples = sizes
    rng = np.random.default_rng(1000 + repeat)
    X, y, groups = simulated.GROUPED[name](n_groups + N_NEW_GROUPS, n_samples, rng)
    known = groups < n_groups
    split = _split(X, y, np.flatnonzero(known), np.flatnonzero(~known))
    return replace(split, groups=groups[known])


def groups_unknown(name: str, sizes: tuple[int, ...], repeat: int) -> Split:
    """The same samples, without the groups."""
    return replace(groups_given(name, sizes, repeat), groups=None)


PROTOCOLS: dict[str, Callable[[str, tuple[int, ...], int], Split]] = {
    "per class": per_class,
    "halves": halves,
    "few samples": few_samples,
    "first samples": first_samples,
    "noise": noise,
    "design": design,
    "groups given": groups_given,
    "groups unknown": groups_unknown,
}
