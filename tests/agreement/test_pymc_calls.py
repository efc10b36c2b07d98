"""Functions of PyMC and ArviZ take the trees of fits: a table of models and calls."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from sklearn.datasets import load_iris

from bsdr_models import BSDRClassifier, BSDRRegressor, DGPLVMClassifier, Sampling
from bsdr_models.bm2pca import HingeLoss
from bsdr_models.bsdr import probit_choice
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperBSDRRegressor

FAST = {"mode": "FAST_COMPILE"}
SHORT = {"sampling": Sampling(chains=2, draws=200, tune=200), "random_state": 0}
SLOW = pytest.mark.slow
FULL_RANK = {**SHORT, "temperature": 1.0}

LINEAR = [
    pytest.param(BSDRClassifier(**FULL_RANK), id="hmc"),
    pytest.param(BSDRClassifier(1, inference="laplace", **FULL_RANK), id="laplace"),
    pytest.param(BSDRClassifier(inference="nuts", **FULL_RANK), id="nuts", marks=SLOW),
    pytest.param(BSDRClassifier(inference="advi", **FULL_RANK), id="advi", marks=SLOW),
]
MAPS = [
    pytest.param(BSDRClassifier(kernel="rbf", **FULL_RANK), id="kernel"),
    pytest.param(BSDRClassifier(views=list("aabb"), **FULL_RANK), id="views"),
]
PAPER = [
    pytest.param(PaperBSDRClassifier(random_state=0), id="mean_field"),
    pytest.param(PaperBSDRClassifier(inference="gibbs", **SHORT), id="gibbs"),
]
REGRESSORS = [
    pytest.param(BSDRRegressor(random_state=0), id="conjugate"),
    pytest.param(PaperBSDRRegressor(random_state=0), id="paper-regression"),
]
FITS = {}

# Short chains have not mixed; their draws still have to agree with their predictions.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def samples(model):
    """Iris with noise in two halves: classes, or two features given the others."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape)
    if isinstance(model, BSDRRegressor | PaperBSDRRegressor):
        X, y = X[:, :2], X[:, 2:]
    return X[::2], y[::2], X[1::2], y[1::2]


def fitted(model):
    X, y, *_ = samples(model)
    key = repr(model)
    if key not in FITS:
        FITS[key] = model.fit(X, y)
    return FITS[key]


def predict(model, **options):
    found = pm.sample_posterior_predictive(
        model.idata_, random_seed=0, progressbar=False, compile_kwargs=FAST, **options
    )
    return found["posterior_predictive/y"]


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


@pytest.mark.parametrize("model", [*LINEAR, *MAPS, *PAPER])
def test_labels_of_training_samples(model):
    X, y, *_ = samples(model)
    with fitted(model).model_:
        assert_right(predict(model), model, X, y, informed=isinstance(model, PaperBSDRClassifier))


@pytest.mark.parametrize("model", [*LINEAR, *PAPER])
def test_labels_of_new_samples(model):
    """Those of the paper's model have latent coordinates of their own."""
    _, _, X, y = samples(model)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with fitted(model).model_:
        set_samples(model, X[:40], y[:40])
        drawn = predict(model, **(own if isinstance(model, PaperBSDRClassifier) else {}))
    assert_right(drawn, model, X[:40], y[:40])


@pytest.mark.parametrize("model", REGRESSORS)
def test_means_of_outputs(model):
    X, _, new, y = samples(model)
    own = {"sample_vars": "latent_offset", "var_names": "y"}
    with fitted(model).model_:
        training = predict(model)
        set_samples(model, new, y)
        held_out = predict(model, **(own if isinstance(model, PaperBSDRRegressor) else {}))
    if isinstance(model, BSDRRegressor):  # the paper's has latent coordinates that know y
        assert_means(training, model, X)
    assert_means(held_out, model, new)


def assert_means(drawn, model, X):
    mean, std = model.predict(X, return_std=True)
    error = drawn.mean(("chain", "draw")) * model.y_scale_ + model.y_mean_ - mean
    assert np.abs(error / std).max() < 4.5 / np.sqrt(drawn.sizes["draw"])


def log_likelihood(model):
    with model.model_:
        found = pm.compute_log_likelihood(
            model.idata_, extend_inferencedata=False, progressbar=False, compile_kwargs=FAST
        )
    return found["y"].values


@pytest.mark.parametrize("model", [*LINEAR, *MAPS, REGRESSORS[0]])
def test_log_likelihood_is_that_of_the_tree(model):
    found, tree = log_likelihood(fitted(model)), model.idata_
    name = "log_likelihood" if "log_likelihood" in tree else "approximate_log_likelihood"
    if isinstance(model, BSDRRegressor):
        found = found.sum(axis=-1) - np.log(model.y_scale_).sum()  # of outputs in their own units
    np.testing.assert_allclose(tree[name]["y"], found, atol=2e-6)


@pytest.mark.parametrize("model", PAPER)
def test_log_likelihood_given_the_latent_coordinates(model):
    posterior = fitted(model).idata_["posterior"].to_dataset()
    Z, W, b = (posterior[name].values for name in ("latent", "weights", "bias"))
    eta = (Z @ W + b[:, :, None]).reshape(-1, len(Z[0, 0]), 3)
    expected = probit_choice.log_likelihood(eta, samples(model)[1], 0.0)[0]
    found = log_likelihood(model).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize("model", [*LINEAR, *MAPS, *PAPER, *REGRESSORS])
def test_arviz_summarises_the_free_variables(model):
    tree = fitted(model).idata_
    names = [variable.name for variable in model.model_.free_RVs]
    table = az.summary(tree, var_names=names, kind="stats", round_to=3)
    assert np.isfinite(table["mean"]).all()
    if "log_likelihood" in tree:
        assert np.isfinite(az.loo(tree).elpd)
    else:
        assert tree.attrs["inference_method"] in ("laplace", "advi", "mean_field")


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


def test_pseudo_likelihoods_have_no_labels():
    """Features are drawn from BM2PCA, and nothing from D-GPLVM: labels are not an outcome."""
    X, y, *_ = samples(None)
    loss = HingeLoss(strategy="shared", C=1.0)
    factors = PaperBM2PCAClassifier(2, loss=loss, random_state=0).fit(X, y)
    options = {"random_seed": 0, "progressbar": False, "compile_kwargs": FAST}
    with pytest.warns(UserWarning, match="effect of Potentials"):
        found = pm.sample_posterior_predictive(factors.idata_, model=factors.model_, **options)
    drawn = found["posterior_predictive"].to_dataset()
    assert set(drawn) == {"X"}
    np.testing.assert_allclose(drawn["X"].mean(("chain", "draw", "obs")), 0.0, atol=0.2)
    process = DGPLVMClassifier(random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="effect of Potentials"):
        found = pm.sample_posterior_predictive(process.idata_, model=process.model_, **options)
    assert "posterior_predictive" not in found.children


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["pymc", "nutpie"])
def test_any_sampler_of_pymc_draws_what_the_tree_has(sampler):
    if sampler == "nutpie":
        pytest.importorskip("nutpie")
    model = fitted(BSDRClassifier(**FULL_RANK))
    with model.model_:
        trace = pm.sample(
            200, tune=300, chains=2, nuts_sampler=sampler, random_seed=0, progressbar=False
        )
    here = model.idata_["posterior"]
    for name in ("projection_offset", "bias_contrasts", "scale", "coef", "bias"):
        assert trace["posterior"][name].dims == here[name].dims
    ratio = trace["posterior/scale"].mean() / here["scale"].mean()
    assert float(ratio) == pytest.approx(1.0, abs=0.2)
