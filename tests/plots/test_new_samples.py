"""Outlying samples, predictive checks: what is drawn is what went in."""

import numpy as np
import pytest
import xarray as xr
from sklearn.datasets import load_iris
from sklearn.metrics import confusion_matrix

from bsdr_models import BSDRClassifier, BSDRRegressor, plots
from bsdr_models.bsdr.predictive_check import predictive_check
from bsdr_models.numerics.outliers import q_limit, t2_limit
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.plots import plot_outliers, plot_predictive_check

EXACT = {"temperature": 1.0, "random_state": 0}


def note_of(ax):
    return ax.texts[-1].get_text().replace("\n", " ")


# --------------------------------------------------------------------------------- outlying samples


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    model = BSDRClassifier().set_params(**EXACT).fit(X[::2], y[::2])
    new = X[1::2].copy()
    new[3] += 30.0
    tree = model.idata_.copy()
    tree["predictions"] = model.predict_idata(new, y[1::2])["predictions"]
    return tree


@pytest.mark.parametrize("group", ["fit", "predictions"])
def test_limits_are_those_of_the_reference(iris, group):
    ax = plot_outliers(iris, group=group, prob=0.9)
    lines = {line.get_gid(): line for line in ax.lines}
    n, attrs = 75 - (group == "fit"), iris.attrs
    t2_end = t2_limit(0.9, n, attrs["t2_rank"])
    q_end = q_limit(0.9, attrs["q_scale"], attrs["q_dof"])
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
    model = BSDRClassifier().set_params(**EXACT).fit(X[:, :1].repeat(2, axis=1), y)
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
    table = plots.map_table(iris, "predictions")
    assert {"mean", "sd", "observed", "predicted", "confidence", "entropy"} <= set(table.data_vars)
    for name in ("t2", "q_residual", "tail_probability"):
        np.testing.assert_array_equal(table[name], iris[f"predictions/{name}"])
    assert "tail_probability" in table[["tail_probability", "entropy"]].to_dataframe().columns


# ----------------------------------------------------------------------------- predictive checks


def test_replicated_classes_are_counted():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    model = BSDRClassifier().set_params(**EXACT).fit(X[::2], names[y[::2]])
    check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    table = plots.predictive_check_table(check)
    np.testing.assert_array_equal(table["observed"], 25)
    assert table["statistic"].values.tolist() == names.tolist()
    drawn = check["posterior_predictive/y"].values.reshape(-1, 75)
    count = (drawn == 1).sum(axis=1)
    np.testing.assert_allclose(table["replicated"][1], count.mean())
    np.testing.assert_allclose(table["low"][1], np.quantile(count, 0.05))
    ax = plot_predictive_check(check)
    assert [text.get_text() for text in ax.get_yticklabels()] == names.tolist()
    assert "too narrow" not in note_of(ax)
    model = PaperBSDRClassifier(random_state=0).fit(X[::2], y[::2])
    check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    assert "too narrow" in note_of(plot_predictive_check(check))


def test_real_outputs_are_compared_by_their_distribution():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = X[:, :2] + 0.5 * rng.standard_normal((60, 2))
    model = BSDRRegressor().set_params(**EXACT).fit(X, y)
    check = predictive_check(model.idata_, rng=rng)
    table = plots.predictive_check_table(check)
    assert table.sizes["statistic"] == 8
    assert table["p_value"].sel(statistic="mean of y0") > 0.05
    ax = plot_predictive_check(check, label="y1")
    assert ax.get_xlabel() == "y1 (scaled)"
    step = ax.lines[0].get_ydata()
    assert np.all(np.diff(step) >= 0.0)
    assert 0.0 <= step[0] < step[-1] <= 1.0


def test_a_wrong_model_has_a_small_p_value():
    """Replicates of 20 samples that never hold class 2, of which there are five."""
    drawn = np.random.default_rng(0).integers(2, size=(1, 99, 20))
    seen = np.repeat([0, 1, 2], [8, 7, 5])
    tree = xr.DataTree.from_dict(
        {
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "obs"), drawn)}),
            "observed_data": xr.Dataset({"y": ("obs", seen)}),
        }
    )
    table = plots.predictive_check_table(tree)
    assert table["p_value"][2] == pytest.approx(2.0 / 100.0)
    assert table["p_value"][0] > 0.1


# -------------------------------------------------------------------------------------- tables


def test_tables_of_probabilities_hold_what_is_drawn(wine_predictions):
    group = wine_predictions["predictions"]
    labels = group["outcome"].values
    best = labels[group["probability"].values.argmax(axis=1)]
    table = plots.confusion_table(wine_predictions)
    np.testing.assert_array_equal(table, confusion_matrix(group["y"], best, labels=labels))
    assert table.sel(true=labels[1]).sum() == (group["y"] == labels[1]).sum()
    shares = plots.confusion_table(wine_predictions, normalize="true")
    np.testing.assert_allclose(shares.sum("predicted"), 1.0)

    bins = plots.reliability_table(wine_predictions)
    assert bins["count"].sum() == group.sizes["obs"]
    gap = abs(bins["probability"] - bins["share"])
    error = float((bins["count"] * gap).sum() / bins["count"].sum())
    assert bins.attrs["calibration_error"][0] == pytest.approx(error)
    assert bins.attrs["log_loss"][1] < bins.attrs["log_loss"][0] < bins.attrs["log_loss"][2]
    points = plots.plot_reliability(wine_predictions).lines[1]
    np.testing.assert_array_equal(points.get_ydata(), bins["share"])
