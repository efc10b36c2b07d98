"""The README is short, and its code blocks run as they stand."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", README, re.M | re.S)


def run(title, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    exec(dict(BLOCKS)[title], names)
    plt.close("all")
    return names


@pytest.mark.usefixtures("coarse_pictures", "short_runs")
@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_the_six_lines_print_what_the_readme_says(tmp_path, monkeypatch, capsys):
    run("In six lines", tmp_path, monkeypatch)
    (said,) = re.findall(r"```text\n(.*?)```", README, re.S)
    numbers = [
        np.array(re.findall(r"[\d.]+", text), float) for text in (capsys.readouterr().out, said)
    ]
    np.testing.assert_allclose(*numbers, atol=0.05)
