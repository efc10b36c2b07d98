"""Ctrl-C in whole fits, parallel work and logs: what crosses engines, and what is left."""

import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import bsdr_models
from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    DGPLVMClassifier,
    HingeLoss,
    cross_validated_map,
)
from bsdr_models.bm2pca import subspace
from bsdr_models.bsdr import hmc
from bsdr_models.dgplvm import map_search
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bsdr import Optimization

ROOT = Path(bsdr_models.__file__).parents[1]
X, y = (part[::3] for part in load_iris(return_X_y=True))
SHORT = {"sampling__draws": 20, "sampling__tune": 10, "sampling__chains": 2, "random_state": 0}


def assert_usable(model):
    assert model.interrupted_
    assert not model.converged_
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.isfinite(model.transform(X)).all()
    assert model.idata_.attrs["interrupted"] == 1
    assert model.summary()["value"].str.startswith("The user interrupted the fit").any()


def assert_unfitted(model):
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert "bsdr-summary" not in model._repr_html_()


@pytest.mark.parametrize("call", [3, 12])
def test_the_ascent_of_a_classifier(monkeypatch, interrupt, call):
    interrupt(subspace, "objective", call)
    loss = HingeLoss(C=0.1, calibrate=False)
    model = BM2PCAClassifier(loss=loss, random_state=0).fit(X, y)
    assert_usable(model)
    assert (np.diff(model.objective_) >= 0.0).all()
    whole = BM2PCAClassifier(loss=loss, random_state=0)
    monkeypatch.undo()
    n = model.n_iter_
    np.testing.assert_array_equal(whole.fit(X, y).objective_[:n], model.objective_)


# --------------------------------------------------------------------------- nothing to keep yet


def samples_of(model):
    """Samples and targets for any estimator."""
    return (X[:, :3], X[:, 3]) if isinstance(model, BM2PCARegressor) else (X, y)


BSDR = BSDRClassifier(random_state=0)
# Model, and the call that is interrupted.
EARLY = {
    "before warm-up": (BSDR, hmc, "find_mode", 1),
    "before draws": (BSDR, hmc, "move", 1),
    # An interrupted ascent does not measure its setting.
    "settings": (BM2PCAClassifier(), subspace, "objective", 7),
    "second fold of a regressor": (BM2PCARegressor(2, random_state=0), mean_field, "sweep", 70),
    "mode at which a sampler begins": (
        DGPLVMClassifier(inference="nuts").set_params(**SHORT),
        map_search.Objective,
        "__call__",
        4,
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_an_interrupt_before_there_is_anything_to_keep(interrupt, case):
    model, module, name, call = EARLY[case]
    calls, model = interrupt(module, name, call), clone(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*samples_of(model))
    assert len(calls) == call
    assert_unfitted(model)


def test_an_interrupt_while_results_are_named(monkeypatch):
    """The old fit is gone and the new one not there yet."""
    model = BM2PCAClassifier(loss=HingeLoss(C=0.1, calibrate=False)).fit(X, y)
    plain = BM2PCAClassifier._name_fitted

    def tired(self):
        plain(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(BM2PCAClassifier, "_name_fitted", tired)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert_unfitted(model)


# ----------------------------------------------------------------------------- cross-validation


class Tired(PaperBSDRClassifier):
    """Stopped by the user in one of the fits of the class."""

    fits, last = 0, 0

    def fit(self, X, y):
        super().fit(X, y)
        Tired.fits += 1
        self.interrupted_ = Tired.fits == Tired.last
        return self


SHORT_CLIMB = {"optimization": Optimization(max_iter=20), "random_state": 0}
cut_short = pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")


@cut_short
@pytest.mark.parametrize("last", [1, 2])
def test_no_map_without_a_fold(last):
    Tired.fits, Tired.last = 0, last
    with pytest.raises(KeyboardInterrupt):
        cross_validated_map(Tired(**SHORT_CLIMB), X, y, cv=4)
    assert Tired.fits == last


@cut_short
def test_a_map_of_the_folds_until_an_interrupt():
    Tired.fits, Tired.last = 0, 4  # all samples, two folds, and the one that is cut short
    with pytest.warns(UserWarning, match="interrupted: the samples are those of 2 of 5 folds"):
        tree = cross_validated_map(Tired(**SHORT_CLIMB), X, y, cv=5, random_state=0)
    whole = cross_validated_map(PaperBSDRClassifier(**SHORT_CLIMB), X, y, cv=5, random_state=0)
    assert tree.attrs["interrupted"] == 1
    assert whole.attrs["interrupted"] == 0
    samples = whole["predictions"].dataset
    samples = samples.isel(obs=samples["fold"].values < 2)
    found = tree["predictions"].dataset
    np.testing.assert_array_equal(found["obs"], samples["obs"])
    np.testing.assert_array_equal(found["probability"], samples["probability"])
    assert set(found["fold"].values) == {0, 1}


# ------------------------------------------------------------------------------ in parallel

PARALLEL = {
    "label-free folds": BM2PCAClassifier(loss=HingeLoss(C=0.1), random_state=0),
    "regressor": BM2PCARegressor(n_components=2, random_state=0),
}


def results(model, **where):
    """Everything that a fit under some joblib configuration says."""
    rows, target = (part[::2] for part in samples_of(model))
    with joblib.parallel_config(**where), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # early stops are none of this test's business
        model = clone(model).fit(rows, target)
    scores = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    fit = model.idata_["fit"]
    climbed = [*fit["elbo"].values] if "elbo" in fit else []
    return model.transform(rows), scores, climbed


@pytest.mark.slow
@pytest.mark.parametrize("name", PARALLEL)
def test_what_runs_in_parallel_changes_no_bit(name):
    alone, shared = results(PARALLEL[name]), results(PARALLEL[name], backend="threading", n_jobs=2)
    for found, expected in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------- said on the way


def test_fits_are_logged_and_nothing_is_printed(caplog, capfd):
    with caplog.at_level(logging.DEBUG, logger="bsdr_models"):
        restarts = Optimization(n_restarts=2, tol=1.0)
        model = PaperBSDRClassifier(optimization=restarts, random_state=0).fit(X, y)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said[0] == ("INFO", "PaperBSDRClassifier: fit to 50 samples of 4 features")
    assert said[-1][0] == "INFO"
    done = f"PaperBSDRClassifier: converged after {model.n_iter_} iterations, "
    assert said[-1][1].startswith(done)
    assert any(f"{model.lower_bounds_[-1]:.6g}" in text for level, text in said if level == "DEBUG")
    assert capfd.readouterr() == ("", "")


def test_jitter_is_logged_with_the_name_of_the_matrix(caplog):
    singular = np.ones((3, 3))
    with caplog.at_level(logging.INFO, logger="bsdr_models"):
        cholesky(singular, name="a block")
    assert [record.getMessage() for record in caplog.records] == [
        "a block: jitter of 1e-12 on the diagonal"
    ]
    with pytest.raises(np.linalg.LinAlgError, match="a block is not positive definite"):
        cholesky(-singular, name="a block")


@pytest.mark.slow  # compiles
def test_without_a_writable_folder_nothing_is_cached(tmp_path):
    """A read-only installation, and a home where nothing can be written."""
    package = tmp_path / "bsdr_models"
    shutil.copytree(ROOT / "bsdr_models", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "numerics/__pycache__").write_text("")  # a file, so that not even root has a folder
    (tmp_path / "home").write_text("")
    command = (
        "from bsdr_models.numerics.linalg import __file__ as file\n"
        "from bsdr_models.papers.normal_tail import probit\n"
        "print(file)"
    )
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME")}
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **home}
    found = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(tmp_path)), found.stderr
