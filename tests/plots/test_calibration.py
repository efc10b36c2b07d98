"""Confusion, reliability and certainty against counts made by hand and by simulation."""

import itertools
import re

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.metrics import log_loss

from bsdr_models.plots import (
    plot_certainty,
    plot_confusion,
    plot_reliability,
    reliability_table,
)
from bsdr_models.plots.calibration import _calibration


def tree_of(probability, y, labels=("a", "b")):
    predictions = xr.Dataset(
        {"probability": (("obs", "outcome"), np.asarray(probability)), "y": ("obs", list(y))},
        coords={"outcome": list(labels)},
    )
    return xr.DataTree.from_dict({"predictions": predictions})


def test_confusion_counts_rows_of_true_and_columns_of_predicted_classes():
    probability = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]
    ax = plot_confusion(tree_of(probability, "abbb"))
    assert cells(ax) == {(0, 0): "1", (1, 0): "2", (1, 1): "1"}
    assert recall(ax) == ["100%", "33%"]
    title, note = title_and_note(ax)
    assert title == "50.0% correct"
    assert "2 of 4 correct" in note
    assert "balanced error 33.3%" in note
    assert "Most often: b as a (2)." in note


def test_right_is_grey_and_wrong_is_red():
    image = plot_confusion(tree_of([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], "abb")).images[0]
    shades = np.asarray(image.get_array())[..., :3]
    assert np.ptp(shades[0, 0]) < 0.2
    assert shades[1, 0, 0] > 1.5 * shades[1, 0, 1]
    np.testing.assert_array_equal(shades[0, 1], 1.0)


def test_twenty_classes_are_written_in_their_cells_and_a_class_without_samples_has_no_recall():
    rng = np.random.default_rng(0)
    names = [f"class {i}" for i in range(20)]
    y = rng.choice(names[:-1], size=400)
    ax = plot_confusion(tree_of(rng.dirichlet(np.ones(20), size=400), y, labels=names))
    figure = ax.get_figure()
    figure.canvas.draw()
    assert len(recall(ax)) == 19
    side = ax.get_window_extent().width / 20
    inside = [text for text in ax.texts if text.get_text().isdigit()]
    assert sum(int(text.get_text()) for text in inside) == 400
    assert max(text.get_window_extent().width for text in inside) < side


def cells(ax):
    """Texts of the cells by (true, predicted)."""
    found = [text for text in ax.texts if text.get_text().isdigit()]
    return {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in found}


def recall(ax):
    return [text.get_text() for text in ax.texts if text.get_gid() == "recall"]


def test_a_label_that_was_never_learnt_is_named():
    with pytest.raises(ValueError, match=r"unknown to the model: \['c'\]"):
        plot_confusion(tree_of([[0.9, 0.1]], "c"))


def test_classes_may_be_numbers():
    ax = plot_confusion(tree_of([[0.9, 0.1], [0.2, 0.8]], [2.5, 1.5], labels=(1.5, 2.5)))
    assert cells(ax) == {(0, 1): "1", (1, 0): "1"}


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration_error_is_the_weighted_gap_of_the_bins(strategy):
    rng = np.random.default_rng(0)
    stated = rng.beta(3.0, 1.0, size=500)
    happened = rng.random(500) < stated**1.5
    got = _calibration(stated, happened, n_bins=8, strategy=strategy)
    edges = (
        np.linspace(0, 1, 9)
        if strategy == "uniform"
        else np.percentile(stated, 12.5 * np.arange(9))
    )
    gaps, counts = [], []
    for low, high in itertools.pairwise(edges):
        rows = (stated > low) & (stated <= high) | ((low == edges[0]) & (stated == low))
        if rows.any():
            gaps.append(abs(stated[rows].mean() - happened[rows].mean()))
            counts.append(rows.sum())
    assert sum(counts) == 500
    np.testing.assert_allclose(got.error, np.average(gaps, weights=counts), rtol=1e-12)
    np.testing.assert_array_equal(got.count[got.count > 0], counts)


def test_floor_is_the_error_of_perfect_probabilities():
    """Mean over 400 simulated sets of outcomes; the normal approximation may cost five per cent."""
    rng = np.random.default_rng(1)
    stated = rng.beta(2.0, 2.0, size=300)
    fits = [
        _calibration(stated, rng.random(300) < stated, n_bins=6, strategy="quantile")
        for _ in range(400)
    ]
    errors = np.array([fit.error for fit in fits])
    assert abs(errors.mean() - fits[0].floor) < 0.05 * fits[0].floor + 4 * errors.std() / 20.0


def test_reliability_bars_solve_wilsons_equation(make_predictions, wine):
    """The ends are the shares p for which the one seen is z standard errors of p away."""
    tree = make_predictions(wine, n_obs=400, temperature=2.0)
    ax = plot_reliability(tree, n_bins=5, prob=0.8)
    ((points, _, (segments,)),) = ax.containers
    count = reliability_table(tree, n_bins=5)["count"].values
    ends = np.stack(segments.get_segments())[:, :, 1]
    share = points.get_ydata()[:, None]
    error = np.sqrt(ends * (1.0 - ends) / count[:, None])
    z = norm.ppf(0.9)
    np.testing.assert_allclose((ends - share)[ends < 1.0], (error * [-z, z])[ends < 1.0], rtol=1e-6)


def title_and_note(ax):
    return ax.get_title(loc="left") + ax.get_title(), " ".join(ax.texts[-1].get_text().split())


def test_reliability_states_proper_scores_with_intervals(make_predictions, wine):
    tree = make_predictions(wine, n_obs=150)
    predictions = tree["predictions"]
    labels = predictions["outcome"].values.tolist()
    title, note = title_and_note(plot_reliability(tree))
    probability = predictions["probability"].values
    y = [labels.index(value) for value in predictions["y"].values.tolist()]
    expected = log_loss(y, probability, labels=range(len(labels)))
    best = probability.max(axis=1).mean()
    share = np.mean(probability.argmax(axis=1) == y)
    assert title == f"Said {best:.0%}, right {share:.0%}"
    assert re.search(r"Calibration error 0\.\d{3} \(0\.\d{3} to 0\.\d{3}\)", note)
    assert f"log loss {expected:.3f} (" in note
    truth = np.eye(len(labels))[y]
    brier = np.mean(np.sum((probability - truth) ** 2, axis=1))
    assert f"Brier score {brier:.3f} (" in note
    assert title_and_note(plot_reliability(tree)) == (title, note)

    _, note = title_and_note(plot_reliability(tree, label=labels[1]))
    expected = log_loss(truth[:, 1], probability[:, 1])
    assert f"log loss {expected:.3f} (" in note
    assert f"Brier score {np.mean((probability[:, 1] - truth[:, 1]) ** 2):.3f} (" in note


def test_ticks_are_the_probabilities_of_right_and_of_wrong_predictions(make_predictions, wine):
    tree = make_predictions(wine, n_obs=100)
    ax = plot_reliability(tree)
    best = tree["predictions/probability"].values.max(axis=1)
    ticks = {
        item.get_gid(): [segment[0, 0] for segment in item.get_segments()]
        for item in ax.collections
        if item.get_gid()
    }
    np.testing.assert_allclose(np.sort(np.concatenate([*ticks.values()])), np.sort(best))
    share = len(ticks["happened"]) / 100
    assert ax.get_title(loc="left") == f"Said {best.mean():.0%}, right {share:.0%}"


def test_bins_of_equal_width_are_an_option_and_none_is_refused(make_predictions, wine):
    tree = make_predictions(wine, n_obs=100)
    fixed = reliability_table(tree, n_bins=5, strategy="uniform")
    assert np.all(np.diff(np.floor(5.0 * fixed["probability"].values)) >= 1.0)
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        plot_reliability(tree, n_bins=0)


def test_near_certain_predictions_share_a_bin_and_its_size_is_written():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0.5, 0.8, 30), rng.uniform(0.999, 1.0, 170)])
    y = np.where(rng.random(200) < p, "a", "b")
    tree = tree_of(np.column_stack([p, 1.0 - p]), y)
    table = reliability_table(tree)
    assert table["count"].values.tolist() == [25, 175]  # an eighth, and all others
    written = [text.get_text() for text in plot_reliability(tree).texts]
    assert {"25", "175"} <= set(written)


def test_certainty_stacks_probabilities_to_one(wine_predictions):
    ax = plot_certainty(wine_predictions, rows=[4, 0, 7])
    probability = wine_predictions["predictions/probability"].values[[4, 0, 7]]
    bars = [[bar.get_width() for bar in container] for container in ax.containers]
    np.testing.assert_allclose(np.transpose(bars), probability)
    ends = [bar.get_x() + bar.get_width() for bar in ax.containers[-1]]
    np.testing.assert_allclose(ends, 1.0)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["4", "0", "7"]


def test_certainty_runs_from_the_surest_sample_to_the_least_sure(make_predictions, wine):
    tree = make_predictions(wine, n_obs=300)
    largest = tree["predictions/probability"].values.max(axis=1)
    rows = [int(text.get_text()) for text in plot_certainty(tree).get_yticklabels()]
    assert len(rows) == len(set(rows)) == 25
    assert np.all(np.diff(largest[rows]) <= 0.0)
    assert largest[rows[0]] == largest.max()
    assert largest[rows[-1]] == largest.min()


@pytest.mark.parametrize("rows", [[], [80], [-1]])
def test_samples_out_of_range_are_refused(rows, wine_predictions):
    with pytest.raises(ValueError, match=r"indices in 0\.\.79"):
        plot_certainty(wine_predictions, rows=rows)


def test_certainty_is_for_classes(make_fit, make_predictions):
    tree = make_predictions(make_fit(target="multilabel"), target="multilabel")
    with pytest.raises(ValueError, match="does not sum to one over classes"):
        plot_certainty(tree)
    with pytest.raises(ValueError, match="are not classes"):
        plot_confusion(tree)
