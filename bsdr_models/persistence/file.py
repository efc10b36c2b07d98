"""The file of a model: NetCDF-4, with a checksum of all of it as its last line.

Groups of the estimator's tree lie where ArviZ looks for them. One more, ``estimator``, has the
JSON tree of the fitted object (``manifest``) and its numbers, a variable for each dtype. HDF5
reads no further than the end that its header names, so the checksum behind that end is in nobody's
way; and no byte reaches the HDF5 library before the checksum of all has been found right.
"""

import hashlib
import io
import json
import re
from typing import IO, Any

import h5py
import numpy as np
import xarray as xr

from bsdr_models.persistence.codec import Columns, column_dtype

GROUP = "estimator"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_SEAL = re.compile(rb"\nbsdr_models sha256 ([0-9a-f]{64})\n")
_SEAL_LENGTH = len(b"\nbsdr_models sha256 \n") + 64
_BLOCK = 2**20

# zlib, quickly: noise in the last bits of draws would not shrink for any effort.
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}
# Smaller variables gain nothing by compression.
WORTH_COMPRESSING = 4096
# Bytes that one of zlib may stand for, and bytes that are granted to any variable.
EXPANSION, GRANTED = 1100, 2**16


def to_bytes(manifest: dict[str, Any], columns: Columns, tree: xr.DataTree | None) -> bytes:
    """Contents of a file, sealed.

    Raises
    ------
    ValueError
        If the tree has a group of the name that the estimator's has.
    """
    text = np.bytes_(json.dumps(manifest, allow_nan=False, separators=(",", ":")))
    variables: dict[str, Any] = {"manifest": ((), text)}
    variables |= {name: (f"{name}_index", values) for name, values in columns.items()}
    groups = {"/": xr.Dataset()}
    if tree is not None:
        if GROUP in tree.children:
            raise ValueError(f"idata_ has a group {GROUP!r}, whose name files need: rename it")
        groups = {node.path: _plain(node.to_dataset(inherit=False)) for node in tree.subtree}
    groups[f"/{GROUP}"] = xr.Dataset(variables)
    encoding = {path: _encoding(dataset) for path, dataset in groups.items()}
    encoding[f"/{GROUP}"]["manifest"] = COMPRESSION
    buffer = io.BytesIO()
    xr.DataTree.from_dict(groups).to_netcdf(buffer, engine="h5netcdf", encoding=encoding)
    with buffer.getbuffer() as contents:
        digest = hashlib.sha256(contents).hexdigest()
    buffer.seek(0, io.SEEK_END)
    buffer.write(f"\nbsdr_models sha256 {digest}\n".encode())
    return buffer.getvalue()


def _plain(dataset: xr.Dataset) -> xr.Dataset:
    """The same with names, dates and other objects as strings, for other programs to read."""
    words = {
        name: (
            variable.dims,
            np.array([str(value) for value in variable.values.flat]).reshape(variable.shape),
            variable.attrs,
        )
        for name, variable in dataset.variables.items()
        if variable.dtype.kind not in "biuf"
    }
    return dataset.assign(words).drop_encoding() if words else dataset.drop_encoding()


def _encoding(dataset: xr.Dataset) -> dict[Any, dict[str, Any]]:
    return {
        name: COMPRESSION
        for name, variable in dataset.variables.items()
        if variable.dtype.kind in "biuf" and variable.nbytes > WORTH_COMPRESSING
    }


def check_seal(file: IO[bytes]) -> None:
    """Raise a ValueError that says what is wrong unless every byte is as it was written."""
    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    if length == 0:
        raise ValueError("is empty")
    if file.read(len(HDF5_MAGIC)) != HDF5_MAGIC:
        raise ValueError("is not a NetCDF-4 file, so not a model saved by bsdr_models")
    body = max(0, length - _SEAL_LENGTH)
    file.seek(body)
    seal = _SEAL.fullmatch(file.read())
    file.seek(0)
    if seal is None:
        raise ValueError(_why_unsealed(file))
    digest = hashlib.sha256()
    while body > 0:
        block = file.read(min(_BLOCK, body))
        digest.update(block)
        body -= len(block)
    file.seek(0)
    if digest.hexdigest() != seal[1].decode():
        raise ValueError("is damaged: its contents do not agree with its checksum")


def _why_unsealed(file: IO[bytes]) -> str:
    try:
        with h5py.File(file, "r") as store:
            ours = GROUP in store and "manifest" in store[GROUP]
    except (OSError, RuntimeError, KeyError, ValueError):
        return "is cut short or damaged: it has no checksum at its end, and HDF5 cannot read it"
    if not ours:
        return "is a NetCDF or HDF5 file that was not saved by bsdr_models"
    return (
        "has lost the checksum at its end: it was cut short, or another program has written to it"
    )


class Reader:
    """Variables of a file whose contents may have been made to do harm.

    A variable is read once at most, only from this file, and only if it is not much larger than
    the room that it takes there. All methods raise a ValueError otherwise.
    """

    def __init__(self, store: h5py.File) -> None:
        self._store = store
        self._seen: set[str] = set()

    def manifest(self) -> bytes:
        """The JSON tree, as text."""
        found = self._dataset(f"{GROUP}/manifest")
        if found.dtype != np.dtype("S1"):
            raise ValueError("its manifest is no text")
        return found[()].tobytes()

    def column(self, name: str) -> np.ndarray:
        """Numbers of the fitted object of one dtype."""
        numbers = self._numbers(f"{GROUP}/{name}")
        if numbers.dtype.name != name or numbers.ndim != 1:
            raise ValueError(f"its numbers of {name} are of another kind")
        return numbers

    def variable(self, location: str) -> np.ndarray:
        """Numbers of a variable of the tree."""
        return self._numbers(location)

    def _numbers(self, location: str) -> np.ndarray:
        found = self._dataset(location)
        if found.dtype.kind not in "iuf":
            raise ValueError(f"{location!r} has the dtype {found.dtype}")
        return found[()].astype(column_dtype(found.dtype), copy=False)

    def _dataset(self, location: str) -> h5py.Dataset:
        if location in self._seen:
            raise ValueError(f"it refers to {location!r} twice")
        self._seen.add(location)
        found: Any = self._store
        for part in location.split("/"):
            inside = isinstance(found, h5py.Group) and part in found
            # Links lead to other places, also of other files.
            if not inside or not isinstance(found.get(part, getlink=True), h5py.HardLink):
                raise ValueError(f"it has no {location!r}")
            found = found[part]
        if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
            raise ValueError(f"{location!r} is not a variable of this file")
        stored = found.id.get_storage_size()
        if found.dtype.itemsize * found.size > EXPANSION * stored + GRANTED:
            raise ValueError(
                f"{location!r} has the shape {found.shape} but takes {stored} bytes only"
            )
        return found
