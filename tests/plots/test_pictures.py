"""Every plot, on easy and awkward trees: it draws, it fits its page, it leaves no trace."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes

from bsdr_models import plots

DIGITS = [str(digit) for digit in range(10)]
LONG = [f"a tumour of type {i}" for i in range(26)]


@pytest.fixture(scope="module")
def trees(make_fit, make_predictions, wine, wine_predictions):
    return {
        "wine": wine,
        "wine_new": wine_predictions,
        "wine_unlabelled": make_predictions(wine, labels_known=False),
        "digits": make_fit(n_obs=400, n_features=60, n_components=6, labels=DIGITS),
        "many": make_fit(n_obs=520, labels=LONG, n_draws=4),
        "long": make_fit(features=[f"a feature of quite a long name, {i}" for i in range(13)]),
        "one": make_fit(n_components=1, inference_method="gibbs"),
        "one_value": make_fit(n_components=1, target="regression", labels=["fat", "protein"]),
        "regression": make_fit(target="regression", labels=["fat", "protein"]),
        "multilabel": make_fit(labels=["red", "dry"], target="multilabel"),
    }


CASES = {
    "scores": ("wine", plots.plot_map, {}),
    "scores of digits": ("digits", plots.plot_map, {}),
    "scores of many": ("many", plots.plot_map, {}),
    "scores of new rows": ("wine_new", plots.plot_map, {"group": "predictions"}),
    "scores, predicted class": ("wine_unlabelled", plots.plot_map, {"group": "predictions"}),
    "scores, one component": ("one", plots.plot_map, {}),
    "scores, one of six": ("digits", plots.plot_map, {"components": 3}),
    "scores, one of many classes": ("many", plots.plot_map, {"components": 0}),
    "scores, one component, values": ("one_value", plots.plot_map, {}),
    "scores of values": ("regression", plots.plot_map, {"label": "protein"}),
    "scores of a label": ("multilabel", plots.plot_map, {"label": "dry"}),
    "features": ("wine", plots.plot_features, {}),
    "features of digits": ("digits", plots.plot_features, {"n_features": 20}),
    "features of long names": ("long", plots.plot_features, {}),
    "features of many classes": ("many", plots.plot_features, {}),
    "features of values": ("regression", plots.plot_features, {}),
    "features of labels": ("multilabel", plots.plot_features, {"labels": ["dry"]}),
    "relevance": ("digits", plots.plot_relevance, {}),
    "relevance of two": ("wine", plots.plot_relevance, {}),
    "bound": ("wine", plots.plot_bound, {}),
    "bound by term": ("wine", plots.plot_bound, {"by_term": True}),
}


def pixels(figure):
    """Picture as RGB in 0..1, (height, width, 3)."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255.0


@pytest.mark.parametrize("case", CASES)
def test_picture_is_drawn_and_nothing_is_cut_off(case, trees):
    name, plot, kwargs = CASES[case]
    before = dict(mpl.rcParams)
    ax = plot(trees[name], **kwargs)
    assert isinstance(ax, Axes)
    assert dict(mpl.rcParams) == before

    figure = ax.get_figure()
    figure.set_dpi(72)  # where letters fitted to pixels are widest
    image = pixels(figure)
    inked = (image < 0.97).any(axis=2)
    assert inked.mean() > 0.01
    inside = ax.get_window_extent()
    height = image.shape[0]
    rows = slice(height - int(inside.y1) + 2, height - int(inside.y0) - 2)
    columns = slice(int(inside.x0) + 2, int(inside.x1) - 2)
    assert inked[rows, columns].mean() > 0.002

    # The box around all that is drawn, legends and notes included, lies on the page.
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert drawn.x0 > -0.01
    assert drawn.y0 > -0.01
    assert drawn.x1 < width + 0.01
    assert drawn.y1 < height + 0.01


@pytest.mark.parametrize("case", {plot: case for case, (_, plot, _) in CASES.items()}.values())
def test_given_axes_are_used(case, trees):
    name, plot, kwargs = CASES[case]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    assert plot(trees[name], ax=right, **kwargs) is right
    assert plt.get_fignums() == [figure.number]
    assert right.has_data()
    assert not left.has_data()


@pytest.mark.parametrize("case", ["features", "features of digits", "scores, one of many classes"])
def test_names_of_samples_do_not_overlap(case, trees):
    name, plot, kwargs = CASES[case]
    ax = plot(trees[name], **kwargs)
    ax.get_figure().canvas.draw()
    boxes = [text.get_window_extent() for text in ax.get_yticklabels() if text.get_text()]
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) > 10
    assert all(low.y1 <= high.y0 + 1.0 for low, high in itertools.pairwise(boxes))


@pytest.mark.parametrize("case", ["scores", "features", "relevance", "bound by term"])
def test_axes_without_names_are_numbered_from_zero(case, trees):
    name, plot, kwargs = CASES[case]
    tree = trees[name].copy()
    for group in {"fit", "predictions"} & set(tree.children):
        dataset = tree[group].to_dataset()
        unnamed = ["obs", "feature", "component", "component_aux", "iteration", "term"]
        tree[group].dataset = dataset.drop_vars(unnamed, errors="ignore")
    assert plot(tree, **kwargs).has_data()


@pytest.mark.parametrize(
    ("plot", "missing"),
    [
        (plots.plot_map, "'latent_mean'"),
        (plots.plot_relevance, "'relevance'"),
        (plots.plot_bound, "'elbo'"),
        (plots.map_table, "'latent_cov'"),
    ],
)
def test_a_missing_variable_is_named(plot, missing, wine):
    tree = wine.copy()
    tree["fit"].dataset = tree["fit"].to_dataset().drop_vars(missing.strip("'"))
    with pytest.raises(ValueError, match=rf"group 'fit' has no variable {missing}"):
        plot(tree)


def test_an_estimator_in_place_of_its_tree_is_told_apart():
    with pytest.raises(TypeError, match="idata_"):
        plots.plot_map(object())
