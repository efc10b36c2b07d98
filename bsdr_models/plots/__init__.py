"""Plots of a fitted model, drawn from its DataTree alone.

Every function takes the tree first and `ax=` (a new figure by default), and returns the Axes. None
shows the figure or changes global settings. The figure of a given `ax` should use
``layout="constrained"``, which makes room for titles, captions and legends.

The numbers behind a plot are in an xarray Dataset (see `to_dataframe`): `map_table` and
`features_table`. Other plots show variables of the tree unchanged. Plots of
predictions, searches and predictive checks are those of scikit-learn and ArviZ.
"""

from bsdr_models.lazy import load_on_use
from bsdr_models.plots.biplot import plot_biplot
from bsdr_models.plots.diagnostics import plot_outliers
from bsdr_models.plots.features import features_table, plot_features
from bsdr_models.plots.map import map_table, plot_map

__all__ = [
    "features_table",
    "map_table",
    "plot_biplot",
    "plot_comparison",
    "plot_features",
    "plot_map",
    "plot_outliers",
]

# Of the annex of comparisons.
__getattr__ = load_on_use("bsdr_models", {"plot_comparison": "compare.picture"})
