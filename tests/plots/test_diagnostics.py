"""Outliers, the table and the style: what is drawn is what went in."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.datasets import load_iris

from bsdr_models import BSDRClassifier, Sampling
from bsdr_models.numerics.latent import q_limit, t2_limit
from bsdr_models.plots import map_table, plot_outliers
from bsdr_models.plots._style import MARKERS, PALETTE, color, marker

FEW_DRAWS = Sampling(draws=40, chains=1)
MODEL = BSDRClassifier(temperature=1.0, sampling=FEW_DRAWS, random_state=0)

pytestmark = pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples")


def note_of(ax):
    (note,) = (text for text in ax.texts if text.get_fontsize() == 8.5)
    return note.get_text().replace("\n", " ")


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    model = clone(MODEL).fit(X[::2], y[::2])
    new = X[1::2].copy()
    new[3] += 30.0
    tree = model.idata_.copy()
    tree["predictions"] = model.predict_idata(new, y[1::2])["predictions"]
    return tree


@pytest.mark.parametrize("group", ["fit", "predictions"])
def test_limits_are_those_of_the_reference(iris, group):
    ax = plot_outliers(iris, group=group)
    lines = {line.get_gid(): line for line in ax.lines}
    n, attrs = 75 - (group == "fit"), iris.attrs
    t2_end = t2_limit(0.95, n, attrs["t2_rank"])
    q_end = q_limit(0.95, attrs["q_scale"], attrs["q_dof"])
    assert lines["t2-limit"].get_xdata()[0] == t2_end
    assert lines["q-limit"].get_ydata()[0] == q_end
    found = iris[group]
    beyond = int(((found["t2"] > t2_end) | (found["q_residual"] > q_end)).sum())
    assert f"{beyond} of 75 samples beyond" in ax.get_title(loc="left")


def test_a_tree_that_lost_its_reference_is_told_so(iris):
    tree = iris.copy()
    del tree.attrs["q_dof"]
    with pytest.raises(ValueError, match="no root attribute 'q_dof'"):
        plot_outliers(tree)


def test_a_map_that_misses_nothing_has_no_limit_of_q():
    X, y = load_iris(return_X_y=True)
    model = clone(MODEL).fit(X[:, :1].repeat(2, axis=1), y)
    ax = plot_outliers(model.idata_)
    assert "no residual" in note_of(ax)
    assert [line.get_gid() for line in ax.lines] == ["t2-limit"]


def test_a_sample_far_off_is_named_and_leaves_room_to_the_others(iris):
    ax = plot_outliers(iris, group="predictions")
    (names,) = ax.artists
    assert names.texts[0].get_text() == "3"
    assert "asinh" in (ax.get_xscale(), ax.get_yscale())
    usual = iris["predictions/t2"].values < 5.0
    at = ax.transAxes.inverted().transform(
        ax.transData.transform(
            np.column_stack([iris["predictions/t2"], iris["predictions/q_residual"]])[usual]
        )
    )
    assert np.ptp(at, axis=0).max() > 0.15


def test_the_table_of_samples_says_how_outlying_they_are(iris):
    table = map_table(iris, "predictions")
    assert {"mean", "sd", "observed", "predicted", "confidence", "entropy"} <= set(table.data_vars)
    for name in ("t2", "q_residual", "tail_probability"):
        np.testing.assert_array_equal(table[name], iris[f"predictions/{name}"])
    assert "tail_probability" in table[["tail_probability", "entropy"]].to_dataframe().columns


def test_table_of_training_samples(wine):
    table = map_table(wine)
    assert set(table.data_vars) == {"mean", "sd", "observed"}
    cov = wine["fit/latent_cov"].values
    np.testing.assert_allclose(table["sd"].values[:, 1] ** 2, cov[:, 1, 1])
    labels = wine["posterior"].coords["outcome"].values
    np.testing.assert_array_equal(table["observed"], labels[wine["fit/y_index"].values])


def test_table_of_new_samples(wine_predictions):
    table = map_table(wine_predictions, "predictions")
    probability = wine_predictions["predictions/probability"]
    np.testing.assert_allclose(table["entropy"], entropy(probability.values, axis=1))
    best = probability.idxmax("outcome")
    np.testing.assert_array_equal(table["predicted"], best)
    np.testing.assert_array_equal(table["confidence"], probability.sel(outcome=best))
    np.testing.assert_array_equal(table["observed"], wine_predictions["predictions/y"])
    assert set(table["mean"].dims) == {"obs", "component"}


def test_table_without_targets_and_with_values(make_fit, make_predictions, wine):
    unknown = map_table(make_predictions(wine, labels_known=False), "predictions")
    assert "observed" not in unknown
    regression = make_fit(target="regression", labels=["fat", "protein"])
    observed = map_table(regression)["observed"]
    np.testing.assert_array_equal(observed, regression["observed_data/y"].values[:, 0])


def test_a_hundred_classes_differ_in_colour_or_marker():
    assert len({(color(c), marker(c)) for c in range(len(PALETTE) * len(MARKERS))}) == 100
