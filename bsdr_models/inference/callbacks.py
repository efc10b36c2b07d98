"""Progress bars in the terminal, and restarts that are counted by one."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress

logger = logging.getLogger(__name__)


class ProgressBar:
    """A progress bar over at most ``total`` iterations, without cost when disabled.

    ``total`` may be changed later; ``count`` are the iterations so far, if enabled.
    """

    def __init__(self, total: int, description: str, *, enabled: bool = True) -> None:
        self.total = total
        self.description = description
        self.enabled = enabled
        self.count = 0
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self.enabled:
            from rich import progress  # takes .1 s to load

            self._progress = progress.Progress(
                "{task.description}",
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                "{task.fields[note]}",
            )
            self._progress.add_task(self.description, total=self.total, note="")
            self._progress.start()
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
            self._show(note=" ".join(f"{name}={value}" for name, value in shown.items()))

    def _show(self, **fields: Any) -> None:
        assert self._progress is not None
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=self.count, total=self.total, **fields)


def run_restarts[A](
    restart: Callable[[ProgressBar, A], Any],
    arguments: Sequence[A],
    *,
    value: Callable[[Any], float],
    title: str,
    max_iter: int,
    progressbar: bool,
) -> tuple[Any, list[Any]]:
    """The result of ``restart(bar, argument)`` with the largest value, and all results.

    They are dataclasses with ``trace``, ``converged`` and ``interrupted``; an interrupt ends all
    restarts, and is marked in the best one. The bar counts iterations, at most ``max_iter`` each.
    """
    begin = time.perf_counter()
    results = list[Any]()
    interrupted = False
    with ProgressBar(len(arguments) * max_iter, title, enabled=progressbar) as bar:
        try:
            for argument in arguments:
                results.append(restart(bar, argument))
                if interrupted := results[-1].interrupted:
                    break
                bar.total -= max_iter - len(results[-1].trace)
        except KeyboardInterrupt:
            if not results:
                raise
            interrupted = True
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
    return replace(best, interrupted=interrupted), results
