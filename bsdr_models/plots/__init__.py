"""Plots of a fitted model, drawn from its DataTree alone.

Every function takes the tree first and `ax=` (a new figure by default), and returns the Axes. None
shows the figure or changes global settings. The figure of a given `ax` should use
``layout="constrained"``, which makes room for titles, captions and legends.

The numbers behind a plot are in an xarray Dataset (see `to_dataframe`): `map_table`,
`features_table`, `correlation_table`, `confusion_table`, `reliability_table`,
`predictive_check_table` and `cross_validation_table`. Other plots show variables of the tree
unchanged.
"""

from bsdr_models.plots.biplot import correlation_table, plot_biplot, plot_correlation_circle
from bsdr_models.plots.bound import plot_bound
from bsdr_models.plots.calibration import plot_reliability, reliability_table
from bsdr_models.plots.certainty import plot_certainty
from bsdr_models.plots.comparison import plot_comparison
from bsdr_models.plots.confusion import confusion_table, plot_confusion
from bsdr_models.plots.features import features_table, plot_features
from bsdr_models.plots.map import plot_map
from bsdr_models.plots.outliers import plot_outliers
from bsdr_models.plots.predictive import plot_predictive_check, predictive_check_table
from bsdr_models.plots.relevance import plot_relevance, plot_views
from bsdr_models.plots.tables import map_table
from bsdr_models.plots.validation import (
    cross_validation_table,
    plot_cross_validation,
    plot_permutation,
)
from bsdr_models.plots.weight_path import plot_weight_path

__all__ = [
    "confusion_table",
    "correlation_table",
    "cross_validation_table",
    "features_table",
    "map_table",
    "plot_biplot",
    "plot_bound",
    "plot_certainty",
    "plot_comparison",
    "plot_confusion",
    "plot_correlation_circle",
    "plot_cross_validation",
    "plot_features",
    "plot_map",
    "plot_outliers",
    "plot_permutation",
    "plot_predictive_check",
    "plot_relevance",
    "plot_reliability",
    "plot_views",
    "plot_weight_path",
    "predictive_check_table",
    "reliability_table",
]
