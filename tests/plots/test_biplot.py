"""Arrows and names against what went in."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.path import Path

from bsdr_models.plots import plot_biplot
from bsdr_models.plots._names import Names


@pytest.fixture
def tree(make_fit):
    return make_fit(n_features=5, n_components=3)


def arrows(ax):
    """Ends of the arrows, (M, 2) each."""
    found = [text for text in ax.texts if text.arrow_patch is not None]
    return np.array([text.xyann for text in found]), np.array([text.xy for text in found])


def test_arrows_are_loadings_times_the_factor_that_the_note_gives(tree):
    ax = plot_biplot(tree, n_features=3)
    begin, end = arrows(ax)
    loadings = tree["fit/projection_mean"].values[:, :2]
    longest = np.argsort(-np.hypot(*loadings.T), kind="stable")[:3]
    note = ax.texts[-1].get_text().replace("\n", " ")
    factor = float(note.split("a rise by ")[1].split(" ")[0])
    np.testing.assert_allclose(end - begin, factor * loadings[longest], rtol=1e-9)
    middle = tree["fit/latent_mean"].values[:, :2].mean(axis=0)
    np.testing.assert_allclose(begin, np.tile(middle, (3, 1)))
    assert ax.get_aspect() == 1.0  # directions are true


def test_arrows_reach_nearly_as_far_as_the_samples(tree):
    begin, end = arrows(plot_biplot(tree))
    mean = tree["fit/latent_mean"].values[:, :2]
    far = np.quantile(np.hypot(*(mean - mean.mean(axis=0)).T), 0.95)
    assert 0.7 * far < np.hypot(*(end - begin).T).max() < 0.9 * far


def test_one_component_has_no_plane(make_fit):
    with pytest.raises(ValueError, match="needs two components"):
        plot_biplot(make_fit(n_components=1))


def test_a_component_that_is_switched_off_is_named(tree):
    tree["fit/latent_mean"][:, 1] *= 1e-6
    tree["fit/projection_mean"][:, 1] *= 1e-6
    note = plot_biplot(tree).texts[-1].get_text().replace("\n", " ")
    assert "Nearly switched off: component 2." in note


def test_names_of_crowded_points_never_overlap_and_those_left_out_are_counted():
    rng = np.random.default_rng(0)
    figure, ax = plt.subplots(figsize=(4, 3))
    points = 0.02 * rng.standard_normal((60, 2))
    ax.set(xlim=(-1, 1), ylim=(-1, 1))
    names = Names(ax, points, [f"a name {i}" for i in range(60)], centre=np.zeros(2))
    figure.canvas.draw()
    placed = [text.get_window_extent() for text, _ in names.place(ax)]
    inside = ax.get_window_extent()
    assert 10 < len(placed) < 60
    assert not any(a.overlaps(b) for a, b in itertools.combinations(placed, 2))
    assert all(inside.contains(*box.min) and inside.contains(*box.max) for box in placed)
    assert names.left.get_text() == f"{60 - len(placed)} names not shown"


def test_names_follow_their_points():
    """A layout or a zoom after the call moves them along."""
    figure, ax = plt.subplots()
    names = Names(ax, np.array([[0.5, 0.5]]), ["name"], centre=np.zeros(2))
    for limits in ((0.0, 1.0), (0.4, 0.9)):
        ax.set(xlim=limits, ylim=limits)
        figure.canvas.draw()
        at = ax.transData.transform((0.5, 0.5))
        box = names.texts[0].get_window_extent()
        assert np.hypot(*(box.min - at)) < 15.0  # beside, up and to the right


def test_names_leave_points_free_where_there_is_room():
    rng = np.random.default_rng(0)
    figure, ax = plt.subplots()
    ax.set(xlim=(-1, 1), ylim=(-1, 1))
    cloud = np.column_stack([rng.uniform(0.05, 0.4, 40), rng.uniform(-0.1, 0.1, 40)])
    tip = np.array([[0.03, 0.0]])
    names = Names(ax, tip, ["name"], centre=np.array([-1.0, 0.0]), avoid=cloud)
    figure.canvas.draw()
    ((text, _),) = names.place(ax)
    assert text.get_window_extent().count_contains(ax.transData.transform(cloud)) == 0


def test_names_of_crowded_arrows_cross_none_of_them(make_fit):
    tree = make_fit(n_features=30, features=[f"a feature, {i}" for i in range(30)])
    tree["fit/projection_mean"][:] = np.random.default_rng(0).normal([2.0, 0.0], 0.5, (30, 2))
    ax = plot_biplot(tree, n_features=30)
    ax.get_figure().canvas.draw()
    (names,) = ax.artists
    lines = [Path(ax.transData.transform(ends)) for ends in names.lines]
    boxes = [text.get_window_extent() for text, _ in names.place(ax)]
    assert len(lines) == 30
    assert len(boxes) > 15
    assert not any(line.intersects_bbox(box, filled=False) for line in lines for box in boxes)
