"""The shaded plane shows the posterior probabilities, and says nothing where there is nothing."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from scipy.stats import norm

from bsdr_models.plots import plot_decision_regions
from bsdr_models.plots._style import color
from bsdr_models.plots.regions import class_probability


def test_two_classes_are_a_binary_probit_averaged_over_draws(make_fit):
    """P(t_1 > t_0) = Phi((eta_1 - eta_0) / sqrt 2), for each draw."""
    tree = make_fit(labels=["no", "yes"], n_draws=10)
    positions = np.random.default_rng(0).normal(size=(25, 2))
    got = class_probability(tree, positions, n_draws=20)
    weights = tree["posterior/weights"].values.reshape(20, 2, 2)
    bias = tree["posterior/bias"].values.reshape(20, 2)
    score = positions @ weights + bias[:, None, :]  # (draw, position, label)
    expected = norm.cdf((score[..., 1] - score[..., 0]) / np.sqrt(2.0)).mean(axis=0)
    np.testing.assert_allclose(got[:, 1], expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-8)


def test_three_classes_agree_with_simulated_scores(wine):
    """Monte Carlo over the noise of the scores and the draws, four standard errors."""
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(6, 2))
    got = class_probability(wine, positions, n_draws=120)
    weights = wine["posterior/weights"].values.reshape(-1, 2, 3)
    bias = wine["posterior/bias"].values.reshape(-1, 3)
    scores = positions @ weights + bias[:, None, :]
    best = (scores + rng.normal(size=(400, *scores.shape))).argmax(axis=-1)
    expected = np.stack([(best == c).mean(axis=(0, 1)) for c in range(3)], axis=1)
    error = np.sqrt(expected * (1.0 - expected) / (400 * len(bias)))
    assert np.all(np.abs(got - expected) < 4.0 * error + 1e-3 / 400)


def test_picture_has_the_colour_of_the_most_probable_class(wine):
    ax = plot_decision_regions(wine, resolution=20, n_draws=5)
    (image,) = ax.images
    shades = image.get_array()
    left, right, bottom, top = image.get_extent()
    height, width, _ = shades.shape
    for c in range(3):
        rows = wine["fit/y_index"].values == c
        x, y = wine["fit/latent_mean"].values[rows].mean(axis=0)
        shade = shades[
            int((y - bottom) / (top - bottom) * height), int((x - left) / (right - left) * width)
        ]
        full = 1.0 - 0.6 * (1.0 - np.array(to_rgb(color(c))))  # probability one
        np.testing.assert_allclose(shade, full, atol=0.02)


def test_no_signal_is_white(make_fit):
    tree = make_fit(n_obs=20)
    tree["posterior"] = tree["posterior"].to_dataset() * 0.0
    (image,) = plot_decision_regions(tree, resolution=5, n_draws=2).images
    assert image.get_array().min() > 0.999


def test_other_components_stay_at_their_mean(make_fit):
    tree = make_fit(n_components=4)
    note = plot_decision_regions(tree, components=(1, 3), resolution=5, n_draws=2).texts[0]
    assert "Other components at their mean" in note.get_text()
    with pytest.raises(ValueError, match="two components"):
        plot_decision_regions(tree, components=2)
    with pytest.raises(ValueError, match="two components"):
        plot_decision_regions(make_fit(n_components=1))
