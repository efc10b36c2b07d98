"""CPU seconds of fits as the data grow: the three models and three rivals, settings chosen."""

import time
import warnings
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from benchmarks.charts import name_ends, plain_ticks, save
from benchmarks.methods import METHODS
from benchmarks.page import table as as_markdown
from benchmarks.protocols import Training
from benchmarks.tables import OURS
from bsdr_models.plots._style import STYLE, color, marker

# Samples, features, classes, components; one is changed at a time.
BASE = {"N": 100, "D": 50, "K": 5, "R": 2}
GRID = {
    "N": (50, 100, 200, 400, 800),
    "D": (10, 50, 250, 1000, 5000),
    "K": (2, 5, 10, 20),
    "R": (1, 2, 4, 8),
}
NAMES = {"N": "samples N", "D": "features D", "K": "classes K", "R": "components R"}
COMPARED = (*OURS, "shrinkage LDA", "NCA", "RBF support vectors")


def seconds(method: str, *, N: int, D: int, K: int, R: int) -> float:
    """CPU seconds of a fit to K normal classes whose means differ in eight features."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = rng.standard_normal((N, D))
    X[:, :8] += 1.5 * rng.standard_normal((K, 8))[y][:, : min(8, D)]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        METHODS[method].fit(Training(X=X, y=y, n_classes=K), R, 0)
    return time.process_time() - start


def measure() -> dict[tuple[str, str, int], float]:
    """By method, what is changed, and its value; compiled code is loaded before."""
    found = {}
    for method in COMPARED:
        seconds(method, N=30, D=5, K=3, R=2)
        for name, values in GRID.items():
            for value in values:
                found[method, name, value] = seconds(method, **BASE | {name: value})
    return found


def draw(found: dict[tuple[str, str, int], float]) -> Figure:
    """A panel for each size, a line for each method, both axes logarithmic."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 4, figsize=(10.0, 3.4), layout="constrained", sharey=True)
        for ax, (name, values) in zip(axes, GRID.items(), strict=True):
            for index, method in enumerate(COMPARED):
                times = [found[method, name, value] for value in values]
                style = {"color": color(index), "marker": marker(index), "markersize": 4.5}
                width = 2.0 if method in OURS else 1.2
                ax.plot(values, times, label=method, linewidth=width, **style)
            ax.set(xscale="log", yscale="log", xlabel=NAMES[name])
            ax.set_xticks(values, [str(value) for value in values])
            plain_ticks(ax, subs=(1.0, 2.0, 5.0))
        axes[0].set_ylabel("CPU seconds of a fit")
        name_ends(axes)
    return figure


def report(folder: Path | None) -> str:
    """Measure; Markdown of the picture and of the largest sizes."""
    found = measure()
    if folder is not None:
        save(draw(found), folder / "growth.png")
    shown = {"base": ("N", BASE["N"])}
    shown |= {f"{name} = {values[-1]}": (name, values[-1]) for name, values in GRID.items()}
    head = ["CPU s", *shown]
    body = [[m, *(f"{found[m, *size]:.2g}" for size in shown.values())] for m in COMPARED]
    return "![CPU seconds of a fit by size](growth.png)\n\n" + as_markdown(head, body)
