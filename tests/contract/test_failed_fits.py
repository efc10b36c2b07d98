"""A fit whose search fails says so once, and publishes no absurd figure."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    HierarchicalPriors,
    HingeLoss,
    Sampling,
    plots,
)
from bsdr_models.bm2pca import subspace
from bsdr_models.dgplvm import map_search, probit
from bsdr_models.large import laplace
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.bsdr import Priors
from bsdr_models.papers.dgplvm import laplace as papers_laplace
from tests.toys import RECOMMENDED

MARGIN = BM2PCAClassifier(loss=HingeLoss(C=1.0, calibrate=False))
LATENT = DGPLVMClassifier().set_params(priors__weight=10.0)
SEARCHES = pytest.mark.parametrize(
    ("model", "owner", "name"),
    [(MARGIN, subspace, "objective"), (LATENT, map_search.Objective, "__call__")],
    ids=["BM2PCA", "D-GPLVM"],
)


def samples(seed=0):
    """Three classes; the labels of a few samples are wrong."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((45, 4))
    y = (X @ rng.standard_normal((4, 3))).argmax(axis=1)
    return X, np.where(rng.random(45) < 0.05, rng.integers(3, size=45), y)


def fails_after(function, calls, value):
    """The function with another value of the objective after some calls."""
    count = 0

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        found = function(*args, **kwargs)
        return found if count <= calls else (value, *found[1:])

    return failing


def check_fit(model, X, y, match):
    """One warning, and no figure that cannot be."""
    with warnings.catch_warnings(record=True, action="always") as said:
        model.fit(X, y)
    failures = [each for each in said if issubclass(each.category, ConvergenceWarning)]
    assert len(failures) == 1
    assert match in str(failures[0].message)
    assert not model.converged_
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize(("calls", "value"), [(1, np.nan), (3, np.inf), (8, -np.inf)])
@SEARCHES
def test_an_objective_that_is_not_finite(monkeypatch, model, owner, name, calls, value):
    monkeypatch.setattr(owner, name, fails_after(getattr(owner, name), calls, value))
    X, y = samples()
    check_fit(model, X, y, "the search failed after iteration")
    trace = model.idata_["fit"]["objective" if model is MARGIN else "log_density"]
    assert np.isfinite(trace).all()


@SEARCHES
def test_an_objective_that_is_nowhere_finite_refuses_the_fit(monkeypatch, model, owner, name):
    monkeypatch.setattr(owner, name, fails_after(getattr(owner, name), 0, np.nan))
    with pytest.raises(FloatingPointError, match=r"not finite at .*initial point"):
        model.fit(*samples())


def sweep_without_end(*state, original=probit.sweep):
    """Sweeps whose largest change is not below any tolerance."""
    _, *others = original(*state)
    return np.inf, *others


@pytest.mark.parametrize(
    "model",
    [
        DGPLVMClassifier(),
        PaperDGPLVMClassifier(),
        PaperDGPLVMClassifier(approximation="laplace"),
    ],
)
def test_a_gaussian_process_classifier_that_does_not_converge(monkeypatch, model):
    monkeypatch.setattr(probit, "sweep", sweep_without_end)
    monkeypatch.setattr(probit, "MAX_SWEEPS", probit.SWEEPS)
    monkeypatch.setattr(papers_laplace, "MAX_STEPS", 1)
    check_fit(model, *samples(), "Gaussian process classifier has not converged")


def test_laplace_without_a_mode(monkeypatch):
    monkeypatch.setattr(laplace, "_MAX_STEPS", 1)
    check_fit(BSDRClassifier(inference="laplace"), *samples(), "has not found a mode")


@pytest.mark.parametrize("value", [1e-300, 1e-30, 1e4, 1e300])
def test_extreme_priors_are_refused_by_name_with_their_range(value):
    for name in ("scale", "view_width", "bias_scale", "noise_width"):
        with pytest.raises(ValueError, match=rf"'{name}' parameter .* must be .*\(1e-06, 1000.0\)"):
            HierarchicalPriors(**{name: value})
    with pytest.raises(
        ValueError, match=r"'latent_scale' parameter .* must be .*\(1e-06, 1000.0\)"
    ):
        Priors(latent_scale=value)
    with pytest.raises(ValueError, match="noise_location"):
        HierarchicalPriors(noise_location=1e6)


@pytest.mark.parametrize("seed", [None, 0])
def test_equal_class_means_are_no_signal(seed):
    """Exactly equal, or up to rounding."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]] * 5)
    y = np.array([0, 1, 1, 0] * 5)
    if seed is not None:
        X = X + 1e-9 * np.random.default_rng(seed).standard_normal(X.shape)
    model = BM2PCAClassifier(random_state=0)
    with pytest.warns(UserWarning, match="no evidence that the targets depend on X"):
        model.fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=0.01)
    assert np.isfinite(model.transform(X)).all()
    assert model.idata_["posterior"].sizes["draw"] > 0


FEW_DRAWS = BSDRClassifier(sampling=Sampling(draws=20, chains=1), random_state=0)


@pytest.mark.parametrize("name", RECOMMENDED)
def test_noise_is_told_once_at_the_line_of_the_user(name):
    model = FEW_DRAWS if name == "BSDR" else RECOMMENDED[name]
    X = np.random.default_rng(0).standard_normal((30, 5))
    with pytest.warns(UserWarning, match="no evidence that the targets depend on X") as warned:
        model.fit(X, np.arange(30) % 2)
    assert [each.filename for each in warned] == [__file__] * len(warned)
    remarks = model.summary().loc[["remark"], "value"]
    assert remarks.str.startswith("No evidence").sum() == 1
    assert model.held_out_gain_ == model.idata_.attrs["held_out_gain"]
    ax = plots.plot_map(model.idata_, space="latent")
    assert any("No signal" in text.get_text().replace("\n", " ") for text in ax.texts)
