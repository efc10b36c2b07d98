"""The progress bar: what it counts, where it ends, and other displays around it."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from bsdr_models.inference.callbacks import ProgressBar


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
