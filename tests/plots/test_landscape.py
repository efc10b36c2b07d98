"""The landscape shows what the tree holds: shades, borders, and every sample in its place."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex

from bsdr_models.plots import plot_landscape
from bsdr_models.plots._style import INK, color


def add_landscape(tree, *, probability=True, seed=0):
    """A copy of `tree` with the precision of a density around its samples, over an uneven range."""
    latent = tree["fit/latent_mean"].values
    R = latent.shape[1]
    low, high = latent.min(axis=0) - 1.0, latent.max(axis=0) + 1.0
    axes = [np.linspace(low[r], high[r], (31, 23)[r]) for r in range(R)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)  # (grid_x[, grid_y], R)
    distance = ((points[..., None, :] - latent) ** 2).sum(axis=-1)
    precision = 40.0 * np.log(np.exp(-0.5 * distance).mean(axis=-1) + 1e-3) + 7.0
    dims = ("grid_x", "grid_y")[:R]
    group = xr.Dataset(
        {"log_precision": (dims, precision)}, coords=dict(zip(dims, axes, strict=True))
    )
    labels = tree["fit"].coords["outcome"].values
    if probability:
        index = tree["fit/y_index"].values
        centres = np.stack([latent[index == c].mean(axis=0) for c in range(len(labels))])
        away = ((points[..., None, :] - centres) ** 2).sum(axis=-1)
        chance = np.exp(-0.5 * (away - away.min(axis=-1, keepdims=True)))
        chance /= chance.sum(axis=-1, keepdims=True)
        group["probability_at"] = ((*dims, "outcome"), chance)
        group = group.assign_coords(outcome=labels)
    tree = tree.copy()
    tree["landscape"] = xr.DataTree(group)
    return tree


@pytest.fixture(scope="module")
def plane(wine):
    return add_landscape(wine)


@pytest.fixture(scope="module")
def line(make_fit):
    return add_landscape(make_fit(n_components=1))


def drawn(ax, gid):
    """Latent coordinates of the points with that name, (M, 2), and their collections."""
    found = [item for item in ax.collections if item.get_gid() == gid]
    return np.concatenate([item.get_offsets() for item in found]), found


def sorted_rows(positions):
    return positions[np.lexsort(positions.T)]


def test_shades_are_the_precision_below_the_highest(plane):
    ax = plot_landscape(plane)
    (mesh,) = [item for item in ax.collections if item.get_gid() == "landscape"]
    precision = plane["landscape/log_precision"].values
    shades = np.asarray(mesh.get_array()).reshape(23, 31)
    np.testing.assert_allclose(shades, (precision - precision.max()).T)
    corners = mesh.get_coordinates()
    np.testing.assert_allclose(corners[0, :, 0], plane["landscape/grid_x"].values)
    np.testing.assert_allclose(corners[:, 0, 1], plane["landscape/grid_y"].values)
    light, dark = mesh.cmap(1.0), mesh.cmap(0.0)
    assert sum(light[:3]) == pytest.approx(3.0)
    assert sum(dark[:3]) < 1.5
    assert mesh.norm(0.0) == 1.0
    (bar,) = [other for other in ax.get_figure().axes if other is not ax]
    assert "nats" in bar.get_xlabel()


def test_dims_may_come_in_any_order(plane):
    turned = plane.copy()
    turned["landscape"] = turned["landscape"].to_dataset().transpose("outcome", "grid_y", "grid_x")
    images = []
    for tree in (plane, turned):
        figure = plot_landscape(tree).get_figure()
        figure.canvas.draw()
        images.append(np.asarray(figure.canvas.buffer_rgba()))
    np.testing.assert_array_equal(*images)


@pytest.mark.parametrize("n_components", [1, 2])
def test_training_samples_are_filled_in_the_colour_of_their_class(n_components, make_fit):
    tree = add_landscape(make_fit(n_components=n_components))
    ax = plot_landscape(tree)
    at, found = drawn(ax, "training-samples")
    latent, index = tree["fit/latent_mean"].values, tree["fit/y_index"].values
    assert len(at) == len(latent)
    for c, points in enumerate(found):
        np.testing.assert_allclose(points.get_offsets()[:, 0], latent[index == c, 0])
        if n_components == 2:
            np.testing.assert_allclose(points.get_offsets()[:, 1], latent[index == c, 1])
        assert to_hex(points.get_facecolors()[0]) == color(c)
        assert to_hex(points.get_edgecolors()[0]) == INK
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["barolo", "grignolino", "barbera"]
    assert "training samples" in ax.texts[0].get_text().replace("\n", " ")


def test_new_samples_are_hollow_and_may_come_from_another_tree(plane, wine_predictions):
    ax = plot_landscape(plane, show="both", predictions=wine_predictions)
    at, found = drawn(ax, "new-samples")
    expected = wine_predictions["predictions/latent_mean"].values
    np.testing.assert_allclose(sorted_rows(at), sorted_rows(expected))
    for points in found:
        assert to_hex(points.get_facecolors()[0]) == "#ffffff"
    assert len(drawn(ax, "training-samples")[0]) == plane["fit"].sizes["obs"]
    assert len(ax.get_legend().get_texts()) == 3  # once each
    assert len({text.get_text() for text in ax.get_legend().get_texts()}) == 3

    whole = plane.copy()
    whole["predictions"] = wine_predictions["predictions"].copy()
    alone = plot_landscape(whole, show="predictions")
    assert not [item for item in alone.collections if item.get_gid() == "training-samples"]
    assert len(drawn(alone, "new-samples")[0]) == 80
    assert len(alone.get_legend().get_texts()) == 3


def test_predicted_classes_are_called_so(plane, wine, make_predictions):
    new = make_predictions(wine, labels_known=False)
    ax = plot_landscape(plane, show="both", predictions=new)
    assert "by predicted class" in ax.texts[0].get_text().replace("\n", " ")


def test_samples_outside_are_counted(plane, wine_predictions):
    new = wine_predictions.copy()
    new["predictions/latent_mean"].values[:3] += 100.0
    far = np.any(
        [
            (new["predictions/latent_mean"].values[:, r] < plane[f"landscape/{axis}"].values.min())
            | (
                new["predictions/latent_mean"].values[:, r]
                > plane[f"landscape/{axis}"].values.max()
            )
            for r, axis in enumerate(("grid_x", "grid_y"))
        ],
        axis=0,
    ).sum()
    assert far >= 3
    ax = plot_landscape(plane, show="predictions", predictions=new)
    assert f"{far} samples lie outside" in ax.texts[0].get_text().replace("\n", " ")
    np.testing.assert_allclose(ax.get_xlim(), plane["landscape/grid_x"].values[[0, -1]])
    np.testing.assert_allclose(ax.get_ylim(), plane["landscape/grid_y"].values[[0, -1]])


def test_borders_lie_where_two_classes_are_equally_near(plane):
    """Equal spherical classes: each border is a line halfway between two centres."""
    ax = plot_landscape(plane)
    borders = [item for item in ax.collections if item.get_gid() == "border"]
    assert len(borders) == 3
    latent, index = plane["fit/latent_mean"].values, plane["fit/y_index"].values
    centres = np.stack([latent[index == c].mean(axis=0) for c in range(3)])
    for border in borders:
        for path in border.get_paths():
            away = np.sort(np.linalg.norm(path.vertices[:, None] - centres, axis=2), axis=1)
            # Cells of the fine grid are a tenth of a unit, and near the meeting point a cell off.
            assert np.mean(away[:, 1] - away[:, 0] < 0.1) > 0.95
    bare = plot_landscape(plane, borders=False)
    assert not [item for item in bare.collections if item.get_gid() == "border"]


def test_one_component_is_a_curve_over_strips(line):
    ax = plot_landscape(line)
    (curve,) = [item for item in ax.lines if item.get_gid() == "landscape"]
    precision = line["landscape/log_precision"].values
    np.testing.assert_allclose(curve.get_xdata(), line["landscape/grid_x"].values)
    np.testing.assert_allclose(curve.get_ydata(), precision - precision.max())
    low = (precision - precision.max()).min()
    at, found = drawn(ax, "training-samples")
    assert at[:, 1].max() < low
    bottoms = [points.get_offsets()[:, 1].min() for points in found]
    tops = [points.get_offsets()[:, 1].max() for points in found]
    assert all(top < bottom for top, bottom in zip(tops[1:], bottoms[:-1], strict=True))
    assert min(ax.get_yticks()) >= low
    assert ax.get_ylim()[0] < min(bottoms)

    best = line["landscape/probability_at"].values.argmax(axis=1)
    borders = sorted(item.get_xdata()[0] for item in ax.lines if item.get_gid() == "border")
    grid = line["landscape/grid_x"].values
    changes = np.nonzero(np.diff(best))[0]
    assert len(borders) == len(changes) == 2
    for border, i in zip(borders, changes, strict=True):
        assert grid[i] < border < grid[i + 1]


def test_samples_without_labels_and_a_class_of_one(make_fit):
    """Unlabelled samples are grey; labels may come in any order and a class may have one sample."""
    for n_components in (1, 2):
        tree = make_fit(n_components=n_components, n_obs=41)
        rng = np.random.default_rng(0)
        index = rng.permutation(np.r_[np.zeros(1), np.full(20, 2), np.full(20, 1)]).astype(int)
        tree["fit"] = tree["fit"].to_dataset().assign(y_index=("obs", index))
        tree = add_landscape(tree)
        index[np.nonzero(index == 1)[0][:9]] = -1
        tree["fit"] = tree["fit"].to_dataset().assign(y_index=("obs", index))
        ax = plot_landscape(tree)
        sizes = sorted(len(item.get_offsets()) for item in drawn(ax, "training-samples")[1])
        assert sizes == [1, 9, 11, 20]
        names = {text.get_text() for text in ax.get_legend().get_texts()}
        assert names == {"barolo", "grignolino", "barbera", "no label"}


@pytest.mark.parametrize(
    ("show", "probability"), [("training", False), ("both", True), (None, True)]
)
@pytest.mark.parametrize("n_components", [1, 2])
def test_the_picture_is_not_blank_and_fits_its_page(
    show, n_components, probability, make_fit, make_predictions
):
    fit = make_fit(n_components=n_components, labels=[f"a class of wine {i}" for i in range(12)])
    ax = plot_landscape(
        add_landscape(fit, probability=probability), show=show, predictions=make_predictions(fit)
    )
    figure = ax.get_figure()
    figure.canvas.draw()
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    assert (image < 240).any(axis=2).mean() > 0.02
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.01
    assert box.y0 > -0.01
    assert box.x1 < width + 0.01
    assert box.y1 < height + 0.01
    assert (ax.get_legend() is None) == (show is None)


def test_given_axes_are_used(plane, line):
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    assert plot_landscape(plane, ax=right) is right
    assert plot_landscape(line, ax=left) is left
    assert plt.get_fignums() == [figure.number]


def test_what_is_missing_or_wrong_is_named(plane, wine, line):
    with pytest.raises(ValueError, match="no group 'landscape'"):
        plot_landscape(wine)
    with pytest.raises(ValueError, match="no group 'predictions'"):
        plot_landscape(plane, show="predictions")
    with pytest.raises(ValueError, match="show must be"):
        plot_landscape(plane, show="rows")
    mixed = plane.copy()
    mixed["landscape"] = line["landscape"].copy()
    with pytest.raises(ValueError, match=r"1 axes, the samples of group 'fit' have 2 components"):
        plot_landscape(mixed)
