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


class ProgressBar:
    """A progress bar over at most ``total`` iterations, without cost when disabled.

    Shows nothing inside another live display, of which older versions of rich allow only one.
    ``total`` may be changed later; ``count`` are the iterations so far, if enabled.
    """

    def __init__(self, total: int, description: str, *, enabled: bool = True) -> None:
        self.total, self.description, self.enabled = total, description, enabled
        self.count = self._stage = 0
        self._progress: Progress | None = None
        self._note = ""

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
            self._show()
            self._progress.stop()
            self._progress = None

    def update(self, advance: int = 1, **fields: object) -> None:
        """Count iterations, and show ``fields`` behind the bar as ``name=value``."""
        if self._progress is not None:
            self.count += advance
            shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in fields.items()}
            self._note = " ".join(f"{name}={value}" for name, value in shown.items())
            self._show()

    def end_stage(self, length: int) -> None:
        """Reduce the total by the iterations that a stage of at most ``length`` did not need."""
        self.total -= length - (self.count - self._stage)
        self._stage = self.count

    def _show(self) -> None:
        assert self._progress is not None
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=self.count, total=self.total, note=self._note)


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
