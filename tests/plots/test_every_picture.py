"""Every plot function, walked over real fits and awkward trees: whatever it draws can be read.

A function that cannot draw a tree says so, and only where the table below says that it cannot.
"""

import functools
import inspect
import itertools
import warnings
from io import BytesIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from scipy.spatial.distance import pdist
from sklearn.naive_bayes import GaussianNB

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    compare_models,
    plots,
    report,
)
from bsdr_models.plots._layers import DARKER
from bsdr_models.plots._style import GREY, INK, PALETTE
from bsdr_models.plots.map import BAD, GOOD

LONG = np.array(["Ovarian carcinoma, stage III", "Healthy tissue beside it", "b"])
PLOTS = [name for name in plots.__all__ if name.startswith("plot_")]
# Models of a comparison that take long.
COMPARED = ("PLS-DA", "logistic regression", "BM2PCA", "BSDR", "D-GPLVM", "stack")
FORMULAS = np.array(["$$", "a$b$c", "$x", r"$\alpha$"])


def classes(n_obs, n_features, names, *, apart=1.5):
    rng = np.random.default_rng(0)
    index = np.arange(n_obs) % len(names)
    centres = rng.standard_normal((len(names), min(n_features, 6)))
    X = rng.standard_normal((n_obs, n_features))
    X[:, : centres.shape[1]] += apart * centres[index]
    return X, names[index]


def scaled(model, n_components=2, **options):
    return model(n_components, random_state=0).set_params(**options)


EXACT = {"sampling__chains": 1, "sampling__draws": 40, "temperature": 1.0}
MODELS = {
    # Long names of classes.
    "bsdr": lambda: (scaled(BSDRClassifier, **EXACT), *classes(60, 8, LONG)),
    # Ten classes in three components.
    "bsdr_ten": lambda: (
        scaled(BSDRClassifier, 3, **EXACT),
        *classes(120, 12, np.arange(10), apart=2.5),
    ),
    "bsdr_real": lambda: (scaled(BSDRRegressor, **EXACT), *numbers()),
    # Many more features than samples.
    "bm2pca_wide": lambda: (scaled(BM2PCAClassifier, loss__C=1.0), *classes(45, 500, LONG)),
    "dgplvm_one": lambda: (scaled(DGPLVMClassifier, 1), *classes(40, 5, np.array(["no", "yes"]))),
}

CANNOT = {"dgplvm_one": {"plot_outliers", "plot_biplot"}}
SAYS_WHY = r"has no variable|no group|needs? (a plane|two components)|two components"


def numbers():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 6))
    return X, X[:, :2] + rng.standard_normal((50, 2))


@functools.cache
def fitted(name):
    """Tree of a fit to two thirds of the samples, with the predictions of the others in it."""
    model, X, y = MODELS[name]()
    train = np.random.default_rng(2).permutation(len(X)) % 3 > 0
    with warnings.catch_warnings(action="ignore"):  # short chains, separable classes
        model.fit(X[train], y[train])
    tree = model.idata_.copy()
    tree["predictions"] = model.predict_idata(X[~train], y[~train])["predictions"]
    return tree


@functools.cache
def comparison():
    X, y = classes(45, 5, LONG)
    models = dict.fromkeys([*COMPARED, *FORMULAS.tolist()], GaussianNB())
    models |= {"fails": GaussianNB(priors=[1.0])}
    with pytest.warns(UserWarning, match="fails has no scores"):
        return compare_models(X, y, models=models, random_state=0, progressbar=False)


def variants(function):
    """Keywords of the calls: both groups of samples, where the plot knows them."""
    return [{"group": g} for g in ("fit", "predictions")] if "group" in function else [{}]


def check_readable(ax, *others):
    """Not blank, all texts on the page and none over another, axes named."""
    figure = ax.get_figure()
    figure.canvas.draw()
    check_texts(figure)
    for each in (ax, *others):
        check_axes(each)


def check_axes(ax):
    """Of a figure that has been drawn."""
    figure = ax.get_figure()
    page = figure.bbox
    inside = ax.get_window_extent()
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    rows = slice(int(page.y1 - inside.y1) + 2, int(page.y1 - inside.y0) - 2)
    columns = slice(int(inside.x0) + 2, int(inside.x1) - 2)
    assert (image[rows, columns] < 247).any(axis=2).mean() > 0.002, "blank"

    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) > -0.02, "cut off"

    for axis, along in ((ax.xaxis, "x"), (ax.yaxis, "y")):
        texts = [text for text in axis.get_ticklabels() if text.get_text() and text.get_visible()]
        boxes = sorted(
            (t.get_window_extent() for t in texts), key=lambda b: getattr(b, f"{along}0")
        )
        apart = [
            getattr(b, f"{along}0") - getattr(a, f"{along}1") for a, b in itertools.pairwise(boxes)
        ]
        assert min(apart, default=0.0) > -2.0, f"tick labels of {along} overlap"
    assert ax.get_xlabel(), "x has no name"
    named = [text.get_text() for text in ax.get_yticklabels()]
    assert ax.get_ylabel() or not all(_is_number(name) for name in named), "y has no name"

    title = ax.get_title(loc="left")
    assert title
    (heading,) = (t.get_window_extent() for t in ax.get_children() if _says(t, title))
    notes = [t for t in ax.texts if t.get_fontsize() == 8.5 and t.get_text()]
    for note in notes:
        box = note.get_window_extent()
        assert not box.overlaps(heading.padded(-2.0)), "the note runs into the title"
        offset = ax.yaxis.get_offset_text()
        assert not (offset.get_text() and box.overlaps(offset.get_window_extent()))


def check_texts(figure):
    """No text over another, but for names of many classes, and none beyond the edge."""
    unseen = undrawn_labels(figure)
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    texts = [t for t in texts if t not in unseen and t.get_gid() != "watermark"]
    classes = [t.get_text() for t in texts if t.get_gid() == "class"]
    crowded = {*classes} if len(classes) > 20 else set()
    # The text alone, without the line of an annotation.
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in texts]
    page = figure.bbox.padded(2.0)
    for text, box in boxes:
        assert page.count_contains(box.corners()) == 4, f"{text!r} is cut off"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        up = min(a.y1, b.y1) - max(a.y0, b.y0)
        if not {one, other} <= crowded:
            assert across <= 2.0 or up <= 2.5, f"{one!r} and {other!r} overlap"


def undrawn_labels(figure):
    """Labels of ticks beyond the limits."""
    found = set()
    for ax in figure.findobj(Axes):
        for axis in (ax.xaxis, ax.yaxis):
            scale = axis.get_transform()
            low, high = sorted(scale.transform(axis.get_view_interval()))
            slack = 1e-6 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                place = scale.transform([tick.get_loc()])[0]
                if not (ax.axison and low - slack <= place <= high + slack):
                    found |= {tick.label1, tick.label2}
    return found


def test_a_title_set_later_replaces_the_heading_above_the_caption():
    ax = draw("plot_map")
    figure = ax.get_figure()
    for loc in ("left", "center"):
        ax.set_title(f"At the {loc}", loc=loc)
        figure.draw_without_rendering()
        shown = [ax.get_title(loc=place) for place in ("left", "center", "right")]
        assert sorted(shown) == ["", "", f"At the {loc}"]
        (heading,) = (text for text in ax.get_children() if _says(text, f"At the {loc}"))
        texts = [text for text in ax.texts if text.get_fontsize() == 8.5 and text.get_text()]
        above = heading.get_window_extent()
        assert above.y0 >= max(text.get_window_extent().y1 for text in texts)
        assert above.y1 <= figure.bbox.y1 + 1.0


def draw(name, **keywords):
    """That plot of a fit which has what it needs."""
    shown = comparison() if name == "plot_comparison" else fitted("bsdr")
    return getattr(plots, name)(shown, **keywords)


def _says(artist, text):
    return isinstance(artist, Text) and artist.get_text() == text


def _is_number(text):
    return text.replace("\N{MINUS SIGN}", "").replace(".", "").isdigit() or not text


# Every tree is drawn by two of the plots, of which the fast tests ask one, and every plot draws at
# least two trees.
OF_TREES = [name for name in PLOTS if name != "plot_comparison"]
PAIRS = [
    pytest.param(name, source, marks=[pytest.mark.slow] * ((i - k) % len(OF_TREES)))
    for i, name in enumerate(OF_TREES)
    for k, source in enumerate(MODELS)
    if (i - k) % len(OF_TREES) < 2
]


@pytest.mark.parametrize(("name", "source"), PAIRS)
def test_every_plot_draws_every_tree_or_says_why_not(name, source):
    plot, tree = getattr(plots, name), fitted(source)
    if name in CANNOT.get(source, ()):
        with pytest.raises(ValueError, match=SAYS_WHY):
            plot(tree)
        return
    for keywords in variants(inspect.signature(plot).parameters):
        check_readable(plot(tree, **keywords))
        plt.close("all")


@pytest.mark.parametrize("times", [3.0, 1e6])
def test_samples_far_off_leave_the_picture_readable(times):
    tree = fitted("bsdr").copy()
    for name in ("t2", "q_residual"):
        values = tree["predictions"][name].copy()
        values[:2] = values.max() * times
        tree["predictions"][name] = values
    check_readable(plots.plot_outliers(tree, group="predictions"))


def test_a_comparison_is_what_compare_models_returns():
    with pytest.raises(TypeError, match="must be what compare_models returns, got int"):
        plots.plot_comparison(3)


def test_a_comparison_with_a_model_that_fails():
    check_readable(plots.plot_comparison(comparison()))


@pytest.mark.parametrize(
    "name",
    [n if n == "plot_map" else pytest.param(n, marks=pytest.mark.slow) for n in PLOTS],
)
def test_two_axes_fit_a_constrained_figure(name):
    """In given axes too, smaller than the plot would make its own."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5.5), layout="constrained")
    for ax in (left, right):
        assert draw(name, ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    check_readable(left, right)


@functools.cache
def named_by_formulas():
    """A fitted model, new samples and their classes."""
    X, y = classes(80, 4, FORMULAS)
    table = pd.DataFrame(X, columns=FORMULAS, index=[f"${i}$" for i in range(len(X))])
    return scaled(BM2PCAClassifier, loss__C=1.0).fit(table[:40], y[:40]), table[40:], y[40:]


@pytest.mark.parametrize("name", PLOTS)
def test_names_are_no_formulas(name):
    model, X, y = named_by_formulas()
    shown, options = {
        "plot_map": (model.predict_idata(X, y), {"groups": y}),
        "plot_outliers": (model.predict_idata(X, y), {"group": "predictions"}),
        "plot_comparison": (comparison(), {}),
    }.get(name, (model.idata_, {}))
    figure = getattr(plots, name)(shown, **options).get_figure()
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert not any(map(mpl.cbook.is_math_text, texts))
    drawn = " ".join(texts).replace(r"\$", "$")
    assert all(each in drawn for each in FORMULAS)


@pytest.mark.slow
def test_a_report_has_every_picture_of_names_like_formulas(tmp_path):
    model, X, y = named_by_formulas()
    page = report(model, tmp_path / "page.html", X, y).read_text(encoding="utf-8")
    assert page.count("<img") == 8


def test_a_plot_that_fails_leaves_no_figure(monkeypatch):
    def fail(*args):
        raise RuntimeError

    own = plt.figure()
    monkeypatch.setattr("bsdr_models.plots.features._caption", fail)
    with pytest.raises(RuntimeError):
        draw("plot_features")
    assert plt.get_fignums() == [own.number]


@pytest.fixture(scope="module")
def trees(make_fit):
    return {
        "many": make_fit(n_obs=520, labels=[f"a tumour of type {i}" for i in range(26)], n_draws=4),
        "long": make_fit(features=[f"a feature of quite a long name, {i}" for i in range(13)]),
        "one_value": make_fit(n_components=1, target="regression", labels=["fat", "protein"]),
        "multilabel": make_fit(labels=["red", "dry"], target="multilabel"),
    }


CASES = {
    "scores of many": ("many", plots.plot_map, {}),
    "scores, one component, values": ("one_value", plots.plot_map, {}),
    "scores of a label": ("multilabel", plots.plot_map, {"label": "dry"}),
    "features of long names": ("long", plots.plot_features, {}),
    "features of many classes": ("many", plots.plot_features, {}),
}


def test_pictures_are_white_in_dark_styles(wine):
    with mpl.style.context("dark_background"):
        figure = plots.plot_features(wine, n_features=1).get_figure()
        out = BytesIO()
        figure.savefig(out, dpi=40)
    out.seek(0)
    pixels = mpl.image.imread(out)
    np.testing.assert_array_equal(pixels[[0, 0, -1, -1], [0, -1, 0, -1], :3], 1.0)


# Of linear RGB, for full vision and three kinds of colour blindness (Machado and others, 2009).
SIGHT = {
    "full": np.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.412, 0.358, 0.181], [0.213, 0.715, 0.072], [0.019, 0.119, 0.951]])


def linear(shade):
    """Linear RGB of a colour."""
    values = np.array(to_rgb(shade))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast_on_white(shade):
    """By the guidelines of web pages: letters need 4.5."""
    return 1.05 / (linear(shade) @ XYZ[1] + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_of_classes_are_told_apart(sight):
    """By the distance in CIELAB, where 2 is just seen."""
    seen = np.clip([np.array(SIGHT[sight]) @ linear(shade) for shade in PALETTE], 0.0, 1.0)
    x, y, z = np.cbrt(seen @ XYZ.T / XYZ.sum(axis=1)).T
    lab = np.column_stack([116.0 * y, 500.0 * (x - y), 200.0 * (y - z)])
    assert pdist(lab).min() > 15.0


def test_letters_can_be_read_on_white():
    names = [DARKER * np.array(to_rgb(shade)) for shade in PALETTE]
    for shade in (INK, GREY, GOOD, BAD, *names):
        assert contrast_on_white(shade) >= 4.5


@pytest.mark.parametrize("case", CASES)
def test_awkward_trees_are_readable_and_leave_no_trace(case, trees):
    name, plot, kwargs = CASES[case]
    before = dict(mpl.rcParams)
    ax = plot(trees[name], **kwargs)
    assert dict(mpl.rcParams) == before
    ax.get_figure().set_dpi(72)  # where letters fitted to pixels are widest
    check_readable(ax)


@pytest.mark.parametrize("plot", [plots.plot_map, plots.plot_features])
def test_axes_without_names_are_numbered_from_zero(plot, wine):
    tree = wine.copy()
    unnamed = ["obs", "feature", "component", "component_aux"]
    tree["fit"].dataset = tree["fit"].to_dataset().drop_vars(unnamed)
    assert plot(tree).has_data()


@pytest.mark.parametrize(
    ("plot", "missing"),
    [
        (plots.plot_map, "'latent_mean'"),
        (plots.map_table, "'latent_cov'"),
    ],
)
def test_a_missing_variable_is_named(plot, missing, wine):
    tree = wine.copy()
    tree["fit"].dataset = tree["fit"].to_dataset().drop_vars(missing.strip("'"))
    with pytest.raises(ValueError, match=rf"'fit' has no variable {missing} .*: mean_field"):
        plot(tree)


def test_an_estimator_in_place_of_its_tree_is_told_apart():
    with pytest.raises(TypeError, match="idata_"):
        plots.plot_map(object())
