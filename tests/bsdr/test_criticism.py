"""Log densities of draws against PyMC, SciPy and the bound; leave-one-out from saved trees."""

import warnings
from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal, t
from sklearn.exceptions import ConvergenceWarning

from bsdr_models.bsdr import build_paper_model
from bsdr_models.bsdr.paper import log_density
from bsdr_models.bsdr.paper.data import make_data
from bsdr_models.bsdr.paper.mean_field_fit import fit_mean_field
from bsdr_models.bsdr.paper.predict import DrawPosterior, log_likelihood
from bsdr_models.bsdr.paper.trees import draw_posterior
from bsdr_models.bsdr.predictive_check import draw_targets, predictive_check
from bsdr_models.bsdr.priors import SAMPLING, Priors
from bsdr_models.papers import PaperBSDRClassifier, PaperBSDRRegressor

N, D, R, K, S = 12, 2, 2, 3, 2
PRIORS = Priors(
    projection_shape=1.5,
    projection_rate=0.7,
    weight_shape=2.0,
    weight_rate=3.0,
    bias_shape=0.8,
    bias_rate=1.3,
    noise_shape=2.5,
    noise_rate=0.6,
    latent_scale=0.6,
)
KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
# Trapezoidal rule over the log of a precision: exact to rounding for decaying integrands.
LOG_PHI = np.arange(-12.0, 6.0, 0.5)
ONE_SCALE = {
    "priors__projection_prior": "columnwise",
    "priors__latent_scale": 0.6,
}


def toy(target):
    rng = np.random.default_rng(7)
    X, utilities = rng.standard_normal((N, D)), rng.standard_normal((N, K))
    y = {"multiclass": np.arange(N) % K, "multilabel": utilities > 0.0, "regression": utilities}[
        target
    ]
    return X, y


def some_draws(target):
    rng = np.random.default_rng(8)
    return DrawPosterior(
        projection=rng.standard_normal((S, D, R)),
        weights=rng.standard_normal((S, R, K)),
        bias=rng.standard_normal((S, K)),
        noise_precision=rng.gamma(2.0, size=(S, K)) if target == "regression" else None,
        latent_scale=PRIORS.latent_scale,
        target=target,
    )


def compiled(model, names, **options):
    variables = [model[name] for name in names]
    return model.compile_logp(vars=variables, jacobian=False, mode="FAST_COMPILE", **options)


def points(draws):
    """Values of the model's free variables at each draw, without latent offsets and precisions."""
    for s in range(S):
        point = {
            "projection": draws.projection[s],
            "weights": draws.weights[s],
            "bias": draws.bias[s],
            "latent_offset": np.zeros((N, R)),
        }
        if draws.noise_precision is not None:
            point["noise_precision_log__"] = np.log(draws.noise_precision[s])
        yield point


def integrated(logp, point, kind):
    """Log density with both precisions of the projection integrated out by a product grid."""
    if kind == "entrywise":
        return logp(point)
    grid = [
        [
            logp(point | {"projection_precision_log__": np.array([first, second])})
            + first
            + second  # phi = exp(log phi): the density is over phi
            for first in LOG_PHI
        ]
        for second in LOG_PHI
    ]
    return logsumexp(grid) + 2.0 * np.log(LOG_PHI[1] - LOG_PHI[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["multiclass", "regression"])
def test_log_prior_is_that_of_the_model(kind, target):
    X, y = toy(target)
    model = build_paper_model(
        X,
        y,
        n_components=R,
        priors=replace(PRIORS, projection_prior=kind),
        target=target,
    )
    names = ["projection", "weights", "bias"]
    names += ["projection_precision"] if kind != "entrywise" else []
    names += ["noise_precision"] if target == "regression" else []
    logp = compiled(model, names)
    draws = some_draws(target)
    expected = [integrated(logp, point, kind) for point in points(draws)]
    got = log_density.log_prior(draws, replace(PRIORS, projection_prior=kind))
    np.testing.assert_allclose(got, expected, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_log_likelihood_is_that_of_the_model(target):
    """Latent offsets by a product Gauss-Hermite rule of 24 x 24 nodes, all samples at once.

    The package's own rule has a root mean square error of 0.02 by row, as it says.
    """
    X, y = toy(target)
    model = build_paper_model(X, y, n_components=R, priors=PRIORS, target=target)
    logp = compiled(model, ["y"], sum=False)
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    log_weights = np.log(weights) - 0.5 * np.log(2.0 * np.pi)
    draws = some_draws(target)
    expected = np.empty((S, N))
    for s, point in enumerate(points(draws)):
        parts = [
            np.reshape(logp(point | {"latent_offset": np.tile([u, v], (N, 1))})[0], (N, -1)).sum(1)
            + log_weights[i]
            + log_weights[j]
            for i, u in enumerate(nodes)
            for j, v in enumerate(nodes)
        ]
        expected[s] = logsumexp(parts, axis=0)
    error = log_likelihood(draws, X, y) - expected
    limit = 1e-8 if target == "regression" else 0.02
    assert np.sqrt(np.mean(error**2)) < limit


def mean_field(kind, target, X, y):
    data = make_data(X, y, n_labels=K, target=target, projection_prior=kind)
    return data, fit_mean_field(
        data, replace(PRIORS, projection_prior=kind), n_components=R, rng=np.random.default_rng(1)
    ).state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["multiclass", "regression"])
def test_log_q_is_a_product_of_normals_and_gammas(kind, target):
    data, state = mean_field(kind, target, *toy(target))
    draws = some_draws(target)
    got = log_density.log_q(draws, state, data, PRIORS.latent_scale)
    rows = data.design.rows
    precision = np.broadcast_to(state.projection_precision.mean, (D, R))
    expected = np.zeros(S)
    for s in range(S):
        for r in range(R):
            cov = np.linalg.inv(np.diag(precision[:, r]) + rows.T @ rows / PRIORS.latent_scale**2)
            expected[s] += multivariate_normal(state.projection.mean[:, r], cov).logpdf(
                draws.projection[s, :, r]
            )
        for k in range(K):
            full = np.append(draws.bias[s, k], draws.weights[s, :, k])
            q = multivariate_normal(state.weights.mean[:, k], state.weights.cov[k])
            expected[s] += q.logpdf(full)
            if target == "regression":
                tau = state.noise_precision
                q = gamma(tau.shape[k], scale=1.0 / tau.rate[k])
                expected[s] += q.logpdf(draws.noise_precision[s, k])
    np.testing.assert_allclose(got, expected, rtol=1e-9)


CONFIGURATIONS = {
    "columnwise": {
        "priors__projection_prior": "columnwise",
        "priors__latent_scale": 0.1,
        "optimization__tol": 5e-3,
    },
    "paper": {},
    "rowwise": {"priors__projection_prior": "rowwise", "priors__latent_scale": 0.5},
}


@pytest.mark.parametrize("wide", [False, True], ids=["5 features", "60 features"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_draws_of_a_tree_give_at_least_the_bound(name, target, wide):
    """E_q log p / q is at least the bound with latents, utilities and precisions integrated out.

    That holds for many features too, where the design has the coordinates of the row space.
    """
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 60 if wide else 5))
    utilities = X @ rng.standard_normal((X.shape[1], K)) + 3.0 * rng.standard_normal((30, K))
    y = {
        "multiclass": utilities.argmax(axis=1),
        "multilabel": utilities > 0,
        "regression": utilities,
    }
    kind = PaperBSDRRegressor if target == "regression" else PaperBSDRClassifier
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no evidence that the targets depend on X")
        model = kind(2, random_state=0).set_params(**CONFIGURATIONS[name])
        model.fit(X, y[target] * 1)
    tree = model.idata_
    stats = tree["sample_stats"]
    gain = (stats["log_p"] - stats["log_q"]).values.ravel() - model.lower_bounds_[-1]
    assert gain.mean() > 4.0 * gain.std() / np.sqrt(len(gain))
    note = tree["approximate_log_likelihood"].attrs["note"]
    assert "loo_approximate_posterior" in note


def test_log_p_is_prior_and_likelihood_of_the_stored_draws():
    X, y = toy("multiclass")
    model = PaperBSDRClassifier(R, priors=PRIORS, random_state=0).set_params(**ONE_SCALE).fit(X, y)
    tree = model.idata_
    draws = draw_posterior(tree["posterior"].dataset, latent_scale=0.6, target="multiclass")
    expected = log_density.log_prior(draws, replace(PRIORS, projection_prior="columnwise"))
    expected = expected + tree["approximate_log_likelihood/y"].values[0].sum(axis=1)
    np.testing.assert_allclose(tree["sample_stats/log_p"].values[0], expected, rtol=1e-9)


@pytest.mark.slow
def test_leave_one_out_of_saved_trees_has_a_large_pareto_k_for_mean_field(tmp_path):
    """Overlapping classes: q is too narrow for importance weights."""
    X, y = np.random.default_rng(5).standard_normal((40, 4)), np.arange(40) % 2
    X[:, 0] += y
    options = {
        "priors__latent_scale": 1.0,
        "priors": SAMPLING,
        "priors__projection_prior": "entrywise",
    }
    options |= {
        "sampling__draws": 1000,
        "sampling__tune": 300,
        "sampling__chains": 2,
        "random_state": 0,
    }
    trees = {}
    for engine in ("mean_field", "gibbs"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = PaperBSDRClassifier(1, inference=engine).set_params(**options).fit(X, y)
        model.idata_.to_netcdf(tmp_path / f"{engine}.nc")
        trees[engine] = az.from_netcdf(tmp_path / f"{engine}.nc")
    assert "log_prior" not in trees["mean_field"].children
    posterior = trees["gibbs"]["posterior"].dataset
    expected = sum(
        t(df=10.0).logpdf(posterior[name]).reshape(2, 1000, -1).sum(axis=2)  # shape and rate 5
        for name in ("projection", "weights", "bias")
    )
    np.testing.assert_allclose(trees["gibbs"]["log_prior/parameters"], expected, rtol=1e-9)
    sensitive = az.psense_summary(trees["gibbs"], var_names=["coef"], round_to=6)
    assert np.isfinite(sensitive[["prior", "likelihood"]].to_numpy(float)).all()
    exact = az.loo(trees["gibbs"], pointwise=True)
    assert exact.pareto_k.values.max() < exact.good_k
    assert exact.elpd == pytest.approx(-40 * np.log(2.0), rel=0.2)
    stats = trees["mean_field"]["sample_stats"]
    tree = trees["mean_field"]
    with pytest.warns(UserWarning, match="Estimated shape parameter of Pareto"):
        found = az.loo_approximate_posterior(
            tree.assign(log_likelihood=tree["approximate_log_likelihood"]),
            log_p=stats["log_p"],
            log_q=stats["log_q"],
            pointwise=True,
        )
    assert np.mean(found.pareto_k.values > found.good_k) > 0.9


@pytest.mark.parametrize("target", TARGETS)
def test_replicated_targets_have_the_density_of_the_likelihood(target):
    """Frequencies and moments over 4000 copies of one draw, within 4.5 standard errors."""
    X, y = toy(target)
    draws, copies = some_draws(target), 4000
    tau = draws.noise_precision
    many = DrawPosterior(
        projection=np.repeat(draws.projection[:1], copies, axis=0),
        weights=np.repeat(draws.weights[:1], copies, axis=0),
        bias=np.repeat(draws.bias[:1], copies, axis=0),
        noise_precision=None if tau is None else np.repeat(tau[:1], copies, axis=0),
        latent_scale=draws.latent_scale,
        target=target,
    )
    got = draw_targets(many, X, rng=np.random.default_rng(9))
    if target == "regression":
        W, size = draws.weights[0], np.sqrt(copies)
        cov = draws.latent_scale**2 * W.T @ W + np.diag(1.0 / tau[0])
        difference = got.mean(axis=0) - (X @ draws.projection[0] @ W + draws.bias[0])
        assert np.all(np.abs(difference) < 4.5 * np.sqrt(np.diag(cov)) / size)
        scale = np.sqrt(np.diag(cov)[:, None] * np.diag(cov))
        assert np.all(np.abs(np.cov(got[:, 0].T) - cov) < 4.5 * np.sqrt(2.0) * scale / size)
        return
    share = np.mean(got == y, axis=0) if target == "multiclass" else np.mean((got == y).all(2), 0)
    p = np.exp(log_likelihood(draws, X, y)[0])
    assert np.all(np.abs(share - p) < 4.5 * np.sqrt(p * (1.0 - p) / copies) + 0.04 * p)


def test_arviz_shows_the_check():
    X, y = toy("multiclass")
    model = PaperBSDRClassifier(2, random_state=0).set_params(**ONE_SCALE)
    model.fit(X, np.array(list("xyz"))[y])
    check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    assert check["posterior_predictive/y"].dims == ("chain", "draw", "obs")
    np.testing.assert_array_equal(check["observed_data/y"], y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found chain dimension")
        az.plot_ppc_rootogram(check, backend="none")
        az.plot_ppc_pava(check, data_type="categorical", backend="none")
    tree = model.idata_.copy()
    del tree["constant_data"]
    with pytest.raises(ValueError, match="no group 'constant_data'"):
        predictive_check(tree, rng=np.random.default_rng(0))


def test_prior_predictive_classes_are_exchangeable():
    """Every class takes a third on average; 200 prior draws are independent."""
    X, y = toy("multiclass")
    model = PaperBSDRClassifier(2, random_state=0).set_params(**ONE_SCALE).fit(X, y).model_
    found = pm.sample_prior_predictive(
        200, model=model, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
    )
    drawn = found["prior_predictive/y"].values.reshape(200, N)
    share = np.stack([(drawn == c).mean(axis=1) for c in range(K)], axis=1)
    error = share.std(axis=0) / np.sqrt(200)
    assert np.all(np.abs(share.mean(axis=0) - 1.0 / K) < 4.0 * error)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found chain dimension")
        az.plot_ppc_rootogram(found, group="prior_predictive", backend="none")
