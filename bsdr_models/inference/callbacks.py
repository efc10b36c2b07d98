"""Progress bars in the terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bsdr_models.inference.parallel import n_workers

# Iterations take well under a millisecond, so the display is not updated for each.
_SECONDS_BETWEEN_UPDATES = 0.1


class ProgressBar:
    """A progress bar over at most ``total`` iterations, without cost when disabled.

    Shows nothing inside another live display, of which older versions of rich allow only one.
    ``total`` may be changed later; ``count`` are the iterations so far, if enabled.
    """

    def __init__(self, total: int, description: str, *, enabled: bool = True) -> None:
        self.total = total
        self.description = description
        self.enabled = enabled
        self._progress: Progress | None = None
        self._fields: dict[str, object] = {}
        self.count = 0
        self._stage = 0
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
            try:
                self._progress.start()
            except LiveError:
                self._progress = None
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
        self.count += advance
        self._fields = fields
        if time.monotonic() - self._last > _SECONDS_BETWEEN_UPDATES:
            self._flush()

    def end_stage(self, length: int) -> None:
        """Reduce the total by the iterations that a stage of at most ``length`` did not need."""
        self.total -= length - (self.count - self._stage)
        self._stage = self.count

    def _flush(self) -> None:
        assert self._progress is not None
        note = " ".join(f"{name}={_format(value)}" for name, value in self._fields.items())
        self._progress.update(
            self._progress.task_ids[0], completed=self.count, total=self.total, note=note
        )
        self._last = time.monotonic()


@contextmanager
def ascent_progress(
    description: str, *, n_restarts: int, max_iter: int, n_jobs: int | None, enabled: bool
) -> Iterator[dict[str, Any]]:
    """Options by which ``run_coordinate_ascent`` shows a progress bar.

    It counts iterations, or restarts if these run in parallel.
    """
    parallel = n_workers(n_jobs, n_restarts) > 1
    total = n_restarts if parallel else n_restarts * max_iter
    with ProgressBar(total, description, enabled=enabled) as bar:

        def iteration(_: int, __: object, info: Any) -> None:
            bar.update(bound=info.elbo)

        def restart(result: Any) -> None:
            if parallel:
                bar.update(bound=float(result.elbo[-1]))
            elif not result.interrupted:
                bar.end_stage(max_iter)

        callbacks: list[Callable[..., None]] = [] if parallel else [iteration]
        yield {"callbacks": callbacks, "n_jobs": n_jobs, "on_restart": restart}


def _format(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
