"""Parallel independent tasks: restarts, folds, fits of a grid.

They run by joblib, in worker processes or as a surrounding ``joblib.parallel_config`` says. Tasks
share no random stream, so results do not depend on the number of workers.

A worker that dies (killed, or out of memory) breaks its pool. Finished results are kept, and every
other task is run again in its own pool, so that only tasks that kill their worker are lost.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome[R]:
    """Results of tasks.

    results
        By index of the task, in order, without tasks that were lost or not begun.
    interrupted
        Whether the user interrupted the run.
    """

    results: Mapping[int, R]
    interrupted: bool


def n_workers(n_jobs: int | None, n_tasks: int) -> int:
    """Number of parallel tasks; 1 if they run sequentially in this process."""
    return 1 if n_tasks < 2 else min(int(effective_n_jobs(n_jobs)), n_tasks)


def run_tasks[A, R](
    task: Callable[[A], R],
    arguments: Sequence[A],
    *,
    n_jobs: int | None = None,
    what: str = "restarts",
    stopped: Callable[[R], bool] = lambda result: False,
    on_done: Callable[[R], object] = lambda result: None,
) -> Outcome[R]:
    """Call ``task`` with every argument.

    Parameters
    ----------
    task : callable
        Function of one argument; it is pickled for the workers.
    arguments : sequence
    n_jobs : int, optional
        Workers; None is 1 unless a ``joblib.parallel_config`` says otherwise, -1 is all cores.
    what : str
        Plural name of the tasks, for messages.
    stopped : callable
        Whether a result was interrupted by the user; no other task is then begun.
    on_done : callable
        Called in this process with each result, in order of completion.

    Returns
    -------
    Outcome

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the first result.
    RuntimeError
        If every task has killed its worker.

    Warns
    -----
    UserWarning
        If some tasks have killed their worker.
    """
    results: dict[int, R] = {}
    interrupted, lost = False, 0
    stream = (
        enumerate(map(task, arguments))
        if n_workers(n_jobs, len(arguments)) == 1
        else _parallel(task, arguments, n_jobs, what)
    )
    try:
        for number, result in stream:
            if result is None:
                lost += 1
                continue
            results[number] = result
            on_done(result)
            logger.debug("%s: %d of %d done", what, len(results), len(arguments))
            if stopped(result):
                interrupted = True
                break
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    if not results:
        raise RuntimeError(
            f"all {len(arguments)} {what} were lost: each has killed its worker process, which "
            "may have run out of memory; try n_jobs=1"
        )
    if lost:
        warnings.warn(
            f"{lost} of {len(arguments)} {what} were lost: their worker process died twice and may "
            "have run out of memory. The others are used",
            UserWarning,
            stacklevel=3,
        )
    return Outcome(results=dict(sorted(results.items())), interrupted=interrupted)


def _parallel[A, R](
    task: Callable[[A], R], arguments: Sequence[A], n_jobs: int | None, what: str
) -> Iterator[tuple[int, R | None]]:
    """Yield indices and results on completion; None for a task that has killed its worker."""
    left = dict(enumerate(arguments))
    try:
        for number, result in _pool(task, left, n_jobs):
            del left[number]
            yield number, result
    except BrokenExecutor as error:
        logger.info("a worker died, %d %s are run again, one by one: %s", len(left), what, error)
    for number, argument in left.items():
        try:
            # Two workers, since with one joblib would run the task in this process.
            yield from _pool(task, {number: argument}, 2)
        except BrokenExecutor:
            logger.info("one of the %s has killed its worker twice", what)
            yield number, None


def _pool[A, R](
    task: Callable[[A], R], arguments: Mapping[int, A], n_jobs: int | None
) -> Iterator[tuple[int, R]]:
    backend, _ = get_active_backend()
    order = "generator_unordered" if backend.supports_return_generator else "list"
    pool = Parallel(n_jobs=n_jobs, return_as=order, batch_size=1)
    calls = [delayed(_numbered)(task, number, each) for number, each in arguments.items()]
    yield from pool(calls)


def _numbered[A, R](task: Callable[[A], R], number: int, argument: A) -> tuple[int, R]:
    """Run a task with one thread: matrices are small, and more would change the rounding."""
    with threadpool_limits(limits=1, user_api="blas"):
        return number, task(argument)
