"""Convergence of the evidence lower bound."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bsdr_models.dims import ITERATION, TERM
from bsdr_models.plots._read import read
from bsdr_models.plots._style import (
    GREY,
    INK,
    POSITIVE,
    add_legend,
    axes_or_new,
    color,
    set_title,
    styled,
)

STROKES = ("-", "--")  # the second for terms six to ten, whose colours are too similar
NEGLIGIBLE = 0.1  # nats


@styled
def plot_bound(tree: xr.DataTree, *, by_term: bool = False, ax: Axes | None = None) -> Axes:
    """Plot the distance of the evidence lower bound to its last value over the iterations.

    The distance is on a logarithmic scale, since the bound rises most in the first iterations. The
    title says whether the ascent converged, and the last value.

    Parameters
    ----------
    tree
        Needs `fit/elbo` (iteration,), or `fit/elbo_terms` (iteration, term).
    by_term
        Show each term minus its last value; these add up to the same for the bound. Single terms
        may fall, the bound may not.
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
    if by_term:
        return _plot_terms(read(tree, "fit", "elbo_terms")["elbo_terms"], ax)
    elbo = read(tree, "fit", "elbo")["elbo"]
    iteration, bound = elbo[ITERATION].values, elbo.values
    gap = bound[-1] - bound[:-1]
    ax = axes_or_new(ax, height=4.2)
    if np.any(gap > 0.0):
        ax.plot(iteration[:-1], np.where(gap > 0.0, gap, np.nan), color=POSITIVE, linewidth=1.8)
        ax.set_yscale("log")
        ax.axhline(NEGLIGIBLE, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    else:  # a single iteration
        ax.plot(iteration, 0.0 * bound, "o", color=POSITIVE)
    name = tree.attrs.get("objective", "evidence lower bound")
    ax.set(xlabel="iteration", ylabel="nats below the last value")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    note = f"{name.capitalize()} {bound[-1]:,.2f} nats after {len(bound)} iterations. "
    note += f"Dashed: {NEGLIGIBLE:g} nats, a difference that hardly matters."
    set_title(ax, f"Bound: {_state(tree)}", note)
    return ax


def _state(tree: xr.DataTree) -> str:
    """How the ascent ended."""
    if tree.attrs.get("interrupted", 0):
        return "interrupted"
    if "converged" not in tree.attrs:
        return f"{tree['fit'].sizes[ITERATION]} iterations"
    return "converged" if tree.attrs["converged"] else "stopped at max_iter"


def _plot_terms(terms: xr.DataArray, ax: Axes | None) -> Axes:
    iteration = terms[ITERATION].values
    values = terms.transpose(ITERATION, TERM).values
    difference = values - values[-1]
    ax = axes_or_new(ax, width=7.6, height=4.4)
    for i, name in enumerate(terms[TERM].values):
        text = f"{name}  {values[-1, i]:,.1f}"
        ax.plot(iteration, difference[:, i], STROKES[i // 5 % 2], color=color(i), label=text)
    whole = f"bound  {values[-1].sum():,.1f}"
    ax.plot(iteration, difference.sum(axis=1), color=INK, linewidth=2.2, zorder=1.5, label=whole)
    ax.set_yscale("asinh", linear_width=1.0)
    decades = 10.0 ** np.arange(1.0 + np.floor(np.log10(1.0 + np.abs(difference).max())))
    decades = decades[:: 1 + len(decades) // 6]
    ax.set_yticks([*-decades[::-1], 0.0, *decades])
    ax.set_yticks([], minor=True)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.axhline(0.0, color=INK, linewidth=0.6, zorder=1)
    ax.set(xlabel="iteration", ylabel="difference from the last value (nats)")
    add_legend(ax, title="term, last value")
    note = "Linear up to 1 nat, logarithmic beyond."
    set_title(ax, "Terms of the lower bound", note)
    return ax
