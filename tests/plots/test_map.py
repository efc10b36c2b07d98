"""The map shows samples where they are, and what the model says of each place."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Affine2D
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist
from scipy.special import log_softmax
from scipy.stats import chi2
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    PredictionPlane,
    Sampling,
)
from bsdr_models.data.targets import class_frequency, name_groups
from bsdr_models.inference.latent_grid import axis_limits, evaluate_on_grid
from bsdr_models.plots import _layers, map_table, plot_map
from bsdr_models.plots._layers import OPACITY, tint
from bsdr_models.plots._style import PALETTE, color


def artists(ax, gid):
    return [
        item
        for item in (*ax.collections, *ax.lines, *ax.patches, *ax.texts)
        if item.get_gid() == gid
    ]


def background(ax):
    images = [image for image in ax.images if image.get_gid() == "background"]
    return images[0] if images else None


def names_in(ax):
    """Names of samples."""
    return [text.get_text() for text in ax.texts if text.get_fontsize() == 7.5]


def assert_near(ax, at, expected):
    """Each place is one of those expected, but for what moves points apart."""
    places = [72.0 / ax.get_figure().dpi * ax.transData.transform(each) for each in (at, expected)]
    distance = cdist(*places)
    pairs = linear_sum_assignment(distance)
    assert len(at) == len(expected)
    assert distance[pairs].max() < 20.0  # points of 1/72 inch


def header(ax):
    return " ".join(text.get_text().replace("\n", " ") for text in ax.texts)


@pytest.fixture(scope="module")
def new(wine_predictions, with_plane):
    return with_plane(wine_predictions)


@pytest.fixture(scope="module")
def drawn(new):
    """Its map, not to be changed."""
    ax = plot_map(new)
    ax.get_figure().draw_without_rendering()
    return ax


# ---------------------------------------------------------------- agreement with the model

FITTED = {
    "bsdr": lambda: BSDRClassifier(
        sampling=Sampling(draws=400, chains=2), temperature=0.5, random_state=0
    ),
    "bm2pca": lambda: BM2PCAClassifier(random_state=0),
    "dgplvm": lambda: DGPLVMClassifier(random_state=0),
}


@pytest.mark.parametrize(
    "name", [n if n == "bm2pca" else pytest.param(n, marks=pytest.mark.slow) for n in FITTED]
)
def test_the_background_under_a_new_sample_is_its_predicted_probability(name):
    X, y = load_wine(return_X_y=True)
    model = FITTED[name]().fit(X[::3], y[::3])
    tree = model.predict_idata(np.delete(X, np.s_[::3], axis=0), np.delete(y, np.s_[::3]))
    new = tree["predictions"].to_dataset()
    grid, axes = new["class_probability"], [new["grid_y"].values, new["grid_x"].values]
    at = new["latent_mean"].values[:, ::-1].clip([a[0] for a in axes], [a[-1] for a in axes])
    here = RegularGridInterpolator(axes, grid.transpose("grid_y", "grid_x", "outcome").values)(at)
    predicted = new["probability"].values
    best, rows = predicted.argmax(axis=1), np.arange(len(at))
    assert np.abs(here[rows, best] - predicted[rows, best]).mean() < 0.03
    assert np.mean(here.argmax(axis=1) == best) >= 0.95
    assert "class_probability" in model.idata_["fit"]


@pytest.mark.parametrize(("n_components", "dims"), [(1, ("grid_x",)), (2, ("grid_y", "grid_x"))])
def test_the_grid_has_the_axes_of_the_coordinates(n_components, dims):
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(30, n_components)) * [5.0, 1.0][:n_components]
    weights = np.array([[0.5, -0.5], [1.0, 3.0]])[:n_components]
    found = evaluate_on_grid(latent, lambda at: log_softmax(at @ weights, axis=1))
    assert found["class_probability"].dims == (*dims, "outcome")
    at = np.stack(
        [g.ravel() for g in np.meshgrid(*(found[d] for d in dims), indexing="ij")][::-1], axis=1
    )
    expected = log_softmax(at @ weights, axis=1).reshape(found["class_probability"].shape)
    np.testing.assert_allclose(found["class_probability"], np.exp(expected))


def test_the_picture_has_the_colour_of_the_most_probable_class(new, drawn):
    dataset = new["predictions"].to_dataset()
    image = background(drawn)
    left, right, bottom, top = image.get_extent()
    pixels = np.asarray(image.get_array())
    low, high = axis_limits(dataset["latent_mean"].values)
    np.testing.assert_allclose([left, bottom, right, top], [*low, *high])
    tints = np.array([[tint(color(c), o) for o in OPACITY] for c in range(3)])
    for at, p in zip(dataset["latent_mean"].values, dataset["probability"].values, strict=True):
        part = (at - [left, bottom]) / [right - left, top - bottom]
        if np.any((part < 0.0) | (part > 1.0)):
            continue
        row, column = (part[::-1] * np.array(pixels.shape[:2])).astype(int).clip(0, 359)
        near = pixels[row, column]
        best, step = p.argmax(), np.digitize(p.max(), (0.5, 0.7, 0.9))
        if min(abs(p.max() - np.array([0.5, 0.7, 0.9]))) > 0.05 and np.sort(p)[-2] < 0.4:
            np.testing.assert_allclose(near, tints[best, step])


@pytest.mark.parametrize("shade", PALETTE)
def test_steps_of_the_background_are_told_apart_in_grey(shade):
    luminance = np.array([tint(shade, o) for o in OPACITY]) @ [0.2126, 0.7152, 0.0722]
    assert np.diff(luminance).max() < -0.015  # each step is darker
    assert luminance.min() > 0.5  # and points and names are seen on the darkest


# ---------------------------------------------------------------- header and verdict


def test_the_header_has_the_log_loss_of_scikit_learn(new, drawn):
    dataset = new["predictions"].to_dataset()
    text = header(drawn)
    order = np.argsort(dataset["outcome"].values)
    labels = dataset["outcome"].values[order]
    expected = log_loss(dataset["y"], dataset["probability"].values[:, order], labels=labels)
    guess = np.tile(dataset["class_frequency"].values[order], (80, 1))
    guess = log_loss(dataset["y"], guess, labels=labels)
    assert f"log loss {expected:.2f} (class frequencies {guess:.2f})" in text
    assert "80 held-out samples · 100% right" in text
    assert "Better than chance; gain over the class frequencies" in text


def test_without_evidence_there_is_no_background(new):
    tree = new.copy()
    dataset = tree["predictions"].to_dataset()
    rng = np.random.default_rng(0)
    dataset["y"] = "obs", rng.permutation(dataset["y"].values)
    tree["predictions"] = xr.DataTree(dataset)
    ax = plot_map(tree)
    assert background(ax) is None
    assert not artists(ax, "class")  # their medians coincide
    assert "Not shown to be better than chance, hence without background; gain" in header(ax)


def test_training_samples_in_the_latent_space_are_watermarked(wine, drawn):
    ax = plot_map(wine)
    assert artists(ax, "watermark")
    assert "separation here is no evidence" in header(ax)
    assert not artists(drawn, "watermark")


def test_training_samples_are_drawn_where_they_were_predicted_without_their_labels():
    """One is without a label, and one is the only sample of its class, hence not held out."""
    X, y = load_wine(return_X_y=True)
    kept = np.append(np.flatnonzero(y < 2)[::4], np.flatnonzero(y == 2)[0])
    X, y = X[kept], y[kept]
    y[3] = -1
    with pytest.warns(match=r"."):
        model = DGPLVMClassifier(unlabeled=-1, random_state=0).fit(X, y)
    p = np.exp(model.held_out_log_proba_)
    p[3] = model.predict_proba(X[3:4])[0]
    fit = model.idata_["fit"]
    np.testing.assert_allclose(fit["probability"], p)
    assert np.isnan(p[-1]).all()
    ax = model.plot_map(names=False)
    points = artists(ax, "sure") + artists(ax, "doubtful")
    at = np.concatenate([item.get_offsets() for item in points])
    expected = PredictionPlane().fit_transform(p[:-1])
    assert_near(ax, at, expected)
    known = np.setdiff1d(np.arange(len(y) - 1), [3])
    right = np.mean(p[known].argmax(axis=1) == y[known])
    text = header(ax)
    assert f"{len(at)} training samples, predicted without their labels · {right:.0%} right" in text
    assert "not drawn: 1 without a held-out prediction" in text
    assert not artists(ax, "watermark")
    latent = model.plot_map(space="latent")
    assert artists(latent, "watermark")
    assert not artists(latent, "wrong") + artists(latent, "doubtful")


def test_a_map_that_contradicts_the_predictions_says_so(new, drawn):
    dataset = new["predictions"].to_dataset()
    turned = dataset["class_probability"].roll(outcome=1, roll_coords=False)
    tree = new.copy()
    tree["predictions"] = xr.DataTree(dataset.assign(class_probability=turned))
    assert "Careful: 100% of the samples lie in the colour of another class" in header(
        plot_map(tree)
    )
    assert "Careful" not in header(drawn)


# ---------------------------------------------------------------- points


def test_doubtful_samples_are_hollow_and_wrong_ones_ringed(wine_predictions, with_plane):
    tree = with_plane(wine_predictions, sharpness=0.3, n_wrong=3)
    dataset, ax = tree["predictions"], plot_map(tree)
    (rings,) = artists(ax, "wrong")
    assert_near(ax, rings.get_offsets(), dataset["latent_mean"].values[:3])
    doubtful = dataset["probability"].values.max(axis=1) < 0.7
    assert 0 < doubtful.sum() < 80
    hollow = artists(ax, "doubtful")
    assert sum(len(points.get_offsets()) for points in hollow) == doubtful.sum()
    assert {to_hex(points.get_facecolors()[0]) for points in hollow} == {"#ffffff"}
    named = names_in(ax)
    assert {"0", "1", "2"} <= set(named)
    assert len(named) == 8


def test_names_are_those_of_the_samples(wine_predictions, with_plane):
    tree = with_plane(wine_predictions, sharpness=0.3, n_wrong=2)
    dataset = tree["predictions"].to_dataset().assign_coords(obs=[f"s{i}" for i in range(80)])
    tree["predictions"] = xr.DataTree(dataset)
    assert {*names_in(plot_map(tree, names=2))} == {"s0", "s1"}  # those that are wrong
    assert not names_in(plot_map(tree, names=False))


def test_many_classes_are_drawn_in_the_plane_of_their_predictions(
    make_fit, make_predictions, monkeypatch
):
    tree = make_predictions(make_fit(labels=[str(i) for i in range(8)]), n_obs=200)
    dataset = tree["predictions"].to_dataset()
    p = np.random.default_rng(0).dirichlet(np.full(8, 0.2), size=200)
    p[:, 7] = 0.0  # predicted for no sample
    p /= p.sum(axis=1, keepdims=True)
    names = dataset["outcome"].values
    tree["predictions"] = xr.DataTree(
        dataset.assign(
            probability=(("obs", "outcome"), p),
            y=("obs", names[p.argmax(axis=1)]),
            class_frequency=("outcome", class_frequency(p.argmax(axis=1), 8)),
        )
    )
    ax = plot_map(tree, names=False)
    points = artists(ax, "sure") + artists(ax, "doubtful")
    at = np.concatenate([item.get_offsets() for item in points])
    plane = PredictionPlane().fit(p)
    expected = plane.transform(p)
    assert_near(ax, at, expected)
    log_q = plane.predict_log_proba(expected)
    right = np.mean(log_q.argmax(axis=1) == p.argmax(axis=1))
    loss = -log_q[np.arange(200), p.argmax(axis=1)].mean()
    text = header(ax)
    assert f"100% right (plane {right:.0%})" in text
    assert f"plane {loss:.2f}, class frequencies" in text
    assert ax.get_xlabel().startswith("Predictions 1 (")
    # Nowhere the colour of the class that is never predicted.
    monkeypatch.setattr(_layers, "color", lambda c: "#00ff00" if c == 7 else "#000000")
    five = plot_map(tree, names=False)
    r, g, b = np.moveaxis(np.asarray(background(five).get_array())[..., :3].astype(float), -1, 0)
    assert np.all(g <= np.maximum(r, b) + 1e-6)
    latent = plot_map(tree, space="latent", names=False)
    assert latent.get_xlabel().startswith("Component")


def test_a_sample_far_away_does_not_stretch_the_axes(new):
    dataset = new["predictions"].to_dataset()
    mean = dataset["latent_mean"].values.copy()
    mean[5] = [1e4, -1e4]
    tree = new.copy()
    tree["predictions"] = xr.DataTree(dataset.assign(latent_mean=(("obs", "component"), mean)))
    ax = plot_map(tree)
    central = np.diff(np.quantile(mean, [0.02, 0.98], axis=0), axis=0)[0]
    shown = [np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())]
    assert np.all(shown <= 2.0 * central)
    assert len(artists(ax, "beyond")) >= 1
    assert any("beyond the axes" in text.get_text() for text in ax.get_legend().get_texts())


def test_two_classes_on_one_component_are_strips(make_fit, make_predictions, with_plane):
    tree = with_plane(make_predictions(make_fit(labels=["no", "yes"], n_components=1)))
    ax = plot_map(tree)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["no", "yes"]
    points = np.concatenate(
        [c.get_offsets() for c in artists(ax, "sure") + artists(ax, "doubtful")]
    )
    assert len(points) == 80
    assert len(np.unique(points.round(9), axis=0)) == 80  # spread, none hidden
    assert background(ax) is not None


def test_values_colour_points(make_fit):
    tree = make_fit(target="regression", labels=["fat", "protein"], n_obs=30)
    ax = plot_map(tree, label="protein")
    points = ax.collections[-1]
    np.testing.assert_array_equal(points.get_array(), tree["observed_data/y"].values[:, 1])
    assert ax.get_figure().axes[1].get_ylabel() == "protein"
    tree["observed_data/y"].values[0, 1] = np.nan
    assert np.isfinite(plot_map(tree, label="protein").collections[-1].get_clim()).all()


def test_samples_without_targets_are_plain(make_predictions, wine):
    tree = make_predictions(wine, labels_known=False)
    tree["predictions"].dataset = tree["predictions"].to_dataset().drop_vars("probability")
    ax = plot_map(tree)
    assert ax.get_legend() is None
    assert len(ax.collections[-1].get_offsets()) == 80


# ---------------------------------------------------------------- uncertainty


def test_a_typical_samples_own_uncertainty_is_drawn_at_scale(new, drawn):
    (glyph,) = artists(drawn, "typical")
    cov = np.median(new["predictions/latent_cov"].values, axis=0)
    shape = Affine2D(glyph.get_transforms()[0]) + glyph.get_transform()
    ends = shape.transform(glyph.get_paths()[0].vertices[:-1:3])  # of its curves
    pixels = np.diff(drawn.transData.transform([[0.0, 0.0], [1.0, 1.0]]), axis=0)
    at = ends / pixels
    square = np.einsum("pi,ij,pj->p", at, np.linalg.inv(cov), at)
    np.testing.assert_allclose(square, chi2.ppf(0.5, df=2))


def test_own_uncertainty_of_doubtful_samples(new):
    doubtful = int(np.sum(new["predictions/probability"].values.max(axis=1) < 0.7))
    (shapes,) = artists(plot_map(new, uncertainty=True), "own")
    assert len(shapes.get_offsets()) == doubtful


# ---------------------------------------------------------------- options


def test_the_legend_explains_classes_points_and_background(wine_predictions, with_plane):
    tree = with_plane(wine_predictions, sharpness=0.3, n_wrong=3)
    texts = [text.get_text() for text in plot_map(tree).get_legend().get_texts()]
    names = tree["predictions"]["outcome"].values.tolist()
    assert texts[:3] == names
    assert texts[3:5] == ["doubtful: below 0.7", "predicted wrongly"]
    assert texts[-4:] == ["undecided", "0.5 to 0.7", "0.7 to 0.9", "0.9 to 1"]
    ax = plot_map(tree, ax=Figure().subplots())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == names


def test_names_of_classes_stand_beside_their_samples_and_cover_none(new, drawn):
    dataset, ax = new["predictions"].to_dataset(), drawn
    names = artists(ax, "class")
    points = np.concatenate(
        [each.get_offsets() for each in artists(ax, "sure") + artists(ax, "doubtful")]
    )
    assert [text.get_text() for text in names] == dataset["outcome"].values.tolist()
    for c, text in enumerate(names):
        box = Text.get_window_extent(text)
        assert box.count_contains(ax.transData.transform(points)) == 0
        here = dataset["latent_mean"].values[dataset["y"].values == text.get_text()]
        middle = ax.transData.transform(np.median(here, axis=0))
        assert np.hypot(*(np.mean(box.get_points(), axis=0) - middle)) < 150.0  # pixels
        assert to_hex(text.get_color()) == to_hex(0.55 * np.array(to_rgb(color(c))))


def test_points_at_one_place_are_told_apart(new):
    tree = new.copy()
    dataset = tree["predictions"].to_dataset()
    same = dataset["latent_mean"].values.copy()
    same[:50] = same[0]
    tree["predictions"] = xr.DataTree(dataset.assign(latent_mean=(("obs", "component"), same)))
    ax = plot_map(tree)
    points = artists(ax, "sure") + artists(ax, "doubtful")
    at = np.concatenate([each.get_offsets() for each in points])
    diameter = np.sqrt(points[0].get_sizes()[0])
    apart = 72.0 / ax.get_figure().dpi * pdist(ax.transData.transform(at))
    assert apart.min() > 0.4 * diameter
    assert_near(ax, at, same)


def test_held_out_samples_have_no_latent_coordinates_and_the_error_says_what_to_do(new):
    tree = new.copy()
    dataset = tree["predictions"].to_dataset().drop_vars(["latent_mean", "latent_cov"])
    tree["predictions"] = xr.DataTree(dataset.assign(fold=("obs", np.zeros(80, dtype=int))))
    with pytest.raises(ValueError, match=r"leave out space.*or give group='fit'"):
        plot_map(tree, space="latent")


def test_more_than_ten_classes_are_not_repeated_in_the_legend(make_fit):
    for n_classes, n_names in ((10, 10), (11, 0)):
        names = [f"class {i}" for i in range(n_classes)]
        ax = plot_map(make_fit(labels=names, n_obs=300), ax=Figure().subplots())
        assert sorted(text.get_text() for text in artists(ax, "class")) == sorted(names)
        legend = ax.get_legend()
        assert (0 if legend is None else len(legend.get_texts())) == n_names


def test_groups_are_markers_beside_the_colours_of_classes(new):
    batch, classes = np.repeat(["a", "b"], [30, 50]), new["predictions"]["outcome"].values
    ax = plot_map(new, groups=batch)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:5] == [*classes, "a", "b"]
    numbers = {}
    for points in artists(ax, "sure") + artists(ax, "doubtful"):
        hollow = points.get_gid() == "doubtful"
        for shade in points.get_edgecolors() if hollow else points.get_facecolors():
            key = points.get_paths()[0].vertices.shape, to_hex(shade)
            numbers[key] = numbers.get(key, 0) + 1
    found = pd.crosstab(batch, new["predictions/y"].values)[list(classes)].to_numpy()
    assert sorted(numbers.values()) == sorted(found[found > 0])
    assert {shade for _, shade in numbers} == {color(c) for c in range(3)}
    assert background(ax) is not None
    with pytest.raises(ValueError, match=r"one value per sample, \(80,\), got \(3,\)"):
        plot_map(new, groups=[1, 2, 3])


@pytest.mark.parametrize("name", ["latent_mean", "probability", "class_probability", "y"])
def test_variables_without_their_dims_or_numbers_are_refused_by_name(new, name):
    for values in (1.0, *([] if name == "y" else [new["predictions"][name].astype(str)])):
        tree = new.copy()
        tree["predictions"] = xr.DataTree(new["predictions"].to_dataset().assign({name: values}))
        wanted = rf"predictions/{name} (has no dim|must hold numbers)"
        for call in (plot_map, lambda tree: map_table(tree, "predictions")):
            with pytest.raises(ValueError, match=wanted):
                call(tree)


LEVELS = pd.CategoricalDtype(["low", "mid", "high", "never"], ordered=True)


@pytest.mark.parametrize(
    ("values", "legend"),
    [
        ([10, 2, 24, 3], ["2", "3", "10", "24"]),
        (pd.Series(["high", "low", "mid", "low"], dtype=LEVELS), ["low", "mid", "high"]),
        (pd.to_datetime(["2020-10-02", "2020-02-10"]).to_numpy(), ["2020-02-10", "2020-10-02"]),
    ],
)
def test_groups_are_in_the_order_of_numbers_and_of_ordered_categories(new, values, legend):
    groups = (
        values.repeat(20) if isinstance(values, pd.Series) else np.repeat(values, 80 // len(values))
    )
    ax = plot_map(new, groups=groups)
    names = [text.get_text() for text in ax.get_legend().get_texts()][3 : 3 + len(legend)]
    assert names == legend
    found, index = name_groups(groups, np.empty((80, 1)))
    assert [found[i] for i in index] == list(np.asarray(groups, dtype=object))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"ax": Figure().add_subplot(projection="3d")}, "plane Axes of Matplotlib, got Axes3D"),
        ({"ax": "ax"}, "plane Axes of Matplotlib, got str"),
        ({"space": "plane"}, "space must be 'latent', 'predictions' or None"),
        ({"space": "predictions"}, "has no variable 'probability'"),
        ({"space": "predictions", "uncertainty": True}, "that of latent coordinates"),
        ({"names": -1}, "'names' parameter of plot_map must be .* or an int"),
        ({"group": "predictions"}, "no group 'predictions'"),
    ],
)
def test_bad_arguments_are_named(kwargs, message, wine):
    with pytest.raises(ValueError, match=message):
        plot_map(wine, **kwargs)


def test_coordinates_that_are_not_finite_are_named(make_fit):
    tree = make_fit()
    tree["fit/latent_mean"].values[3] = np.nan
    with pytest.raises(ValueError, match="coordinates of samples in the tree contain NaN"):
        plot_map(tree)


def test_an_unknown_label_is_named(make_fit, make_predictions, wine):
    with pytest.raises(ValueError, match="label must be one of"):
        plot_map(make_fit(target="regression"), label="sugar")
    tree = make_predictions(wine)
    tree["predictions/y"] = (
        tree["predictions/y"].astype("U20").where(lambda y: y != "barolo", "merlot")
    )
    with pytest.raises(ValueError, match=r"unknown to the model: \['merlot'\]"):
        plot_map(tree)
