"""Pictures of a fitted model, drawn from its DataTree alone.

Every function takes the tree first and `ax=` (a new figure by default), and returns the Axes.
None of them shows a figure, changes a global setting, or knows which model or engine made the
tree. When `ax` is given, its figure should use ``layout="constrained"``: titles, notes and legends
then find their room.
"""

from bsdr_models.plots.bound import plot_bound
from bsdr_models.plots.calibration import plot_confusion, plot_reliability
from bsdr_models.plots.certainty import plot_certainty
from bsdr_models.plots.landscape import plot_landscape
from bsdr_models.plots.loadings import plot_feature_relevance, plot_loadings, plot_relevance
from bsdr_models.plots.regions import plot_decision_regions
from bsdr_models.plots.scores import plot_scores
from bsdr_models.plots.tables import scores_table
from bsdr_models.plots.weight_path import plot_weight_path

__all__ = [
    "plot_bound",
    "plot_certainty",
    "plot_confusion",
    "plot_decision_regions",
    "plot_feature_relevance",
    "plot_landscape",
    "plot_loadings",
    "plot_relevance",
    "plot_reliability",
    "plot_scores",
    "plot_weight_path",
    "scores_table",
]
