"""Importance of features: the formula, its intervals, and how it agrees with VIP and with Gibbs."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import spearmanr
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from bsdr_models import BSDRClassifier, DGPLVMClassifier
from bsdr_models.plots import importance_table, plot_variable_importance

NAMES = ["ash", "hue", "proline", "alcohol"]


def tree_of(coef, *, engine="gibbs", classes=True):
    """A sampler's tree with draws (S, D, K) of the coefficients."""
    posterior = xr.Dataset(
        {"coef": (("chain", "draw", "feature", "outcome"), np.asarray(coef)[None])},
        coords={"feature": NAMES[: np.shape(coef)[1]]},
    )
    fit = xr.Dataset(coords={"feature": posterior["feature"]})
    fit["feature_relevance"] = "feature", np.ones(fit.sizes["feature"])
    if classes:
        fit["y_index"] = "obs", [0, 1]
    return xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs={"inference_method": engine}), "posterior": posterior, "fit": fit}
    )


def vip(model, Y):
    """Wold et al.: square root of D times the mean of w**2, weighted by the explained part of Y."""
    weights = model.x_weights_ / np.linalg.norm(model.x_weights_, axis=0)
    explained = np.sum(model.x_scores_**2, axis=0) * np.sum(model.y_loadings_**2, axis=0)
    return np.sqrt(len(weights) * weights**2 @ explained / explained.sum())


def test_importance_of_one_draw_is_the_share_of_the_centred_coefficients():
    coef = np.array([[[3.0, 1.0], [0.0, 0.0], [5.0, 5.0], [-1.0, 3.0]]])  # centred: 1, 0, 0, 2
    table = importance_table(tree_of(coef), top=1)
    assert table["feature"].values.tolist() == ["alcohol", "ash", "hue", "proline"]
    np.testing.assert_allclose(table["mean"], np.sqrt(4.0 * np.array([4.0, 1.0, 0.0, 0.0]) / 5.0))
    np.testing.assert_array_equal(table["p_top"], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(table["sd"], 0.0)


def test_coefficients_of_real_outputs_are_not_centred():
    table = importance_table(tree_of([[[2.0, 2.0], [1.0, 1.0]]], classes=False), top=1)
    np.testing.assert_allclose(table["mean"], np.sqrt(2.0 * np.array([0.8, 0.2])))


def test_columns_are_those_of_the_draws():
    rng = np.random.default_rng(0)
    coef = rng.standard_normal((300, 4, 3)) * np.array([0.5, 3.0, 1.0, 2.0])[:, None]
    table = importance_table(tree_of(coef), top=2, prob=0.8).sel(feature=NAMES)
    square = ((coef - coef.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    draws = 2.0 * np.sqrt(square / square.sum(axis=1, keepdims=True))
    np.testing.assert_allclose((draws**2).mean(axis=1), 1.0)
    np.testing.assert_allclose(table["mean"], draws.mean(axis=0))
    np.testing.assert_allclose(table["sd"], draws.std(axis=0))
    np.testing.assert_allclose(table["low"], np.quantile(draws, 0.1, axis=0))
    np.testing.assert_allclose(table["high"], np.quantile(draws, 0.9, axis=0))
    rank = (-draws).argsort(axis=1).argsort(axis=1)
    np.testing.assert_allclose(table["p_top"], (rank < 2).mean(axis=0))
    assert table["p_top"].sum().item() == pytest.approx(2.0)


def test_rotated_and_stretched_components_change_nothing():
    """They do not enter: only projection times weights does."""
    rng = np.random.default_rng(1)
    projection, weights = rng.standard_normal((4, 2)), rng.standard_normal((2, 3))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]]) * 3.0
    one = importance_table(tree_of((projection @ weights)[None]), top=1)
    other = importance_table(
        tree_of((projection @ turn @ np.linalg.inv(turn) @ weights)[None]), top=1
    )
    np.testing.assert_allclose(one["mean"], other["mean"])


def test_with_one_component_it_is_the_vip_of_the_same_weights():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((50, 4)), rng.standard_normal((50, 2))
    model = PLSRegression(n_components=1).fit(X, y)
    coef = model.x_weights_ @ model.y_loadings_.T  # (D, 2)
    table = importance_table(tree_of(coef[None], classes=False), top=1).sel(feature=NAMES)
    np.testing.assert_allclose(table["mean"], vip(model, y), rtol=1e-9)


@pytest.fixture(scope="module")
def wine_fit():
    X, y = load_wine(return_X_y=True)
    return BSDRClassifier(chains=2, pooling="linear", random_state=0).fit(X, y), X, y


def test_ranks_agree_with_the_vip_of_pls_on_wine(wine_fit):
    """Coefficients and VIP part ways for correlated features, so not perfectly.

    The standard error of chance is 1 / sqrt(12) = 0.29.
    """
    model, X, y = wine_fit
    Y = np.eye(3)[y]
    expected = vip(PLSRegression(n_components=2).fit(scale(X), Y), Y)
    found = importance_table(model.idata_).sel(feature=[f"x{i}" for i in range(13)])
    assert spearmanr(found["mean"], expected)[0] > 0.6
    assert "x12" in found.sortby("mean")["feature"].values[-3:]  # proline


def test_intervals_of_mean_field_are_called_too_narrow():
    X, y = load_wine(return_X_y=True)
    tree = BSDRClassifier(variant="paper", random_state=0).fit(X, y).idata_
    assert "too narrow" in plot_variable_importance(tree).texts[-1].get_text().replace("\n", " ")


def test_a_nonlinear_map_has_slopes_and_no_intervals():
    X, y = load_wine(return_X_y=True)
    tree = DGPLVMClassifier(random_state=0).fit(X[::3], y[::3]).idata_
    table = importance_table(tree)
    assert set(table.data_vars) == {"mean"}
    assert np.mean(table["mean"].values ** 2) == pytest.approx(1.0)
    note = plot_variable_importance(tree).texts[-1].get_text().replace("\n", " ")
    assert "no intervals" in note
    tree["fit"].dataset = tree["fit"].to_dataset().drop_vars("feature_relevance")
    with pytest.raises(ValueError, match="no variable 'feature_relevance'"):
        importance_table(tree)


def test_the_plot_shows_the_table():
    rng = np.random.default_rng(0)
    coef = rng.standard_normal((50, 4, 3)) * np.array([0.5, 3.0, 1.0, 2.0])[:, None]
    ax = plot_variable_importance(tree_of(coef), n_features=3, top=2)
    table = importance_table(tree_of(coef), top=2).isel(feature=slice(3))
    assert [text.get_text() for text in ax.get_yticklabels()] == table["feature"].values.tolist()
    bars, points = ax.collections
    np.testing.assert_allclose([s[0, 0] for s in bars.get_segments()], table["low"])
    np.testing.assert_allclose(points.get_offsets()[:, 0], table["mean"])
    (beside,) = ax.child_axes
    written = [text.get_text() for text in beside.get_yticklabels()]
    assert written == [f"{p:.2f}" for p in table["p_top"].values]


@pytest.mark.parametrize("top", [0, 5])
def test_top_is_a_number_of_features(top):
    with pytest.raises(ValueError, match="top must be between 1 and 4"):
        importance_table(tree_of(np.ones((1, 4, 2))), top=top)
