"""Functions of PyMC and ArviZ take the trees of fits: a table of models and calls."""

import numpy as np
import pymc as pm
import pytest
from sklearn.datasets import load_iris

from bsdr_models import BSDRClassifier, BSDRRegressor, Sampling
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier
from tests.agreement.fits import fitted, samples
from tests.toys import FAST

PAPER = ["mean field", "Gibbs"]
REGRESSORS = ["conjugate", "margins, outputs"]
SLOW = pytest.mark.slow
# PyMC warns that it does not draw the parameters of the kernel anew.
FROZEN = pytest.param("paper's process", marks=[SLOW, pytest.mark.filterwarnings("ignore")])


def quick(names, *fast):
    """Fits of the fast tests and the others, of the slow ones."""
    return [name if name in fast else pytest.param(name, marks=SLOW) for name in names]


# Short chains have not mixed; their draws still have to agree with their predictions.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(model, **options):
    """From every fourth draw, if there are a thousand."""
    tree = model.idata_
    step = max(tree["posterior"].sizes["draw"] // 250, 1)
    some = tree.isel(draw=slice(None, None, step), missing_dims="ignore")
    return pm.sample_posterior_predictive(
        some, random_seed=0, progressbar=False, compile_kwargs=FAST, **options
    )


def predict(model, **options):
    return draw(model, **options)["posterior_predictive/y"]


def assert_right(drawn, model, X, y, *, informed=False):
    """Share of draws that are right, and their most frequent class, as by ``predict_proba``.

    Draws ``informed`` by latent coordinates that know the labels may be right more often.
    """
    proba = model.predict_proba(X)
    share = np.stack([(drawn == c).mean(("chain", "draw")) for c in range(3)], axis=1)
    own = np.arange(len(y)), y
    excess = share[own].mean() - proba[own].mean()
    assert abs(excess) < 0.03 or (informed and excess > 0.0)
    excess = np.mean(share.argmax(axis=1) == y) - np.mean(proba.argmax(axis=1) == y)
    assert abs(excess) < 0.05 or (informed and excess > 0.0)


def set_samples(model, X, y):
    pm.set_data(
        {"X": (X - model.mean_) / model.scale_, "y_data": y}, coords={"obs": np.arange(len(X))}
    )


@pytest.mark.parametrize("name", quick(["hmc", "views", *PAPER]))
def test_labels_of_training_samples(name):
    model = fitted(name)
    X, y, *_ = samples(name)
    with model.model_:
        assert_right(predict(model), model, X, y, informed=isinstance(model, PaperBSDRClassifier))


@pytest.mark.parametrize("name", quick(["hmc", *PAPER], "hmc", "mean field"))
def test_labels_of_new_samples(name):
    """Those of the paper's model have latent coordinates of their own."""
    model = fitted(name)
    _, _, X, y = samples(name)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with model.model_:
        set_samples(model, X[:40], y[:40])
        drawn = predict(model, **(own if isinstance(model, PaperBSDRClassifier) else {}))
    assert_right(drawn, model, X[:40], y[:40])


@pytest.mark.parametrize("name", quick(REGRESSORS))
def test_means_of_outputs(name):
    model = fitted(name)
    X, _, new, y = samples(name)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with model.model_:
        training = predict(model)
        set_samples(model, new, y)
        held_out = predict(model, **({} if isinstance(model, BSDRRegressor) else own))
    if isinstance(model, BSDRRegressor):  # the paper's has latent coordinates that know y
        assert_means(training, model, X)
    assert_means(held_out, model, new)


def assert_means(drawn, model, X):
    mean, std = model.predict(X, return_std=True)
    slope = getattr(model, "slope_", 1.0)  # of a calibration by held-out samples
    error = drawn.mean(("chain", "draw")) * model.y_scale_ * slope + model.y_mean_ - mean
    assert np.abs(error / std).max() < 4.5 / np.sqrt(drawn.sizes["draw"])


def log_likelihood(model):
    with model.model_:
        found = pm.compute_log_likelihood(
            model.idata_, extend_inferencedata=False, progressbar=False, compile_kwargs=FAST
        )
    return found["y"].values


@pytest.mark.parametrize("name", quick(["hmc", "views", "conjugate"], "conjugate"))
def test_log_likelihood_is_that_of_the_tree(name):
    model = fitted(name)
    found, tree = log_likelihood(model), model.idata_
    if isinstance(model, BSDRRegressor):
        found = found.sum(axis=-1) - np.log(model.y_scale_).sum()  # of outputs in their own units
    np.testing.assert_allclose(tree["log_likelihood"]["y"], found, atol=2e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pymc.sampling.forward.ImplicitFreezeWarning")
@pytest.mark.parametrize("kind", [BSDRClassifier, PaperBSDRClassifier])
def test_models_have_the_coordinates_of_the_trees(kind):
    """PyMC would warn of others."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    index = [f"flower {i}" for i in X.index]
    model = kind(random_state=0).fit(X.set_axis(index), np.array(list("abc"))[y])
    with model.model_ as declared:
        drawn = predict(model)
    assert drawn["obs"].values.tolist() == index
    assert declared.coords["feature"] == tuple(X.columns)
    assert declared.coords["outcome"] == ("a", "b", "c")


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
@pytest.mark.parametrize("name", quick(["margins", "margins, mean field"], "margins"))
def test_class_scores_of_a_pseudo_likelihood(name):
    """Labels have no draws; class scores do, of new samples too, and agree with predictions."""
    model = fitted(name)
    X, _, new, _ = samples(name)
    observed = {"samples"} if isinstance(model, PaperBM2PCAClassifier) else set()
    with model.model_ as declared:
        assert {variable.name for variable in declared.observed_RVs} == observed
        found = draw(model)
        drawn = found["posterior_predictive"].to_dataset() if observed else {}
        assert set(drawn) == observed
        if observed:
            np.testing.assert_allclose(
                drawn["samples"].mean(("chain", "draw", "obs")), 0.0, atol=0.3
            )
        scores = draw(model, var_names="scores")["posterior_predictive/scores"]
        assert_scores(scores, model, X, informed=bool(observed))
        zeros = np.zeros((len(new), scores.shape[-1]))
        data = {"X": (new - model.mean_) / model.scale_, "y_data": zeros}
        pm.set_data(data, coords={"obs": np.arange(len(new))})
        names = {"sample_vars": ["latent_offset"]} if "latent_offset" in declared.named_vars else {}
        scores = draw(model, var_names="scores", **names)["posterior_predictive/scores"]
    assert_scores(scores, model, new)


def assert_scores(scores, model, X, *, informed=False):
    """Means of draws (chain, draw, obs, score) are the class scores, up to one number a sample."""
    mean = scores.mean(("chain", "draw")).values
    expected = X @ model.coef_.T + model.intercept_
    if mean.shape[1] > 1:
        mean = mean - mean.mean(axis=1, keepdims=True)
        expected = expected - expected.mean(axis=1, keepdims=True)
    if not informed:
        assert np.sqrt(np.mean((mean - expected) ** 2)) < 0.12 * expected.std()
    chosen = mean.argmax(axis=1) if mean.shape[1] > 1 else (mean[:, 0] > 0).astype(int)
    agree = np.mean(model.classes_[chosen] == model.predict(X))
    assert agree > (0.7 if informed else 0.95)


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
@pytest.mark.parametrize("name", [*quick(["process"], "process"), FROZEN])
def test_latent_coordinates_of_a_mode(name):
    """Nothing is observed; the model maps the mode to the latent coordinates of the tree."""
    model = fitted(name)
    with model.model_:
        assert "posterior_predictive" not in draw(model).children
        atol = {"latent": 1e-8, "criterion": 0.0}
        found = draw(model, sample_vars=[*atol])["posterior_predictive"]
    tree = model.idata_["posterior"]
    for name in atol:
        np.testing.assert_allclose(found[name], tree[name], atol=atol[name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PaperBM2PCAClassifier, PaperBSDRClassifier])
def test_draws_by_pymc_hold_every_free_variable(kind, short_pymc):
    """Those of each sample as well; a few steps of ADVI."""
    options = {"inference": "advi", "sampling": Sampling(draws=20), "random_state": 0}
    if kind is PaperBM2PCAClassifier:
        options["C"] = 1.0
    X, y, *_ = samples("hmc")
    with short_pymc():
        model = kind(1, **options).fit(X, y)
    posterior = model.idata_["posterior"]
    for variable in model.model_.free_RVs:
        axes = model.model_.named_vars_to_dims.get(variable.name, ())
        assert posterior[variable.name].dims == ("chain", "draw", *axes)
