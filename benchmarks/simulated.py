"""Simulated data sets: features of unequal use, and samples that belong to groups.

Classes are normal. A design is a function of the number of samples in each class and a generator;
grouped samples are a function of the number of groups, that of samples in each, and a generator.
"""

from collections.abc import Callable

import numpy as np

N_CLASSES = 4
N_FEATURES = 200
# Means of classes along a strong feature, in standard deviations within classes.
STRONG = 2.0
N_STRONG = 5
# Of the logarithms of the units of features.
UNIT_WIDTH = 1.5
# Common factors within classes, whose loadings are standard normal, and means along each feature.
N_FACTORS = 10
WEAK = 0.5
# Features of growing strength, and the means along the last one.
N_GROWING = 50
GROWING = 1.0
# Grouped samples: features, standard deviations of shifts of a group along each, of the means of
# classes, of how these differ between groups, and of the rest.
N_GROUPED_FEATURES = 50
SHIFT = 1.0
BETWEEN = 0.4
DIFFERENT = 0.3
REST = 0.5

Samples = tuple[np.ndarray, np.ndarray]


def _classes(n_samples: int, means: np.ndarray, rng: np.random.Generator) -> Samples:
    """Samples with variance one about the means (K, D), the classes in turn."""
    y = np.arange(n_samples * len(means)) % len(means)
    return means[y] + rng.standard_normal((len(y), means.shape[1])), y


def few_strong(n_samples: int, rng: np.random.Generator) -> Samples:
    """Five features separate the classes, the others are noise."""
    means = np.zeros((N_CLASSES, N_FEATURES))
    means[:, :N_STRONG] = STRONG * rng.standard_normal((N_CLASSES, N_STRONG))
    return _classes(n_samples, means, rng)


def random_units(n_samples: int, rng: np.random.Generator) -> Samples:
    """The same, each feature in a unit of its own."""
    X, y = few_strong(n_samples, rng)
    return X * np.exp(UNIT_WIDTH * rng.standard_normal(N_FEATURES)), y


def common_factors(n_samples: int, rng: np.random.Generator) -> Samples:
    """All features separate the classes a little, and vary together within them."""
    means = WEAK * rng.standard_normal((N_CLASSES, N_FEATURES))
    X, y = _classes(n_samples, means, rng)
    factors = rng.standard_normal((len(y), N_FACTORS))
    return X + factors @ rng.standard_normal((N_FACTORS, N_FEATURES)), y


def unequal_strengths(n_samples: int, rng: np.random.Generator) -> Samples:
    """Fifty features separate the classes, from hardly to well."""
    means = np.zeros((N_CLASSES, N_FEATURES))
    strength = np.linspace(0.0, GROWING, N_GROWING)
    means[:, :N_GROWING] = strength * rng.standard_normal((N_CLASSES, N_GROWING))
    return _classes(n_samples, means, rng)


DESIGNS: dict[str, Callable[[int, np.random.Generator], Samples]] = {
    "few strong features": few_strong,
    "random units": random_units,
    "common factors": common_factors,
    "unequal strengths": unequal_strengths,
}

Grouped = tuple[np.ndarray, np.ndarray, np.ndarray]


def _shifted(y: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> Grouped:
    """Samples of classes (N,), of groups (N,), which shift them and change their classes' means."""
    size = (int(groups.max()) + 1, int(y.max()) + 1, N_GROUPED_FEATURES)
    means = BETWEEN * rng.standard_normal(size[1:]) + DIFFERENT * rng.standard_normal(size)
    shifts = SHIFT * rng.standard_normal((size[0], N_GROUPED_FEATURES))
    rest = REST * rng.standard_normal((len(y), N_GROUPED_FEATURES))
    return means[groups, y] + shifts[groups] + rest, y, groups


def repeated_measures(n_groups: int, n_samples: int, rng: np.random.Generator) -> Grouped:
    """Subjects of three classes, each measured several times; a subject has one class."""
    groups = np.repeat(np.arange(n_groups), n_samples)
    return _shifted(groups % 3, groups, rng)


def studies(n_groups: int, n_samples: int, rng: np.random.Generator) -> Grouped:
    """Studies, each with samples of two classes."""
    groups = np.repeat(np.arange(n_groups), n_samples)
    y = np.tile(np.arange(n_samples) % 2, n_groups)
    return _shifted(y, groups, rng)


GROUPED: dict[str, Callable[[int, int, np.random.Generator], Grouped]] = {
    "repeated measures": repeated_measures,
    "studies": studies,
}
