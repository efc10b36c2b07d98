"""ROC curves, outlying samples, predictive checks: what is drawn is what went in."""

import numpy as np
import pytest
import xarray as xr
from sklearn.datasets import load_iris
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from bsdr_models import BSDRClassifier, BSDRRegressor, plots
from bsdr_models.bsdr.predictive_check import predictive_check
from bsdr_models.metrics import area_under_curve
from bsdr_models.numerics.outliers import q_limit, t2_limit
from bsdr_models.plots import plot_outliers, plot_predictive_check, plot_roc

EXACT = {"chains": 2, "draws": 64, "pooling": "linear", "random_state": 0}


def note_of(ax):
    return ax.texts[-1].get_text().replace("\n", " ")


def predictions(probability, y, labels):
    group = xr.Dataset(
        {"probability": (("obs", "outcome"), probability), "y": (("obs", "outcome")[: y.ndim], y)},
        coords={"outcome": labels},
    )
    return xr.DataTree.from_dict({"predictions": group})


# ------------------------------------------------------------------------------------------- ROC


def test_areas_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for score in (rng.random(80), rng.integers(4, size=80) / 4.0):  # with ties
        positive = rng.random(80) < 0.3 + 0.4 * score
        area = area_under_curve(score, positive, prob=0.9)
        assert area.value == pytest.approx(roc_auc_score(positive, score))
        assert 0.0 < area.low < area.value < area.high < 1.0


def test_an_area_of_one_is_not_certain():
    """Its lower end solves (1 - a)**2 = z**2 V(a); more samples bring it up."""
    ends = []
    for n in (5, 50):
        area = area_under_curve(np.arange(2.0 * n), np.arange(2 * n) >= n, prob=0.9)
        a, z = area.low, 1.6448536269514722
        variance = a * (1 - a) / n**2 * (1 + (n - 1) * ((1 - a) / (2 - a) + a / (1 + a)))
        assert (1.0 - a) ** 2 == pytest.approx(z**2 * variance, rel=1e-6)
        assert area.value == area.high == 1.0
        ends.append(a)
    assert ends[0] < ends[1] < 1.0


def test_intervals_of_areas_hold_their_share():
    """Normal scores apart by 1.5, area Phi(1.5 / sqrt 2): 0.9 of 600 sets, 4 standard errors."""
    rng = np.random.default_rng(0)
    positive, held = np.arange(40) < 15, 0
    for _ in range(600):
        area = area_under_curve(rng.standard_normal(40) + 1.5 * positive, positive, prob=0.9)
        held += area.low < 0.85562 < area.high
    assert abs(held / 600 - 0.9) < 4.0 * np.sqrt(0.09 / 600)


def test_curves_are_one_class_against_the_rest(wine_predictions):
    ax = plot_roc(wine_predictions)
    table = plots.roc_table(wine_predictions)
    group = wine_predictions["predictions"]
    for c, name in enumerate(group["outcome"].values):
        truth, score = group["y"].values == name, group["probability"].values[:, c]
        wrong, found, _ = roc_curve(truth, score, drop_intermediate=False)
        np.testing.assert_array_equal(ax.lines[1 + c].get_xdata(), wrong)
        np.testing.assert_array_equal(ax.lines[1 + c].get_ydata(), found)
        assert table["auc"].sel(outcome=name) == pytest.approx(roc_auc_score(truth, score))
        assert table["n_samples"].sel(outcome=name) == truth.sum()
    assert (table["low"] < table["auc"]).all()


def test_of_two_classes_the_second_has_the_curve():
    rng = np.random.default_rng(0)
    p = rng.random(60)
    y = np.where(rng.random(60) < p, "yes", "no")
    tree = predictions(np.column_stack([1 - p, p]), y, ["no", "yes"])
    ax = plot_roc(tree)
    assert len(ax.lines) == 2  # with the diagonal
    area = area_under_curve(p, y == "yes", prob=0.9)
    assert ax.get_title(loc="left") == f"Area under the curve {area}"
    mirrored = plot_roc(tree, label="no")
    assert mirrored.get_title(loc="left").split()[4] == f"{area.value:.3f}"


def test_a_class_without_samples_is_left_out_and_counted():
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.5, 0.2]])
    tree = predictions(p, np.array(["a", "b", "b"]), ["a", "b", "c"])
    assert "Not drawn: 1" in note_of(plot_roc(tree))
    assert plots.roc_table(tree)["outcome"].values.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="samples of the class and samples of the rest"):
        plot_roc(tree, label="c")
    with pytest.raises(ValueError, match="label must be one of"):
        plot_roc(tree, label="d")


def test_labels_of_a_multilabel_fit_have_a_curve_each():
    rng = np.random.default_rng(0)
    p = rng.random((50, 2))
    ax = plot_roc(predictions(p, rng.random((50, 2)) < p, ["red", "dry"]))
    assert ax.get_title(loc="left") == "ROC curves of the labels"
    assert len(ax.lines) == 3


# --------------------------------------------------------------------------------- outlying samples


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    model = BSDRClassifier(**EXACT).fit(X[::2], y[::2])
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
    model = BSDRClassifier(**EXACT).fit(X[:, :1].repeat(2, axis=1), y)
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
    model = BSDRClassifier(**EXACT).fit(X[::2], names[y[::2]])
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
    model = BSDRClassifier(variant="paper", random_state=0).fit(X[::2], y[::2])
    check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    assert "too narrow" in note_of(plot_predictive_check(check))


def test_real_outputs_are_compared_by_their_distribution():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = X[:, :2] + 0.5 * rng.standard_normal((60, 2))
    model = BSDRRegressor(**EXACT).fit(X, y)
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
