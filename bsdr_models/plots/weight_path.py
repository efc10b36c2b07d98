"""Held-out error against the weight of the classes in the prior of the latent coordinates."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import APPROXIMATION, WEIGHT
from bsdr_models.plots._read import read
from bsdr_models.plots._style import (
    INK,
    POSITIVE,
    axes_or_new,
    color,
    marker,
    name_lines,
    set_title,
    styled,
)

STROKES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
APART = 1.12  # factor between two classification methods at an end of the axis
MEASURES = {"error": ("error rate", "Error"), "log_loss": ("log loss (nats/sample)", "Log loss")}


@styled
def plot_weight_path(
    tree: xr.DataTree | xr.Dataset,
    *,
    measure: Literal["error", "log_loss"] = "error",
    ax: Axes | None = None,
) -> Axes:
    """Plot error or log loss against the weight of the classes, on a logarithmic axis.

    On the left the latent coordinates explain the features, on the right they separate the classes.
    Weights of zero (no classes) and infinity (classes only) are drawn at the ends.

    Parameters
    ----------
    tree
        Tree with a group "weight_path", or that dataset: `error` or `log_loss` over `weight` and,
        with several classification methods, `approximation`; `error_sd` or `log_loss_sd` are drawn
        as a band. Its attribute `chosen_weight` is marked.
    measure
        Which of the two.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    bsdr_models.DGPLVMPriors : its `weight`.

    Examples
    --------
    >>> import xarray as xr
    >>> from bsdr_models import plots
    >>> path = xr.Dataset({"error": ("weight", [0.3, 0.1, 0.2])}, {"weight": [0.1, 1.0, 10.0]})
    >>> ax = plots.plot_weight_path(path)
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {sorted(MEASURES)}, got {measure!r}")
    if isinstance(tree, xr.Dataset):
        tree = xr.DataTree.from_dict({"weight_path": tree})
    path = read(tree, "weight_path", measure).sortby(WEIGHT)
    weight = path[WEIGHT].values.astype(np.float64)
    if np.any(weight < 0.0) or not np.any(np.isfinite(weight) & (weight > 0.0)):
        raise ValueError(f"weights must be at least 0, and one of them positive: {weight.tolist()}")
    chosen = path.attrs.get("chosen_weight")
    shown = weight if chosen is None else np.append(weight, float(chosen))
    place = _places(shown)[: len(weight)]
    inner = np.isfinite(weight) & (weight > 0.0)
    names = path[APPROXIMATION].values.tolist() if APPROXIMATION in path[measure].dims else [None]
    band = f"{measure}_sd" in path

    ax = axes_or_new(ax, width=7.2 if len(names) > 1 else 6.4, height=4.2)
    lines = {}
    for i, name in enumerate(names):
        one = path if name is None else path.sel({APPROXIMATION: name})
        values = one[measure].values
        shade = POSITIVE if name is None else color(i)
        symbol: dict[str, Any] = {"color": shade, "marker": marker(i), "markersize": 6.0}
        stroke = STROKES[i % len(STROKES)]
        (line,) = ax.plot(
            place[inner], values[inner], linestyle=stroke, linewidth=1.8, label=name, **symbol
        )
        lines[line] = str(name)
        # Side by side at the ends, where there are no lines.
        beside = place[~inner] * APART ** (i - 0.5 * (len(names) - 1))
        ax.plot(beside, values[~inner], linestyle="none", markerfacecolor="white", **symbol)
        if band:
            sd = one[f"{measure}_sd"].values
            low, high = np.maximum(values - sd, 0.0), values + sd
            ax.vlines(beside, low[~inner], high[~inner], colors=shade, linewidth=1.2, alpha=0.6)
            opacity = 0.16 if len(names) < 3 else 0.08
            area = ax.fill_between(place[inner], low[inner], high[inner], color=shade)
            area.set(alpha=opacity, linewidth=0.0, zorder=1, gid="band")
    ax.set_xscale("log")
    _mark_ends(ax, weight, place)
    axis_name, title = MEASURES[measure]
    ax.set(xlabel="weight of the classes", ylabel=axis_name)
    ax.set_ylim(bottom=max(0.0, ax.get_ylim()[0]))
    note = _note(path, measure, weight, names)
    if band:
        note += " Bands: one standard deviation."
    if chosen is not None:
        ax.axvline(
            float(_places(shown)[-1]),
            color=INK,
            linewidth=1.2,
            linestyle=(0, (4, 2)),
            zorder=1.5,
            gid="chosen",
        )
        note += f" Dashed: chosen weight, {_text(float(chosen))}."
    if len(names) > 1:
        name_lines(ax, lines)
    set_title(ax, f"{title} against the weight of the classes", note)
    return ax


def _places(weight: FloatArray) -> FloatArray:
    """Axis coordinates of weights (W,): 0 and infinity lie one step beyond the rest."""
    inner = weight[np.isfinite(weight) & (weight > 0.0)]
    low, high = inner.min(), inner.max()
    step = max((high / low) ** 0.12, 3.0)
    return np.where(weight == 0.0, low / step, np.where(np.isinf(weight), high * step, weight))


def _mark_ends(ax: Axes, weight: FloatArray, place: FloatArray) -> None:
    """Put ticks at powers of ten, and at zero and infinity at the ends."""
    inner = place[np.isfinite(weight) & (weight > 0.0)]
    powers = np.arange(np.floor(np.log10(inner.min())), np.ceil(np.log10(inner.max())) + 1.0)
    ticks = {10.0**p: f"$10^{{{p:.0f}}}$" for p in powers[:: 1 + len(powers) // 8]}
    ticks = {
        at: text for at, text in ticks.items() if 0.99 * inner.min() <= at <= 1.01 * inner.max()
    }
    for end, text in ((0.0, "0"), (np.inf, "∞")):
        if np.any(weight == end):
            ticks[float(place[weight == end][0])] = text
    if len(ticks) < 2:
        ticks = {float(at): _text(w) for at, w in zip(place, weight, strict=True)}
    ax.xaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.xaxis.set_minor_locator(NullLocator())


def _note(path: xr.Dataset, measure: str, weight: FloatArray, names: list[Any]) -> str:
    """Caption with the minimum of each curve."""
    found = []
    for name in names:
        values = (path if name is None else path.sel({APPROXIMATION: name}))[measure].values
        best = int(np.nanargmin(values))
        who = "" if name is None else f"{name} "
        found.append(f"{who}{values[best]:.3g} at {_text(weight[best])}")
    return f"Lowest: {'; '.join(found)}."


def _text(weight: float) -> str:
    return "∞" if np.isinf(weight) else f"{weight:.3g}"
