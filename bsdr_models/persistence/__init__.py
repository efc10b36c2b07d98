"""Fitted estimators in files: one NetCDF file each, which holds no code.

How to use it: ``docs/how_to/save.md``. The parts: :mod:`bsdr_models.persistence.classes` says what
a model may consist of, :mod:`bsdr_models.persistence.codec` turns it into JSON and numbers,
:mod:`bsdr_models.persistence.file` lays these out.
"""

import errno
import json
import os
import secrets
import shutil
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import h5py
from sklearn.utils.validation import check_is_fitted

from bsdr_models.persistence import codec, file
from bsdr_models.persistence.classes import ESTIMATORS, locate

__all__ = ["load", "save"]

FORMAT = "bsdr_models"
# What a file with the right checksum may do wrong, if another program has made it.
_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, see :meth:`bsdr_models.surface.Surface.save`."""
    name = type(estimator).__name__
    if name not in ESTIMATORS or type(estimator) is not locate(name):
        kind = type(estimator)
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be saved, only {sorted(ESTIMATORS)}"
        )
    check_is_fitted(estimator)
    _write(Path(os.path.realpath(path)), _pack(estimator, name))


def _pack(estimator: Any, name: str) -> bytes:
    """Contents of the file of an estimator."""
    tree = estimator.idata_ if hasattr(type(estimator), "idata_") else None
    encoder = codec.Encoder()
    # First, so that arrays that are in the tree as well stay where ArviZ looks for them.
    encoder.value(tree, f"{name}.idata_")
    parameters = estimator.get_params(deep=False)
    state = {key: value for key, value in vars(estimator).items() if key not in parameters}
    manifest = {
        "format": FORMAT,
        "schema": codec.SCHEMA,
        "versions": {package: _version(package) for package in ("bsdr_models", "numpy", "scipy")},
        "estimator": name,
        "parameters": _attributes(encoder, parameters, name),
        "state": _attributes(encoder, state, name),
        "arrays": encoder.arrays,
        "objects": encoder.objects,
    }
    return file.to_bytes(manifest, encoder.columns, tree)


def _attributes(encoder: codec.Encoder, values: dict[str, Any], owner: str) -> dict[str, Any]:
    return {key: encoder.value(value, f"{owner}.{key}") for key, value in values.items()}


def _write(path: Path, contents: bytes) -> None:
    """Put contents in the place of a file, at once or not at all."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file to save to", str(path))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with open(draft, "xb") as out:
                if path.exists():
                    shutil.copymode(path, draft)
                out.write(contents)
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        reason = f"cannot save here, nothing was changed: {error.strerror}"
        raise OSError(error.errno, reason, str(path)) from error
    if os.name == "posix":  # the new name is on disk when its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator that `save` has written.

    Nothing in the file is executed, and only classes of a list in this package are made of it.
    All of the file is compared with its checksum before any of it is used. The checksum finds
    damage; it does not tell who wrote the file.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    BSDRClassifier, BSDRRegressor, MNPClassifier, BM2PCAClassifier, BM2PCARegressor or \
DGPLVMClassifier
        Fitted, with the numbers of the one that was saved: the same bits on the same platform
        with the same versions of NumPy and SciPy.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ValueError
        If it is not a saved model, is cut short or damaged, or was written by a newer version.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_wine
    >>> import bsdr_models
    >>> X, y = load_wine(return_X_y=True)
    >>> model = bsdr_models.MNPClassifier().fit(X, y)
    >>> with TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/wine.nc")
    ...     again = bsdr_models.load(f"{folder}/wine.nc")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a saved model", str(path))
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    with open(path, "rb") as stream:
        try:
            file.check_seal(stream)
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None
        try:
            with h5py.File(stream, "r") as store:
                return _unpack(file.Reader(store))
        except NewerSchemaError as error:
            raise ValueError(f"{path} {error}") from None
        except _FAULTS as error:
            raise ValueError(f"{path} is no valid model of bsdr_models: {error}") from error


class NewerSchemaError(ValueError):
    """A file of a schema that is not known yet."""


def _unpack(reader: file.Reader) -> Any:
    text = reader.manifest()
    manifest = _upgraded(json.loads(text))
    budget = codec.EXPANSION * len(text) + codec.GRANTED
    decoder = codec.Decoder(column=reader.column, variable=reader.variable, budget=budget)
    decoder.tables(manifest["arrays"], manifest["objects"])
    name = manifest["estimator"]
    if name not in ESTIMATORS:
        raise ValueError(f"{name!r} is no estimator")
    parameters, state = (
        {key: decoder.value(node) for key, node in manifest[part].items()}
        for part in ("parameters", "state")
    )
    estimator = locate(name)(**parameters)
    vars(estimator).update(state)
    return estimator


def _upgraded(manifest: Any) -> dict[str, Any]:
    """Manifest as this version writes it."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError("its manifest is of another format")
    schema, written_by = manifest["schema"], manifest["versions"]["bsdr_models"]
    if type(schema) is not int or schema < 1:
        raise ValueError(f"its schema {schema!r} is not known")
    if schema > codec.SCHEMA:
        raise NewerSchemaError(
            f"was written by a newer version of bsdr_models, {written_by} with schema {schema}; "
            f"this one is {_version('bsdr_models')} and reads up to schema {codec.SCHEMA}: upgrade"
        )
    for number in range(schema, codec.SCHEMA):
        if number in codec.UPGRADES:
            manifest = codec.UPGRADES[number](manifest)
    return manifest


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "uninstalled"
