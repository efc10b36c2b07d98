"""Effects of the features: the table is that of the draws, and the picture that of the table."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import PathCollection

from bsdr_models import BM2PCAClassifier, DGPLVMClassifier, HingeLoss
from bsdr_models.numerics.association import associate
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import Optimization
from bsdr_models.plots import features_table, plot_features

NAMES = ["ash", "hue", "proline", "alcohol"]
LABELS = ["a", "b", "c"]
MARGIN = BM2PCAClassifier(loss=HingeLoss(C=1.0, calibrate=False), random_state=0)
FEW = Optimization(max_iter=5)


def tree_of(coef, *, X=None, index=None, engine="gibbs", target="multiclass", names=NAMES):
    """A tree with draws (S, D, K) of the coefficients."""
    coef = np.asarray(coef, dtype=float)[None]
    labels = (LABELS + [f"class {i}" for i in range(3, 30)])[: coef.shape[3]]
    axes = {"feature": names[: coef.shape[2]], "outcome": labels}
    posterior = xr.Dataset({"coef": (("chain", "draw", "feature", "outcome"), coef)}, axes)
    fit = xr.Dataset(coords={"feature": axes["feature"]})
    if target == "multiclass":
        fit["y_index"] = "obs", np.arange(6) % len(labels) if index is None else index
    groups = {"posterior": posterior, "fit": fit}
    if X is not None:
        groups["constant_data"] = xr.Dataset({"X": (("obs", "feature"), X)})
        found = associate(X, np.eye(len(labels))[fit["y_index"]])
        for name, values in found.items():
            fit[name] = ("feature", "outcome")[: np.ndim(values)], values
    root = xr.Dataset(attrs={"inference_method": engine, "target": target})
    return xr.DataTree.from_dict({"/": root, **groups})


def draws(*, n=400, d=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    coef = rng.normal(1.0, 1.0, (n, d, k)) * rng.lognormal(0.0, 2.0, (n, 1, 1))
    return coef - coef.mean(axis=-1, keepdims=True)


def stability_of(names, frequency, **attrs):
    attrs = {"n_selected": 2, "chance": 0.5, **attrs}
    table = xr.Dataset({"frequency": ("feature", frequency)}, {"feature": names}, attrs)
    return table.assign(selected=(("half", "rank"), np.full((10, 2), names[0])))


def caption(ax):
    return ax.texts[-1].get_text().replace("\n", " ")


def test_the_probability_of_a_sign_is_that_of_the_draws_of_coef():
    coef = draws()
    table = features_table(tree_of(coef)).sel(feature=NAMES)
    expected = np.maximum((coef > 0.0).mean(axis=0), (coef < 0.0).mean(axis=0))
    np.testing.assert_array_equal(table["sign_probability"], expected)


def test_columns_are_those_of_draws_of_common_size():
    coef = draws()
    size = np.sqrt((coef**2).mean(axis=(1, 2)))
    common = coef / size[:, None, None] * np.median(size)
    table = features_table(tree_of(coef)).sel(feature=NAMES)
    np.testing.assert_allclose(table["mean"], common.mean(axis=0))
    np.testing.assert_allclose(table["median"], np.median(common, axis=0))
    np.testing.assert_allclose(table["low"], np.quantile(common, 0.05, axis=0))
    np.testing.assert_allclose(table["high_50"], np.quantile(common, 0.75, axis=0))
    square = (common.mean(axis=0) ** 2).sum(axis=1)
    np.testing.assert_allclose(table["importance"], square / square.sum())


def test_real_outputs_keep_their_draws():
    coef = draws() + 1.0
    table = features_table(tree_of(coef, target="regression")).sel(feature=NAMES)
    np.testing.assert_allclose(table["mean"], coef.mean(axis=0))


def test_features_are_in_order_of_what_the_classes_explain_or_else_of_their_effects():
    coef = np.array([[[3.0, 1.0], [0.0, 0.0], [5.0, 5.0], [-1.0, 3.0]]])  # centred: 1, 0, 0, 2
    table = features_table(tree_of(coef))
    assert table["feature"].values.tolist() == ["alcohol", "ash", "hue", "proline"]
    X = np.random.default_rng(0).standard_normal((40, 4))
    X[:, 1] = 0.0
    X[:, 2] += 3.0 * (np.arange(40) % 2)
    table = features_table(tree_of(coef, X=X, index=np.arange(40) % 2))
    assert table["feature"].values[[0, -1]].tolist() == ["proline", "hue"]
    assert table["false_discovery_rate"].values[[0, -1]].tolist() == pytest.approx([4 / 401, 1.0])
    r = [np.corrcoef(X[:, 2], np.arange(40) % 2 == k)[0, 1] for k in (0, 1)]
    np.testing.assert_allclose(table["alone"][0], r)
    assert table["explained"].values[0] == pytest.approx(r[0] ** 2)
    assert "alone" not in features_table(tree_of(coef))


def test_opposite_scores_of_two_classes_have_one_panel():
    ax = plot_features(tree_of(draws(k=2)))
    (panel,) = ax.child_axes
    assert "b (right) v. a (left)" in [text.get_text() for text in panel.texts]


def test_many_classes_have_the_panels_of_the_largest_effects():
    rng = np.random.default_rng(3)
    coef = 0.01 * rng.standard_normal((20, 4, 9))
    coef[:, :, [1, 4, 6, 8]] *= 100.0
    tree = tree_of(coef)
    ax = plot_features(tree, n_features=1)
    titles = [panel.texts[0].get_text() for panel in ax.child_axes]
    assert [title.split(" v.")[0] for title in titles] == ["b", "class 4", "class 6", "class 8"]
    assert "4 of 9 class scores" in caption(ax)
    index = np.arange(90) % 9
    X = rng.standard_normal((90, 4))
    X[:, 0] += 9.0 * np.isin(index, [0, 2, 5, 7])
    titles = [
        panel.texts[0].get_text()
        for panel in plot_features(tree_of(coef, X=X, index=index), n_features=1).child_axes
    ]
    assert len(titles) == 4
    assert {title.split(" v.")[0] for title in titles} <= {"a", "c", "class 5", "class 7"}


def test_signs_of_effects_that_are_zero_but_for_a_sparse_prior_are_not_shown():
    coef = np.abs(draws()) * np.array([1.0, 1.0, 1e-7, 1.0])[:, None]
    ax = plot_features(tree_of(coef, target="regression"))
    (row,) = (i for i, text in enumerate(ax.get_yticklabels()) if text.get_text() == "proline")
    for panel in ax.child_axes:
        points = next(each for each in panel.collections if isinstance(each, PathCollection))
        white = (points.get_facecolors()[:, :3] == 1.0).all(axis=1)
        assert white.tolist() == [i == row for i in range(4)]
        assert [t.get_text() for t in panel.texts].count(">0.99") == 3


def test_the_plot_shows_the_table():
    tree = tree_of(draws(n=100), X=np.random.default_rng(4).standard_normal((30, 4)),
                   index=np.arange(30) % 3)  # fmt: skip
    table = features_table(tree).isel(feature=slice(3))
    ax = plot_features(tree, n_features=3)
    assert [text.get_text() for text in ax.get_yticklabels()] == table["feature"].values.tolist()
    for k, panel in enumerate(ax.child_axes):
        one = table.isel(outcome=k)
        _, lines, thick, *_ = panel.collections
        np.testing.assert_allclose([s[0, 0] for s in lines.get_segments()], one["low"])
        np.testing.assert_allclose([s[1, 0] for s in thick.get_segments()], one["high_50"])
        points, _ = (each for each in panel.collections if isinstance(each, PathCollection))
        np.testing.assert_allclose(points.get_offsets()[:, 0], one["median"])
        white = (points.get_facecolors()[:, :3] == 1.0).all(axis=1)
        np.testing.assert_array_equal(white, one["sign_probability"] < 0.95)
    assert "3 of 4 features. First are those that the classes explain best" in caption(ax)


@pytest.mark.parametrize("smooth", [True, False])
def test_peaks_of_a_spectrum_are_named(smooth):
    """And not those of features that have numbers as names, and are in no order."""
    rng = np.random.default_rng(0)
    place = np.arange(1100, 2300, 10)
    y = np.arange(40) % 2
    bands = sum(np.exp(-(((place - peak) / 60.0) ** 2)) for peak in (1450, 1940))
    bands = bands if smooth else rng.permutation(bands)
    spectra = np.outer(y - 0.5, bands) + np.cumsum(rng.normal(size=(40, 120)) * 0.02, axis=1)
    model = MARGIN.fit(pd.DataFrame(spectra, columns=place), y)
    text = caption(plot_features(model.idata_))
    assert ("Peaks: " in text) is smooth
    if smooth:
        peaks = [int(name) for name in text.split("Peaks: ")[1].split(".")[0].split(", ")]
        assert np.abs(np.sort(peaks)[:2] - [1450, 1940]).max() <= 30


def test_names_of_features_that_are_found_are_dark():
    index = np.arange(60) % 3
    X = np.random.default_rng(5).standard_normal((60, 4))
    X[:, 0] += 4.0 * (index == 2)
    ax = plot_features(tree_of(draws(), X=X, index=index))
    dark = [text.get_text() for text in ax.get_yticklabels() if text.get_color() == "#333333"]
    assert dark == ["ash"]
    assert "1 of 4 (dark names) is found at a false discovery rate of 5%" in caption(ax)
    ax = plot_features(tree_of(draws(), X=X[np.random.default_rng(1).permutation(60)], index=index))
    assert "None is found" in caption(ax)


def test_the_shares_of_halves_are_matched_by_name():
    tree = tree_of(draws())
    stability = stability_of(NAMES, [0.1, 0.2, 0.3, 0.4])
    table = features_table(tree, stability=stability)
    expected = stability["frequency"].sel(feature=table["feature"])
    np.testing.assert_array_equal(table["selected"], expected)
    *_, panel = plot_features(tree, stability=stability).child_axes
    np.testing.assert_allclose([bar.get_width() for bar in panel.patches], expected)


@pytest.mark.parametrize("engine", ["mean_field", "advi", "laplace"])
def test_approximations_are_said_to_overstate(engine):
    ax = plot_features(tree_of(draws(k=2), engine=engine), n_features=2)
    assert "too narrow" in caption(ax)
    written = [text.get_text() for panel in ax.child_axes for text in panel.texts]
    assert not any("P(sign)" in text or text.startswith(">0") for text in written)
    for panel in ax.child_axes:
        points = next(each for each in panel.collections if isinstance(each, PathCollection))
        assert (points.get_facecolors()[:, :3] == 1.0).all()


def test_a_posterior_mode_has_effects_and_no_intervals():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 5)) + 2.0 * y[:, None]
    tree = MARGIN.fit(X, y).idata_
    table = features_table(tree)
    assert not {"low", "high", "sign_probability"} & set(table)
    ax = plot_features(tree)
    assert "does not show how sure an effect is" in caption(ax)
    (panel,) = ax.child_axes
    assert not any("P(sign)" in text.get_text() for text in panel.texts)


def test_a_nonlinear_map_has_slopes_and_no_intervals():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    X = rng.standard_normal((30, 5)) + 2.0 * y[:, None]
    tree = DGPLVMClassifier(random_state=0).fit(X, y).idata_
    table = features_table(tree)
    assert "sign_probability" not in table
    slopes = tree["fit/projection_mean"].sel(feature=table["feature"])
    np.testing.assert_array_equal(table["mean"], slopes)
    assert "no intervals" in caption(plot_features(tree))
    tree["fit"].dataset = tree["fit"].to_dataset().drop_vars("feature_relevance")
    with pytest.raises(ValueError, match="no variable 'feature_relevance'"):
        features_table(tree)


@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_the_unit_of_an_effect_is_that_of_the_samples_that_the_model_sees():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), np.arange(30) % 2
    for standardize, unit in ((True, "per SD of"), (False, "per unit of")):
        model = PaperBSDRClassifier(standardize=standardize, optimization=FEW, random_state=0)
        tree = model.fit(X + y[:, None], y).idata_
        assert unit in plot_features(tree, n_features=1).get_xlabel()
    tree = MARGIN.fit(X + y[:, None], y).idata_
    assert "per SD of" in plot_features(tree, n_features=1).get_xlabel()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_features": 0}, "n_features must be an int in the range"),
        ({"stability": stability_of(["x", "y"], [0.0, 1.0])}, "of other features"),
        ({"stability": xr.Dataset()}, "with 'frequency'"),
    ],
)
def test_bad_arguments_are_named(keywords, message):
    with pytest.raises(ValueError, match=message):
        plot_features(tree_of(draws()), **keywords)
