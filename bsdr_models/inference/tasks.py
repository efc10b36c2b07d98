"""Independent tasks, such as restarts, folds, fits of a grid, chains: progress, parallel runs.

Fits run by joblib, in worker processes or as a surrounding ``joblib.parallel_config`` says; chains
run in threads. Tasks share no random stream, so results do not depend on the number of workers.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from bsdr_models.numerics.process_state import one_thread

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome[R]:
    """Results of the tasks that are done, in order, and whether the user interrupted the run."""

    results: list[R]
    interrupted: bool

    def complete(self) -> list[R]:
        """All results; KeyboardInterrupt if the user interrupted the run."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self.results


def run_tasks[A, R](
    task: Callable[[A], R],
    arguments: Sequence[A],
    *,
    n_jobs: int | None = None,
    what: str = "tasks",
    progressbar: bool = False,
) -> Outcome[R]:
    """Call ``task``, which workers pickle, with every argument.

    ``what`` is the title of the bar. No other task is begun after an interrupt, which before the
    first result raises KeyboardInterrupt. A worker that is killed raises joblib's
    ``TerminatedWorkerError``.
    """
    results = list[R]()
    interrupted = False
    stream: Iterable[R] = map(task, arguments)
    if len(arguments) > 1 and effective_n_jobs(n_jobs) > 1:
        backend, _ = get_active_backend()
        order = "generator" if backend.supports_return_generator else "list"
        pool = Parallel(n_jobs=n_jobs, return_as=order, batch_size=1)
        stream = pool(delayed(_with_one_thread)(task, each) for each in arguments)
    with ProgressBar(len(arguments), what, enabled=progressbar) as bar:
        try:
            for result in stream:
                results.append(result)
                bar.update()
                logger.debug("%s: %d of %d done", what, len(results), len(arguments))
        except KeyboardInterrupt:
            if not results:
                raise
            interrupted = True
    return Outcome(results=results, interrupted=interrupted)


def _with_one_thread[A, R](task: Callable[[A], R], argument: A) -> R:
    """Run a task with one thread: matrices are small, and more would change the rounding."""
    with one_thread():
        return task(argument)


_executor: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Context in which :func:`run_in_threads` has as many threads as joblib has workers."""
    n_threads = int(effective_n_jobs(n_jobs))
    with ThreadPoolExecutor(n_threads) as executor:
        token = _executor.set(executor if n_threads > 1 else None)
        try:
            yield
        finally:
            _executor.reset(token)


def run_in_threads[A, R](function: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
    """Results of ``function`` for every argument, in order; calls within a call have one thread."""
    executor = _executor.get()
    if executor is None or len(arguments) == 1:
        return [function(each) for each in arguments]

    def call(context: Context, argument: A) -> R:
        context.run(_executor.set, None)
        return context.run(function, argument)

    # A context holds the record of warnings and the treatment of rounding errors.
    contexts = [copy_context() for _ in arguments]
    return list(executor.map(call, contexts, arguments))
