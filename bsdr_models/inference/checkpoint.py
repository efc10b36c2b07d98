"""A fit over blocks of rows that goes on where it was stopped.

Every so many sweeps the state is written: what all blocks share by this process, what belongs to
the rows by whoever holds them, one file for each block. From then on a worker that dies costs the
sweeps since, for its rows begin anew at these files; and a fit whose cluster is lost begins there
when it is run again. Files are arrays of NumPy, without pickle. The folder must be one that this
process and all workers share.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsdr_models.inference.coordinate_ascent import (
    BoundInfo,
    Callback,
    FitResult,
    Step,
    run_coordinate_ascent,
)
from bsdr_models.inference.row_blocks import Block, Parts, RowBlocks

FORMAT = 1
POINTER = "latest.json"
# Sweeps that may still look back at rows: an extrapolation goes along the last three.
_LOOK_BACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec[S]:
    """How a state becomes arrays and back.

    shared
        State -> arrays of what no row has, by name.
    rows
        State -> its rows.
    write_rows
        A module's function: what is kept of a block -> arrays by name.
    read_rows
        A module's function, the other way.
    state
        Arrays by name, rows -> state.
    """

    shared: Callable[[S], Mapping[str, Any]]
    rows: Callable[[S], Parts]
    write_rows: Callable[[Any], Mapping[str, Any]]
    read_rows: Callable[[Mapping[str, np.ndarray]], Any]
    state: Callable[[Mapping[str, np.ndarray], Parts], S]


class Checkpoint[S]:
    """A callback of coordinate ascent that writes the state, and the states to go on from.

    Parameters
    ----------
    folder : path
        Made if there is none. One fit has it for its own.
    blocks : RowBlocks
    codec : Codec
    every : int
        Sweeps from one writing to the next.
    settings : mapping
        What a fit must share with the one that has written, as far as JSON can hold it: options,
        priors, statistics of the data. Compared beside the sizes of the blocks.

    Attributes
    ----------
    sweeps_before : int
        Of the restart under way, before it was resumed.
    sweeps : int
        With these.

    Examples
    --------
    ::

        checkpoint = Checkpoint("fit", blocks, codec, every=20, settings={"n_components": 3})
        run_coordinate_ascent(
            lambda rng, restart: checkpoint.begin(restart, lambda: init(rng, restart)),
            step,
            callbacks=[checkpoint],
        )
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        blocks: RowBlocks,
        codec: Codec[S],
        *,
        every: int = 20,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every must be a positive number of sweeps, got {every!r}")
        self._folder = Path(folder).absolute()
        self._blocks, self._codec, self._every = blocks, codec, int(every)
        self._facts = _facts(blocks, settings)
        self._place = self._folder / "restart-0"
        self.sweeps_before = 0
        self.sweeps = 0

    def begin(self, restart: int, init: Callable[[], S]) -> S:
        """The state that was written last in this restart, or ``init()`` if none was.

        Raises
        ------
        ValueError
            If the folder holds a checkpoint of other data, or of other settings.
        """
        self._place = self._folder / f"restart-{restart}"
        self.sweeps_before = self.sweeps = 0
        if not (self._place / POINTER).exists():
            return init()
        saved = _read_pointer(self._folder, self._place.name + "/" + POINTER, self._facts)
        folder = self._place / saved["generation"]
        with np.load(folder / "shared.npz", allow_pickle=False) as arrays:
            shared = dict(arrays)
        rows = self._blocks.map(_read, shared=(str(folder), self._codec.read_rows))
        self.sweeps_before = self.sweeps = saved["sweeps"]
        return self._codec.state(shared, rows)

    def __call__(self, iteration: int, state: S, info: BoundInfo) -> None:
        """Count a sweep, and write the state if it is time."""
        self.sweeps = self.sweeps_before + iteration
        if self.sweeps % self._every == 0:
            self.save(state)

    def save(self, state: S) -> None:
        """Write the state; its rows are those of the files from then on."""
        folder = self._place / f"{self.sweeps:09d}"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped while it wrote
        folder.mkdir(parents=True)
        rows = self._codec.rows(state)
        _, names = self._blocks.visit(_write, rows, shared=(str(folder), self._codec.write_rows))
        if missing := [name for name in names if not (folder / name).exists()]:
            raise FileNotFoundError(
                f"{folder / missing[0]} was written by a worker and cannot be seen from here: a "
                "checkpoint needs a folder that this process and all workers share"
            )
        _write_arrays(folder / "shared.npz", self._codec.shared(state))
        pointer = {"generation": folder.name, "sweeps": self.sweeps, **self._facts}
        _replace(self._place / POINTER, json.dumps(pointer, indent=1).encode())
        self._blocks.renew(rows, _read, shared=(str(folder), self._codec.read_rows))
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove all but the last, and those from which rows that are looked back at begin."""
        found = sorted(int(each.name) for each in self._place.iterdir() if each.is_dir())
        settled = [number for number in found if number <= self.sweeps - _LOOK_BACK]
        for number in settled[:-1]:
            shutil.rmtree(self._place / f"{number:09d}", ignore_errors=True)


class SavedPoint:
    """The best point of a search that keeps nothing with its rows, written every so many times.

    Parameters
    ----------
    folder : path
        Made if there is none. One fit has it for its own.
    blocks : RowBlocks
    every : int
        Offers from one writing to the next.
    settings : mapping
        As of :class:`Checkpoint`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        blocks: RowBlocks,
        *,
        every: int = 10,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every must be a positive number of evaluations, got {every!r}")
        self._folder, self._every = Path(folder).absolute(), int(every)
        self._facts = _facts(blocks, settings)
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
        saved = _read_pointer(self._folder, POINTER, self._facts)
        with np.load(self._folder / saved["point"], allow_pickle=False) as arrays:
            return dict(arrays)

    def offer(self, arrays: Mapping[str, Any]) -> None:
        """Count, and write if it is time."""
        self._offers += 1
        if self._offers % self._every:
            return
        _write_arrays(self._folder / "point.npz", arrays)
        pointer = {"point": "point.npz", **self._facts}
        _replace(self._folder / POINTER, json.dumps(pointer, indent=1).encode())


def run_resumable[S](
    init: Callable[[np.random.Generator, int], S],
    step: Step[S],
    *,
    max_iter: int,
    resume: S | None = None,
    checkpoint: Checkpoint[S] | None = None,
    callbacks: Sequence[Callback[S]] = (),
    **options: Any,
) -> FitResult[S]:
    """Coordinate ascent that begins where another fit, or a checkpoint, has ended.

    Parameters
    ----------
    init, step, callbacks
        As for :func:`~bsdr_models.inference.coordinate_ascent.run_coordinate_ascent`.
    max_iter : int
        Iterations per restart, with those before the checkpoint that it begins at.
    resume : state, optional
        Where the first restart begins, in place of what ``init`` makes.
    checkpoint : Checkpoint, optional
        Where restarts are written to, and begin if they were.
    **options
        Of the driver.

    Notes
    -----
    A state from which no iteration is left is not written: whoever goes on makes one at least.
    """

    def begin(stream: np.random.Generator, restart: int) -> S:
        if restart == 0 and resume is not None:
            return resume
        return init(stream, restart)

    if checkpoint is None:
        return run_coordinate_ascent(begin, step, max_iter=max_iter, callbacks=callbacks, **options)

    def write(iteration: int, state: S, info: BoundInfo) -> bool:
        last = checkpoint.sweeps_before + iteration >= max_iter
        if not last:
            checkpoint(iteration, state, info)
        return last

    return run_coordinate_ascent(
        lambda stream, restart: checkpoint.begin(restart, lambda: begin(stream, restart)),
        step,
        max_iter=max_iter,
        callbacks=[*callbacks, write],
        **options,
    )


def _facts(blocks: RowBlocks, settings: Mapping[str, Any] | None) -> dict[str, Any]:
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


def _read_pointer(folder: Path, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / name
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


def _write(
    block: Block, own: Any, shared: tuple[str, Callable[..., Any]]
) -> tuple[None, list[str]]:
    """Write what is kept of a block; the name of the file."""
    folder, to_arrays = shared
    path = Path(folder) / f"rows-{block.begin}.npz"
    _write_arrays(path, to_arrays(own))
    return None, [path.name]


def _read(block: Block, shared: tuple[str, Callable[..., Any]]) -> Any:
    """What was kept of a block."""
    folder, from_arrays = shared
    with np.load(Path(folder) / f"rows-{block.begin}.npz", allow_pickle=False) as arrays:
        return from_arrays(dict(arrays))


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that is there in full or not at all."""
    found: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    if objects := [name for name, value in found.items() if value.dtype == object]:
        raise TypeError(f"{', '.join(objects)}: only arrays of numbers and text can be written")
    path.parent.mkdir(parents=True, exist_ok=True)  # where a worker sees another disk
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
