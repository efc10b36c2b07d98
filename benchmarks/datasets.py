"""The data sets of the experiments, by their names in the tables."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn import datasets as bundled
from sklearn.feature_extraction.text import TfidfTransformer


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A function of scikit-learn or an archive in the folder that BSDR_MODELS_DATA names.

    `rows` is the transformation of each sample; of some `classes` only these are kept.
    """

    bundled: Callable[..., Any] | None = None
    archive: str = ""
    rows: Literal["as they are", "unit length", "tf-idf"] = "as they are"
    classes: tuple[int, ...] = ()


SETS = {
    "wine": DataSet(bundled=bundled.load_wine),
    "iris": DataSet(bundled=bundled.load_iris),
    "breast cancer": DataSet(bundled=bundled.load_breast_cancer),
    "digits": DataSet(bundled=bundled.load_digits),
    # Gönen (2013)
    "vowel": DataSet(archive="vowel_vj"),
    "mfeat": DataSet(archive="mfeat"),
    "usps": DataSet(archive="usps"),
    # Du et al. (2015), by their names, and sets that they did not use
    "ORL": DataSet(archive="orl_32x32", rows="unit length"),
    "Yale": DataSet(archive="yale_64x64"),
    "Yale B": DataSet(archive="yaleb_32x32"),
    "11_Tumors": DataSet(archive="tumors11"),
    "20 News": DataSet(archive="newsgroups20_counts", rows="tf-idf"),
    "Yale 32x32": DataSet(archive="yale_32x32"),
    # Urtasun and Darrell (2007)
    "oil": DataSet(archive="oil_flow"),
    "USPS 3 v 5": DataSet(archive="usps", classes=(3, 5)),
}


def archive_folder() -> Path | None:
    """Folder of the archives, or None if it is not set or does not exist."""
    name = os.environ.get("BSDR_MODELS_DATA")
    return Path(name) if name and Path(name).is_dir() else None


def why_not(name: str) -> str:
    """Reason for which a set cannot be read here; empty if it can."""
    found = SETS.get(name, DataSet())
    folder = archive_folder()
    if found.archive and (folder is None or not _file(name).exists()):
        return "BSDR_MODELS_DATA names no folder that has it"
    return ""


def fingerprint(name: str) -> str:
    """Version of a data set: digest of its archive, transformation, classes."""
    if name not in SETS or SETS[name].bundled is not None:
        return "made" if name not in SETS else "scikit-learn"
    parts = (_digest(_file(name)), SETS[name].rows, *map(str, SETS[name].classes))
    return ", ".join(parts)


@cache
def load(name: str) -> tuple[Any, np.ndarray]:
    """Features (N, D), sparse for counts of words, and labels 0..K-1 of a set."""
    if reason := why_not(name):
        raise FileNotFoundError(f"{name}: {reason}")
    found = SETS[name]
    if found.bundled is not None:
        X, y = found.bundled(return_X_y=True)
        return X, y
    with np.load(_file(name)) as archive:
        y = archive["y"]
        if found.rows == "tf-idf":
            parts = archive["data"].astype(float), archive["indices"], archive["indptr"]
            counts = sparse.csr_array(parts, shape=tuple(archive["shape"]))
            return sparse.csr_array(TfidfTransformer().fit_transform(counts)), y
        X = archive["X"].astype(float)
    if found.rows == "unit length":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    if found.classes:
        kept = np.isin(y, found.classes)
        return X[kept], np.searchsorted(found.classes, y[kept])
    return X, y


def _file(name: str) -> Path:
    folder = archive_folder()
    return (folder or Path()) / f"{SETS[name].archive}.npz"


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
