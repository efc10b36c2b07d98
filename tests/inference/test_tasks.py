"""Tasks: the progress bar, the same results in parallel, and what is left when the user stops."""

import io
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import get_ident

import joblib
import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from sklearn.utils import parallel as sklearn_parallel

from bsdr_models.inference.tasks import ProgressBar, run_in_threads, run_tasks, threads
from bsdr_models.numerics.process_state import recorded_warnings


def draw(stream):
    """Something of every size that BLAS treats differently."""
    A = stream.standard_normal((60, 40))
    return np.linalg.solve(A.T @ A + np.eye(40), A.T @ A[:, :3])


def streams(n):
    return np.random.default_rng(0).spawn(n)


@pytest.mark.slow
def test_results_have_the_same_bits_whatever_runs_in_parallel():
    alone = run_tasks(draw, streams(5))
    shared = run_tasks(draw, streams(5), n_jobs=2)
    np.testing.assert_array_equal(alone.results, shared.results)
    assert len(alone.results) == 5


def test_none_is_one_unless_joblib_is_told_otherwise():
    seen = partial(run_tasks, lambda _: get_ident(), range(4))
    assert set(seen().results) == {get_ident()}
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert get_ident() not in seen().results
        assert set(seen(n_jobs=1).results) == {get_ident()}


def test_every_worker_has_one_thread():
    def threads(_):
        from threadpoolctl import threadpool_info

        return os.getpid(), {pool["num_threads"] for pool in threadpool_info()} or {1}

    found = run_tasks(threads, range(2), n_jobs=2).results
    for process, counts in found:
        assert process != os.getpid()
        assert counts == {1}


def test_an_error_of_a_task_comes_through():
    def fail(_):
        raise ZeroDivisionError("a mistake")

    for n_jobs in (1, 2):
        with pytest.raises(ZeroDivisionError, match="a mistake"):
            run_tasks(fail, range(3), n_jobs=n_jobs)


def test_an_interrupt_keeps_what_there_is():
    def stopped_at(number):
        if number == 2:
            raise KeyboardInterrupt
        return number

    outcome = run_tasks(stopped_at, range(5))
    assert outcome.results == [0, 1]
    assert outcome.interrupted
    with pytest.raises(KeyboardInterrupt):
        run_tasks(stopped_at, range(2, 5))


@pytest.mark.slow
def test_a_real_interrupt_while_workers_are_busy():
    """The second task would take longer than the time that the process has."""
    code = """
import os, signal, time
from bsdr_models.inference.tasks import ProgressBar, run_tasks

# Of a shell that works in the background a process inherits that it is not to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

def task(number):
    time.sleep(10_000 * number)
    return number

# When the first result comes.
ProgressBar.update = lambda bar: signal.raise_signal(signal.SIGINT)
outcome = run_tasks(task, range(2), n_jobs=2)
print(outcome.results, outcome.interrupted)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert found.stdout.strip() == "[0] True"


@pytest.fixture
def on_dask(threads_cluster):
    with threads_cluster.as_current(), joblib.parallel_config("dask"):
        yield


def test_parallel_run_on_the_cluster(on_dask):
    outcome = run_tasks(os.path.basename, ["a/0", "a/1", "a/2"])
    assert outcome.results == ["0", "1", "2"]


def test_calls_in_threads_keep_their_order_and_have_one_thread():
    """Those within a call too."""

    def within(number):
        return number, get_ident(), set(run_in_threads(lambda _: get_ident(), range(3)))

    assert {each[1] for each in run_in_threads(within, range(9))} == {get_ident()}
    with threads(2):
        found = run_in_threads(within, range(9))
    assert [number for number, _, _ in found] == list(range(9))
    assert get_ident() not in {own for _, own, _ in found}
    assert all(inner == {own} for _, own, inner in found)


def test_threads_warn_and_fail_as_their_caller():
    def fail(number):
        warnings.warn(f"call {number}", stacklevel=2)
        return np.float64(1.0) / number

    with threads(2), recorded_warnings("call") as record, np.errstate(divide="raise"):
        assert run_in_threads(fail, [1, 2]) == [1.0, 0.5]
        assert sorted(str(each.message) for each in record) == ["call 1", "call 2"]
        with pytest.raises(FloatingPointError):
            run_in_threads(fail, [1, 0])


@pytest.mark.parametrize("action", ["ignore", "error"])
def test_a_thread_that_records_leaves_others_their_filters(action):
    """While a stack fits, what other threads ignore stays quiet."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        with recorded_warnings() as record, ThreadPoolExecutor(1) as other:
            warned = other.submit(warnings.warn, "theirs")
            assert (warned.exception() is not None) == (action == "error")
            warnings.warn("mine", stacklevel=1)
            pickle.loads(pickle.dumps(warnings.filters))  # for processes of scikit-learn
            assert sklearn_parallel.Parallel(2, prefer="threads")(
                sklearn_parallel.delayed(abs)(number) for number in (-1, -2)
            ) == [1, 2]
    assert not shown
    assert [str(each.message) for each in record] == ["mine"]


def test_a_bar_shows_fields_and_ends_with_the_block(capsys):
    bar = ProgressBar(10, "Mean field")
    with bar:
        bar.update(4, elbo=-12.3456789, stage="warm-up")
    printed = capsys.readouterr().out
    for word in ("Mean field", "4/10", "elbo=-12.3457", "stage=warm-up"):
        assert word in printed, word
    bar.update(1)
    assert capsys.readouterr().out == ""


def test_a_bar_that_is_broken_off_is_not_full(capsys):
    def broken_off():
        with ProgressBar(50, "Broken off") as bar:
            bar.update(20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert "20/50" in capsys.readouterr().out


def test_a_bar_within_another_display():
    with Progress(console=Console(file=io.StringIO(), force_terminal=True)) as outer:
        task = outer.add_task("Folds", total=2)
        for _ in range(2):
            with ProgressBar(3, "Fit") as bar:
                bar.update()
            outer.advance(task)
        assert outer.finished
