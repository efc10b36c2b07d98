"""Arrows and names against what went in."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.path import Path
from matplotlib.text import Text

from bsdr_models.plots import plot_biplot
from bsdr_models.plots._layers import Names


@pytest.fixture
def tree(make_fit):
    return make_fit(n_features=5, n_components=3)


def arrows(ax):
    """Ends of the arrows, (M, 2) each."""
    found = [text for text in ax.texts if not text.get_text()]
    return np.array([text.xyann for text in found]), np.array([text.xy for text in found])


def caption(ax):
    return (
        next(text for text in ax.texts if text.get_fontsize() == 8.5).get_text().replace("\n", " ")
    )


def test_arrows_are_loadings_times_the_factor_that_the_note_gives(tree):
    ax = plot_biplot(tree, n_features=3)
    begin, end = arrows(ax)
    loadings = tree["fit/projection_mean"].values[:, :2]
    longest = np.argsort(-np.hypot(*loadings.T), kind="stable")[:3]
    note = caption(ax)
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
    assert "Nearly switched off: component 2." in caption(plot_biplot(tree))


def placed(ax):
    """Boxes of the names, in pixels."""
    ax.get_figure().draw_without_rendering()
    return [
        Text.get_window_extent(text) for text in ax.texts if text.get_text() and text.get_visible()
    ]


@pytest.mark.slow
def test_names_of_crowded_points_never_overlap_and_stay_inside():
    rng = np.random.default_rng(0)
    _, ax = plt.subplots(figsize=(4, 3))
    points = 0.02 * rng.standard_normal((60, 2))
    ax.set(xlim=(-1, 1), ylim=(-1, 1))
    Names(ax, points, [f"a name {i}" for i in range(60)], avoid=points)
    boxes = placed(ax)
    inside = ax.get_window_extent()
    assert 5 < len(boxes) < 60
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(inside.count_contains(box.corners()) == 4 for box in boxes)
    assert not any(box.count_contains(ax.transData.transform(points)) for box in boxes)


def test_names_of_crowded_arrows_cross_none_of_them(make_fit):
    tree = make_fit(n_features=30, features=[f"a feature, {i}" for i in range(30)])
    tree["fit/projection_mean"][:] = np.random.default_rng(0).normal([2.0, 0.0], 0.5, (30, 2))
    ax = plot_biplot(tree, n_features=30)
    boxes = placed(ax)[1:]
    begin, end = arrows(ax)
    lines = [Path(ax.transData.transform(ends)) for ends in zip(begin, end, strict=True)]
    assert len(lines) == 30
    assert len(boxes) > 10
    assert not any(line.intersects_bbox(box, filled=False) for line in lines for box in boxes)
