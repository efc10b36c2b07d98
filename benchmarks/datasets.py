"""Data of the experiments, and the splits that everybody is measured on."""

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler

# Sets of scikit-learn, and archives under the folder named by BSDR_MODELS_DATA.
BUNDLED = {
    "wine": bundled.load_wine,
    "iris": bundled.load_iris,
    "breast cancer": bundled.load_breast_cancer,
    "digits": bundled.load_digits,
}
ARCHIVES = {"vowel": "vowel_vj", "mfeat": "mfeat", "usps": "usps", "oil": "oil_flow"}
# Archives by the names of the experiments of Du et al. (2015), and sets that they did not use.
FEW_ROWS = {
    "ORL": "orl_32x32",
    "Yale": "yale_64x64",
    "Yale B": "yaleb_32x32",
    "11_Tumors": "tumors11",
    "20 News": "newsgroups20_counts",
    "Yale 32x32": "yale_32x32",
    "9_Tumors": "tumors9",
    "mfeat": "mfeat",
    "USPS": "usps",
}
# Sets whose rows have unit length; the others are centred, and one standardised.
UNIT_ROWS, STANDARDISED = ("ORL", "20 News"), ("mfeat",)
# Test rows where there are many, drawn at random.
N_TEST = {"Yale B": 2000, "20 News": 2000}
# Rows on which a fit to noise is judged.
N_NOISE_TEST = 600
# Of `first_rows`: two digits of USPS, and sets whose rows are standardised for all methods.
TWO_DIGITS = (3, 5)
UNIT_VARIANCE = ("wine", "oil, unit variance")
# Rows of a permutation that are kept for training.
N_FIRST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Rows to learn from and rows to be judged on; features as in the source."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def standardised(self) -> "Split":
        """Features of mean zero and variance one over the training rows."""
        scaler = StandardScaler().fit(self.X_train)
        return replace(
            self, X_train=scaler.transform(self.X_train), X_test=scaler.transform(self.X_test)
        )


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
    with _archive(ARCHIVES[name]) as archive:
        return archive["X"].astype(float), archive["y"]


def _archive(name: str):
    folder = archive_folder()
    if folder is None:
        raise FileNotFoundError(f"{name} needs BSDR_MODELS_DATA to name the folder of the archives")
    return np.load(folder / f"{name}.npz")


@cache
def load_few_rows(name: str):
    """The same for the sets of `few_rows`; tf-idf of all documents for the counts of words."""
    with _archive(FEW_ROWS[name]) as archive:
        if "data" in archive:
            parts = archive["data"].astype(float), archive["indices"], archive["indptr"]
            counts = sparse.csr_array(parts, shape=tuple(archive["shape"]))
            return sparse.csr_array(TfidfTransformer().fit_transform(counts)), archive["y"]
        X, y = archive["X"].astype(float), archive["y"]
    return (X / np.linalg.norm(X, axis=1, keepdims=True) if name in UNIT_ROWS else X), y


def few_rows(name: str, n_train: int, repeat: int) -> Split:
    """The protocol of Du et al. (2015): ``n_train`` rows of each class, all others for the test.

    A class of fewer rows gives what it has.
    """
    X, y = load_few_rows(name)
    rng = np.random.default_rng(repeat)
    orders = [rng.permutation(np.flatnonzero(y == label))[:n_train] for label in np.unique(y)]
    train = np.concatenate(orders)
    test = np.setdiff1d(np.arange(len(y)), train)
    if name in N_TEST:
        test = rng.permutation(test)[: N_TEST[name]]
    split = Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])
    if name in STANDARDISED:
        return split.standardised()
    if name in UNIT_ROWS:
        return split
    mean = split.X_train.mean(axis=0)
    return replace(split, X_train=split.X_train - mean, X_test=split.X_test - mean)


def per_class(name: str, n_train: int, repeat: int, n_test: int | None = None) -> Split:
    """Draw ``n_train`` rows of each class; test on ``n_test`` further ones, or on all others."""
    X, y = load(name)
    rng = np.random.default_rng(1000 + repeat)
    orders = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    end = None if n_test is None else n_train + n_test
    train = np.concatenate([order[:n_train] for order in orders])
    test = np.concatenate([order[n_train:end] for order in orders])
    return Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])


@cache
def load_first_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels 0..K-1 of a set of `first_rows`."""
    if name != "USPS 3 v 5":
        return load(name.partition(",")[0])
    X, y = load("usps")
    kept = np.isin(y, TWO_DIGITS)
    return X[kept], np.searchsorted(TWO_DIGITS, y[kept])


def first_rows(name: str, n_train: int, repeat: int) -> Split:
    """The protocol of Urtasun and Darrell (2007): the first rows of a permutation for training.

    All after the first 100 are for the test, whatever ``n_train``. Classes come as they come.
    """
    X, y = load_first_rows(name)
    order = np.random.default_rng(repeat).permutation(len(y))
    train, test = order[:n_train], order[N_FIRST:]
    split = Split(X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test])
    return split.standardised() if name in UNIT_VARIANCE else split


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
