"""Progress on the terminal, for any driver."""

import time
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Iterations take well under a millisecond: the display is told about them in bunches.
_SECONDS_BETWEEN_UPDATES = 0.1


class ProgressBar:
    """A bar over a known number of iterations; shows and costs nothing when disabled.

    Parameters
    ----------
    total : int
        Number of iterations.
    description : str
    enabled : bool

    Examples
    --------
    >>> with ProgressBar(100, "Gibbs", enabled=False) as bar:
    ...     for _ in range(100):
    ...         bar.update(stage="warm-up")
    """

    def __init__(self, total: int, description: str, *, enabled: bool = True) -> None:
        self.total = total
        self.description = description
        self.enabled = enabled
        self._progress: Progress | None = None
        self._fields: dict[str, object] = {}
        self._pending = 0
        self._last = 0.0

    def __enter__(self) -> Self:
        if self.enabled:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._progress.add_task(self.description, total=self.total, note="")
            self._progress.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._flush()
            self._progress.stop()
            self._progress = None

    def update(self, advance: int = 1, **fields: object) -> None:
        """Count iterations, and show ``fields`` behind the bar as ``name=value``."""
        if self._progress is None:
            return
        self._pending += advance
        self._fields = fields
        if time.monotonic() - self._last > _SECONDS_BETWEEN_UPDATES:
            self._flush()

    def _flush(self) -> None:
        assert self._progress is not None
        note = " ".join(f"{name}={_format(value)}" for name, value in self._fields.items())
        self._progress.update(self._progress.task_ids[0], advance=self._pending, note=note)
        self._pending = 0
        self._last = time.monotonic()


def _format(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
