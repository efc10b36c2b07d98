"""Functions of PyMC start where the labels say, not at a projection and weights of zero."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

from bsdr_models import bm2pca, papers
from bsdr_models.bm2pca.model import declared_targets
from bsdr_models.bm2pca.subspace import Settings, fit_subspace
from bsdr_models.learned_metric.metric import ClassBasis, Metric, named_weights
from tests.toys import BUILDS, FAST, scaled_iris

X, Y = scaled_iris()
BUILD = BUILDS | {
    "paper's bsdr, columnwise": partial(
        papers.bsdr.build_model, n_components=3, priors={"projection_prior": "columnwise"}
    ),
    "paper's bm2pca, two classes": lambda X, y: papers.bm2pca.build_model(X, y > 0, n_components=2),
}
pytestmark = pytest.mark.filterwarnings("ignore:`find_MAP` will")

# Jittered starts of models with kinks or modes of their own end elsewhere.
SMOOTH = ["bsdr", "paper's bsdr", "bm2pca", "paper's bm2pca, two classes"]


def find_mode(model, **options):
    """Log density of the variables where ``pm.find_MAP`` ends."""
    with model:
        point = pm.find_MAP(progressbar=False, compile_kwargs=FAST, **options)
    density = model.compile_logp(jacobian=False, **FAST)
    return float(density({each.name: point[each.name] for each in model.value_vars}))


@pytest.mark.parametrize("name", BUILD)
def test_the_density_is_higher_at_the_start_than_without_signal(name):
    """Every component has a part in it; BSDR at full rank needs none, as its weights are fixed."""
    model = BUILD[name](X, Y)
    start = model.initial_point()
    both = {"projection", "weights", "metric_projection", "loadings", "latent_raw"} & start.keys()
    for each in both:
        components = np.swapaxes(start[each], 0, 1) if each != "weights" else start[each]
        assert np.abs(components).max(axis=1).min() > 0.01
    if "latent_raw" not in both:
        density = model.compile_logp(**FAST)
        empty = {each: 0.0 * start[each] for each in both}
        assert density(start) >= density(start | empty)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_find_map_ends_where_jittered_starts_do(name):
    own = find_mode(BUILD[name](X, Y))
    jittered = find_mode(BUILD[name](X, Y), jitter=True, random_seed=0)
    assert own > jittered - 1e-2


def test_find_map_ends_at_the_mode_of_the_engine_of_bm2pca():
    model = bm2pca.build_model(X, Y, n_components=2)
    n = len(X)
    metric = Metric.learn(X, ClassBasis.one(n), named_weights("identity"), np.ones(4))
    signs, *_ = declared_targets(Y, "multiclass", None, n_samples=n)
    settings = Settings(cost=1.0, multiclass=True)
    mode = fit_subspace(metric.whiten(X), signs, n_components=2, settings=settings).posterior
    names = {"weights": mode.weights[1:], "bias": mode.weights[0]}
    density = model.compile_logp(**FAST)
    expected = density({"metric_projection": mode.projection, **names})
    assert find_mode(model) == pytest.approx(float(expected), abs=1e-3)


def test_models_can_still_be_changed():
    """With ``initval=`` PyMC could not copy them."""
    model = papers.bsdr.build_model(X, Y, n_components=2)
    changed = pm.do(model, {"bias": np.zeros(3)})
    assert {each.name for each in changed.free_RVs} == {"projection", "latent_offset", "weights"}
    np.testing.assert_array_equal(
        changed.initial_point()["projection"], model.initial_point()["projection"]
    )


@pytest.mark.parametrize("y", [(Y > 0).astype(int), np.column_stack([Y > 0, Y == 1]).astype(int)])
def test_starts_of_two_classes_and_of_labels(y):
    target = "multiclass" if y.ndim == 1 else "multilabel"
    for build in (papers.bsdr.build_model, papers.bm2pca.build_model, bm2pca.build_model):
        point = build(X, y, n_components=2, target=target).initial_point()
        assert all(np.isfinite(each).all() for each in point.values())
        assert np.abs(point["weights"]).max() > 0.1


def test_start_of_real_outputs_with_missing_values():
    y = X[:, 2:].copy()
    y[::4, 0] = np.nan
    model = papers.bm2pca.build_model(X[:, :2], y, n_components=2, target="regression")
    assert np.isfinite(float(model.compile_logp(**FAST)(model.initial_point())))
    model = papers.bsdr.build_model(X[:, :2], X[:, 2:], n_components=2, target="regression")
    assert np.abs(model.initial_point()["weights"]).max() > 0.1
