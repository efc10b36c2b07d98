"""Functions of PyMC and ArviZ take the trees of fits: a table of models and calls."""

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import Mode
from sklearn.datasets import load_iris

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMOptimization,
    Sampling,
)
from bsdr_models.bm2pca import HingeLoss
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier

FAST = {"mode": Mode("py", None)}
SHORT = {"sampling": Sampling(chains=2, draws=100, tune=100), "random_state": 0}
SLOW = pytest.mark.slow
FULL_RANK = {**SHORT, "temperature": 1.0}

LINEAR = [
    pytest.param(BSDRClassifier(**FULL_RANK), id="hmc"),
]
MAPS = [
    pytest.param(BSDRClassifier(views={"a": [0, 1], "b": [2, 3]}, **FULL_RANK), id="views"),
]
PAPER = [
    pytest.param(PaperBSDRClassifier(random_state=0), id="mean_field"),
    pytest.param(PaperBSDRClassifier(inference="gibbs", **SHORT), id="gibbs"),
]
REGRESSORS = [
    pytest.param(BSDRRegressor(random_state=0), id="conjugate"),
    pytest.param(BM2PCARegressor(2, random_state=0), id="margins-regression"),
]
LOSS = HingeLoss(C=1.0, calibrate=False)
PSEUDO = [
    pytest.param(BM2PCAClassifier(2, loss=LOSS, random_state=0), id="margins"),
    pytest.param(PaperBM2PCAClassifier(2, C=1.0, random_state=0), id="paper-margins"),
]
GAUSSIAN_PROCESSES = [
    pytest.param(DGPLVMClassifier(random_state=0), id="process"),
    pytest.param(
        PaperDGPLVMClassifier(optimization=DGPLVMOptimization(max_iter=50), random_state=0),
        id="paper-process",
        marks=pytest.mark.filterwarnings("ignore"),
    ),
]
FITS = {}


def quick(models, *ids):
    """Those of the given names in the fast tests, the others in the slow ones."""
    return [
        m if m.id in ids else pytest.param(*m.values, id=m.id, marks=[*m.marks, SLOW])
        for m in models
    ]


# Short chains have not mixed; their draws still have to agree with their predictions.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def samples(model):
    """Iris with noise in two halves: classes, or two features given the others."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape)
    if isinstance(model, BSDRRegressor | BM2PCARegressor):
        X, y = X[:, :2], X[:, 2:]
    return X[::2], y[::2], X[1::2], y[1::2]


def fitted(model):
    X, y, *_ = samples(model)
    key = repr(model)
    if key not in FITS:
        FITS[key] = model.fit(X, y)
    return FITS[key]


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


@pytest.mark.parametrize("model", quick([*LINEAR, *MAPS, *PAPER]))
def test_labels_of_training_samples(model):
    X, y, *_ = samples(model)
    with fitted(model).model_:
        assert_right(predict(model), model, X, y, informed=isinstance(model, PaperBSDRClassifier))


@pytest.mark.parametrize("model", quick([*LINEAR, *PAPER], "hmc", "mean_field"))
def test_labels_of_new_samples(model):
    """Those of the paper's model have latent coordinates of their own."""
    _, _, X, y = samples(model)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with fitted(model).model_:
        set_samples(model, X[:40], y[:40])
        drawn = predict(model, **(own if isinstance(model, PaperBSDRClassifier) else {}))
    assert_right(drawn, model, X[:40], y[:40])


@pytest.mark.parametrize("model", quick(REGRESSORS))
def test_means_of_outputs(model):
    X, _, new, y = samples(model)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with fitted(model).model_:
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


@pytest.mark.parametrize("model", quick([LINEAR[0], *MAPS, REGRESSORS[0]], "conjugate"))
def test_log_likelihood_is_that_of_the_tree(model):
    found, tree = log_likelihood(fitted(model)), model.idata_
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
@pytest.mark.parametrize("model", quick(PSEUDO, "margins"))
def test_class_scores_of_a_pseudo_likelihood(model):
    """Labels have no draws; class scores do, of new samples too, and agree with predictions."""
    X, _, new, _ = samples(model)
    observed = {"samples"} if isinstance(model, PaperBM2PCAClassifier) else set()
    with fitted(model).model_ as declared:
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
@pytest.mark.parametrize("model", quick(GAUSSIAN_PROCESSES, "process"))
def test_latent_coordinates_of_a_mode(model):
    """Nothing is observed; the model maps the mode to the latent coordinates of the tree."""
    with fitted(model).model_:
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
    X, y, *_ = samples(None)
    with short_pymc():
        model = kind(1, **options).fit(X, y)
    posterior = model.idata_["posterior"]
    for variable in model.model_.free_RVs:
        axes = model.model_.named_vars_to_dims.get(variable.name, ())
        assert posterior[variable.name].dims == ("chain", "draw", *axes)
