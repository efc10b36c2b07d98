"""Data of the experiments, and the splits that everybody is measured on."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from sklearn import datasets as bundled

# Sets of scikit-learn, and archives under the folder named by BSDR_MODELS_DATA.
BUNDLED = {
    "wine": bundled.load_wine,
    "iris": bundled.load_iris,
    "breast cancer": bundled.load_breast_cancer,
    "digits": bundled.load_digits,
}
ARCHIVES = {"vowel": "vowel_vj", "mfeat": "mfeat", "usps": "usps"}
# Rows on which a fit to noise is judged.
N_NOISE_TEST = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Rows to learn from and rows to be judged on; features as in the source."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def archive_folder() -> Path | None:
    """Folder of the archives, or None where it is not named or not there."""
    name = os.environ.get("BSDR_MODELS_DATA")
    return Path(name) if name and Path(name).is_dir() else None


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and labels 0..K-1 of a set."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
        return X, y
    folder = archive_folder()
    if folder is None:
        raise FileNotFoundError(f"{name} needs BSDR_MODELS_DATA to name the folder of the archives")
    with np.load(folder / f"{ARCHIVES[name]}.npz") as archive:
        return archive["X"].astype(float), archive["y"]


def per_class(name: str, n_train: int, repeat: int, n_test: int | None = None) -> Split:
    """Draw ``n_train`` rows of each class; test on ``n_test`` further ones, or on all others."""
    X, y = load(name)
    rng = np.random.default_rng(1000 + repeat)
    orders = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    end = None if n_test is None else n_train + n_test
    train = np.concatenate([order[:n_train] for order in orders])
    test = np.concatenate([order[n_train:end] for order in orders])
    return Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])


def halves(name: str, repeat: int) -> Split:
    """Learn from one half of each class, test on the other."""
    X, y = load(name)
    rng = np.random.default_rng(1000 + repeat)
    orders = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    train = np.concatenate([order[: len(order) // 2] for order in orders])
    test = np.concatenate([order[len(order) // 2 :] for order in orders])
    return Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])


def noise(n_train: int, n_features: int, n_classes: int, repeat: int) -> Split:
    """Normal features with labels that have nothing to do with them, balanced in training."""
    rng = np.random.default_rng(1000 + repeat)
    X = rng.standard_normal((n_train + N_NOISE_TEST, n_features))
    y_train = rng.permutation(np.arange(n_train) % n_classes)
    y_test = rng.permutation(np.arange(N_NOISE_TEST) % n_classes)
    return Split(X_train=X[:n_train], y_train=y_train, X_test=X[n_train:], y_test=y_test)
