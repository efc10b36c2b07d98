"""Outliers to a linear map."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.inference.datatree import read
from bsdr_models.inference.dims import OBS
from bsdr_models.numerics.latent import q_limit, t2_limit
from bsdr_models.plots._layers import Names, draw_points
from bsdr_models.plots._read import read_target
from bsdr_models.plots._style import INK, set_title, styled

# Probability of each limit of normal samples.
PROB = 0.95
# Multiple of a limit beyond which an axis of outliers becomes nearly logarithmic.
FAR = 8.0
MAX_NAMED = 8  # outliers named
DASHED: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2))}
LIMITS = ("reference_rows", "t2_rank", "q_scale", "q_dof")  # attributes on which limits depend


@styled
def plot_outliers(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] = "fit",
    ax: Axes | None = None,
) -> Axes:
    """Plot Hotelling's T2 of the samples against their Q residual, with limits.

    T2 is the squared distance from the mean within the latent space, Q the squared residual of the
    features (:mod:`bsdr_models.numerics.latent`). Each training sample is compared with the
    others. The limits hold 95 % of normal samples: an F quantile for T2, and a quantile of the
    chi-square with the two moments of Q. Samples beyond a limit are named.

    Parameters
    ----------
    tree
        Needs `t2` and `q_residual` (obs,) in `group`, which linear models have, and the root
        attributes `reference_rows`, `t2_rank`, `q_scale` and `q_dof`.
    group
        "fit" for the training samples, "predictions" for new ones.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    map_table : T2, Q and tail probability of each sample.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> ax = plots.plot_outliers(tree, group="predictions")
    """
    dataset = read(tree, group, "t2", "q_residual")
    if missing := [name for name in LIMITS if name not in tree.attrs]:
        raise ValueError(f"the tree has no root attribute {', '.join(map(repr, missing))}")
    n_samples = int(tree.attrs["reference_rows"]) - (group == "fit")
    t2 = dataset["t2"].values
    q = dataset["q_residual"].values
    limit = t2_limit(PROB, n_samples, int(tree.attrs["t2_rank"]))
    scale = float(tree.attrs["q_scale"])
    q_end = q_limit(PROB, scale, float(tree.attrs["q_dof"])) if scale > 0.0 else np.inf
    out = np.flatnonzero((t2 > limit) | (q > q_end))
    points = np.column_stack([t2, q])
    ax = draw_points(ax, points, read_target(tree, group), width=7.2, height=5.2)
    ax.axvline(limit, gid="t2-limit", color=INK, zorder=1, **DASHED)
    if np.isfinite(q_end):
        ax.axhline(q_end, gid="q-limit", color=INK, zorder=1, **DASHED)
    # Far outliers would compress all others into a corner.
    if t2.max() > FAR * limit:
        ax.set_xscale("asinh", linear_width=limit, base=0)
        ax.locator_params(axis="x", numticks=7)
    if q.max() > FAR * q_end:
        ax.set_yscale("asinh", linear_width=q_end, base=0)
    ax.margins(0.06)
    ax.set_xlim(left=0.0)
    ax.set_ylim(0.0, None if np.isfinite(q_end) else 1.0)
    ax.set(xlabel="T², within the latent space", ylabel="Q residual, outside the latent space")
    of_q = f", Q {q_end:.3g}" if np.isfinite(q_end) else "; no residual"
    note = f"Dashed: {PROB:.0%} limits, T² {limit:.3g}{of_q}."
    set_title(ax, f"{len(out)} of {len(t2)} samples beyond the limits", note)
    excess = np.maximum(t2 / limit, q / q_end)[out]
    named = out[np.argsort(-excess, kind="stable")][:MAX_NAMED]
    names = [str(name) for name in dataset[OBS].values[named]]
    Names(ax, points[named], names, avoid=points)
    return ax
