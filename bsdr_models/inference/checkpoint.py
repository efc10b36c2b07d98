"""A search over blocks of rows that goes on where it was stopped.

It keeps nothing with its rows, so that its best point is all there is to write. One that was
stopped, or whose cluster is lost, begins there when it is run again. Files are arrays of NumPy,
without pickle.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bsdr_models.inference.sample_blocks import SampleBlocks

FORMAT = 1
POINTER = "latest.json"


class SavedPoint:
    """The best point of a search, written every so many times.

    Parameters
    ----------
    folder : path
        Made if there is none. One fit has it for its own.
    blocks : SampleBlocks
    every : int
        Offers from one writing to the next.
    settings : mapping
        What a search must share with the one that has written, as far as JSON can hold it:
        options, priors, statistics of the data. Compared beside the sizes of the blocks.
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
        self._summary_parts = _summary_parts(blocks, settings)
        self._offers = 0

    def read(self) -> dict[str, np.ndarray] | None:
        """What was written last, None if nothing was.

        Raises
        ------
        ValueError
            If the folder holds a checkpoint of other data, or of other settings.
        """
        if not (self._folder / POINTER).exists():
            return None
        saved = _read_pointer(self._folder, self._summary_parts)
        with np.load(self._folder / saved["point"], allow_pickle=False) as arrays:
            return dict(arrays)

    def offer(self, arrays: Mapping[str, Any]) -> None:
        """Count, and write if it is time."""
        self._offers += 1
        if self._offers % self._every:
            return
        _write_arrays(self._folder / "point.npz", arrays)
        pointer = {"point": "point.npz", **self._summary_parts}
        _replace(self._folder / POINTER, json.dumps(pointer, indent=1).encode())


def _summary_parts(blocks: SampleBlocks, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is compared, as it comes back from a file."""
    facts: dict[str, Any] = json.loads(
        json.dumps(
            {
                "format": FORMAT,
                "sizes": [int(size) for size in blocks.sizes],
                "n_features": blocks.n_features,
                "settings": dict(settings or {}),
            }
        )
    )
    return facts


def _read_pointer(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / POINTER
    try:
        saved: dict[str, Any] = json.loads(path.read_text())
        different = _differences(saved, facts)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no checkpoint: {error}") from error
    if different:
        raise ValueError(
            f"{folder} holds the checkpoint of another fit: {'; '.join(different)}. Give "
            "another folder, or remove this one"
        )
    return saved


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a checkpoint and a fit do not share, in words."""
    found = []
    if saved.get("format") != now["format"]:
        return [f"it is of format {saved.get('format')}, this is {now['format']}"]
    if saved["n_features"] != now["n_features"]:
        found.append(f"it has {saved['n_features']} features, these rows {now['n_features']}")
    if sum(saved["sizes"]) != sum(now["sizes"]):
        found.append(f"it has {sum(saved['sizes'])} rows, these are {sum(now['sizes'])}")
    elif saved["sizes"] != now["sizes"]:
        found.append("its blocks are of other sizes")
    for name in sorted({*saved["settings"], *now["settings"]}):
        was, wanted = saved["settings"].get(name), now["settings"].get(name)
        if was != wanted:
            found.append(f"{name} was {was!r} and is {wanted!r}")
    return found


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that is there in full or not at all."""
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
