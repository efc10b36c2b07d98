"""Samples one by one: table of the map, and outliers within the latent space and outside it."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.special import entr

from bsdr_models.dims import COMPONENT, COMPONENT_AUX, LABEL, OBS
from bsdr_models.numerics.outliers import q_limit, t2_limit
from bsdr_models.plots._layers import draw_points
from bsdr_models.plots._names import Names
from bsdr_models.plots._read import Classes, Values, check_prob, label_values, read, read_target
from bsdr_models.plots._style import INK, add_legend, axes_or_new, set_title, styled

OUTLIER_MEASURES = ("t2", "q_residual", "out_of_range", "tail_probability")
FAR = 8.0  # multiple of a limit beyond which an axis becomes logarithmic
ATTRS = ("reference_rows", "t2_rank", "q_scale", "q_dof")  # which limits depend on
MAX_NAMED = 8  # outliers named


def map_table(tree: xr.DataTree, group: Literal["fit", "predictions"] = "fit") -> xr.Dataset:
    r"""Table of samples: latent coordinates, classes, their uncertainty, and outlier measures.

    Parameters
    ----------
    tree
        Needs `latent_mean` and `latent_cov` in `group`, or `probability`.
    group
        "fit" for the training samples, predicted without their labels, "predictions"
        for new ones.

    Returns
    -------
    Dataset
        If known, `mean` and `sd` (obs, component) of the latent coordinates, and the class or value
        `observed` (obs,). If the group has class probabilities: `predicted` (obs,), the largest
        probability `confidence` (obs,), and `entropy` (obs,), :math:`-\sum_c p_c \log p_c` in nats.
        If the group has them: `t2` and `q_residual` (linear maps) or `out_of_range` (D-GPLVM), and
        `tail_probability`, which is small for outliers.

    See Also
    --------
    plot_map : the plot.
    plot_outliers : T2 and Q.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> table = plots.map_table(tree, "predictions")
    >>> table["confidence"].sizes
    Frozen({'obs': 89})
    """
    dataset = read(tree, group)
    table = xr.Dataset(coords={OBS: dataset[OBS]})
    if "probability" not in dataset or "latent_mean" in dataset:
        dataset = read(tree, group, "latent_mean", "latent_cov")
        cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
        mean = dataset["latent_mean"].transpose(OBS, COMPONENT)
        table["mean"], table["sd"] = mean, mean.copy(data=np.sqrt(np.diagonal(cov, 0, 1, 2)))
    match read_target(tree, group):
        case Classes(index=index, names=names, title=title) if title != "predicted class":
            table["observed"] = (OBS, np.array([*names, "no label"])[index])
        case Values(values=values):
            table["observed"] = (OBS, values)
    if "probability" in dataset:
        probability = dataset["probability"].transpose(OBS, LABEL).values
        best = probability.argmax(axis=1)
        table["predicted"] = (OBS, label_values(tree, group)[best])
        table["confidence"] = (OBS, probability.max(axis=1))
        table["entropy"] = (OBS, entr(probability).sum(axis=1))
    for name in OUTLIER_MEASURES:
        if name in dataset:
            table[name] = dataset[name]
    return table.drop_vars(LABEL, errors="ignore")


@styled
def plot_outliers(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] = "fit",
    prob: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Plot Hotelling's T2 of the samples against their Q residual, with limits.

    T2 is the squared distance from the mean within the latent space, Q the squared residual of the
    features (:mod:`bsdr_models.numerics.outliers`). Each training sample is compared with the
    others. The limits hold `prob` of normal samples: an F quantile for T2, and a quantile of the
    chi-square with the two moments of Q. Samples beyond a limit are named.

    Parameters
    ----------
    tree
        Needs `t2` and `q_residual` (obs,) in `group`, which linear models have, and the root
        attributes `reference_rows`, `t2_rank`, `q_scale` and `q_dof`.
    group
        "fit" for the training samples, "predictions" for new ones.
    prob
        Probability of each limit.
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
    check_prob("prob", prob)
    dataset = read(tree, group, "t2", "q_residual")
    if missing := [name for name in ATTRS if name not in tree.attrs]:
        raise ValueError(f"the tree has no root attribute {', '.join(map(repr, missing))}")
    n_samples = int(tree.attrs["reference_rows"]) - (group == "fit")
    t2, q = dataset["t2"].values, dataset["q_residual"].values
    limit = t2_limit(prob, n_samples, int(tree.attrs["t2_rank"]))
    scale = float(tree.attrs["q_scale"])
    q_end = q_limit(prob, scale, float(tree.attrs["q_dof"])) if scale > 0.0 else np.inf
    out = np.flatnonzero((t2 > limit) | (q > q_end))
    points = np.column_stack([t2, q])
    target = read_target(tree, group)
    n_names = len(target.names) if isinstance(target, Classes) else 1
    ax = axes_or_new(ax, width=7.2, height=5.2, n_names=n_names)
    draw_points(ax, points, target)
    line: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
    ax.axvline(limit, gid="t2-limit", **line)
    if np.isfinite(q_end):
        ax.axhline(q_end, gid="q-limit", **line)
    # Far outliers would compress all others into a corner.
    if t2.max() > FAR * limit:
        ax.set_xscale("asinh", linear_width=limit)
        ax.set_xticks(*_decades(limit, t2.max()), minor=False)
    if np.isfinite(q_end) and q.max() > FAR * q_end:
        ax.set_yscale("asinh", linear_width=q_end)
        ax.set_yticks(*_decades(q_end, q.max()), minor=False)
    ax.set_xlim(0.0, 1.06 * max(t2.max(), limit))
    ax.set_ylim(0.0, 1.08 * max(q.max(), q_end) if np.isfinite(q_end) else 1.0)
    ax.set(xlabel="T², within the latent space", ylabel="Q residual, outside the latent space")
    if isinstance(target, Classes):
        add_legend(ax, title=target.title)
    of_q = f", Q {q_end:.3g}" if np.isfinite(q_end) else "; no residual"
    note = f"Dashed: {prob:.0%} limits, T² {limit:.3g}{of_q}."
    set_title(ax, f"{len(out)} of {len(t2)} samples beyond the limits", note)
    excess = np.maximum(t2 / limit, q / q_end)[out]
    named = out[np.argsort(-excess, kind="stable")][:MAX_NAMED]
    names = [str(name) for name in dataset[OBS].values[named]]
    Names(ax, points[named], names, centre=np.zeros(2), avoid=points)
    return ax


def _decades(begin: float, end: float) -> tuple[list[float], list[str]]:
    """Ticks at zero, `begin` and at most six powers of ten up to `end`, and their labels."""
    powers = np.arange(np.ceil(np.log10(2.0 * begin)), np.floor(np.log10(end)) + 1.0)
    powers = powers[:: 1 + (len(powers) - 1) // 6]
    names = [f"{10.0**p:g}" if -3 <= p < 5 else f"$10^{{{p:.0f}}}$" for p in powers]
    return [0.0, begin, *(10.0**powers)], ["0", f"{begin:.3g}", *names]
