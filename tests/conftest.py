"""Fixtures: samples, short runs, interrupts, checks of full conditionals, and Dask workers."""

import gc
import sys
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split

# Tests import the examples by name.
sys.path.append(str(Path(__file__).parents[1] / "examples"))


@pytest.fixture(scope="session")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["a", "b", "c"])[y[order]]


@pytest.fixture(scope="session")
def iris():
    """15 samples of each class."""
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:15, 50:65, 100:115]
    return X[rows], y[rows]


@pytest.fixture(scope="session")
def wine_split():
    """60 training samples, 118 others, and their classes."""
    X, y = load_wine(return_X_y=True)
    return train_test_split(X, y, train_size=60, stratify=y, random_state=0)


@pytest.fixture(scope="session")
def overlapping():
    """Three classes of which two overlap, in 5 features."""
    rng = np.random.default_rng(91)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 5)) + 2.0 * np.eye(3)[y] @ rng.standard_normal((3, 5))
    return X, y


@pytest.fixture(scope="session")
def classes():
    """Three overlapping classes, 60 samples of 5 features."""
    rng = np.random.default_rng(3)
    index = np.arange(60) % 3
    centres = 1.5 * rng.standard_normal((3, 5))
    return rng.standard_normal((60, 5)) + centres[index], np.array(["a", "b", "c"])[index]


# Draws of all chains, rounds of the warm-up, trajectories of each, folds and their trajectories.
SHORT_RUNS = {
    "bsdr.engines._DRAWS": 64,
    "bsdr.hmc._ROUNDS": 3,
    "bsdr.hmc._PER_ROUND": 5,
    "numerics.folds.N_FOLDS": 2,
    "bsdr.engines._N_FOLD_WARM_UP": 2,
    "bsdr.engines._N_FOLD_DRAWS": 2,
}


@pytest.fixture(scope="session")
def short_run_settings():
    """Names of constants and their values in short runs."""
    return {f"bsdr_models.{name}": number for name, number in SHORT_RUNS.items()}


@pytest.fixture
def short_runs(monkeypatch, short_run_settings):
    """The default of BSDR, cut short in this process (workers know nothing of it)."""
    for name, number in short_run_settings.items():
        monkeypatch.setattr(name, number)


@pytest.fixture(scope="module")
def uncompiled():
    """PyMC models are evaluated by Python: compiling takes longer than a few evaluations."""
    import pytensor

    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


# Variables of NUTS, and the depths of its trees: at most three steps, while it adapts as well.
SHALLOW = (None, 2, 2)


@pytest.fixture(scope="session")
def short_pymc():
    """A context in which fits by NUTS and ADVI compile nothing and take few steps."""

    @contextmanager
    def cut_short():
        import pymc as pm
        import pytensor

        from bsdr_models.inference import engines

        fast = pytensor.config.change_flags(mode="FAST_COMPILE", cxx="")
        with pytest.MonkeyPatch.context() as patch, fast:
            patch.setattr(pm, "sample", partial(pm.sample, nuts_sampler="pymc"))
            patch.setattr(pm.NUTS.__init__, "__defaults__", SHALLOW)
            patch.setitem(engines.fit_advi.__kwdefaults__, "n_iterations", 100)
            yield

    return cut_short


@pytest.fixture(scope="module", autouse=True)
def coarse_grid():
    """Maps of trees have few grid points; each takes a prediction per draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bsdr_models.inference.latent_grid.RESOLUTION", 9)
        yield


@pytest.fixture(scope="module")
def coarse_pictures():
    """Pictures of reports have few pixels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bsdr_models.html_report.DPI", 50)
        yield


def all_outputs(model, X):
    """Everything a model says about samples, by name."""
    found = {"predict": model.predict(X)}
    if hasattr(model, "predict_proba"):
        found["proba"] = model.predict_proba(X)
        np.testing.assert_allclose(found["proba"].sum(axis=1), 1.0, rtol=1e-6)
        found["log_proba"] = model.predict_log_proba(X)
        assert set(found["predict"]) <= set(model.classes_)
    else:
        found["std"] = model.predict(X, return_std=True)[1]
        assert (found["std"] > 0.0).all()
    if hasattr(model, "decision_function"):
        found["decision"] = model.decision_function(X)
    if hasattr(model, "transform"):
        found["mean"], found["cov"] = model.transform(X, return_cov=True)
        size = np.linalg.eigvalsh(found["cov"])
        rounding = 1e-15 * size[:, -1] if type(model).__name__ == "DGPLVMClassifier" else 0.0
        assert (size[:, 0] >= -rounding).all() or (size == 0.0).all()
    if hasattr(model, "out_of_range") and hasattr(model, "components_"):
        found["out_of_range"] = model.out_of_range(X)
        assert ((found["out_of_range"] >= 0.0) & (found["out_of_range"] <= 1.0)).all()
    return found


def check_finite(model, X):
    for name, values in all_outputs(model, X).items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), name
    if hasattr(model, "components_"):
        assert np.isfinite(model.components_).all()


@pytest.fixture(scope="session")
def outputs():
    return all_outputs


@pytest.fixture(scope="session")
def assert_finite():
    """All of them are finite."""
    return check_finite


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupt a function at one of its calls; the list that is returned grows with them."""

    from tests.toys import stopped  # imports PyMC

    def plant(module, name, call):
        calls = []
        monkeypatch.setattr(module, name, stopped(getattr(module, name), call, calls))
        return calls

    return plant


class Probe:
    """Generator of unit vectors for normals; Gammas are their mean, and are recorded.

    A normal block is an affine map of standard normals: chain 0 gets zeros, so its draw is the
    mean, and each other chain a unit vector, so its draw less the mean is a column of the root.
    """

    def __init__(self, n_chains):
        self.n_chains, self.used, self.gammas = n_chains, 0, []

    def standard_normal(self, shape):
        out = np.zeros(shape)
        by_chain = out.reshape(self.n_chains, -1)
        for i in range(by_chain.shape[1]):
            if 1 + self.used + i < self.n_chains:
                by_chain[1 + self.used + i, i] = 1.0
        self.used += by_chain.shape[1]
        return out

    def gamma(self, shape, scale):
        self.gammas.append((shape, 1.0 / scale))
        return shape * scale


def tile(state, n_chains):
    """The first chain of a state, many times."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    known = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(state, **{k: np.repeat(v[:1], n_chains, axis=0) for k, v in known.items()})


def normal_law(draw, n_noise):
    """Mean (P,) and covariance (P, P) of a block from ``draw(probe, n_chains)`` (C, ...)."""
    draws = draw(Probe(1 + n_noise), 1 + n_noise).reshape(1 + n_noise, -1)
    root = draws[1:] - draws[0]
    return draws[0], root.T @ root


def check_normal_block(log_joint, state, sample):
    """log q(a) - log q(b) = log joint(a) - log joint(b) for four points of a block.

    ``sample(many, rng)`` draws the arrays of the block by name, for each chain.
    """
    block = sample(state, Probe(1))
    ends = np.cumsum([values.size for values in block.values()])

    def draw(probe, n_chains):
        new = sample(tile(state, n_chains), probe)
        return np.concatenate([new[name].reshape(n_chains, -1) for name in block], axis=1)

    mean, cov = normal_law(draw, ends[-1])
    rng = np.random.default_rng(43)
    points = mean + rng.standard_normal((4, ends[-1])) @ np.linalg.cholesky(cov).T
    log_q = stats.multivariate_normal(mean, cov, allow_singular=False).logpdf(points)
    parts = zip(block.items(), np.split(points, ends[:-1], axis=1), strict=True)
    new = {name: part.reshape(4, *values.shape[1:]) for (name, values), part in parts}
    joint = log_joint(replace(tile(state, 4), **new))
    np.testing.assert_allclose(np.diff(log_q), np.diff(joint), atol=1e-9 * np.abs(joint).max())


def check_gamma_blocks(log_joint, state, samplers):
    """The same for blocks by name, each drawn by ``sampler(rng)``."""
    for name, sample in samplers.items():
        probe = Probe(1)
        mean = sample(probe)
        ((shape, rate),) = probe.gammas
        assert mean.shape == getattr(state, name).shape
        points = mean * np.random.default_rng(44).uniform(0.2, 3.0, size=(4, *mean.shape[1:]))
        log_q = stats.gamma.logpdf(points, shape, scale=1.0 / rate).reshape(4, -1).sum(axis=1)
        joint = log_joint(replace(tile(state, 4), **{name: points}))
        atol = 1e-9 * np.abs(joint).max()
        np.testing.assert_allclose(np.diff(log_q), np.diff(joint), atol=atol, err_msg=name)


@pytest.fixture(scope="session")
def check_joint():
    """Geweke's joint-distribution test of a sweep (J. Am. Stat. Assoc. 99, 2004).

    Unknowns and data come from their joint, an independent pair for each chain. Sweeps given the
    data must not change the distribution of any function of both: its mean difference between
    the last state and the first is zero within its standard error, of which 4.5 are allowed.
    """

    def check(draw_joint, functions, step, priors, *, n_chains, n_sweeps, seed):
        rng = np.random.default_rng([53, seed])
        state, data = draw_joint(n_chains=n_chains, rng=rng)

        def values(state):
            each = {name: np.asarray(v, float) for name, v in functions(state, data).items()}
            return {name: v.reshape(len(v), -1).mean(axis=1) for name, v in each.items()}

        before = values(state)
        for _ in range(n_sweeps):
            state = step(state, data, priors, rng=rng)
        for name, after in values(state).items():
            change = after - before[name]
            assert change.std() > 0.0, name
            assert abs(change.mean()) < 4.5 * change.std() / np.sqrt(n_chains), name

    return check


@pytest.fixture(scope="session")
def conditionals():
    """Checks of full conditionals against a joint density, which knows none."""
    return SimpleNamespace(
        Probe=Probe,
        tile=tile,
        normal_law=normal_law,
        check_normal_block=check_normal_block,
        check_gamma_blocks=check_gamma_blocks,
    )


@pytest.fixture(scope="module")
def threads_cluster():
    """A client of two workers in this process, which leaves Dask's settings as they were.

    A worker that needs a client makes one, and that takes the scheduler of the moment for the
    setting to go back to when it closes.
    """
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set(scheduler=dask.config.get("scheduler", None)),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def pytest_collection_finish():
    """Garbage is not looked for among packages and tests, which stay: a twentieth of the time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption(
        "--renew-pictures", action="store_true", help="store the images of tests/plots/test_images"
    )
