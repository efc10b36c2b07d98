"""The declared model against explicit contrasts, scatter matrices and inverses."""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.blocking import DictToArrayBijection
from scipy import stats
from scipy.linalg import helmert, sqrtm
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from bsdr_models.dgplvm import engines, problem, sampling
from bsdr_models.dgplvm.map_search import fit_map, make_objective
from bsdr_models.dgplvm.model import build_model, class_separation
from bsdr_models.dgplvm.priors import (
    MAP_DOF,
    MAP_MEAN_VARIANCE,
    DGPLVMMapping,
    DGPLVMOptimization,
    DGPLVMPriors,
    LogNormal,
)
from bsdr_models.dgplvm.problem import DGPLVMProblem
from bsdr_models.inference.result import Schedule
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.dgplvm.map import fit_paper, kernel_mapping
from bsdr_models.papers.dgplvm.model import RAW_SCALE
from bsdr_models.papers.dgplvm.model import build_model as build_paper_model
from tests.toys import FAST, random_values, scatters

PRIORS = DGPLVMPriors(
    signal_variance=LogNormal(0.4, 0.5),
    lengthscale=LogNormal(1.3, 0.2),
    noise_variance=LogNormal(0.6, 0.4),
)
KERNEL = ("signal_variance", "lengthscale", "noise_variance")
# Labels unsorted and not contiguous; a class of one sample; unlabelled samples.
TWO = np.array([7, 2, 7, 7, 2, 2, 7, 2, 2])
THREE = np.array(["b", "?", "a", "b", "c", "a", "?", "b", "a"])
CASES = {
    "two classes": (TWO, {"n_components": 1}),
    "three classes": (THREE, {"n_components": 2, "unlabeled": "?"}),
    "one of two axes": (THREE, {"n_components": 1, "unlabeled": "?"}),
    "total": (TWO, {"n_components": 3, "criterion": "total"}),
    "total, some unlabelled": (
        THREE,
        {"n_components": 3, "criterion": "total", "unlabeled": "?", "weight": 0.4},
    ),
}


def features(n_features=4):
    """Correlated features of different size, not centred, two samples equal."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((len(TWO), n_features)) @ rng.standard_normal((n_features,) * 2)
    X[5] = X[4]
    return X + 3.0


def declared(case, **changes):
    y, options = CASES[case]
    return build(features(), y, **(options | changes))


def build(X, y, *, priors=PRIORS, **options):
    """The recommended model, with the numbers of the priors among the options."""
    numbers = {name: options.pop(name) for name in ("weight", "criterion") if name in options}
    return build_model(X, y, priors=replace(priors, **numbers), **options)


def criterion_of(model):
    """Compiled function of the values of all variables."""
    values = model.replace_rvs_by_values([model["criterion"]])[0]
    return pm.compile(model.value_vars, values, on_unused_input="ignore", **FAST)


def random_point(model, seed):
    rng = np.random.default_rng(seed)
    shape = model.initial_point()["latent_raw"].shape
    logs = {f"{name}_log__": np.array(0.4 * rng.standard_normal()) for name in KERNEL}
    return {"latent_raw": rng.standard_normal(shape), **logs}


def whitened(U, X, known, *, width, noise):
    """Whitened by a symmetric root; also the covariance of the mapping."""
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    pairs = [distance[i, j] for i in range(len(X)) for j in range(i)]
    K_b = np.exp(-0.5 * width * distance / np.median(pairs))
    K_b += MAP_MEAN_VARIANCE + noise * np.eye(len(X))
    A = np.linalg.cholesky(K_b) @ U
    A = A - A[known].mean(axis=0)
    root = np.real(sqrtm(np.atleast_2d(np.cov(A[known].T, bias=True))))
    return A @ np.linalg.inv(root), K_b


def log_joint(point, y, **options):
    """Every factor by its definition, on the scale on which PyMC samples."""
    X, U = features(), point["latent_raw"]
    known = np.ones(len(X), bool) if "unlabeled" not in options else y != options["unlabeled"]
    logs = [point[f"{name}_log__"] for name in KERNEL]
    a, ell, b = np.exp(logs)
    total = stats.norm.logpdf(U).sum() + np.linalg.slogdet(U.T @ U)[1]
    for value, prior in zip(logs, PRIORS.kernel, strict=True):
        total += stats.norm.logpdf(value, np.log(prior.median), prior.log_sd)
    latent, K_b = whitened(
        U, X, known, width=options.get("width", 2.0), noise=options.get("map_noise", 0.02)
    )

    S = np.cov(X.T)  # (D, D), divided by N - 1
    v, n_effective = np.trace(S) / len(S), np.trace(S) ** 2 / (S**2).sum()
    tau = n_effective / len(S)
    distance = ((latent[:, None] - latent[None]) ** 2).sum(axis=2)
    K = v * a * np.exp(-distance / (2.0 * ell**2)) + v * b * np.eye(len(X))
    contrasts = helmert(len(X))
    density = stats.multivariate_normal(cov=contrasts @ K @ contrasts.T)
    total += tau * density.logpdf((contrasts @ X).T).sum()

    S_w, S_b = scatters(latent[known], y[known])
    below = S_w + S_b if options.get("criterion") == "total" else S_b
    J = np.trace(np.linalg.inv(below) @ S_w)
    total -= options.get("weight", 10.0) * known.sum() * n_effective * J

    centroids = [latent[known & (y == label)].mean(axis=0) for label in set(y[known])]
    centred = latent - np.mean(centroids, axis=0)
    square = np.trace(centred.T @ np.linalg.inv(K_b) @ centred)
    exponent = (len(X) - 1) * latent.shape[1] + MAP_DOF
    return total - 0.5 * exponent * np.log(1.0 + square / MAP_DOF), J


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if "some unlabelled" in case else pytest.mark.slow)
        for case in CASES
    ],
)
def test_density_is_the_product_of_its_factors(case):
    """Inverses lose eps times a condition number of at most 1e3."""
    y, options = CASES[case]
    changes = {"width": 0.8, "map_noise": 0.05} if case == "two classes" else {}
    model = declared(case, **changes)
    logp = model.compile_logp(**FAST)
    J = criterion_of(model)
    for seed in range(4):
        point = random_point(model, seed)
        expected, expected_J = log_joint(point, y, **(options | changes))
        np.testing.assert_allclose(logp(point), expected, rtol=1e-9)
        np.testing.assert_allclose(J(**point), expected_J, rtol=1e-9)


def log_density_of(model, names, point):
    """The sum of the log densities of variables and potentials."""
    chosen = [model[name] for name in names]
    return model.compile_logp(chosen, jacobian=False, **FAST)(point)


def values_of(model, names, point):
    variables = model.replace_rvs_by_values([model[name] for name in names])
    inputs = model.value_vars
    return model.compile_fn(variables, inputs=inputs, on_unused_input="ignore", **FAST)(point)


@pytest.mark.parametrize("y", [TWO, np.arange(9) % 3])
def test_the_classifier_is_equations_1_and_2(y):
    """Latent functions have the covariance of the features; two classes share one."""
    model = build_paper_model(features(), y, n_components=1, classifier=True)
    point = random_values(model, 4)
    latent, theta, function = values_of(model, ("latent", "theta", "function"), point)
    K = theta[0] * np.exp(-0.5 * theta[1] * (latent - latent.T) ** 2) + theta[2]
    factor = np.linalg.cholesky(K + np.eye(9) / theta[3])
    np.testing.assert_allclose(function, factor @ point["function_raw"], rtol=1e-9)
    signs = np.where(y[:, None] == np.unique(y), 1.0, -1.0)
    signs = signs[:, 1:] if signs.shape[1] == 2 else signs
    expected = stats.norm.logcdf(signs * function).sum()
    expected += stats.norm.logpdf(point["function_raw"]).sum()
    found = log_density_of(model, ("function_raw", "y"), point)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_new_samples_are_equation_14():
    """Every new sample by itself, with the moments (15) and (16) by an explicit inverse."""
    X, y = features(), np.arange(9) % 3
    new = X[:4] + 0.3
    model = build_paper_model(X, y, n_components=2, X_new=new)
    point = random_values(model, 5)
    latent, theta = values_of(model, ("latent", "theta"), point)
    mean = X.mean(axis=0)

    def kernel(a, b):
        distance = ((a[:, None] - b[None]) ** 2).sum(axis=2)
        return theta[0] * np.exp(-0.5 * theta[1] * distance) + theta[2]

    inverse = np.linalg.inv(kernel(latent, latent) + np.eye(9) / theta[3])
    expected = 0.0
    for x, sample in zip(point["new_latent"], new, strict=True):
        k = kernel(latent, x[None])[:, 0]
        variance = theta[0] + theta[2] + 1.0 / theta[3] - k @ inverse @ k
        mu = mean + (X - mean).T @ inverse @ k
        expected += stats.norm.logpdf(sample, mu, np.sqrt(variance)).sum()
        expected += stats.norm.logpdf(x).sum()
    found = log_density_of(model, ("new_latent", "new_samples"), point)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_find_map_ends_at_the_mode_of_the_engine(training_of):
    """From jittered starts, in the latent coordinates and in the density of both, which has no
    finite mode without the factor of U'U: PyMC maximises that of the parameters, not of their logs.
    """
    X, y = (values[::5] for values in load_iris(return_X_y=True))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = build_model(X, y, n_components=2)
    mapping = DGPLVMMapping(width=2.0, noise=0.02)
    search = DGPLVMOptimization(max_iter=5000, tol=1e-12)
    task = DGPLVMProblem(
        X=X,
        y_index=y,
        n_components=2,
        mapping=mapping,
        optimization=search,
        training=training_of(X, y),
    )
    mode = fit_map(task, np.random.default_rng(0))
    left, _, right = np.linalg.svd(mode.objective.mapping.raw(mode.latent), full_matrices=False)
    logs = zip(KERNEL, mode.log_parameters, strict=True)
    at_mode = {"latent_raw": np.sqrt(2.0) * left @ right}  # U'U = 2 I
    at_mode |= {f"{name}_log__": np.array(log) for name, log in logs}
    density = model.compile_logp(jacobian=False, **FAST)
    found = []
    for seed in range(3):
        point = pm.find_MAP(
            model=model, jitter=True, random_seed=seed, progressbar=False, compile_kwargs=FAST
        )
        found.append(density({each.name: point[each.name] for each in model.value_vars}))
    assert np.ptp(found) < 1e-3
    assert min(found) > density(at_mode) - 1e-3


def test_nan_marks_missing_labels():
    given = np.where(TWO == 7, 1.0, 0.0)
    given[3] = np.nan
    model = build_model(features(), given, n_components=1, unlabeled=np.nan)
    np.testing.assert_array_equal(model["y_data"].data, [1, 0, 1, -1, 0, 0, 1, 0, 0])


@pytest.mark.slow
def test_initial_point_separates_the_classes():
    for case in CASES:
        model = declared(case)
        point = model.initial_point()
        assert np.isfinite(model.compile_logp(**FAST)(point)), case
        of_prior = pm.draw(model["criterion"], draws=20, random_seed=2, **FAST)
        assert criterion_of(model)(**point) < np.median(of_prior), case


# The hand-written density.


@pytest.fixture
def task_and_mode(training_of):
    """A task on the same samples, and its mode with default settings of the mapping."""

    def found(case):
        y, options = CASES[case]
        index = np.full(len(y), -1)
        known = y != options.get("unlabeled", None)
        index[known] = np.unique(y[known], return_inverse=True)[1]
        X = features() - features().mean(axis=0)
        task = DGPLVMProblem(
            X=X,
            y_index=index,
            n_components=options["n_components"],
            priors=replace(PRIORS, weight=options.get("weight", 10.0)),
            criterion=options.get("criterion", "trace_ratio"),
            mapping=DGPLVMMapping(width=2.0, noise=0.02),
            training=training_of(X, index),
        )
        return task, fit_map(task, np.random.default_rng(10))

    return found


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[] if "three" in case else pytest.mark.slow) for case in CASES],
)
def test_the_objective_is_the_declared_density(task_and_mode, case):
    """Minus F, the normal prior of the raw coordinates U, and log |U'U|."""
    task, mode = task_and_mode(case)
    objective, model = make_objective(task, mode.objective.mapping), declared(case)
    density = model.logp_dlogp_function(ravel_inputs=True, **FAST)
    for seed in range(3):
        point = DictToArrayBijection.map(random_point(model, seed))
        (value, gradient), (F, by_x) = density(point), objective(point.data)
        raw = objective.unpack(point.data)[0]
        square = raw.T @ raw
        prior = stats.norm.logpdf(raw).sum() + np.linalg.slogdet(square)[1]
        np.testing.assert_allclose(value, prior - F, rtol=1e-10)
        expected = -by_x
        expected[: raw.size] += (2.0 * raw @ np.linalg.inv(square) - raw).ravel()
        atol = 1e-9 * np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=atol)


def test_curvature_is_averaged_over_rotations(task_and_mode):
    """The covariance at the mode; raw coordinates have mean square one."""
    task, mode = task_and_mode("three classes")
    objective = make_objective(task, mode.objective.mapping)
    x, covariance = sampling.curvature(objective, mode)
    U = objective.unpack(x)[0]
    np.testing.assert_allclose(U.T @ U, len(U) * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(objective(x)[0], mode.terms.total, rtol=1e-10)
    step = 1e-4 * np.linalg.cholesky(covariance)[:, 0]
    moved = objective(x + step)[0] + objective(x - step)[0] - 2.0 * objective(x)[0]
    assert 0.0 <= moved < 20.0 * (step @ np.linalg.solve(covariance, step))
    eigenvalues = np.linalg.eigvalsh(covariance)
    assert eigenvalues[0] > 0.0
    assert eigenvalues[-1] <= 1.0 + 1e-12


def test_draws_are_aligned_to_the_mode():
    rng = np.random.default_rng(11)
    mode = rng.standard_normal((7, 2))
    turns = np.linalg.qr(rng.standard_normal((3, 5, 2, 2)))[0]
    draws = mode @ turns
    np.testing.assert_allclose(
        sampling.align_draws(draws, mode), np.broadcast_to(mode, (3, 5, 7, 2)), atol=1e-10
    )


def test_improper_densities_raise_before_the_mode_is_sought(task_and_mode, monkeypatch):
    task, _ = task_and_mode("two classes")
    improper = replace(task, priors=DGPLVMPriors(weight=np.inf))
    schedule = Schedule(draws=10, tune=10, chains=1)
    monkeypatch.setattr(engines, "fit_map", None)
    with pytest.raises(ValueError, match="finite weight"):
        engines.fit_draws("nuts", improper, schedule, np.random.default_rng(12))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["nuts", "advi"])
def test_a_few_draws(task_and_mode, engine, monkeypatch, short_pymc):
    monkeypatch.setattr(sampling, "ADVI_STEPS", 50)
    task, mode = task_and_mode("two classes")
    schedule = Schedule(draws=5, tune=5, chains=1)
    with short_pymc():
        sampled = sampling.sample(
            engine, task, mode, schedule=schedule, rng=np.random.default_rng(13)
        )
    assert not sampled.interrupted
    assert set(sampled.draws) == {"latent_raw", "latent", "criterion", *KERNEL}
    latent = sampled.draws["latent"]
    assert latent.shape == (1, 5, len(TWO), 1)
    np.testing.assert_allclose((latent**2).mean(axis=2), 1.0, rtol=1e-10)
    assert all(np.isfinite(values).all() for values in sampled.draws.values())
    assert ("diverging" in sampled.sample_stats) == (engine == "nuts")
    assert ("elbo" in sampled.fit) == (engine == "advi")
    declared = sampling.declare_model(task, mode.settings)
    values = {declared["latent_raw"]: sampled.draws["latent_raw"][0, 3]}
    np.testing.assert_allclose(declared["latent"].eval(values, **FAST), latent[0, 3])


# Other criteria, and the paper's model.


@pytest.mark.parametrize("criterion", ["trace_ratio", "inverse_trace", "total"])
def test_declared_criteria_have_the_values_and_gradients_of_the_others(criterion):
    """Those of `problem`, which are tested by themselves; in two components."""
    y = np.array([0, 1, 2, 0, 1, 2, 0, -1, 2])
    expected = problem.make_criterion(criterion, y)
    latent = pt.dmatrix()
    J = class_separation(latent, y, criterion)
    compiled = pytensor.function([latent], [J, pytensor.grad(J, latent)], **FAST)
    Z = np.random.default_rng(1).standard_normal((9, 2))
    for found, wanted in zip(compiled(Z), expected(Z), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("width", [2.0, pytest.param(None, marks=pytest.mark.slow)])
def test_the_papers_density_is_its_objective_within_bounds(width):
    """Eq. (13) at interior parameters, and the priors of theta and the raw coordinates."""
    X, y = features(), np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    task = DGPLVMProblem(
        X=X,
        y_index=y,
        n_components=2,
        priors=DGPLVMPriors(weight=3.0),
        optimization=DGPLVMOptimization(max_iter=1, n_restarts=1),
    )
    mapping = kernel_mapping(X, width)
    objective = fit_paper(task, mapping, np.random.default_rng(0)).objective
    model = build_paper_model(X, y, n_components=2, weight=3.0, width=width)
    low, high = objective.parameter_bounds
    log_density, rng = model.compile_logp(jacobian=False, **FAST), np.random.default_rng(2)
    for _ in range(3):
        raw, share = rng.standard_normal((9, 2)), rng.uniform(0.2, 0.8, 4)
        log_theta = low + share * (high - low)
        values = objective.terms(objective.transform(raw)[0], log_theta).values
        expected = -values["likelihood"] - values["criterion"] - np.log(high - low).sum()
        expected -= log_theta.sum()
        expected += stats.norm(0.0, RAW_SCALE).logpdf(raw).sum()
        point = {"latent_raw": raw, "theta_chain__": np.log(share / (1.0 - share))}
        np.testing.assert_allclose(log_density(point), expected, rtol=1e-9)


def test_the_declared_model_of_the_paper_is_that_of_a_fit():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[::5]), y[::5]
    with warnings.catch_warnings(action="ignore"):  # its objective has no minimum
        model = PaperDGPLVMClassifier(2, weight=10.0, standardize=True, random_state=0).fit(X, y)
    fitted = model.model_
    declared = build_paper_model(X, y, n_components=2, weight=10.0)
    point = fitted.initial_point(random_seed=0)
    rng = np.random.default_rng(3)
    point["latent_raw"] = rng.standard_normal(point["latent_raw"].shape)
    values = [each.compile_logp(**FAST)(point) for each in (fitted, declared)]
    np.testing.assert_allclose(*values, rtol=1e-9)
    assert declared.coords["outcome"] == (0, 1, 2)
