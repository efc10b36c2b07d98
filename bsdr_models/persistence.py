"""Saving and loading of fitted estimators by skops, without code; see ``docs/how_to/save.md``."""

import errno
import io
import json
import os
import pickle
import secrets
import shutil
from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard
from zipfile import ZIP_DEFLATED, ZipFile

import skops.io
import xarray as xr
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from bsdr_models.inference.datatree import Context, package_version

if TYPE_CHECKING:
    from bsdr_models.estimators.base import Estimator

__all__ = ["load", "save"]

# To raise when fitted attributes change; fields of dataclasses are compared automatically.
SCHEMA = 19
# Members of the archive: versions of the packages, and the estimator.
HEADER = "bsdr_models.json"
# What the names of all classes of this package begin with.
PACKAGE = "bsdr_models."
# Bytes of a member that is parsed as a whole, to objects of about forty times the size. Arrays are
# members of their own: the schema of a stack has less than a megabyte.
MAX_JSON = 2**22
# Most bytes of all members together: the larger of this number,
MAX_UNPACKED = 2**28
# and so many times the size of the file.
MAX_RATIO = 20
# Further trusted types of other packages.
OTHERS = ("scipy.sparse._csr.csr_array",)


def save(estimator: "Estimator", path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, see `Estimator.save`."""
    if not _is_ours(estimator):
        kind = type(estimator)
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be saved, only estimators of "
            "bsdr_models"
        )
    check_is_fitted(estimator)
    write_file(path, _pack(estimator))


def load(path: str | os.PathLike[str]) -> "Estimator":
    """Read a fitted estimator that `save` has written. No code in the file is executed.

    Parameters
    ----------
    path : str or path-like
        A file that `save` wrote.

    Returns
    -------
    BSDRClassifier, BSDRRegressor, BM2PCAClassifier, BM2PCARegressor, DGPLVMClassifier or \
    StackedClassifier
        Fitted; predictions are bitwise equal on the same platform with the same versions of NumPy
        and SciPy.

    Raises
    ------
    OSError
        If the file does not exist or cannot be read.
    ValueError
        If it is not a saved estimator, is truncated or damaged, holds objects of other packages, or
        was written by a version with other attributes or classes.

    See Also
    --------
    BSDRClassifier.save : writes the file; so do all estimators.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_iris
    >>> import bsdr_models
    >>> X, y = load_iris(return_X_y=True)
    >>> model = bsdr_models.BM2PCAClassifier(2, random_state=0).fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "iris.skops"
    ...     model.save(path)
    ...     again = bsdr_models.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    path = Path(path)
    _check_regular(path)
    contents = path.read_bytes()
    try:
        return _unpack(contents)
    except Exception as error:  # damaged files raise errors of any type
        raise ValueError(f"{path} cannot be loaded: {error}") from error


def _is_ours(estimator: object) -> TypeGuard["Estimator"]:
    """Whether it is an estimator of this package."""
    kind = type(estimator)
    return kind.__module__.startswith(PACKAGE) and hasattr(kind, "idata_")


def _pack(estimator: "Estimator") -> bytes:
    """Contents of the file."""
    stored = _with_stored_trees(estimator)
    try:
        contents = skops.io.dumps(stored, compression=ZIP_DEFLATED, compresslevel=1)
        if _unpacked_size(contents) > _limit(contents):  # as of constant arrays
            contents = skops.io.dumps(stored)
        held = sorted({*skops.io.get_untrusted_types(data=contents)} - {*OTHERS})
        classes = {name: _fields(name) for name in held}
        if foreign := [name for name, own in classes.items() if own is None]:
            raise TypeError(f"a {' or '.join(foreign)}")
    except Exception as error:  # arguments of the user may have any type
        raise TypeError(
            f"an argument or attribute cannot be saved: {error}. Files hold numbers, text, arrays "
            "and objects of bsdr_models, no functions"
        ) from error
    header = {"version": package_version(), "schema": SCHEMA, "classes": classes}
    buffer = io.BytesIO(contents)
    with ZipFile(buffer, "a") as archive:
        archive.writestr(HEADER, json.dumps(header))
    return buffer.getvalue()


def _with_stored_trees(estimator: "Estimator") -> "Estimator":
    """Copy whose tree, and those of members, are dicts, as skops needs, or None if made again."""
    stored = copy(estimator)
    tree = estimator._tree
    made = estimator._made_tree
    stored._tree = stored._made_tree = None
    if tree is not None and (made is None or not tree.identical(made)):
        stored.__dict__["_tree"] = {
            node.path: node.to_dataset(inherit=False).to_dict(data="array") for node in tree.subtree
        }
    if members := vars(stored).get("estimators_"):
        stored.estimators_ = [_with_members_stored(member) for member in members]
    return stored


def _with_members_stored(model: BaseEstimator) -> BaseEstimator:
    """The same of a member, which may be of this package, the step of a pipeline, or another."""
    if _is_ours(model):
        return _with_stored_trees(model)
    if isinstance(model, Pipeline):
        model = copy(model)
        model.steps = [(name, _with_members_stored(step)) for name, step in model.steps]
    return model


class _Reader(pickle.Pickler):
    """Finds the estimators in what a file holds, and refuses what would crash or be called.

    Nothing is written: a pickler passes over every object once, and leaves out the arrays.
    """

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5, buffer_callback=lambda _: None)
        self.estimators: list[BaseEstimator] = []

    def persistent_id(self, part: object) -> None:
        """Look at one object."""
        if issparse(part):
            if not hasattr(part, "check_format"):
                raise ValueError(f"it holds a {type(part).__qualname__}")
            part.check_format(full_check=True)  # an index out of range ends the process
        if isinstance(part, Context):
            part.check()
        if isinstance(part, BaseEstimator) and not isinstance(part, type):
            kind = type(part)
            if hidden := [name for name in vars(part) if callable(getattr(kind, name, None))]:
                raise ValueError(f"it replaces the method {hidden[0]!r}")
            self.estimators.append(part)


def _restore_trees(estimators: list[BaseEstimator]) -> None:
    """Make trees of what `_with_stored_trees` has stored."""
    for estimator in filter(_is_ours, estimators):
        state = estimator.__dict__
        if state.get("_tree") is not None:
            groups = {key: xr.Dataset.from_dict(group) for key, group in state["_tree"].items()}
            state["_tree"] = xr.DataTree.from_dict(groups)


def _unpack(contents: bytes) -> "Estimator":
    if (n_bytes := _unpacked_size(contents)) > _limit(contents):
        raise ValueError(f"its parts have {n_bytes} bytes, more than {_limit(contents)}")
    with ZipFile(io.BytesIO(contents)) as archive:
        if HEADER not in archive.namelist():
            raise ValueError("it was not saved by bsdr_models")
        header = json.loads(archive.read(HEADER))
    named = {name: _fields(name) for name in header["classes"]}
    classes = {name: own for name, own in named.items() if own is not None}
    if header["schema"] != SCHEMA or classes != header["classes"]:
        raise ValueError(
            f"it was written by version {header['version']} of bsdr_models (format "
            f"{header['schema']}), whose estimators have other attributes or classes than those of "
            f"this version {package_version()} (format {SCHEMA})"
        )
    estimator = skops.io.loads(contents, trusted=[*classes, *OTHERS])
    if not _is_ours(estimator):
        raise ValueError(f"it holds a {type(estimator).__qualname__}")
    reader = _Reader()
    reader.dump(estimator)
    _restore_trees(reader.estimators)
    return estimator


def _limit(contents: bytes) -> int:
    """Most bytes that a file may have when it is unpacked."""
    return max(MAX_UNPACKED, MAX_RATIO * len(contents))


def _unpacked_size(contents: bytes) -> int:
    """Bytes of all members of an archive by its directory, beyond which nothing is unpacked."""
    with ZipFile(io.BytesIO(contents)) as archive:
        members = archive.infolist()
    for member in members:
        if member.filename.endswith(".json") and member.file_size > MAX_JSON:
            raise ValueError(f"{member.filename} has {member.file_size} bytes")
    return sum(member.file_size for member in members)


def _fields(name: str) -> list[str] | None:
    """Field names of a class that files may hold, none of an estimator; None for all others.

    These are the frozen dataclasses and the estimators of this package: state without side effects,
    which is filled, never called.
    """
    module, _, attribute = name.rpartition(".")
    if not module.startswith(PACKAGE):
        return None
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        return None
    if not isinstance(kind, type) or kind.__module__ != module:
        return None
    if is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return [field.name for field in fields(kind)]
    return [] if issubclass(kind, BaseEstimator) else None


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is a device or pipe, not a file", str(path))


def write_file(path: str | os.PathLike[str], contents: bytes) -> None:
    """Write a file atomically: an error or interrupt leaves the old one."""
    path = Path(os.path.realpath(path))
    _check_regular(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb") as out:
            if path.exists():
                shutil.copymode(path, draft)
            out.write(contents)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if not isinstance(error, OSError):
            raise
        reason = f"cannot save here, nothing was changed: {error.strerror}"
        raise OSError(error.errno, reason, str(path)) from error
