"""How the time of a sweep of BSDR grows with samples, features, classes and components."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks import floors
from benchmarks.charts import name_ends, save
from benchmarks.evidence.page import table as as_markdown
from benchmarks.sweeps import PRIORS, Case, features, problem, started
from benchmarks.timing import Work, medians
from bsdr_models.bsdr import mean_field
from bsdr_models.plots._style import GREY, STYLE, color

BASE = Case(n=1000, d=100, k=5, r=5, prior="entrywise")
SIZES = {
    "n": (250, 1000, 4000, 16_000),
    "d": (25, 50, 100, 200, 400, 800),
    "k": (2, 5, 10, 20, 40),
    "r": (1, 2, 5, 10, 20),
}
NAMES = {"n": "rows N", "d": "features D", "k": "classes K", "r": "components R"}
# Size, seconds of a sweep, and the lower bound.
Point = tuple[int, float, float]


def measure(case: Case) -> tuple[float, float]:
    """Seconds of a sweep with its bound, which must not decrease, and of the lower bound."""
    data = problem(case)
    state = started(case, data)
    bounds: list[float] = []

    def sweep(_: object) -> None:
        nonlocal state
        state, info = mean_field.step(state, data, PRIORS)
        bounds.append(info.elbo)

    seconds, factor, product = medians(
        Work(run=sweep),
        floors.factorisations(data, state.projection_precision.mean, PRIORS.latent_scale**2),
        floors.products(features(case), case.r),
        seconds=1.0,
    )
    falls = (b < a - 1e-9 * abs(a) for a, b in pairwise(bounds))
    assert not any(falls), "the bound fell"
    return seconds, factor + product + floors.cone_seconds(data, mean_field.N_NODES)


def draw(found: dict[str, list[Point]]) -> Figure:
    """A panel for each size, both axes logarithmic."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(found), figsize=(10.0, 3.0), sharey=True, layout="constrained"
        )
        for ax, (size, points) in zip(axes, found.items(), strict=True):
            x, seconds, floor = zip(*points, strict=True)
            ax.plot(x, [1e3 * s for s in seconds], "o-", color=color(0), label="sweep")
            ax.plot(x, [1e3 * s for s in floor], "--", color=GREY, label="floor")
            ax.set(xscale="log", yscale="log", xlabel=NAMES[size])
            ax.set_xticks(x, [f"{each}" for each in x], minor=False)
            ax.set_xticks([], minor=True)
        axes[0].set_ylabel("ms")
        name_ends(axes)
    return figure


def report(folder: Path | None = None) -> str:
    """Markdown table; with a folder also its plot, ``scaling.png`` in it."""
    found: dict[str, list[Point]] = {}
    for size, values in SIZES.items():
        cases = (replace(BASE, **{size: value}) for value in values)
        found[size] = [(value, *measure(case)) for value, case in zip(values, cases, strict=True)]
    rows = [
        [f"{NAMES[size]} = {value}", f"{1e3 * s:.3g}", f"{1e3 * floor:.3g}", f"{s / floor:.2f}"]
        for size, points in found.items()
        for value, s, floor in points
    ]
    shown = ""
    if folder is not None:
        save(draw(found), folder / "scaling.png")
        shown = f"![Milliseconds of a sweep and its floor]({folder.name}/scaling.png)\n\n"
    base = f"N = {BASE.n}, D = {BASE.d}, K = {BASE.k}, R = {BASE.r}"
    return (
        f"### How a sweep grows\n\n{base}, {BASE.prior} prior, one of them changed at a time; the "
        f"floor is that of the sweeps.\n\n{shown}"
        f"{as_markdown(['', 'sweep ms', 'floor ms', 'sweep / floor'], rows)}\n"
    )
