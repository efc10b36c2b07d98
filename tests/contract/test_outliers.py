"""Outlier measures of training samples and of new ones, for every model."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    EpsilonInsensitiveLoss,
    HingeLoss,
    Sampling,
    plots,
)
from bsdr_models.numerics.latent import Reference

FEW_DRAWS = Sampling(chains=1, draws=100)
MODELS = {
    "bsdr": BSDRClassifier(temperature=1.0, sampling=FEW_DRAWS, random_state=0),
    "bm2pca": BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0),
    "dgplvm": DGPLVMClassifier(random_state=0),
}
LINEAR = [name for name in MODELS if name != "dgplvm"]


@pytest.fixture(scope="module")
def fits(wine_split):
    return {name: model.fit(wine_split[0], wine_split[2]) for name, model in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_few_new_samples_are_outlying_and_far_ones_all_are(fits, wine_split, name):
    """Of 118 samples like the training samples, 5 % are 5.9 +/- 2.4; of 60, 3.0 +/- 1.7."""
    model, X = fits[name], wine_split[1]
    tail = model.predict_idata(X)["predictions/tail_probability"].values
    assert ((tail > 0.0) & (tail <= 1.0)).all()
    assert np.mean(tail < 0.05) < 0.05 + 3 * 0.02
    own = model.idata_["fit/tail_probability"].values
    assert np.mean(own < 0.05) < 0.05 + 3 * 0.028
    beyond = X + 20.0 * X.std(axis=0)
    with warnings.catch_warnings(action="ignore"):
        far = model.predict_idata(beyond)["predictions/tail_probability"]
    assert far.max() < 0.02
    alone = model.predict_idata(X[:1])["predictions/tail_probability"].values
    np.testing.assert_allclose(alone, tail[:1], rtol=1e-9)


@pytest.mark.parametrize("says", ["predict", "predict_proba", "transform", "predict_idata"])
@pytest.mark.parametrize("name", LINEAR)
def test_samples_in_another_unit_are_unlike_the_training_samples(fits, wine_split, name, says):
    """Said once per call, and never of samples like them."""
    other = wine_split[1].copy()
    other[:7] *= 1000.0
    call = getattr(fits[name], says)
    with pytest.warns(UserWarning, match="7 of 118 samples are unlike the training") as caught:
        call(other)
    assert len(caught) == 1
    call(wine_split[1])


@pytest.mark.parametrize("name", LINEAR)
def test_linear_maps_have_t2_and_q_of_their_projection(fits, wine_split, name):
    model, tree = fits[name], fits[name].idata_
    scaled = (wine_split[0] - model.mean_) / model.scale_
    reference = Reference.learn(scaled, tree["fit/projection_mean"].values)
    new = reference.compare((wine_split[1] - model.mean_) / model.scale_)
    predictions = model.predict_idata(wine_split[1])
    for group, expected in (
        (tree["fit"], reference.compare_training(scaled)),
        (predictions["predictions"], new),
    ):
        for variable, values in expected.items():
            np.testing.assert_allclose(group[variable], values, rtol=1e-7, err_msg=variable)
    for attribute, value in reference.attrs().items():
        assert tree.attrs[attribute] == pytest.approx(value)
        assert predictions.attrs[attribute] == pytest.approx(value)


@pytest.mark.filterwarnings("ignore:no evidence that the targets depend on X")
def test_noise_with_more_features_than_samples_is_not_called_outlying():
    """A map that has memorised its samples must not take new ones for foreign."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 300)), np.arange(60) % 3
    for name in ("bsdr", "bm2pca"):
        model = clone(MODELS[name]).fit(X, y)
        tail = model.predict_idata(rng.standard_normal((100, 300)))["predictions/tail_probability"]
        assert np.mean(tail < 0.05) < 0.05 + 4 * 0.022


@pytest.mark.parametrize(
    "model",
    [
        BSDRRegressor(sampling=FEW_DRAWS),
        BM2PCARegressor(loss=EpsilonInsensitiveLoss(C=1.0)),
    ],
)
def test_regressors_say_it_too(wine_split, model):
    X, y = wine_split[0], wine_split[0][:, 0] + 0.1 * wine_split[2]
    tree = model.set_params(random_state=0, n_components=1).fit(X, y).predict_idata(wine_split[1])
    table = plots.map_table(tree, "predictions")
    assert {"t2", "q_residual", "tail_probability"} <= set(table.data_vars)


def test_missing_values_are_filled_before_samples_are_compared(fits, wine_split):
    """A missing value makes a sample less certain, not an outlier."""
    model, X = fits["bm2pca"], wine_split[1].copy()
    whole = model.predict_idata(X)["predictions/q_residual"].values
    X[:, 4] = np.nan
    gap = model.predict_idata(X)["predictions"]
    assert np.isfinite(gap["tail_probability"]).all()
    assert gap["q_residual"].mean() < whole.mean()


def test_training_samples_of_dgplvm_are_ranked_as_left_out(fits, wine_split):
    """The share of the training samples at least as far out, the sample itself among them."""
    model = fits["dgplvm"]
    fit = model.idata_["fit"]
    own = fit["out_of_range"].values
    rank = (own[:, None] <= own).sum(axis=1)
    np.testing.assert_allclose(fit["tail_probability"], (1 + rank) / (1 + len(own)))
    # In sample, each sample would be far more certain than as a new one.
    assert np.all(own > model.out_of_range(wine_split[0]))
    new = model.predict_idata(wine_split[1])["predictions"]
    rank = (new["out_of_range"].values[:, None] <= own).sum(axis=1)
    np.testing.assert_allclose(new["tail_probability"], (1 + rank) / (1 + len(own)))
