"""Summaries: every estimator of the package has one, it says what is so, and it shows it safely."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline

import bsdr_models
from bsdr_models import (
    BSDROptimization,
    DGPLVMOptimization,
    HingeLoss,
    Sampling,
    plots,
)
from bsdr_models.bsdr import SAMPLING
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperBSDRRegressor
from bsdr_models.summary import Summary
from bsdr_models.text_table import WIDTH

pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
]

X, y = load_wine(return_X_y=True, as_frame=True)
X, y = X[::3], y[::3].map({0: "red", 1: "green", 2: "blue"})
REAL = load_diabetes(return_X_y=True)
REAL = (REAL[0][:60], REAL[1][:60])

ONE_SCALE = {
    "priors__projection_prior": "columnwise",
    "priors__latent_scale": 0.3,
    "random_state": 0,
}
ESTIMATORS = {
    "bsdr": bsdr_models.BSDRClassifier(random_state=0),
    "bsdr real": bsdr_models.BSDRRegressor(random_state=0),
    "bsdr paper": PaperBSDRClassifier().set_params(**ONE_SCALE),
    "bsdr paper real": PaperBSDRRegressor().set_params(**ONE_SCALE),
    "mnp": bsdr_models.MNPClassifier(),
    "bm2pca": bsdr_models.BM2PCAClassifier(random_state=0),
    "bm2pca one against rest": bsdr_models.BM2PCAClassifier(
        loss=HingeLoss(strategy="one_vs_rest"), metric_scale=1.0
    ),
    "bm2pca paper": PaperBM2PCAClassifier(random_state=0),
    "bm2pca real": bsdr_models.BM2PCARegressor(n_components=2, random_state=0),
    "dgplvm": bsdr_models.DGPLVMClassifier(
        optimization=DGPLVMOptimization(n_restarts=2), random_state=0
    ),
}
FITTED = {}


def fitted(name):
    """One fit for all tests."""
    if name not in FITTED:
        data = REAL if "real" in name else (X, y)
        FITTED[name] = clone(ESTIMATORS[name]).fit(*data)
    return FITTED[name]


def line(summary, section, name):
    return dict(summary.sections[section])[name]


# ------------------------------------------------------------------------------------- for all


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_summary_says_what_the_fit_has_left(name):
    model = fitted(name)
    summary = model.summary()
    rows = 60
    assert summary.title == type(model).__name__
    assert line(summary, "model", "paper") in model._spec.paper
    assert line(summary, "data", "samples") == str(rows)
    assert line(summary, "data", "features").startswith(str(model.n_features_in_))
    if "real" in name:
        assert line(summary, "data", "outputs").startswith("1,")
    else:
        assert line(summary, "data", "classes") == "3: blue (16), green (24), red (20)"
    said = [text for _, text in summary.sections["fit"] if "iterations" in text]
    if name in ("bsdr", "bsdr real"):
        assert said == []
        evidence = line(summary, "fit", "log evidence")
        assert evidence.startswith(f"{model.log_evidence_:.1f} ")
    else:
        bound = model.lower_bounds_ if hasattr(model, "lower_bounds_") else model.log_density_
        assert len(said) == 1
        assert said[0].startswith(f"{bound[-1]:.6g}")
        assert f"after {model.n_iter_} iterations" in said[0]
    if hasattr(model, "relevance_"):
        alive = np.count_nonzero(model.relevance_ >= 0.01)
        said = line(summary, "latent space", "components")
        assert said.startswith(f"{alive} of {len(model.relevance_)} in use")
        assert f"{model.relevance_.max():.2f}" in said


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_three_forms_say_the_same(name):
    summary = fitted(name).summary()
    frame, text, page = summary.to_frame(), str(summary), shown(summary._repr_html_())
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == sum(map(len, summary.sections.values()))
    for section, key, value in frame.itertuples(index=False):
        assert dict(summary.sections[section])[key] == value
        for form in (text, page):
            assert " ".join(value.split()) in " ".join(form.split())
    assert repr(summary) == text
    assert max(map(len, text.splitlines())) <= WIDTH
    # Values of all sections begin in one column.
    starts = {
        re.match(r"  \S.*?\s{2,}", row).end()
        for row in text.split("\nremarks")[0].splitlines()
        if re.match(r"  \S.*?\s{2,}\S", row)
    }
    assert len(starts) == 1


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_from_a_file_says_the_same(name, tmp_path):
    fitted(name).save(tmp_path / "model.skops")
    again = bsdr_models.load(tmp_path / "model.skops")
    assert str(again.summary()) == str(fitted(name).summary())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_is_said_before_the_fit(name):
    model = clone(ESTIMATORS[name])
    with pytest.raises(NotFittedError):
        model.summary()
    assert "bsdr-summary" not in model._repr_html_()
    assert model._repr_html_().count("<style>") == BaseEstimator._repr_html_inner(model).count(
        "<style>"
    )


def test_a_summary_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        fitted("mnp").summary().title = "another"


# ------------------------------------------------------------------------------------ what is so


CLASSIFIERS = {
    "bsdr": bsdr_models.BSDRClassifier(sampling=Sampling(chains=1, draws=16), random_state=0),
    "bm2pca": bsdr_models.BM2PCAClassifier(random_state=0),
    "bm2pca_paper": PaperBM2PCAClassifier(2, random_state=0),
    "dgplvm": bsdr_models.DGPLVMClassifier(random_state=0),
}
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)


@each_classifier
def test_noise_is_called_noise(name):
    rng = np.random.default_rng(0)
    noise, labels = rng.standard_normal((60, 200)), np.arange(60) % 3
    with pytest.warns(UserWarning, match="no evidence that the targets") as said:
        model = clone(CLASSIFIERS[name]).fit(noise, labels)
    words = "evidence that the targets depend on X"
    assert sum(words in str(warning.message) for warning in said) == 1
    assert any(words in remark for remark in model.summary().remarks)
    ax = plots.plot_map(model.idata_)
    assert any("No signal" in text.get_text().replace("\n", " ") for text in ax.texts)


@each_classifier
def test_signal_is_not_called_noise(name):
    few = np.concatenate([np.flatnonzero(y == label)[:10] for label in np.unique(y)])
    model = clone(CLASSIFIERS[name]).fit(X.iloc[few], y.iloc[few])
    assert model.held_out_gain_ > 0.5
    names = ("held_out_score", "held_out_gain", "held_out_gain_se")
    assert [model.idata_.attrs[n] for n in names] == [getattr(model, f"{n}_") for n in names]
    assert not any("predictable" in remark for remark in model.summary().remarks)


@each_classifier
@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 1]])
@pytest.mark.filterwarnings("ignore")
def test_held_out_score_of_four_samples(name, labels):
    """The only sample of a class is not held out: a model without it does not know the class."""
    features = np.random.default_rng(1).standard_normal((4, 6))
    model = clone(CLASSIFIERS[name]).fit(features, labels)
    values = [model.held_out_score_, model.held_out_gain_, model.held_out_gain_se_]
    if labels == [0, 1, 2, 3]:
        assert np.isnan(values).all()
        assert "held_out_score" not in model.idata_.attrs
    elif name != "bsdr":  # whose Bayes factor is below 3
        assert np.isfinite(values).all()


def test_scores_of_held_out_samples():
    model = fitted("bm2pca")
    best = np.argmin(model.cv_results_["log_loss"])
    summary = model.summary()
    accuracy = model.cv_results_["accuracy"][best]
    assert line(summary, "held-out samples", "accuracy") == f"{accuracy:.3f}"
    assert f"{-model.cv_results_['log_loss'][best]:.3f}" in line(
        summary, "held-out samples", "log score"
    )
    model = fitted("dgplvm")
    left_out = model._learned.posterior.left_out()
    own = left_out[np.arange(len(X)), np.searchsorted(model.classes_, y)]
    assert model.held_out_score_ == pytest.approx(own.mean())
    said = line(model.summary(), "held-out samples", "log score")
    assert said.startswith(f"{own.mean():.3f} nats per sample; ")
    assert f"{model.held_out_gain_:.3f} ± {model.held_out_gain_se_:.3f}" in said


def test_missing_values_constant_features_and_samples_without_a_label_are_counted():
    dirty, labels = X.copy(), y.copy()
    dirty.iloc[:6, 2] = np.nan
    dirty["flat"] = 1.0
    labels.iloc[::5] = "?"
    model = bsdr_models.BM2PCAClassifier(unlabeled="?", random_state=0)
    with pytest.warns(UserWarning, match="constant"):
        summary = model.fit(dirty, labels).summary()
    assert line(summary, "data", "samples") == "60, 12 of them without a target"
    assert line(summary, "data", "features").endswith("; 1 constant and ignored")
    share = 6 / (60 * 14)
    assert line(summary, "data", "missing") == f"{share:.2g} of the entries"


def test_many_classes_are_counted_and_long_names_cut():
    rng = np.random.default_rng(0)
    many = np.repeat(np.arange(12), 4)
    summary = bsdr_models.MNPClassifier().fit(rng.normal(size=(48, 3)) + many[:, None], many)
    assert line(summary.summary(), "data", "classes") == "12, of 4 to 4 samples"
    long = np.array(["a" * 200, "b"])[np.arange(20) % 2]
    model = bsdr_models.MNPClassifier().fit(rng.normal(size=(20, 3)), long)
    assert "a" * 23 + "… (10)" in line(model.summary(), "data", "classes")


def test_what_a_reader_should_know():
    with pytest.warns(ConvergenceWarning):
        model = (
            PaperBSDRClassifier(optimization=BSDROptimization(max_iter=2))
            .set_params(**ONE_SCALE)
            .fit(X, y)
        )
    summary = model.summary()
    assert summary.remarks[0].startswith("Not converged: the fit stopped at max_iter")
    assert "not converged" in line(summary, "fit", "bound")
    model.interrupted_ = True
    assert model.summary().remarks[0].startswith("The user interrupted the fit")
    assert any("too narrow" in remark for remark in summary.remarks)
    # The paper's BM2PCA ends after so many sweeps, where held-out samples want it to.
    early = fitted("bm2pca paper")
    assert not early.converged_
    assert not any("onverged" in remark for remark in early.summary().remarks)


def test_draws_say_how_well_they_mix():
    model = PaperBSDRClassifier(
        priors=SAMPLING,
        inference="gibbs",
        sampling=Sampling(draws=40, tune=20, chains=2),
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        model.fit(X, y)
    summary, attrs = model.summary(), model.idata_.attrs
    assert line(summary, "fit", "draws") == "40 from each of 2 chains, after 20 of warm-up"
    assert line(summary, "fit", "mixing").startswith(f"R-hat at most {attrs['r_hat']:.3g}, bulk")
    assert f"at least {attrs['ess_bulk']:.0f} " in line(summary, "fit", "mixing")
    assert summary.remarks[0].startswith("Not converged: R-hat")
    alone = model.set_params(sampling__chains=1).fit(X, y)
    assert alone.summary().remarks[0].startswith("A single chain")
    assert "mixing" not in dict(alone.summary().sections["fit"])


def test_arguments_changed_after_the_fit_change_nothing():
    model = clone(ESTIMATORS["bsdr"]).fit(X, y)
    before = str(model.summary())
    model.set_params(inference="nuts", temperature=0.5, standardize=False, sampling__draws=7)
    assert str(model.summary()) == before


# ------------------------------------------------------------------------------------- notebooks


class Page(HTMLParser):
    """Text of a page, and its tags."""

    def __init__(self):
        super().__init__()
        self.text, self.tags, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def shown(html):
    page = Page()
    page.feed(html)
    assert page.open == []  # well-formed
    return "\n".join(page.text)


def test_the_summary_is_below_the_diagram():
    model = fitted("bsdr")
    diagram, page = BaseEstimator._repr_html_inner(model), model._repr_html_()
    own = model.summary()._repr_html_()
    assert "sk-container" in diagram
    counted = re.compile(r"id-\d+|0x[0-9a-f]+")  # differ from one diagram to the next
    assert counted.sub("", page).startswith(counted.sub("", diagram) + counted.sub("", own))
    assert len(own) < 20_000
    assert own in model._repr_mimebundle_()["text/html"]
    assert "<img" not in own
    assert page.count('<img alt="Map of the training samples"') == 1
    assert len(page) < 150_000
    assert "bsdr-summary" not in make_pipeline(model)._repr_html_()


@pytest.mark.slow
def test_showing_a_fit_does_not_build_the_model():
    """Though it is an attribute by name."""
    code = """
import sys
import warnings
from sklearn.datasets import load_iris
from bsdr_models import BSDRClassifier, Sampling

model = BSDRClassifier(sampling=Sampling(draws=16, chains=2)).fit(*load_iris(return_X_y=True))
page = model._repr_html_()
assert "bsdr-summary" in page
assert "pymc" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_text_is_text():
    model = fitted("bsdr")
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


def test_names_are_shown_as_they_are():
    """Whoever names a class or a feature puts no code on the page."""
    evil = "<script>alert('x')</script>"
    frame = X.rename(columns={X.columns[0]: evil})
    labels = y.replace("red", evil[:24])
    for name in ("bsdr", "mnp", "bm2pca", "dgplvm"):
        html = clone(ESTIMATORS[name]).fit(frame, labels).summary()._repr_html_()
        assert "<script" not in html
        assert evil[:24] in shown(html)


def test_a_summary_of_ones_own():
    """Any text is escaped, and sections keep their order."""
    summary = Summary(
        title="<b>", sections={"b": [("<i>", "&amp;")], "a": [("x", "y")]}, remarks=["<u>"]
    )
    page = Page()
    page.feed(summary._repr_html_())
    assert not {"b", "i", "u"} & set(page.tags)
    assert str(summary) == "<b>\nb\n  <i>  &amp;\na\n  x    y\nremarks\n  <u>"
