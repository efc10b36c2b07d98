"""Progress bars in the terminal, and restarts that are counted by one."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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

from bsdr_models.inference.parallel import n_workers, run_tasks

logger = logging.getLogger(__name__)

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

    def __exit__(self, *error: object) -> None:
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


def run_restarts[A](
    restart: Callable[[ProgressBar, A], Any],
    arguments: Sequence[A],
    *,
    value: Callable[[Any], float],
    title: str,
    max_iter: int,
    n_jobs: int | None,
    progressbar: bool,
) -> tuple[Any, list[Any]]:
    """The result of ``restart(bar, argument)`` with the largest value, and all results.

    They are dataclasses with ``trace``, ``converged`` and ``interrupted``; an interrupt ends all
    restarts, and is marked in the best one. The bar counts iterations, at most ``max_iter`` of each
    restart, or restarts if these run in parallel.
    """
    parallel = n_workers(n_jobs, len(arguments)) > 1
    total = len(arguments) * (1 if parallel else max_iter)
    begin = time.perf_counter()
    with ProgressBar(total, title, enabled=progressbar) as bar:

        def done(result: Any) -> None:
            if parallel:
                bar.update()
            elif not result.interrupted:
                bar.end_stage(max_iter)

        outcome = run_tasks(
            partial(restart, ProgressBar(total, title, enabled=False) if parallel else bar),
            arguments,
            n_jobs=n_jobs,
            stopped=lambda result: result.interrupted,
            on_done=done,
        )
    results = list(outcome.results.values())
    best = max(results, key=value)  # the first of equals
    logger.debug(
        "%s: %.6g after %d iterations, %s; %d of %d restarts in %.2f s",
        title,
        value(best),
        len(best.trace),
        "converged" if best.converged else "not converged",
        len(results),
        len(arguments),
        time.perf_counter() - begin,
    )
    return replace(best, interrupted=outcome.interrupted), results


def _format(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
