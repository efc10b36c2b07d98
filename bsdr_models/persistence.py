"""Saving and loading of fitted estimators by skops, without code; see ``docs/how_to/save.md``."""

import errno
import io
import json
import os
import secrets
import shutil
from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import skops.io
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bsdr_models.inference.datatree import package_version

__all__ = ["load", "save"]

# To raise when fitted attributes change; fields of dataclasses are compared automatically.
SCHEMA = 7
HEADER = "bsdr_models.json"
# Bytes of a member that is parsed as a whole. Arrays are members of their own.
MAX_JSON = 2**26
# Further trusted types of other packages.
OTHERS = ("scipy.sparse._csr.csr_array",)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, see `Estimator.save`."""
    if not _is_ours(estimator):
        kind = f"{type(estimator).__module__}.{type(estimator).__qualname__}"
        raise TypeError(f"a {kind} cannot be saved, only estimators of bsdr_models")
    check_is_fitted(estimator)
    _write(Path(os.path.realpath(path)), _pack(estimator))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator that `save` has written. No code in the file is executed.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    BSDRClassifier, BSDRRegressor, BM2PCAClassifier, BM2PCARegressor or DGPLVMClassifier
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


def _is_ours(estimator: Any) -> bool:
    """Whether it is an estimator of this package."""
    kind = type(estimator)
    known = _fields(f"{kind.__module__}.{kind.__qualname__}") is not None
    return known and isinstance(estimator, BaseEstimator) and hasattr(kind, "idata_")


def _pack(estimator: Any) -> bytes:
    try:
        contents = skops.io.dumps(
            _with_stored_trees(estimator), compression=ZIP_DEFLATED, compresslevel=1
        )
    except Exception as error:  # arguments of the user may have any type
        raise TypeError(f"an argument or attribute cannot be saved: {error}") from error
    classes = {name: _fields(name) for name in skops.io.get_untrusted_types(data=contents)}
    if foreign := [name for name in classes if classes[name] is None and name not in OTHERS]:
        raise TypeError(f"an argument or attribute cannot be saved: a {' or '.join(foreign)}")
    header = {"version": package_version(), "schema": SCHEMA, "classes": classes}
    buffer = io.BytesIO(contents)
    with ZipFile(buffer, "a") as archive:
        archive.writestr(HEADER, json.dumps(header))
    return buffer.getvalue()


def _with_stored_trees(estimator: Any) -> Any:
    """Copy of an estimator whose tree, and those of its members, are dicts, as skops needs."""
    stored = copy(estimator)
    stored._tree = {
        node.path: node.to_dataset(inherit=False).to_dict(data="array")
        for node in estimator.idata_.subtree
    }
    if members := vars(stored).get("estimators_"):
        stored.estimators_ = [_with_stored_trees(m) if _is_ours(m) else m for m in members]
    return stored


def _restore_trees(estimator: Any) -> None:
    """Make trees of what `_with_stored_trees` has stored, after a check of the attributes."""
    state = vars(estimator)
    if hidden := [name for name in state if callable(getattr(type(estimator), name, None))]:
        raise ValueError(f"it replaces the method {hidden[0]!r}")
    groups = {key: xr.Dataset.from_dict(group) for key, group in state["_tree"].items()}
    state["_tree"] = xr.DataTree.from_dict(groups)
    for member in filter(_is_ours, state.get("estimators_", ())):
        _restore_trees(member)


def _unpack(contents: bytes) -> Any:
    with ZipFile(io.BytesIO(contents)) as archive:
        if HEADER not in archive.namelist():
            raise ValueError("it was not saved by bsdr_models")
        for member in archive.infolist():
            if member.filename.endswith(".json") and member.file_size > MAX_JSON:
                raise ValueError(f"{member.filename} has {member.file_size} bytes")
        header = json.loads(archive.read(HEADER))
    classes = {name: _fields(name) for name in header["classes"]}
    if header["schema"] != SCHEMA or classes != header["classes"]:
        raise ValueError(
            f"it was written by version {header['version']} of bsdr_models, whose estimators "
            f"have other attributes or classes than those of this version {package_version()}"
        )
    ours = [name for name in classes if classes[name] is not None]
    estimator = skops.io.loads(contents, trusted=[*ours, *OTHERS])
    if not _is_ours(estimator):
        raise ValueError(f"it holds a {type(estimator).__qualname__}")
    _restore_trees(estimator)
    return estimator


def _fields(name: str) -> list[str] | None:
    """Field names of a class of this package, by its full name; None for other names.

    Classes of other packages that a module imports do not count.
    """
    module, _, attribute = name.rpartition(".")
    if not module.startswith("bsdr_models."):
        return None
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        return None
    if not isinstance(kind, type) or kind.__module__ != module:
        return None
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is a device or pipe, not a file", str(path))


def _write(path: Path, contents: bytes) -> None:
    """Write a file atomically."""
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
