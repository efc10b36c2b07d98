"""Scikit-learn's own checks of an estimator, and what its users do with one."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from bsdr_models import BM2PCAPriors, DGPLVMPriors, Sampling, StackedClassifier
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.spec import find_spec
from bsdr_models.papers.bsdr import Priors
from tests.toys import RECOMMENDED

pytestmark = pytest.mark.usefixtures("short_runs")


@pytest.mark.usefixtures("explained")
def test_scikit_learn_checks(model, check):
    """Each check once, see `pytest_generate_tests`."""
    check(clone(model))


@pytest.fixture(scope="module")
def frames(zoo):
    """Estimators fitted to a frame, not to be fitted again; the frame, and targets as text."""
    X = pd.DataFrame(zoo.X, columns=list("abcd"), index=np.arange(45) + 5)
    cache = {}

    def get(kind):
        y = zoo.target(kind)
        y = y if kind.endswith("Regressor") else np.array(["setosa", "versicolor", "virginica"])[y]
        if kind not in cache:
            cache[kind] = zoo.fit(zoo.make(kind), X, y)
        return cache[kind], X, y

    return get


@pytest.mark.usefixtures("explained")
def test_as_a_step_of_a_pipeline(frames, kind):
    plain, X, y = frames(kind)
    last = LinearRegression() if is_regressor(plain) else LogisticRegression()
    steps = make_pipeline(clone(plain), last).set_output(transform="pandas").fit(X, y)
    assert steps.score(X, y) > 0.7
    assert steps[:-1].get_feature_names_out().tolist() == plain.get_feature_names_out().tolist()
    step = kind.lower()
    steps.set_params(**{f"{step}__n_components": 1, f"{step}__progressbar": True})
    assert steps[0].n_components == 1
    assert steps[0].progressbar is True


GRIDS = {
    "BSDRClassifier": [
        {"n_components": [1], "temperature": [1.0]},
        {"temperature": [0.5], "priors": [HierarchicalPriors(lapse=0.01)]},
    ],
    "PaperBSDRClassifier": {
        "inference": ["mean_field", "gibbs"],
        "priors": [Priors(weight_shape=2.0)],
        "sampling__draws": [20],
        "sampling__tune": [20],
        "sampling__chains": [2],
    },
    "BSDRRegressor": {"n_components": [1, 2], "sampling__chains": [1]},
    "BM2PCAClassifier": {"loss__C": [1.0, 10.0], "max_iter": [30]},
    "BM2PCARegressor": {"priors": [BM2PCAPriors()]},
    "DGPLVMClassifier": {"priors__weight": [1.0, np.inf], "priors": [DGPLVMPriors(weight=8.0)]},
}


@pytest.mark.usefixtures("explained")
@pytest.mark.parametrize(
    "grid",
    [
        pytest.param(grid, marks=[] if grid.startswith("BM2PCA") else pytest.mark.slow)
        for grid in GRIDS
    ],
)
def test_grid_search(zoo, grid):
    scoring = "r2" if grid.endswith("Regressor") else "neg_log_loss"
    search = GridSearchCV(zoo.make(grid), GRIDS[grid], cv=2, scoring=scoring)
    search.fit(zoo.X, zoo.target(grid))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.score(zoo.X, zoo.target(grid)) > 0.7


def test_arguments_are_refused_in_the_name_of_the_class(zoo, kind):
    for model in (zoo.make(kind), StackedClassifier()):
        name = type(model).__name__
        with pytest.raises(TypeError, match=rf"^{name}\.__init__\(\) got .*'class_weight'"):
            type(model)(class_weight="balanced")
        with pytest.raises(TypeError, match=rf"^{name}\.fit\(\) got .*'subjects'$"):
            model.fit(zoo.X, zoo.y, subjects=zoo.y)
        if not has_fit_parameter(model, "sample_weight"):
            with pytest.raises(
                TypeError, match=rf"^{name}\.fit\(\) got .*: BSDRClassifier, .* take"
            ):
                model.fit(zoo.X, zoo.y, sample_weight=np.ones(45))


@pytest.mark.usefixtures("explained")
@pytest.mark.parametrize("kind", ["PaperBSDRClassifier", "BM2PCARegressor"])
def test_nothing_but_samples_and_targets_is_asked_for(frames, kind):
    """With metadata routing a pipeline has nothing to route by default."""
    model, X, y = frames(kind)
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(model))
        assert steps.fit(X, y).score(X, y) > 0.7


def test_trees_of_predictions_are_those_of_the_methods(zoo, name):
    model, new, known = zoo.fitted(name), zoo.X[:7], zoo.target(name)[:7]
    tree = model.predict_idata(new, known)
    group = tree["predictions"]
    mean, cov = model.transform(new, return_cov=True)
    expected = {"latent_mean": mean, "latent_cov": cov, "y": known}
    if is_regressor(model):
        expected["prediction"], expected["prediction_sd"] = model.predict(new, return_std=True)
    else:
        expected |= {"probability": model.predict_proba(new), "predicted": model.predict(new)}
    for variable, values in expected.items():
        np.testing.assert_allclose(group[variable].values.reshape(values.shape), values, rtol=1e-12)
    assert tree.attrs["inference_method"] == model.idata_.attrs["inference_method"]
    assert "y" not in model.predict_idata(new)["predictions"]
    with pytest.raises(ValueError, match="y has 6 samples, X has 7"):
        model.predict_idata(new, known[:6])


@pytest.mark.parametrize("name", ["bsdr", "bsdr_paper", "bm2pca", "dgplvm"])
def test_a_progress_bar_is_shown_on_request_and_changes_no_prediction(zoo, name, capfd):
    model = zoo.make(name, **{"loss__C": None} if name == "bm2pca" else {})
    shown = zoo.fit(clone(model).set_params(progressbar=True), zoo.X, zoo.y)
    assert "".join(capfd.readouterr()).strip()
    quiet = zoo.fit(model, zoo.X, zoo.y)
    assert not "".join(capfd.readouterr())
    np.testing.assert_array_equal(shown.predict_proba(zoo.X), quiet.predict_proba(zoo.X))


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("given", [None, Sampling(chains=1)])
def test_options_are_searched_whether_given_or_not(zoo, given):
    model = zoo.make("BSDRClassifier", n_components=1, sampling=given)
    assert clone(model).set_params(**model.get_params()).sampling == given
    search = GridSearchCV(model, {"sampling__draws": [8]}, cv=2).fit(zoo.X[::3], zoo.y[::3])
    assert search.best_estimator_.get_params()["sampling__draws"] == 8


def test_every_tree_has_the_citation_of_its_model(zoo, kind):
    model = zoo.fitted(kind)
    for tree in (model.idata_, model.predict_idata(zoo.X)):
        assert find_spec(tree).citation_bibtex == model.citation()


# Arguments by which a fit selects its settings.
SEARCHES = {
    "BSDRClassifier": {"temperature": "auto"},
    "BSDRRegressor": {},
    "BM2PCAClassifier": {"loss": None},
    "BM2PCARegressor": {"loss": None},
    "DGPLVMClassifier": {"priors": None},
    "PaperDGPLVMClassifier": {},
}


@pytest.mark.usefixtures("explained")
@pytest.mark.parametrize("search", SEARCHES)
def test_selected_settings_are_fitted_again_without_a_search(zoo, search):
    model = zoo.make(search, **SEARCHES[search]).fit(zoo.X, zoo.target(search))
    chosen = model.selected_params()
    again = clone(model).set_params(**chosen).fit(zoo.X, zoo.target(search))
    assert again.selected_params() == {name: chosen[name] for name in again.selected_params()}
    assert not any(isinstance(again.get_params()[name], str) for name in chosen)
    if search in ("BSDRClassifier", "BM2PCAClassifier"):
        assert np.isfinite(model.held_out_score_)  # nothing had to be held out again
        assert np.isnan(again.held_out_score_)
    # No argument gives the weight of the class frequencies in the probabilities.
    weight = 1.0 - model.idata_.attrs.get("signal", 1.0)
    assert weight < 1e-5
    said = zoo.outputs(again, zoo.X)
    for what, values in zoo.outputs(model, zoo.X).items():
        if what == "log_proba":
            np.testing.assert_allclose(np.exp(said[what]), np.exp(values), atol=1e-10 + weight)
        elif values.dtype.kind == "f":
            near = 1e-10 + weight * (what == "proba")
            np.testing.assert_allclose(said[what], values, rtol=1e-8, atol=near, err_msg=what)


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("name", RECOMMENDED)
def test_a_subclass_of_fewer_arguments_keeps_those_that_it_gives(name):
    parent = type(RECOMMENDED[name])

    class Mine(parent):
        def __init__(self, n_components=1):
            super().__init__(n_components, metric="identity", random_state=0)

    X, y = load_iris(return_X_y=True)
    found = Mine().fit(X[::3], y[::3])
    expected = parent(1, metric="identity", random_state=0).fit(X[::3], y[::3])
    assert found.metric == "identity"
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
