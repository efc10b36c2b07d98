"""The path of weights: points where they belong, ends apart, and the chosen weight marked."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from bsdr_models.plots import plot_weight_path

WEIGHTS = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf]


def make_path(*, weights=WEIGHTS, approximations=None, sd=True, chosen=10.0, seed=0):
    """Errors that fall and rise a little again."""
    rng = np.random.default_rng(seed)
    n = len(weights)
    shape = (n,) if approximations is None else (n, len(approximations))
    dims = ("weight", "approximation")[: len(shape)]
    fall = (0.05 + 0.12 * np.exp(-np.arange(n) / 2.0)).reshape(n, *(1,) * (len(shape) - 1))
    error = fall + 0.004 * rng.random(shape)
    path = xr.Dataset(
        {"error": (dims, error), "log_loss": (dims, 3.0 * error)}, coords={"weight": weights}
    )
    if sd:
        path["error_sd"] = (dims, 0.2 * error)
    if approximations is not None:
        path = path.assign_coords(approximation=list(approximations))
    if chosen is not None:
        path.attrs["chosen_weight"] = chosen
    return path


def lines(ax):
    """Of the curves only: those with more than the ends or the mark."""
    return [item for item in ax.lines if item.get_linestyle() != "None" and not item.get_gid()]


def note(ax):
    return ax.texts[-1].get_text().replace("\n", " ")


def test_points_bands_and_the_chosen_weight():
    path = make_path()
    ax = plot_weight_path(path)
    assert ax.get_xscale() == "log"
    (curve,) = lines(ax)
    np.testing.assert_allclose(curve.get_xdata(), WEIGHTS[1:-1])
    np.testing.assert_allclose(curve.get_ydata(), path["error"].values[1:-1])
    (band,) = [item for item in ax.collections if item.get_gid() == "band"]
    vertices = band.get_paths()[0].vertices
    error, sd = path["error"].values[1:-1], path["error_sd"].values[1:-1]
    for x, low, high in zip(WEIGHTS[1:-1], error - sd, error + sd, strict=True):
        heights = vertices[np.isclose(vertices[:, 0], x), 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [low, high])
    (mark,) = [item for item in ax.lines if item.get_gid() == "chosen"]
    assert mark.get_xdata()[0] == 10.0
    assert "Dashed: chosen weight, 10." in note(ax)
    assert "one standard deviation" in note(ax)


def test_zero_and_infinity_stand_apart_and_are_named():
    path = make_path()
    ax = plot_weight_path(path)
    ends = next(item for item in ax.lines if item.get_linestyle() == "None")
    (zero, infinity), heights = ends.get_xdata(), ends.get_ydata()
    assert 0.0 < zero < 0.05
    assert 200.0 < infinity < np.inf
    np.testing.assert_allclose(heights, path["error"].values[[0, -1]])
    texts = {
        label.get_text(): at
        for at, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    }
    assert texts["0"] == zero
    assert texts["∞"] == infinity
    assert texts["$10^{1}$"] == pytest.approx(10.0)


def test_ways_of_classifying_are_told_apart_without_colour():
    path = make_path(approximations=["Laplace", "EP"])
    ax = plot_weight_path(path.transpose("approximation", "weight"), measure="log_loss")
    first, second = lines(ax)
    assert first.get_marker() != second.get_marker()
    assert first.get_linestyle() != second.get_linestyle()
    np.testing.assert_allclose(second.get_ydata(), path["log_loss"].values[1:-1, 1])
    assert {"Laplace", "EP"} <= {text.get_text() for text in ax.texts}
    assert "log loss (nats/sample)" in ax.get_ylabel()
    assert not [item for item in ax.collections if item.get_gid() == "band"]


def test_the_lowest_is_said():
    path = make_path(chosen=None, sd=False)
    path["error"][4] = 0.0123
    ax = plot_weight_path(path)
    assert "Lowest: 0.0123 at 3." in note(ax)
    assert not [item for item in ax.lines if item.get_gid() == "chosen"]


def test_a_tree_and_weights_in_any_order():
    path = make_path()
    shuffled = path.isel(weight=[5, 2, 8, 0, 1, 7, 3, 6, 4])
    whole = plot_weight_path(xr.DataTree.from_dict({"weight_path": shuffled}))
    np.testing.assert_allclose(lines(whole)[0].get_xdata(), WEIGHTS[1:-1])


@pytest.mark.parametrize("weights", [[3.0], [1.0, 2.0, 3.0], [0.0, 5.0], [1e2, 1e8, 1e15]])
@pytest.mark.parametrize("chosen", [2.0, np.inf])
def test_awkward_weights_have_readable_ticks_and_fit_the_page(weights, chosen):
    ax = plot_weight_path(make_path(weights=weights, chosen=chosen))
    figure = ax.get_figure()
    figure.canvas.draw()
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    assert (image < 240).any(axis=2).mean() > 0.01
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.01
    assert box.x1 < width + 0.01
    assert box.y1 < height + 0.01
    left, right = ax.get_xlim()
    shown = [
        label
        for at, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
        if left <= at <= right
    ]
    assert shown
    boxes = sorted((label.get_window_extent() for label in shown), key=lambda b: b.x0)
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))


def test_given_axes_are_used():
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    assert plot_weight_path(make_path(), ax=right) is right
    assert plot_weight_path(make_path(), measure="log_loss", ax=left) is left
    assert plt.get_fignums() == [figure.number]


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(ValueError, match="measure must be one of"):
        plot_weight_path(make_path(), measure="brier")
    with pytest.raises(ValueError, match="no variable 'log_loss'"):
        plot_weight_path(make_path().drop_vars("log_loss"), measure="log_loss")
    with pytest.raises(ValueError, match="no group 'weight_path'"):
        plot_weight_path(xr.DataTree.from_dict({"fit": make_path()}))
    with pytest.raises(ValueError, match="weights must be at least 0"):
        plot_weight_path(make_path(weights=[-1.0, 1.0]))
    with pytest.raises(ValueError, match="one of them positive"):
        plot_weight_path(make_path(weights=[0.0, np.inf]))
    with pytest.raises(TypeError, match="idata_"):
        plot_weight_path(object())
