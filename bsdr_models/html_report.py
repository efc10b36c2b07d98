"""A fitted model, or a map of held-out samples, as one page to send."""

import base64
import io
import json
import os
from collections.abc import Iterator, Mapping
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from platform import python_version
from string import Template
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from sklearn.base import BaseEstimator

from bsdr_models.estimators.base import Estimator, last_step
from bsdr_models.estimators.calibration import baseline, lack_of_signal
from bsdr_models.inference.spec import ModelSpec, find_spec
from bsdr_models.lazy import annex
from bsdr_models.numerics.arrays import SamplesLike, TargetLike
from bsdr_models.persistence import write_file
from bsdr_models.plots import plot_features
from bsdr_models.plots._read import Classes
from bsdr_models.plots._style import figure_of
from bsdr_models.plots.map import GOOD, Shown, read_map
from bsdr_models.summary import summarise, to_html

DPI = 150  # sharp on paper, some 100 kB for a picture
# Pixels of a page to an inch of a picture; one that is wider than the page scrolls.
LEAST_SCALE = 70
MOST_SCALE = 105
PACKAGES = ("bsdr_models", "numpy", "scipy", "scikit-learn", "pymc", "arviz", "matplotlib")
# Rows of the summary that are above the pictures.
DATA = ("model", "samples", "features", "missing values", "groups", "classes", "labels", "outputs")


def report(
    fitted: BaseEstimator | xr.DataTree,
    path: str | os.PathLike[str],
    X: SamplesLike | None = None,
    y: TargetLike | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Write result, data, map, reliability, features and settings as one HTML file.

    The file holds its pictures, needs no network, can be read on a phone, and prints on three
    pages. Parts that cannot be made are left out: confusion matrix, reliability and, for two
    classes, the ROC curve need held-out predictions of known classes.

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
    title : str, optional
        Heading of the page, such as the name of the data; by default that of the model.

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
    ...     report(tree, f"{folder}/wine.html", title="Wine of three cultivars").name
    'wine.html'
    """
    model = fitted if isinstance(fitted, xr.DataTree) else last_step(fitted)
    if isinstance(model, xr.DataTree):
        if X is not None or y is not None:
            raise ValueError("X and y are samples for a fitted estimator, not for a tree")
        tree = shown = model
        spec = find_spec(tree)
        rows = json.loads(tree.attrs.get("summary", "[]")) or [["model", tree.attrs.get("model")]]
        settings = pd.DataFrame(rows, columns=["", "value"]).set_index("")
    elif isinstance(model, Estimator):
        tree = model.idata_
        shown = model._tree_of(X, y)
        spec = model._spec
        settings = summarise(model, scores=False)
    else:
        raise TypeError(
            "report takes a fitted estimator of this package, or a tree of cross_validated_map, "
            f"got {type(fitted).__name__}"
        )
    samples = read_map(shown)
    if samples.gain is not None:  # the caption of the features has the same one
        tree = tree.copy()
        tree.attrs |= samples.gain.attrs()
    is_data = settings.index.isin(DATA)
    parts = [
        *_result(samples, tree.attrs),
        to_html(settings[is_data]),
        *_pictures(samples),
        *_features(tree),
    ]
    page = Template(files("bsdr_models").joinpath("report.html").read_text("utf-8"))
    text = page.substitute(
        title=escape(title or f"Report of {settings.loc['model', 'value']}"),
        date=f"{date.today():%d %B %Y}",
        parts="\n".join(parts),
        about="\n".join(_about(settings[~is_data], spec)),
    )
    write_file(path, text.encode())
    return Path(path)


def _result(shown: Shown, attrs: Mapping[Any, Any]) -> Iterator[str]:
    """The result in a sentence, and whether it is better than chance."""
    samples = shown.samples
    target = samples.target
    text, verdict = shown.header, shown.verdict
    if shown.gain is not None and isinstance(target, Classes):
        known = samples.truth >= 0
        counts = np.bincount(target.index[known], minlength=len(target.names))
        most = target.names[counts.argmax()]
        of = "training samples, each predicted without its label,"
        of = of if shown.kind == "Training" else "held-out samples"
        text = (
            f"{np.mean(~samples.wrong[known]):.0%} of {known.sum()} {of} are right; the most "
            f"frequent class, {most}, has {counts.max() / known.sum():.0%} of them."
        )
    elif "held_out_gain" in attrs and lack_of_signal(attrs) is None:
        gain = f"{attrs['held_out_gain']:.2f} ± {attrs['held_out_gain_se']:.2f} nats"
        verdict = f"Better than {baseline(attrs.get('target'))}; held-out gain: {gain}", GOOD
    yield f'<p class="lead">{escape(text)}</p>'
    if verdict is not None:
        text, shade = verdict
        yield f'<p class="{"good" if shade == GOOD else "bad"}">{escape(text)}.</p>'


def _pictures(shown: Shown) -> Iterator[str]:
    """Map, confusion, reliability and ROC curve of samples, as far as known."""
    first, *others = map(_picture, annex("compare.predictions").draw_predictions(shown))
    yield f"<h2>Map of the samples</h2>\n{first}"
    if others:
        yield f'<h2>Predictions</h2>\n<div class="beside">{"".join(others)}</div>'


def _features(tree: xr.DataTree) -> Iterator[str]:
    """Effects of the features, and values of the first ones in each class, as far as known."""
    if "fit" in tree.children and "feature_relevance" in tree["fit"]:
        ax = plot_features(tree)
        ax.set_title("", loc="left")
        yield f"<h2>Effects of the features</h2>\n{_picture((ax, 'Effects of the features', ''))}"
    if boxes := "".join(map(_picture, annex("compare.predictions").draw_boxes(tree))):
        yield f'<h2>Features that tell most alone</h2>\n<div class="beside">{boxes}</div>'


def _about(settings: pd.DataFrame, spec: ModelSpec | None) -> Iterator[str]:
    """Settings, versions of packages, and the paper to cite."""
    if len(settings):
        yield f"<h2>Settings and diagnostics</h2>\n{to_html(settings)}"
    used = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield f"<h2>Versions</h2>\n<p>Python {python_version()}, {used}.</p>"
    if spec is not None:
        yield f"<h2>Please cite</h2>\n<pre>{escape(spec.citation_bibtex)}</pre>"


def _picture(drawn: tuple[Axes, str, str]) -> str:
    """The figure of Axes, with a name and a caption, as an element of the page, closed."""
    ax, name, caption = drawn
    figure = figure_of(ax)
    file = io.BytesIO()
    try:
        figure.savefig(file, format="png", dpi=DPI)
    finally:
        plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    least, most = (round(scale * figure.get_figwidth()) for scale in (LEAST_SCALE, MOST_SCALE))
    image = f'<img alt="{name}" style="min-width: {least}px" src="data:image/png;base64,{data}">'
    size = f"flex: 1 1 {least}px; max-width: min(100%, {most}px)"
    return f'<figure style="{size}">{image}<figcaption>{escape(caption)}</figcaption></figure>'
