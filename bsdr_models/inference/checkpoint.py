"""Checkpoints of an optimisation over blocks of samples.

A checkpoint holds the best point so far, from which the optimisation continues after an interrupt
or the loss of its cluster. Files hold NumPy arrays, without pickle.
"""

import errno
import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import issparse

from bsdr_models.inference.sample_blocks import Block, SampleBlocks

FORMAT = 2
POINTER = "latest.json"
POINT = "point.npz"


class SavedPoint:
    """The best point of an optimisation, written at intervals.

    Parameters
    ----------
    folder : path
        Created if missing; must not be shared between fits.
    blocks : SampleBlocks
    every : int
        Number of offers per write.
    settings : mapping
        Options and priors, in JSON types. On reading they must be equal, and so must the samples
        and targets of every block, of which digests are stored: all blocks are read once.

    Raises
    ------
    OSError
        If the folder cannot be written, or its files are devices or pipes.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        blocks: SampleBlocks,
        *,
        every: int = 10,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every must be a positive number of evaluations, got {every!r}")
        self._folder, self._every = Path(folder).absolute(), int(every)
        check_folder(self._folder)
        self._identity = _identity(blocks, settings)
        self._offers = 0

    def read(self) -> dict[str, np.ndarray] | None:
        """Last written arrays, or None.

        Raises
        ------
        ValueError
            If the checkpoint is of other data or settings, or damaged.
        """
        if not (self._folder / POINTER).exists():
            return None
        _check_pointer(self._folder, self._identity)
        path = self._folder / POINT
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise ValueError(
                f"{path} is damaged: {error}. Give another folder, or remove this one"
            ) from error

    def offer(self, arrays: Mapping[str, Any]) -> None:
        """Write every ``every``-th call."""
        self._offers += 1
        if self._offers % self._every:
            return
        _write_arrays(self._folder / POINT, arrays)
        _replace(self._folder / POINTER, json.dumps(self._identity, indent=1).encode())


def _identity(blocks: SampleBlocks, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Data and settings of a fit, after a round trip through JSON."""
    identity = {
        "format": FORMAT,
        "sizes": [int(size) for size in blocks.sizes],
        "n_features": blocks.n_features,
        "digests": blocks.collect(blocks.map(_digest)),
        "settings": dict(settings or {}),
    }
    found: dict[str, Any] = json.loads(json.dumps(identity))
    return found


def _digest(block: Block, shared: None) -> str:
    """Digest of the samples and targets of a block."""
    X = block.X
    parts = [X.data, X.indices, X.indptr] if issparse(X) else [X]
    if block.y is not None:
        parts.append(block.y)
    found = blake2b(digest_size=16)
    for values in parts:
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def check_folder(folder: Path) -> None:
    """Make the folder; raise an OSError unless it can hold a checkpoint."""
    if folder.exists() and not folder.is_dir():
        reason = "is a file, device or pipe, not a folder"
        raise NotADirectoryError(errno.ENOTDIR, reason, str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the checkpoint cannot be written here", str(folder))
    for path in (folder / POINTER, folder / POINT):
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "is a folder, device or pipe, not a file", str(path))


def _check_pointer(folder: Path, identity: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the checkpoint in the folder is of this fit."""
    path = folder / POINTER
    try:
        saved: dict[str, Any] = json.loads(path.read_text())
        different = _differences(saved, identity)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} is no checkpoint: {error}") from error
    if different:
        raise ValueError(
            f"{folder} holds the checkpoint of another fit: {'; '.join(different)}. Give "
            "another folder, or remove this one"
        )


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between a checkpoint and a fit, in words."""
    found = []
    if saved.get("format") != now["format"]:
        return [f"it is of format {saved.get('format')}, this is {now['format']}"]
    if saved["n_features"] != now["n_features"]:
        found.append(f"it has {saved['n_features']} features, X has {now['n_features']}")
    if sum(saved["sizes"]) != sum(now["sizes"]):
        found.append(f"it has {sum(saved['sizes'])} samples, X has {sum(now['sizes'])}")
    elif saved["sizes"] != now["sizes"]:
        found.append("its blocks have other sizes")
    elif not found and saved["digests"] != now["digests"]:
        pairs = zip(saved["digests"], now["digests"], strict=True)
        first = next(number for number, (was, wanted) in enumerate(pairs) if was != wanted)
        found.append(f"its samples or labels differ, first in block {first}")
    for name in sorted({*saved["settings"], *now["settings"]}):
        was, wanted = saved["settings"].get(name), now["settings"].get(name)
        if was != wanted:
            found.append(f"{name} was {was!r} and is {wanted!r}")
    return found


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file atomically."""
    found: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    if objects := [name for name, value in found.items() if value.dtype == object]:
        raise TypeError(f"{', '.join(objects)}: only arrays of numbers and text can be written")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(partial, "wb") as file:
        np.savez(file, **found)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.part")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
