"""Threads of BLAS and filters of warnings, which a call changes for a while.

Where contexts of two threads overlap, each restoring what it found, one is never undone. Here the
first thread that enters makes the change, and the last one that leaves undoes it.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

type Warned = list[warnings.WarningMessage]

# Warnings name the line of the user that called the package.
PACKAGE = (str(Path(__file__).parents[1]),)


class DataWarning(UserWarning):
    """Warning of samples, which fits to parts of them would repeat."""


class NoSignalWarning(DataWarning):
    """Warning that held-out predictions do not show targets to depend on the samples."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line outside of the package that led here."""
    warnings.warn(message, category, skip_file_prefixes=PACKAGE)


class SharedContext:
    """A context that threads, and calls within calls, enter together."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = Lock()
        self._n_inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._context = self._make()
                self._context.__enter__()
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._context.__exit__(None, None, None)


class _Recording:
    """What a filter has in place of a pattern of texts: it matches in threads that record."""

    pattern = "(?!)"  # what the parallel tasks of scikit-learn take from it matches nothing

    def match(self, text: str) -> bool:
        return _record.get() is not None


@contextmanager
def _dispatching() -> Iterator[None]:
    """Context in which a warning goes to the record of its thread; the user filters others."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def dispatch(*warned: Any, **more: Any) -> None:
            record = _record.get()
            if record is None:
                show(*warned, **more)
            else:
                record.append(warnings.WarningMessage(*warned))

        warnings.filterwarnings("always", message=_Recording.pattern)
        warnings.filters[0] = ("always", _Recording(), Warning, None, 0)  # type: ignore[index]
        warnings.showwarning = dispatch
        yield


# Those of NumPy and SciPy, which take 10 ms to find.
_libraries = cache(ThreadpoolController)
_record: ContextVar[Warned | None] = ContextVar("record", default=None)
_recording = SharedContext(_dispatching)
# The matrices are small: more threads are slower, and change the rounding.
_one_thread = SharedContext(lambda: _libraries().limit(limits=1, user_api="blas"))


def one_thread() -> SharedContext:
    """Context in which BLAS has one thread."""
    return _one_thread


def numpy_errors() -> np.errstate:
    """Context with NumPy's own treatment of rounding errors, in place of ``np.seterr``'s."""
    return np.errstate(all="warn", under="ignore")


@contextmanager
def recorded_warnings(expected: str = "", category: type[Warning] = Warning) -> Iterator[Warned]:
    """Context that lists warnings of this thread; what is not as expected is shown later."""
    record: Warned = []
    with _recording:
        token = _record.set(record)
        try:
            yield record
        finally:
            _record.reset(token)
    for each in record:
        if expected not in str(each.message) or not issubclass(each.category, category):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
