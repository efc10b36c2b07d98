"""Geometry of the score plot: ellipses and intervals hold what they say."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.path import Path
from scipy.stats import chi2, norm

from bsdr_models.plots import plot_map
from bsdr_models.plots._ellipses import mixture_moments, outline, spread_samples
from bsdr_models.plots._style import color


def artist(ax, gid):
    found = [item for item in ax.collections if item.get_gid() == gid]
    assert len(found) <= 1
    return found[0] if found else None


def drawn(ax, gid):
    """Polygons of a collection, (M, vertices, 2)."""
    return np.stack([path.vertices for path in artist(ax, gid).get_paths()])


def mahalanobis(vertices, mean, cov):
    """Squared distances, (M, vertices)."""
    deviation = vertices - mean[:, None, :]
    return np.einsum("mpi,mij,mpj->mp", deviation, np.linalg.inv(cov), deviation)


@pytest.mark.parametrize("prob", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("components", [(0, 1), (2, 0)])
def test_sample_ellipses_are_contours_that_hold_prob(prob, components, make_fit):
    tree = make_fit(n_obs=40, n_components=3)
    ax = plot_map(tree, components=components, prob=prob, ellipses="obs")
    mean = tree["fit/latent_mean"].values[:, components]
    cov = tree["fit/latent_cov"].values[:, components][:, :, components]
    vertices = drawn(ax, "obs-ellipses")
    assert len(vertices) == 40
    np.testing.assert_allclose(mahalanobis(vertices, mean, cov), chi2.ppf(prob, df=2), rtol=1e-9)


def test_an_ellipse_holds_its_share_of_draws():
    """Monte Carlo: 20 000 draws of a slanted normal, four standard errors."""
    rng = np.random.default_rng(0)
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 1.2], [1.2, 1.0]])
    draws = rng.multivariate_normal(mean, cov, size=20_000)
    (polygon,) = outline(mean[None], cov[None], prob=0.8)
    share = Path(polygon).contains_points(draws).mean()
    # The polygon of 72 sides lies inside the ellipse: sin(5 deg) / 5 deg of its area.
    inside = 0.8 - 0.2 * chi2.ppf(0.8, df=2) / 2.0 * (1.0 - np.sin(np.pi / 36) / (np.pi / 36))
    assert abs(share - inside) < 4.0 * np.sqrt(0.8 * 0.2 / 20_000)


def test_class_ellipses_hold_prob_of_the_class_with_its_samples_uncertainty(make_fit):
    """The moments are those of draws from the samples' own normals."""
    tree = make_fit(n_obs=60)
    ax = plot_map(tree, ellipses="class", prob=0.9)
    assert artist(ax, "obs-ellipses") is None
    vertices = drawn(ax, "class-ellipses")
    assert len(vertices) == 3

    rng = np.random.default_rng(1)
    index = tree["fit/y_index"].values
    for c in range(3):
        mean = tree["fit/latent_mean"].values[index == c]
        root = np.linalg.cholesky(tree["fit/latent_cov"].values[index == c])
        noise = rng.normal(size=(4000, len(mean), 2))
        draws = (mean + np.einsum("nij,snj->sni", root, noise)).reshape(-1, 2)
        distance = mahalanobis(vertices[c : c + 1], draws.mean(axis=0)[None], np.cov(draws.T)[None])
        np.testing.assert_allclose(distance, chi2.ppf(0.9, df=2), rtol=0.03)


def test_a_class_of_one_sample_has_the_ellipse_of_that_row():
    mean, cov = np.array([[1.0, 2.0]]), np.array([[[2.0, 0.3], [0.3, 1.0]]])
    centre, total = mixture_moments(mean, cov)
    np.testing.assert_array_equal(centre, mean[0])
    np.testing.assert_array_equal(total, cov[0])


def test_both_kinds_are_told_apart(wine):
    ax = plot_map(wine)
    rows, classes = artist(ax, "obs-ellipses"), artist(ax, "class-ellipses")
    assert classes.get_linewidths()[0] > 2.0 * rows.get_linewidths()[0]
    assert rows.get_linestyles()[0][1] is None  # solid
    assert classes.get_linestyles()[0][1] is not None  # dashed
    assert rows.get_edgecolors()[:, 3].max() < 0.5
    assert plot_map(wine, ellipses=None).collections
    assert artist(plot_map(wine, ellipses=None), "class-ellipses") is None


def test_ellipses_wear_the_colour_of_their_class(wine):
    ax = plot_map(wine, ellipses="obs")
    expected = [color(c) for c in wine["fit/y_index"].values]
    assert [to_hex(edge) for edge in artist(ax, "obs-ellipses").get_edgecolors()] == expected


def test_many_samples_are_thinned_over_all_classes(make_fit):
    tree = make_fit(n_obs=900)
    ax = plot_map(tree, max_ellipses=60)
    assert len(artist(ax, "obs-ellipses").get_paths()) == 60
    assert (
        sum(len(points.get_offsets()) for points in ax.collections if points.get_label()[0] != "_")
        == 900
    )
    index = tree["fit/y_index"].values
    kept = np.bincount(index[spread_samples(index, 60)], minlength=3) / 60.0
    np.testing.assert_allclose(kept, np.bincount(index) / 900.0, atol=1.0 / 60.0)
    assert "60 of 900 samples" in ax.texts[0].get_text().replace("\n", " ")


@pytest.mark.parametrize(
    ("engine", "said"),
    [("mean_field", "Mean field"), ("advi", "ADVI"), ("gibbs", ""), ("nuts", "")],
)
def test_approximate_ellipses_are_labelled(engine, said, make_fit):
    note = plot_map(make_fit(inference_method=engine)).texts[0].get_text().replace("\n", " ")
    assert ("too narrow" in note) == bool(said)
    assert said in note


def test_what_is_not_drawn_is_not_spoken_of(wine):
    assert "approximate" in plot_map(wine).texts[0].get_text()
    assert "approximate" not in plot_map(wine, ellipses=None).texts[0].get_text()
    with pytest.raises(ValueError, match="max_ellipses must be at least 1, got 0"):
        plot_map(wine, max_ellipses=0)


def test_one_component_draws_intervals_and_densities(make_fit):
    tree = make_fit(n_components=1, n_obs=50)
    ax = plot_map(tree, prob=0.8, max_ellipses=1000)
    index = tree["fit/y_index"].values
    mean = tree["fit/latent_mean"].values[:, 0]
    sd = np.sqrt(tree["fit/latent_cov"].values[:, 0, 0])
    bars = [item for item in ax.collections if item.get_gid() == "obs-bars"]
    assert len(bars) == 3
    for c, bar in enumerate(bars):
        ends = np.stack(bar.get_segments())[:, :, 0]
        covered = norm.cdf((ends - mean[index == c, None]) / sd[index == c, None])
        np.testing.assert_allclose(covered, [[0.1, 0.9]] * len(ends), rtol=1e-9)

    # Each curve, up to the common height, encloses the same area: it is a density.
    areas = []
    for line in ax.lines:
        x, y = line.get_data()
        height = np.nan_to_num(abs(y - np.nanmax(y).round()))
        areas.append(np.trapezoid(height, x))
    assert len(areas) == 3
    np.testing.assert_allclose(areas, np.mean(areas), rtol=0.05)


def test_values_colour_points_and_ellipses(make_fit):
    tree = make_fit(target="regression", labels=["fat", "protein"], n_obs=30)
    ax = plot_map(tree, label="protein")
    points = ax.collections[0]
    np.testing.assert_array_equal(points.get_array(), tree["observed_data/y"].values[:, 1])
    edges = artist(ax, "obs-ellipses").get_edgecolors()[:, :3]
    ax.get_figure().canvas.draw()
    np.testing.assert_allclose(edges, points.get_facecolors()[:, :3], atol=1e-6)
    assert ax.get_figure().axes[1].get_ylabel() == "protein"


def test_samples_without_targets_are_plain(make_predictions, wine):
    tree = make_predictions(wine, labels_known=False)
    tree["predictions"].dataset = tree["predictions"].to_dataset().drop_vars("probability")
    ax = plot_map(tree, group="predictions")
    assert ax.get_legend() is None
    assert len(artist(ax, "obs-ellipses").get_paths()) == 80


def test_colours_of_classes_agree_between_training_and_new_samples(make_predictions, wine):
    tree = make_predictions(wine)
    tree["predictions"] = tree["predictions"].isel(obs=tree["predictions"]["y"] != "barolo")
    legend = plot_map(tree, group="predictions").get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["grignolino", "barbera"]
    faces = [to_hex(handle.get_facecolor()[0]) for handle in legend.legend_handles]
    assert faces == [color(1), color(2)]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"components": (0, 2)}, r"one or two of 0\.\.1"),
        ({"components": (0, 1, 1)}, r"one or two of 0\.\.1"),
        ({"prob": 1.0}, r"prob must lie in \(0, 1\)"),
        ({"ellipses": "rows"}, "ellipses must be"),
        ({"group": "predictions"}, "no group 'predictions'"),
    ],
)
def test_bad_arguments_are_named(kwargs, message, wine):
    with pytest.raises(ValueError, match=message):
        plot_map(wine, **kwargs)


def test_class_ellipses_need_classes(make_fit):
    with pytest.raises(ValueError, match="class ellipses need classes"):
        plot_map(make_fit(target="regression"), ellipses="class")


def test_an_unknown_label_is_named(make_fit, make_predictions, wine):
    with pytest.raises(ValueError, match="label must be one of"):
        plot_map(make_fit(target="regression"), label="sugar")
    tree = make_predictions(wine)
    tree["predictions/y"] = (
        tree["predictions/y"].astype("U20").where(lambda y: y != "barolo", "merlot")
    )
    with pytest.raises(ValueError, match=r"unknown to the model: \['merlot'\]"):
        plot_map(tree, group="predictions")
