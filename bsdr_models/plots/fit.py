"""How a fit by a bound has ended, and which components it uses."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bsdr_models.dims import COMPONENT, ITERATION
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import read
from bsdr_models.plots._style import (
    GREY,
    INK,
    PALE,
    POSITIVE,
    axes_or_new,
    set_title,
    styled,
)

NEGLIGIBLE = 0.1  # nats
DASHED = (0, (4, 2))


@styled
def plot_bound(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the distance of the evidence lower bound to its last value over the iterations.

    The distance is on a logarithmic scale, since the bound rises most in the first iterations. The
    title says whether the ascent converged, and the last value.

    Parameters
    ----------
    tree
        Needs `fit/elbo` (iteration,).
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    ValueError
        If the fit has no bound, as those by sampling and by Laplace's method.

    See Also
    --------
    bsdr_models.diagnose : convergence of samplers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import plots
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = PaperBSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_bound(model.idata_)
    """
    if "fit" in tree.children and "elbo" not in tree["fit"]:
        engine = tree.attrs.get("inference_method", "unknown")
        raise ValueError(
            f"group 'fit' has no variable 'elbo' (inference method: {engine}): samplers and "
            "Laplace's method maximise no bound; see bsdr_models.diagnose for their convergence"
        )
    elbo = read(tree, "fit", "elbo")["elbo"]
    iteration, bound = elbo[ITERATION].values, elbo.values
    below = bound[-1] - bound[:-1]
    ax = axes_or_new(ax, height=4.2)
    if np.any(below > 0.0):
        ax.plot(iteration[:-1], np.where(below > 0.0, below, np.nan), color=POSITIVE, linewidth=1.8)
        ax.set_yscale("log")
        ax.axhline(NEGLIGIBLE, color=GREY, linewidth=0.9, linestyle=DASHED, zorder=1)
    else:  # a single iteration
        ax.plot(iteration, 0.0 * bound, "o", color=POSITIVE)
    name = tree.attrs.get("objective", "evidence lower bound")
    ax.set(xlabel="iteration", ylabel="nats below the last value")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    note = f"{name.capitalize()} {bound[-1]:,.2f} nats after {len(bound)} iterations. "
    note += f"Dashed: {NEGLIGIBLE:g} nats, a difference that hardly matters."
    state = f"{len(bound)} iterations"
    if tree.attrs.get("interrupted", 0):
        state = "interrupted"
    elif "converged" in tree.attrs:
        state = "converged" if tree.attrs["converged"] else "stopped at max_iter"
    set_title(ax, f"Bound: {state}", note)
    return ax


@styled
def plot_relevance(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance of each component.

    Relevance is the component's share of the between-sample variance of latent coordinates times
    weights. Components below one per cent count as switched off by the prior.

    Parameters
    ----------
    tree
        Needs `fit/relevance` (component,).
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    map_table : latent coordinates.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_relevance(model.idata_)
    """
    fit = read(tree, "fit", "relevance")
    relevance = fit["relevance"].values
    order = np.argsort(-relevance, kind="stable")
    alive = relevance[order] >= ALIVE
    ax = axes_or_new(ax, width=max(4.6, 1.8 + 0.32 * len(order)), height=3.6)
    shades = np.where(alive, POSITIVE, PALE)
    bars = ax.bar(range(len(order)), relevance[order], color=shades, width=0.6)
    if len(order) <= 15:
        text = [f"{share:.0%}" if share >= ALIVE else f"<{ALIVE:.0%}" for share in relevance[order]]
        ax.bar_label(bars, text, padding=4, fontsize=8.5)
    ax.margins(y=0.12)
    ax.axhline(ALIVE, color=INK, linewidth=0.9, linestyle=DASHED)
    ax.set_xticks(range(len(order)), [str(name) for name in fit[COMPONENT].values[order]])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="component", ylabel="share of the variance")
    note = f"Variance of latent × weights between samples; below {ALIVE:.0%} (dashed) switched off."
    set_title(ax, f"{alive.sum()} of {len(order)} components in use", note)
    return ax
