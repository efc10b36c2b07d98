"""Names, axes and provenance of what leaves an engine; and that it survives a file."""

import json

import numpy as np
import pytest
import xarray as xr

from bsdr_models.bsdr.trees import SPEC
from bsdr_models.data.targets import Targets
from bsdr_models.inference.datatree import Context
from bsdr_models.inference.spec import find_spec
from bsdr_models.papers.bsdr.priors import PROJECTION_PRECISION_DIMS

S, N, D, R, K = 5, 6, 4, 2, 3


@pytest.fixture
def groups():
    rng = np.random.default_rng(0)
    return {
        "posterior": {
            "projection": rng.normal(size=(1, S, D, R)),
            "weights": rng.normal(size=(1, S, R, K)),
            "projection_precision": rng.gamma(2.0, size=(1, S, R)),
        },
        "sample_stats": {"lp": rng.normal(size=(1, S)), "diverging": np.zeros((1, S), bool)},
        "log_likelihood": {"y": rng.normal(size=(1, S, N))},
        "fit": {
            "latent_mean": rng.normal(size=(N, R)),
            "latent_cov": np.tile(np.eye(R), (N, 1, 1)),
            "elbo": np.arange(7.0),
            "elbo_terms": np.zeros((7, 2)),
            "restarts": np.array([6.0, 5.0]),
        },
    }


Y = np.arange(N) % K


def build(groups, *, y=Y, **changes):
    context = Context(
        X=np.random.default_rng(1).normal(size=(N, D)),
        targets=Targets(kind="multiclass", y=y, coded=Y, names=np.array(["x", "yy", "z"])),
        feature_names=["a", "b", "c", "d"],
        config={"n_components": np.int64(R), "priors": {"latent_scale": 1.0}},
    )
    arguments = {
        "inference_method": "mean_field",
        "n_components": R,
        "coords": {"term": ["prior", "rows"]},
        "attrs": {"projection_prior": "columnwise", "latent_scale": np.float64(0.5)},
        "dims": {"projection_precision": PROJECTION_PRECISION_DIMS["columnwise"]},
    }
    return context.fit_tree(groups, SPEC, **(arguments | changes))


def test_axes_and_coordinates_by_name(groups):
    tree = build(groups)
    assert tree["posterior/projection"].dims == ("chain", "draw", "feature", "component")
    assert tree["posterior/projection_precision"].dims == ("chain", "draw", "component")
    assert tree["sample_stats/lp"].dims == ("chain", "draw")
    assert tree["log_likelihood/y"].dims == ("chain", "draw", "obs")
    assert tree["fit/latent_cov"].dims == ("obs", "component", "component_aux")
    assert tree["fit/elbo_terms"].sel(term="rows").dims == ("iteration",)
    assert tree["observed_data/y"].dims == ("obs",)
    np.testing.assert_array_equal(
        tree["posterior/weights"].sel(outcome="yy"), groups["posterior"]["weights"][..., 1]
    )


def test_vector_targets_have_a_label_axis(groups):
    tree = build(groups, y=np.zeros((N, K)), inference_method="nuts")
    assert tree["observed_data/y"].dims == ("obs", "outcome")
    assert tree["log_likelihood/y"].dims == ("chain", "draw", "obs")


@pytest.mark.parametrize("store", ["netcdf", "zarr"])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_a_file_keeps_everything(groups, store, tmp_path):
    tree = build(groups)
    path = tmp_path / f"tree.{store}"
    if store == "netcdf":
        tree.to_netcdf(path, engine="h5netcdf")
        again = xr.open_datatree(path, engine="h5netcdf")
    else:
        pytest.importorskip("zarr")
        tree.to_zarr(path)
        again = xr.open_datatree(path, engine="zarr")
    with again:
        xr.testing.assert_equal(again.load(), tree)
        assert again.attrs == tree.attrs
        assert again["posterior"].attrs == tree["posterior"].attrs
        assert json.loads(again.attrs["config"])["n_components"] == R


@pytest.mark.parametrize(
    ("group", "name", "values", "message"),
    [
        ("posterior", "unheard_of", np.zeros((1, S)), "neither in the specification"),
        ("posterior", "bias", np.zeros(K), "expected"),
        ("fit", "latent_mean", np.zeros((1, S, N, R)), "expected"),
        ("sample_stats", "lp", np.zeros(S), "expected"),
        ("fit", "feature_relevance", np.zeros(D + 1), "feature"),
        ("posterior", "bias", np.zeros((1, S + 1, K)), "draw"),
    ],
)
def test_a_wrong_axis_is_named(groups, group, name, values, message):
    groups[group][name] = values
    with pytest.raises(ValueError, match=message):
        build(groups)


@pytest.mark.parametrize("name", ["bm2pca", "bsdr", "dgplvm"])
def test_specifications_are_complete(name):
    spec = find_spec(xr.DataTree(xr.Dataset(attrs={"model": name})))
    assert spec.name == name
    aligned = {value for key, value in spec.alignment.items() if key != "method"}
    assert "loadings" in spec.alignment
    assert aligned | set(spec.identified) <= set(spec.variables)
    for dims in spec.variables.values():
        assert len(set(dims)) == len(dims)  # none for a scalar
