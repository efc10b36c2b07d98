"""Samples in a plane of latent coordinates, and loadings of features as arrows."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.inference.datatree import read
from bsdr_models.inference.dims import COMPONENT, FEATURE, OBS
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.latent import ALIVE
from bsdr_models.plots._layers import Names, draw_points
from bsdr_models.plots._read import caveats, read_target
from bsdr_models.plots._style import INK, set_title, styled

REACH = 0.8  # length of the longest arrow, as a fraction of the radius of the samples


@styled
def plot_biplot(
    tree: xr.DataTree,
    *,
    n_features: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Plot training samples in the first two components, and loadings of features.

    Samples are at their posterior-mean coordinates. An arrow is a feature's loading times a factor
    common to all, given in the caption, and begins at the mean of the samples: it shows how an
    increase of that scaled feature by the factor moves a sample. Both axes have the same scale, so
    directions are correct.

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component) and `projection_mean` (feature, component) in "fit".
    n_features
        Number of arrows: the first in the order of :func:`features_table`.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    plot_features : effects with intervals.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> ax = plots.plot_biplot(model.idata_, n_features=5)
    """
    fit = read(tree, "fit", "latent_mean", "projection_mean")
    if fit.sizes[COMPONENT] < 2:
        raise ValueError("a biplot needs two components; plot_features shows one by one")
    mean = fit["latent_mean"].transpose(OBS, COMPONENT).values[:, :2]
    loadings = fit["projection_mean"].transpose(FEATURE, COMPONENT).values[:, :2]
    strength = fit["explained"].values if "explained" in fit else np.hypot(*loadings.T)
    top = np.argsort(-strength, kind="stable")[:n_features]
    features = fit[FEATURE].values[top]
    number = np.issubdtype(features.dtype, np.number)
    named = [f"feature {name}" if number else str(name) for name in features]
    centre = mean.mean(axis=0)
    factor = _factor(mean, loadings[top])
    tips = centre + factor * loadings[top]
    width = np.ptp(np.concatenate([mean, tips]), axis=0)
    slope = width[1] / width[0] if width[0] > 0.0 else np.inf
    height = 1.2 + float(np.clip(4.8 * slope, 2.6, 4.4))
    target = read_target(tree, "fit")
    ax = draw_points(ax, mean, target, width=7.2, height=height, alpha=0.55)  # behind the arrows
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkB": 0.0}
    for tip in tips:
        ax.annotate("", xy=tip, xytext=(centre[0], centre[1]), arrowprops=style, zorder=4)
    ax.update_datalim(tips)  # which annotations leave
    ax.margins(0.09)
    ax.set_aspect("equal", adjustable="datalim")
    which = f"the first {len(top)} of {len(loadings)}" if len(top) < len(loadings) else "all"
    note = (
        f"Points: posterior means. Arrows ({which}, as by plot_features): loadings times "
        f"{factor:.2g}, the effect of a rise by {factor:.2g} scaled units."
    )
    if width.min() < ALIVE * width.max():
        note += f" Nearly switched off: component {1 + width.argmin()}."
    ax.set(xlabel="component 1", ylabel="component 2")
    note += caveats(tree, "latent coordinates and loadings are approximate")
    set_title(ax, "Samples and features", note)
    along = np.linspace(centre, tips, 40).reshape(-1, 2)
    Names(ax, tips, named, avoid=np.concatenate([mean, along]))
    return ax


def _factor(mean: FloatArray, loadings: FloatArray) -> float:
    """Factor, to two digits, by which the longest arrow nearly reaches the outer samples."""
    far = np.quantile(np.hypot(*(mean - mean.mean(axis=0)).T), 0.95)
    longest = np.hypot(*loadings.T).max()
    return float(f"{REACH * far / longest:.2g}") if longest > 0.0 else 1.0
