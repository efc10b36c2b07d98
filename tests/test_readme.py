"""The README is short, and its code blocks run as they stand."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import load_wine

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", README, re.M | re.S)


def run(title, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    exec(dict(BLOCKS)[title], names)
    plt.close("all")
    return names


@pytest.fixture
def samples(tmp_path):
    """A CSV table with column names, text classes and features in their own units."""
    data = load_wine(as_frame=True)
    table = data.data.assign(**{"class": data.target_names[data.target]})
    table.to_csv(tmp_path / "samples.csv", index=False)
    return tmp_path


@pytest.mark.slow
def test_a_csv_becomes_a_report_in_fewer_than_ten_lines(samples, monkeypatch):
    tree = run("From a table to a report", samples, monkeypatch)["held_out"]
    assert dict(BLOCKS)["From a table to a report"].count("\n") < 10
    assert tree["predictions"]["outcome"].values.tolist() == ["class_0", "class_1", "class_2"]
    page = (samples / "report.html").read_text()
    assert page.count("data:image/png") == 3
    assert "178 held-out samples" in page


def test_the_six_lines_print_what_the_readme_says(tmp_path, monkeypatch, capsys):
    run("In six lines", tmp_path, monkeypatch)
    (said,) = re.findall(r"```text\n(.*?)```", README, re.S)
    numbers = [
        np.array(re.findall(r"[\d.]+", text), float) for text in (capsys.readouterr().out, said)
    ]
    np.testing.assert_allclose(*numbers, atol=0.05)
