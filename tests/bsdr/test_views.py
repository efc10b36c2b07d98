"""Several views or kernels, and estimators with them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from bsdr_models import BSDRClassifier, BSDRRegressor, Sampling, plots
from bsdr_models.bsdr import HierarchicalPriors, Kernel, build_model, feature_map
from bsdr_models.bsdr.posterior import Parameters
from bsdr_models.bsdr.problem import BSDRProblem
from bsdr_models.data.validation import read_views

QUICK = Sampling(draws=64, chains=1)
MODEL = BSDRClassifier(temperature=1.0, sampling=QUICK, random_state=0)
VIEWS = {"first": list(range(6)), "second": list(range(6, 13))}


def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    return X, y.to_numpy()


def fitted(**options):
    X, y = wine()
    return clone(MODEL).set_params(**options).fit(X[::2], y[::2])


@pytest.fixture(scope="module")
def two_views():
    """Fitted once."""
    return fitted(views=VIEWS)


def learn_map(X, kernel, views):
    """Without labels."""
    return feature_map.learn_map(X, metric="identity", kernel=kernel, views=views)


@pytest.mark.parametrize(
    "views",
    [pytest.param(None, marks=pytest.mark.slow), {"sepal": [0, 1], "petal": [2, 3]}],
)
def test_log_density_equals_that_of_pymc(views):
    X, y = load_iris(return_X_y=True)
    X, y = (X - X.mean(axis=0))[::5] / X.std(axis=0), y[::5]
    model = build_model(X, y, kernel="rbf", views=views)
    feature_map = learn_map(X, "rbf", read_views(views, range(4)))
    priors = HierarchicalPriors()
    problem = BSDRProblem(
        X=feature_map.whiten(X),
        y=y,
        n_labels=3,
        target="multiclass",
        priors=priors,
        views=feature_map.index,
    )
    theta = np.random.default_rng(0).standard_normal((5, problem.n_parameters))
    log_density = model.compile_logp(jacobian=True, sum=True, mode="FAST_COMPILE")
    differences = []
    for each in theta:
        loadings, bias, views, log_scale = (part[0] for part in problem.split(each[None]))
        point = {
            "scale_log__": log_scale,
            "basis_offset": loadings,
            "bias_contrasts": priors.bias_scale * bias,
        }
        if problem.n_views:
            point["view_scale_log__"] = priors.view_width * views
        sampled = problem.evaluate(each[None])[0].sum() + problem.log_prior(each[None])[0]
        differences.append(log_density(point) - sampled)
    assert_allclose(differences, differences[0], atol=1e-4)  # constants of the priors


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["polynomial", Kernel("rbf", 1.0)])
def test_kernels_predict_and_embed(kernel):
    X, y = wine()
    model = fitted(kernel=kernel)
    assert model.score(X[1::2], y[1::2]) > 0.9
    mean, cov = model.transform(X[1::2], return_cov=True)
    assert mean.shape == (89, 2)
    assert (np.linalg.eigvalsh(cov) > 0.0).all()
    far = model.predict_idata(X[1::2] * 1e3)["predictions"]
    assert np.isfinite(far["probability"]).all()


@pytest.mark.slow
def test_regression_with_a_kernel():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (120, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    model = BSDRRegressor(kernel=Kernel("matern", 1.0), random_state=0).fit(X[:80], y[:80])
    mean, std = model.predict(X[80:], return_std=True)
    assert np.sqrt(np.mean((mean - y[80:]) ** 2)) < 0.2
    assert np.mean(np.abs(mean - y[80:]) < 1.96 * std) > 0.85


@pytest.mark.slow
def test_a_view_of_noise_is_switched_off():
    X, y = wine()
    noise = np.random.default_rng(0).standard_normal((len(X), 13))
    both = np.hstack([X, noise])
    views = {"wine": range(13), "noise": range(13, 26)}
    priors = HierarchicalPriors(view_width=0.5)
    model = BSDRClassifier(views=views, priors=priors, sampling=QUICK, random_state=0)
    model.fit(both[::2], y[::2])
    assert model.views_ == ["wine", "noise"]
    assert model.view_share_[1] < 0.1
    share = model.idata_["posterior"]["view_share"]
    assert_allclose(share.sum("view"), 1.0)


def test_a_missing_view_is_integrated_over(two_views):
    X, y = wine()
    model = two_views
    lacking = X[1::2].copy()
    lacking.iloc[:, :6] = np.nan
    imputed = X[1::2].copy()
    imputed.iloc[:, :6] = X[::2].iloc[:, :6].mean().to_numpy()
    p = model.predict_proba(lacking)
    assert log_loss(y[1::2], p) < log_loss(y[1::2], model.predict_proba(imputed)) + 0.05
    mixed = X[1::2].copy()
    mixed.iloc[3, :6] = np.nan
    again = model.predict_proba(mixed)
    assert_allclose(again[3], p[3], atol=1e-9)
    others = np.arange(89) != 3
    assert_allclose(again[others], model.predict_proba(X[1::2])[others], atol=1e-9)


def test_conditional_moments_of_a_missing_view():
    """Of features from a known normal distribution."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((2000, 1))
    X = np.hstack([latent + 0.1 * rng.standard_normal((2000, 2)), latent, 0.0 * latent])
    X[:, 3] = 0.5 * rng.standard_normal(2000)
    X -= X.mean(axis=0)
    found = learn_map(X, "linear", [("a", np.arange(2)), ("b", np.arange(2, 4))])
    lacking = X[:5].copy()
    lacking[:, 2:] = np.nan
    part, other = found.maps
    expected = other.whiten(np.column_stack([X[:5, :2].mean(axis=1) / 1.005, np.zeros(5)]))
    assert_allclose(found.whiten(lacking)[:, part.width :], expected, atol=0.1)
    ((index, _, residuals),) = found.blocks(lacking, 5)
    back = np.linalg.lstsq(other.effects.T, residuals[:, part.width :].T, rcond=None)[0]
    assert index.tolist() == [0, 1, 2, 3, 4]
    assert_allclose(back.std(axis=1), [np.sqrt(0.005 / 1.005), 0.5], rtol=0.15)


@pytest.mark.parametrize("n", [6, 10])
def test_residuals_of_a_missing_view_are_those_of_left_out_samples(n):
    """With fewer and with more samples than features."""
    X = np.random.default_rng(2).standard_normal((n, 10))
    X[:, 8:] += X[:, :2]
    X -= X.mean(axis=0)
    found = learn_map(X, "linear", [("a", np.arange(8)), ("b", np.arange(8, 10))])
    given, wanted = (found.training[:, found.index == v] for v in (0, 1))
    largest = np.linalg.norm(given, 2) ** 2
    left_out = [
        wanted - cross_val_predict(Ridge(alpha=penalty), given, wanted, cv=LeaveOneOut())
        for penalty in largest * np.logspace(-6.0, 2.0, 25)
    ]
    lacking = np.where(np.arange(10) < 8, X[:1], np.nan)
    ((_, _, residuals),) = found.blocks(lacking, 1)
    expected = min(left_out, key=lambda error: np.sum(error**2))
    assert_allclose(residuals[:, found.index == 1], expected, rtol=1e-4, atol=1e-9)


def test_missing_views_add_to_the_covariance():
    rng = np.random.default_rng(0)
    projection, residuals = rng.standard_normal((2, 6)), rng.standard_normal((40, 6))
    s, sd = 20000, np.array([0.0, 1.5])
    draws = Parameters(
        projection=np.broadcast_to(projection, (s, 2, 6)),
        scale=np.full(s, 2.0),
        weights=np.zeros((s, 2, 3)),
        bias=np.zeros((s, 3)),
        noise_scale=None,
        outside=rng.standard_normal((s, 2)),
    )
    cov = projection @ (residuals.T @ residuals / len(residuals)) @ projection.T
    found = draws.latent(np.zeros((2, 6)), sd, np.broadcast_to(cov, (s, 2, 2)))
    for n, each in enumerate(sd):
        moments = residuals.T @ residuals / len(residuals)
        expected = projection @ moments @ projection.T + (2.0 * each) ** 2 * np.eye(2)
        assert_allclose(np.cov(found[:, n].T), expected, rtol=0.05, atol=0.3)


def test_correlations_are_those_with_the_classes_of_a_kernel_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = (np.sum(X**2, axis=1) > 1.4).astype(int)
    model = clone(MODEL).set_params(kernel="rbf").fit(X, y)
    expected = [np.corrcoef(feature, y)[0, 1] for feature in X.T]
    table = plots.features_table(model.idata_)
    found = table["alone"].sel(outcome=1, feature=["x0", "x1"])
    assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"views": {"a": range(6)}}, "each feature must be in one, which 'flavanoids' is not"),
        ({"views": {"a": range(13), "b": [3]}}, "which 'alcalinity_of_ash' is not"),
        ({"views": {"a": slice(0, 13)}}, r"'a' must be a list of columns of X, got slice\(0, 13"),
        ({"views": {1: range(6), "1": range(6, 13)}}, "two are named '1'"),
        ({"views": {np.str_("a"): ["x"]}}, "must be a list of columns of X"),
        ({"views": {"a": range(6), "b": range(6, 14)}}, "'b' must be a list of columns of X"),
        ({"views": {"a": range(13), "b": []}}, "must be a list of columns of X"),
        ({"views": ["a"] * 13}, r"views must be a dict .*, got \['a', 'a'"),
        ({"views": {"a": "alcohol"}}, "'a' must be a list of columns of X, got 'alcohol'"),
        ({"views": VIEWS, "inference": "laplace"}, "no views"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        fitted(**options)


def test_bad_missing_values(two_views):
    X, y = wine()
    some = X[::2].copy()
    some.iloc[3, :6] = np.nan
    with pytest.raises(ValueError, match=r"NaN, first in row 3 .* BM2PCAClassifier"):
        clone(two_views).fit(some, y[::2])
    some.iloc[3, 2] = 1.0
    with pytest.raises(ValueError, match="sample 3 has NaN in some features of view 'first'"):
        two_views.predict(some)
    some.iloc[3] = np.nan
    with pytest.raises(ValueError, match="sample 3 has no view"):
        two_views.predict(some)


def test_one_view_is_none():
    X, _ = wine()
    one = fitted(views={"all": list(X)[::-1]})
    assert not hasattr(one, "views_")
    assert (one.predict_proba(X) == fitted().predict_proba(X)).all()
    with pytest.raises(ValueError, match="NaN, first in row"):
        one.predict(X.mask(X.iloc[0, 0] == X))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_predictions_take_samples_in_chunks(two_views):
    X = wine()[0].to_numpy()
    blocks = pytest.importorskip("dask.array").from_array(X, chunks=(50, 13))
    found = np.asarray(two_views.predict_proba(blocks))
    assert_allclose(found, two_views.predict_proba(X), atol=1e-9)
