"""Summaries: every estimator of the package has one, it says what is so, and it shows it safely."""

import re
from copy import deepcopy
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

import bsdr_models
from bsdr_models import DGPLVMOptimization, Sampling
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier
from bsdr_models.papers.bsdr import SAMPLING
from bsdr_models.summary import to_html

pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
]

X, y = load_wine(return_X_y=True, as_frame=True)
X, y = X[::3], y[::3].map({0: "red", 1: "green", 2: "blue"})
REAL = load_diabetes(return_X_y=True)
REAL = (REAL[0][:60], REAL[1][:60])

ONE_SCALE = {"priors__projection_prior": "columnwise", "random_state": 0}
ONE_SCALE |= {"priors__latent_scale": 0.3}
ESTIMATORS = {
    "bsdr": bsdr_models.BSDRClassifier(random_state=0),
    "bsdr real": bsdr_models.BSDRRegressor(random_state=0),
    "bsdr paper": PaperBSDRClassifier().set_params(**ONE_SCALE),
    "bm2pca": bsdr_models.BM2PCAClassifier(random_state=0),
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


def said(model):
    """Values by name, without the remarks."""
    summary = model.summary()
    return summary[summary.index != "remark"]["value"].to_dict()


def remarks(model):
    summary = model.summary()
    return summary[summary.index == "remark"]["value"].tolist()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_summary_says_what_the_fit_has_left(name):
    model = fitted(name)
    found = said(model)
    assert found["model"] == type(model).__name__
    assert found["samples"] == "60"
    assert found["features"] == str(model.n_features_in_)
    if "real" in name:
        assert found["outputs"] == "1: y0"
    else:
        assert found["classes"] == "3: blue (16), green (24), red (20)"
    if name == "bsdr real":
        assert found["log evidence"] == f"{model.log_evidence_:.1f} nats"
    elif name != "bsdr":
        names = ("lower_bounds_", "log_density_", "objective_")
        (trace,) = (getattr(model, each) for each in names if hasattr(model, each))
        assert f"{trace[-1]:.6g}" in found.values()
        assert found["iterations"] == str(model.n_iter_)
    if hasattr(model, "relevance_"):
        alive = np.count_nonzero(model.relevance_ >= 0.01)
        assert found["components in use"] == f"{alive} of {len(model.relevance_)}"
        assert f"{model.relevance_.max():.2f}" in found["shares of components"]


def test_a_page_has_all_of_it():
    summary = fitted("bsdr").summary()
    page = shown(to_html(summary))
    assert all(f"{key} {' '.join(value.split())}" in page for key, value in summary.value.items())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_is_said_before_the_fit(name):
    model = clone(ESTIMATORS[name])
    assert "bsdr-summary" not in model._repr_html_()
    assert model._repr_html_().count("<style>") == estimator_html_repr(model).count("<style>")


def test_scores_of_held_out_samples():
    for name in ("bsdr", "bm2pca", "dgplvm"):
        model = fitted(name)
        found = said(model)
        assert found["held-out log score"] == f"{model.held_out_score_:.3f} nats per sample"
        gain = f"{model.held_out_gain_:.3f} ± {model.held_out_gain_se_:.3f}"
        assert found["gain over class frequencies"] == gain
    assert "gain over a model without features" in said(fitted("bsdr real"))


def test_missing_values_constant_features_and_samples_without_a_label_are_counted():
    dirty, labels = X.copy(), y.copy()
    dirty.iloc[:6, 2] = np.nan
    dirty["flat"] = 1.0
    labels.iloc[::5] = "?"
    model = bsdr_models.BM2PCAClassifier(unlabeled="?", random_state=0)
    with pytest.warns(UserWarning, match="constant"):
        found = said(model.fit(dirty, labels))
    assert found["samples without a label"] == "12"
    assert found["features"] == "14, 1 of them constant and ignored"
    assert found["missing values"] == f"{600 / (60 * 13):.2g}% of the entries"


def test_many_classes_are_counted():
    rng = np.random.default_rng(0)
    many = np.repeat(np.arange(12), 4)
    model = PaperBSDRClassifier().fit(rng.normal(size=(48, 3)) + many[:, None], many)
    assert said(model)["classes"] == "12, of 4 to 4 samples"


def test_what_a_reader_should_know():
    model = PaperBSDRClassifier().set_params(optimization__max_iter=2, **ONE_SCALE)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert said(model)["converged"] == "no"
    first, *others = remarks(model)
    assert first.startswith("Not converged: the fit stopped at max_iter")
    assert any("too narrow" in remark for remark in others)
    model.interrupted_ = True
    assert remarks(model)[0].startswith("The user interrupted the fit")


def test_draws_say_how_well_they_mix():
    sampling = Sampling(draws=40, tune=20, chains=2)
    model = PaperBSDRClassifier(
        priors=SAMPLING, inference="gibbs", sampling=sampling, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="R-hat"):
        model.fit(X, y)
    found, attrs = said(model), model.idata_.attrs
    assert found["R-hat"] == f"{attrs['r_hat']:.3g}"
    assert found["bulk ESS"] == f"{attrs['ess_bulk']:.0f}"
    assert remarks(model)[0].startswith("Not converged: R-hat")
    alone = model.set_params(sampling__chains=1).fit(X, y)
    assert remarks(alone)[0].startswith("A single chain")
    assert "R-hat" not in said(alone)


def test_neither_trees_nor_arguments_of_later_change_a_summary():
    model = deepcopy(fitted("bsdr"))
    before = model.summary()
    assert "posterior" in model.idata_
    assert model.summary().equals(before)
    model.idata_["fit"]["false_discovery_rate"].values[:] = 1.0  # it is not computed again
    assert said(model)["features found"].startswith("0 at")
    model = deepcopy(fitted("bsdr"))
    model.set_params(inference="nuts", metric="unit", sampling__draws=7)
    assert model.summary().drop("temperature").equals(before.drop("temperature"))


def shown(html):
    """Text of a well-formed page."""
    return " ".join("".join(ElementTree.fromstring(f"<div>{html}</div>").itertext()).split())


def test_the_summary_is_below_the_diagram():
    model = fitted("bsdr")
    diagram, page = estimator_html_repr(model), model._repr_html_()
    table = to_html(model.summary())
    assert "sk-container" in diagram
    counted = re.compile(r"id-\d+|0x[0-9a-f]+")  # differ from one diagram to the next
    assert counted.sub("", page).startswith(counted.sub("", diagram) + counted.sub("", table))
    assert len(table) < 20_000
    assert table in model._repr_mimebundle_()["text/html"]
    assert "bsdr-summary" not in make_pipeline(model)._repr_html_()


def test_showing_a_fit_does_not_build_the_model(monkeypatch):
    """Though it is an attribute by name."""
    model = fitted("bsdr")
    monkeypatch.setattr(type(model), "model_", property(lambda self: pytest.fail("built")))
    assert "bsdr-summary" in model._repr_html_()
    assert make_pipeline(model)._repr_html_()


def test_text_is_text():
    model = fitted("bsdr")
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


def test_names_are_shown_as_they_are():
    """Whoever names a class puts no code on the page."""
    evil = "<script>alert('x')</script>"
    html = to_html(clone(ESTIMATORS["bsdr paper"]).fit(X, y.replace("red", evil)).summary())
    assert "<script" not in html
    assert evil in shown(html)
