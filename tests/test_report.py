"""The report is one file that says what the model and scikit-learn say."""

import base64
import errno
import io
import os
import re
from html import unescape
from html.parser import HTMLParser

import matplotlib as mpl
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import (
    BM2PCAClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    HingeLoss,
    StackedClassifier,
    cross_validated_map,
    persistence,
    report,
)

pytestmark = pytest.mark.usefixtures("coarse_pictures")

MODEL = BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0)
OF_PREDICTIONS = ["Map", "Confusion matrix", "Reliability"]
BOXES = ["Box plots"] * 4
NAMES = np.array(["<b>Barolo</b>", "Grignolino & co", "Barbera"])


class Page(HTMLParser):
    """What a page loads, its elements and its text."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.tags, self.pictures, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.pictures += [value for name, value in attrs if name == "alt"]
        self.loaded += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def page_of(fitted, path, **options):
    before = dict(mpl.rcParams)
    figures = plt.get_fignums()
    assert report(fitted, path, **options) == path
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == figures
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    return X[::3], NAMES[y[::3]]


@pytest.fixture(scope="module")
def held_out(wine):
    return cross_validated_map(MODEL, *wine, cv=3, random_state=0)


@pytest.fixture(scope="module")
def file(held_out, tmp_path_factory):
    """The page of their report, and its source."""
    path = tmp_path_factory.mktemp("report") / "wine.html"
    return page_of(held_out, path), path.read_text()


def test_the_file_holds_its_pictures_and_needs_no_network(file):
    page, text = file
    assert page.pictures == [*OF_PREDICTIONS, "Effects of the features", *BOXES]
    assert len(page.loaded) == page.tags.count("img") == 8
    assert not {"script", "link", "b"} & {*page.tags}  # names of classes are text
    for source in page.loaded:
        kind, data = source.split(",")
        assert kind == "data:image/png;base64"
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))
        colours = (255.0 * picture).astype(np.uint8).view(np.uint32)
        assert len(np.unique(colours)) > 20
    assert "url(" not in text


def test_numbers_of_the_report_are_those_of_scikit_learn(held_out, file):
    text = file[0].text
    new = held_out["predictions"]
    right = np.mean(new["y"].values == new["predicted"].values)
    assert f"{right:.0%} of 60 held-out samples are right; the most frequent class" in text
    labels = new["outcome"].values
    loss = log_loss(new["y"], new["probability"], labels=labels)
    frequency = np.tile(new["class_frequency"], (60, 1))
    gain = log_loss(new["y"], frequency, labels=labels) - loss
    assert f"Better than chance; gain over the class frequencies: {gain:.2f} ±" in text
    assert "Du, Changying" in text
    assert re.search(r"scikit-learn \d+\.\d+", text)


def test_both_recipes_have_the_summary_and_one_gain(file, wine, tmp_path):
    model = make_pipeline("passthrough", MODEL).fit(*wine)
    summary = model[-1].summary()["value"]
    before = dict(model[-1].idata_.attrs)
    own = page_of(model, tmp_path / "wine.html", title="Wine <1991>")
    assert dict(model[-1].idata_.attrs) == before
    for text in (own.text, file[0].text):
        for name, value in summary.items():
            if not name.startswith(("held-out", "gain")):
                assert name in text
                assert unescape(value) in text
        assert len(re.findall(r"\d ± \d", text)) == 1
    assert "Report of BM2PCAClassifier" in file[0].text
    text = (tmp_path / "wine.html").read_text()
    assert "<h1>Wine &lt;1991&gt;</h1>" in text
    assert "60 training samples, each predicted without its label, are right" in text


def test_two_classes_have_a_roc_curve(wine, tmp_path):
    X, y = wine
    model = make_pipeline(StandardScaler(), LogisticRegression())
    with plt.style.context("dark_background"):
        tree = cross_validated_map(model, X, y == NAMES[0], cv=3, random_state=0)
        path = report(tree, tmp_path / "two.html")
    page = Page(path.read_text())
    assert page.pictures == [*OF_PREDICTIONS, "ROC curve"]
    for source in page.loaded:  # white in a dark style too
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(source.split(",")[1])))
        assert picture[0, 0].min() > 0.99


@pytest.mark.slow
def test_a_stack_and_its_map_are_reported_with_the_paper_to_cite(wine, tmp_path):
    stack = StackedClassifier([("only", MODEL)], random_state=0).fit(*wine)
    tree = cross_validated_map(stack, *wine, cv=3, random_state=0)
    for fitted in (stack, tree):
        assert stack.citation() in page_of(fitted, tmp_path / "stack.html").text


@pytest.mark.slow
def test_new_samples_of_a_fitted_estimator_are_reported_with_its_features(wine, tmp_path):
    X, y = wine
    model = DGPLVMClassifier(random_state=0).fit(X[::2], y[::2])
    path = tmp_path / "new.html"
    assert report(model, path, X[1::2], y[1::2]) == path
    page = Page(path.read_text())
    assert page.pictures == [*OF_PREDICTIONS, "Effects of the features", *BOXES]
    assert "of 30 held-out samples are right" in page.text
    with pytest.raises(ValueError, match="X and y are samples for a fitted estimator"):
        report(model.idata_, path, X, y)
    with pytest.raises(ValueError, match="y is given without the samples X"):
        report(model, path, y=y)


@pytest.fixture(scope="module")
def unlabelled(wine):
    """Predictions of samples whose classes are not known."""
    return clone(MODEL).fit(*wine).predict_idata(wine[0])


def test_what_cannot_be_made_is_left_out(wine, unlabelled, tmp_path):
    X, _ = wine
    model = BSDRRegressor(random_state=0).fit(X, X["alcohol"])
    page = page_of(model, tmp_path / "alcohol.html")
    assert page.pictures == ["Map", "Effects of the features"]
    assert "Better than a model without features" in page.text
    foreign = make_pipeline(StandardScaler(), LogisticRegression())
    tree = cross_validated_map(foreign, *wine, cv=3, random_state=0)
    page = page_of(tree, tmp_path / "logistic.html")
    assert page.pictures == OF_PREDICTIONS
    assert "features13" in page.text.replace("\n", "").replace(" ", "")
    assert "Please cite" not in page.text
    page = page_of(unlabelled, tmp_path / "unlabelled.html")
    assert page.pictures == ["Map"]
    assert "60 samples without known labels" in page.text
    assert "nan" not in page.text


def test_noise_is_called_noise(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    model = LogisticRegression(C=1e-4)
    tree = cross_validated_map(model, rng.standard_normal((40, 100)), y, cv=4, random_state=0)
    assert "Not shown to be better than chance" in page_of(tree, tmp_path / "noise.html").text


def test_a_full_disk_leaves_the_old_report(unlabelled, tmp_path, monkeypatch):
    def fail(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "old.html"
    path.write_text("old")
    monkeypatch.setattr(persistence.os, "fsync", fail)
    with pytest.raises(OSError, match=r"nothing was changed: No space left"):
        report(unlabelled, path)
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text() == "old"


def test_other_objects_are_refused_before_any_file(wine, tmp_path):
    for wrong in (LogisticRegression().fit(wine[0] / 1000.0, wine[1]), "model", None):
        with pytest.raises(TypeError, match="report takes a fitted estimator of this package"):
            report(wrong, tmp_path / "no.html")
    with pytest.raises(NotFittedError):
        report(DGPLVMClassifier(), tmp_path / "no.html")
    assert not list(tmp_path.iterdir())
