"""A fitted model, or a map of held-out samples, as one page to send."""

import base64
import io
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from html import escape
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import ConfusionMatrixDisplay

from bsdr_models.estimators.base import Estimator, last_step
from bsdr_models.inference.spec import ATTRIBUTE, ModelSpec, find_spec
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.persistence import write_file
from bsdr_models.plots import plot_features
from bsdr_models.plots._read import Classes
from bsdr_models.plots._style import figure_of, literal, new_figures_closed
from bsdr_models.plots.map import draw_map, read_map
from bsdr_models.summary import to_html

DPI = 150  # sharp on paper, some 100 kB for a picture
N_BINS = 5  # of the reliability: groups of equally many samples
MOST_WRITTEN = 12  # classes whose counts are written into the confusion matrix
PACKAGES = ("bsdr_models", "numpy", "scipy", "scikit-learn", "pymc", "arviz", "matplotlib")
MAP = (
    "Colour and marker of a point are its true class, the background is the predicted class. "
    "Hollow points are doubtful, ringed ones wrong. Points that would hide each other are moved "
    "apart."
)
RELIABILITY = (
    "Left: of predictions made with 80 %, eight in ten should be right, so that points lie on the "
    "diagonal. Right: true classes, and what they are predicted as."
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.45 sans-serif; color: #222; max-width: 54rem; margin: 1.5rem auto;
        padding: 0 1rem; overflow-wrap: anywhere }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem; margin: 1.6rem 0 0.4rem }}
img {{ max-width: 100% }}
figure {{ margin: 0 0 1rem; break-inside: avoid }}
figcaption {{ color: #555; font-size: 0.9rem }}
.verdict {{ font-weight: bold }}
table {{ border-collapse: collapse; font-size: 0.9rem }}
th, td {{ text-align: left; vertical-align: top; padding: 0.1rem 1rem 0.1rem 0 }}
th {{ font-weight: normal; color: #555; min-width: 8rem }}
pre {{ white-space: pre-wrap; font-size: 0.85rem }}
@page {{ size: A4; margin: 12mm }}
@media print {{
  body {{ font-size: 8.5pt; line-height: 1.3; margin: 0; max-width: none }}
  h2 {{ font-size: 10pt; margin: 2mm 0 1mm }}
  img {{ max-height: 112mm }}
  .page {{ break-before: page }}
  table, pre {{ font-size: 7pt; line-height: 1.15; margin: 0 }}
  th, td {{ padding-top: 0; padding-bottom: 0 }}
}}
</style>
</head>
<body>
<h1>{title}</h1>
{parts}
</body>
</html>
"""


def report(
    fitted: BaseEstimator | xr.DataTree,
    path: str | os.PathLike[str],
    X: SamplesLike | None = None,
    y: TargetLike | None = None,
) -> Path:
    """Write verdict, map, reliability, confusion, features and settings as one HTML file.

    The file holds its pictures, needs no network, and prints on two pages. Parts that cannot be
    made are left out: reliability and confusion need classes and held-out predictions.

    Parameters
    ----------
    fitted : estimator or xarray.DataTree
        What :func:`cross_validated_map` returns: the report is of all samples, held out. Or a
        fitted estimator of this package, or a pipeline that ends with one.
    path : str or path-like
        File to write, usually with the extension ``.html``. An existing file is replaced
        atomically.
    X : array-like of shape (n_samples, n_features), optional
        New samples for a fitted estimator, as its last step takes them. By default the report is of
        the training samples, where the fit has predicted them without their labels.
    y : array-like of shape (n_samples,), optional
        Their classes or values.

    Returns
    -------
    Path
        Path of the file.

    Raises
    ------
    TypeError
        If there is neither a tree nor an estimator of this package.
    ValueError
        If samples are given with a tree, or y without X.
    sklearn.exceptions.NotFittedError
        Before `fit`.
    OSError
        If the file cannot be written.

    See Also
    --------
    cross_validated_map : held-out samples.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import DGPLVMClassifier, cross_validated_map, report
    >>> X, y = load_wine(return_X_y=True)
    >>> tree = cross_validated_map(DGPLVMClassifier(random_state=0), X, y, cv=3, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     report(tree, f"{folder}/wine.html").name
    'wine.html'
    """
    model = fitted if isinstance(fitted, xr.DataTree) else last_step(fitted)
    if isinstance(model, xr.DataTree):
        if X is not None or y is not None:
            raise ValueError("X and y are samples for a fitted estimator, not for a tree")
        tree = shown = model
        spec = find_spec(tree)
        name = str(tree.attrs.get("model", "model"))
        name = name if spec is None else name.upper()
        attrs = {name: value for name, value in tree.attrs.items() if name != ATTRIBUTE}
        settings = pd.Series(attrs).astype(str).to_frame("value")
    elif isinstance(model, Estimator):
        tree = model.idata_
        shown = model._tree_of(X, y)
        spec = model._spec
        name = type(model).__name__
        settings = model.summary()
    else:
        raise TypeError(
            "report takes a fitted estimator of this package, or a tree of cross_validated_map, "
            f"got {type(fitted).__name__}"
        )
    parts = "\n".join([*_results(shown), *_features(tree), *_about(settings, spec)])
    page = PAGE.format(title=f"Report of {escape(name)}", parts=parts)
    write_file(path, page.encode())
    return Path(path)


def _results(tree: xr.DataTree) -> Iterator[str]:
    """Verdict, map, reliability and confusion of the samples of a tree."""
    shown = read_map(tree)
    if shown.verdict is not None:
        text, shade = shown.verdict
        yield f'<p class="verdict" style="color: {shade}">{escape(text)}.</p>'
    yield f"<p>{escape(shown.header)}</p>"
    ax = draw_map(replace(shown, header="", verdict=None))
    yield _picture(ax, "Map of the samples", MAP)
    known = shown.samples.truth >= 0
    probability = shown.samples.probability
    target = shown.samples.target
    if known.any() and probability is not None and isinstance(target, Classes):
        ax = _reliability(probability[known], target.index[known], target.names)
        yield _picture(ax, "Reliability and confusion matrix", RELIABILITY)


@new_figures_closed()
def _reliability(probability: FloatArray, index: IntArray, names: tuple[str, ...]) -> Axes:
    """Plot calibration of probabilities (M, K), and confusion of classes with indices (M,)."""
    best = probability.argmax(axis=1)
    stated = probability.max(axis=1)
    axes = plt.subplots(1, 2, figsize=(9.4, 4.2), layout="constrained")[1]
    CalibrationDisplay.from_predictions(
        best == index, stated, n_bins=N_BINS, strategy="quantile", name="predictions", ax=axes[0]
    )
    axes[0].set(xlabel="probability of the predicted class", ylabel="share right")
    ConfusionMatrixDisplay.from_predictions(
        index,
        best,
        labels=np.arange(len(names)),
        display_labels=[literal(name) for name in names],
        include_values=len(names) <= MOST_WRITTEN,
        xticks_rotation=90.0 if len("".join(names)) > 40 else 0.0,
        cmap="Blues",
        colorbar=False,
        ax=axes[1],
    )
    axes[1].set(xlabel="predicted class", ylabel="true class")
    axes[1].tick_params(labelsize=float(np.clip(160.0 / len(names), 4.0, 10.0)))
    return axes[0]


def _features(tree: xr.DataTree) -> Iterator[str]:
    """Effects of the features, if the tree has coefficients or slopes."""
    if "fit" in tree.children and "feature_relevance" in tree["fit"]:
        ax = plot_features(tree)
        yield f'<h2 class="page">Features</h2>\n{_picture(ax, "Effects of the features")}'


def _about(settings: pd.DataFrame, spec: ModelSpec | None) -> Iterator[str]:
    """Settings, versions of packages, and the paper to cite."""
    yield f"<h2>Settings and diagnostics</h2>\n{to_html(settings)}"
    used = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield f"<h2>Versions</h2>\n<p>Python {python_version()}, {used}; {date.today():%d %B %Y}.</p>"
    if spec is not None:
        yield f"<h2>Please cite</h2>\n<pre>{escape(spec.citation_bibtex)}</pre>"


def _picture(ax: Axes, title: str, caption: str = "") -> str:
    """The figure of Axes as an element of the page, closed."""
    figure = figure_of(ax)
    file = io.BytesIO()
    try:
        figure.savefig(file, format="png", dpi=DPI)
    finally:
        plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    image = f'<img alt="{escape(title)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
