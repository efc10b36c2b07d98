"""Alignment of draws of factor models, which leaves products unchanged."""

import arviz_stats
import numpy as np
import pytest
import xarray as xr

from bsdr_models import align_draws
from bsdr_models.papers.alignment import signed_permutations

CHAINS, DRAWS = 4, 500
# Of independent draws in 8 half chains of 250, R-hat**2 is about 1 + (chi2_7 / 7 - 1) / 250: this
# needs chi2_7 > 42, which has probability 5e-7.
MIXED = 1.01


def planted(rng, *, k, rows=8, columns=4, noise=0.1):
    """Independent draws of loadings (C, S, P, k) and weights (C, S, k, K) around fixed ones."""
    shape = (CHAINS, DRAWS)
    loadings = rng.standard_normal((rows, k)) + noise * rng.standard_normal((*shape, rows, k))
    weights = rng.standard_normal((k, columns)) + noise * rng.standard_normal((*shape, k, columns))
    return loadings, weights


def signed_permutation(rng, k):
    return np.eye(k)[rng.permutation(k)] * rng.choice([-1.0, 1.0], size=k)


def rotation(rng, k):
    q, r = np.linalg.qr(rng.standard_normal((k, k)))
    return q * np.sign(np.diag(r))


def scramble(rng, loadings, weights, draw_one, *, per_draw):
    """Each chain, or each draw, under an orthogonal matrix of its own: (C, S, k, k) beside."""
    k = loadings.shape[-1]
    n = DRAWS if per_draw else 1
    turns = np.array([[draw_one(rng, k) for _ in range(n)] for _ in range(CHAINS)])
    turns = np.broadcast_to(turns, (CHAINS, DRAWS, k, k))
    return loadings @ turns, np.swapaxes(turns, -1, -2) @ weights, turns


def tree_of(dims=None, group="posterior", **variables):
    dims = dims or {
        "loadings": ("feature", "component"),
        "weights": ("component", "label"),
        "precision": ("component",),
        "latent": ("component", "row"),
    }
    dataset = xr.Dataset(
        {name: (("chain", "draw", *dims[name]), values) for name, values in variables.items()}
    )
    dataset = dataset.assign_coords(
        {dim: [f"{dim} {i}" for i in range(n)] for dim, n in dataset.sizes.items()}
        | {"chain": np.arange(dataset.sizes["chain"]), "draw": np.arange(dataset.sizes["draw"])}
    )
    return xr.DataTree.from_dict({group: dataset})


def worst(values):
    return float(np.max(arviz_stats.rhat(values, chain_axis=0, draw_axis=1, method="rank")))


@pytest.mark.parametrize("per_draw", [False, True], ids=["each chain", "each draw"])
@pytest.mark.parametrize(
    ("method", "draw_one"), [("signed_permutation", signed_permutation), ("procrustes", rotation)]
)
def test_scrambled_components_are_brought_together(method, draw_one, per_draw):
    rng = np.random.default_rng(35 + per_draw)
    clean = planted(rng, k=5)
    loadings, weights, _ = scramble(rng, *clean, draw_one, per_draw=per_draw)
    tree = tree_of(loadings=loadings, weights=weights)
    got = align_draws(tree, loadings="loadings", weights="weights", method=method)
    new = got["posterior_aligned"]

    if not per_draw:
        assert worst(loadings) > 1.5
        assert worst(weights) > 1.5
    for name in ("loadings", "weights"):
        assert worst(new[name].values) < MIXED
    # Draws agree as closely as before they were scrambled, up to what a rotation takes up.
    spread = new["loadings"].values.std(axis=(0, 1)).mean()
    assert spread < 1.02 * clean[0].std(axis=(0, 1)).mean()
    before, after = loadings @ weights, new["loadings"].values @ new["weights"].values
    np.testing.assert_allclose(after, before, rtol=0.0, atol=1e-12 * np.abs(before).max())
    np.testing.assert_array_equal(got["posterior"]["loadings"].values, loadings)


def test_other_variables_turn_with_the_loadings_and_sizes_only_permute():
    rng = np.random.default_rng(3)
    k = 4
    loadings, weights = planted(rng, k=k)
    latent = rng.standard_normal((k, 6)) + 0.1 * rng.standard_normal((CHAINS, DRAWS, k, 6))
    precision = np.arange(1.0, k + 1.0) * rng.uniform(0.9, 1.1, (CHAINS, DRAWS, k))
    mixed, turned, turns = scramble(rng, loadings, weights, signed_permutation, per_draw=True)
    tree = tree_of(
        loadings=mixed,
        weights=turned,
        latent=np.swapaxes(turns, -1, -2) @ latent,
        precision=np.einsum("csi,csij->csj", precision, np.abs(turns)),
    )
    got = align_draws(tree, loadings="loadings", weights="weights", others=["latent", "precision"])
    new = got["posterior_aligned"]

    # Precision says which component stands where; the first draw says with what sign.
    place = new["precision"].values.mean(axis=(0, 1)).argsort()
    np.testing.assert_array_equal(new["precision"].values[..., place], precision)
    sign = np.sign(np.einsum("ij,ij->j", new["loadings"].values[0, 0][:, place], loadings[0, 0]))
    np.testing.assert_array_equal(new["loadings"].values[..., place] * sign, loadings)
    np.testing.assert_array_equal(new["latent"].values[:, :, place] * sign[:, None], latent)
    assert new["latent"].dims == ("chain", "draw", "component", "row")
    np.testing.assert_array_equal(new["latent"]["row"], tree["posterior"]["row"])


def test_latent_coordinates_rotate_as_loadings_do_and_precisions_are_refused():
    rng = np.random.default_rng(4)
    loadings, weights = planted(rng, k=3)
    latent = rng.standard_normal((3, 6)) + 0.1 * rng.standard_normal((CHAINS, DRAWS, 3, 6))
    mixed, turned, turns = scramble(rng, loadings, weights, rotation, per_draw=True)
    moved = np.swapaxes(turns, -1, -2) @ latent
    tree = tree_of(
        loadings=mixed, weights=turned, latent=moved, precision=np.ones((CHAINS, DRAWS, 3))
    )
    options = {"loadings": "loadings", "weights": "weights", "method": "procrustes"}
    new = align_draws(tree, others=("latent",), **options)["posterior_aligned"]
    assert worst(new["latent"].values) < MIXED
    before, after = mixed @ moved, new["loadings"].values @ new["latent"].values
    np.testing.assert_allclose(after, before, rtol=0.0, atol=1e-12 * np.abs(before).max())
    with pytest.raises(ValueError, match=r"precision of posterior is never negative.*rotation"):
        align_draws(tree, others=("latent", "precision"), **options)


@pytest.mark.parametrize("method", ["signed_permutation", "procrustes"])
def test_scale_that_goes_from_loadings_to_weights_decides_nothing(method):
    """Draws of Q c and W / c, c over six powers of ten, match as those of Q and W do."""
    rng = np.random.default_rng(5)
    draw_one = signed_permutation if method == "signed_permutation" else rotation
    mixed, turned, _ = scramble(rng, *planted(rng, k=5), draw_one, per_draw=True)
    scale = 10.0 ** rng.uniform(-3.0, 3.0, (CHAINS, DRAWS, 1, 1))
    tree = tree_of(loadings=mixed * scale, weights=turned / scale)
    new = align_draws(tree, loadings="loadings", weights="weights", method=method)
    even = align_draws(
        tree_of(loadings=mixed, weights=turned),
        loadings="loadings",
        weights="weights",
        method=method,
    )
    unscaled = new["posterior_aligned"]["loadings"].values / scale
    spread = even["posterior_aligned"]["loadings"].values.std(axis=(0, 1)).mean()
    assert unscaled.std(axis=(0, 1)).mean() == pytest.approx(spread, rel=0.02)


def test_component_dims_of_other_names_in_any_place():
    name = "factor"
    rng = np.random.default_rng(6)
    mixed, turned, _ = scramble(rng, *planted(rng, k=3), signed_permutation, per_draw=True)
    dims = {"L": (name, "gene"), "scores": ("row", name)}
    tree = tree_of(
        dims, group="draws", L=np.swapaxes(mixed, -1, -2), scores=np.swapaxes(turned, -1, -2)
    )
    options = {"loadings": "L", "component": name, "group": "draws"}
    new = align_draws(tree, weights="scores", **options)["draws_aligned"]
    assert new["L"].dims == ("chain", "draw", name, "gene")
    assert worst(new["L"].values) < MIXED
    assert worst(new["scores"].values) < MIXED
    assert "scores" not in align_draws(tree, **options)["draws_aligned"]


def test_one_chain_and_one_component_are_aligned_too():
    rng = np.random.default_rng(8)
    clean, _ = planted(rng, k=1)
    sign = rng.choice([-1.0, 1.0], size=(1, DRAWS, 1, 1))
    got = align_draws(tree_of(loadings=clean[:1] * sign), loadings="loadings")
    new = got["posterior_aligned"]["loadings"].values
    np.testing.assert_array_equal(new * np.sign(new[0, 0, 0] * clean[0, 0, 0]), clean[:1])


def test_the_attribute_names_the_method_and_arviz_reads_the_new_group():
    rng = np.random.default_rng(9)
    loadings, weights = planted(rng, k=3)
    got = align_draws(tree_of(loadings=loadings, weights=weights), loadings="loadings")
    assert got["posterior_aligned"].attrs["alignment"] == "signed permutation"
    summary = arviz_stats.summary(got, group="posterior_aligned", var_names=["loadings"])
    assert len(summary) == 24
    again = align_draws(got, loadings="loadings", method="procrustes")
    assert again["posterior_aligned"].attrs["alignment"] == "procrustes"


def example():
    loadings, weights = planted(np.random.default_rng(10), k=3)
    return tree_of(loadings=loadings, weights=weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loadings": "Q"}, r"no variable 'Q' .*; its variables are \['loadings', 'weights'\]"),
        ({"weights": "W"}, r"no variable 'W'"),
        ({"others": ["latent"]}, r"no variable 'latent'"),
        ({"group": "prior"}, r"no group 'prior'; its groups are \['posterior'\]"),
        ({"component": "factor"}, r"posterior/loadings has no dim 'factor'.*give component="),
        ({"method": "varimax"}, r"method must be one of .*got 'varimax'"),
    ],
)
def test_errors_name_their_cause(arguments, message):
    with pytest.raises(ValueError, match=message):
        align_draws(example(), **{"loadings": "loadings", **arguments})


def test_what_is_no_tree_is_refused():
    with pytest.raises(TypeError, match=r"expected an xarray\.DataTree, got Dataset"):
        align_draws(example()["posterior"].to_dataset(), loadings="loadings")


def test_draws_that_are_not_finite_are_counted_and_missing_axes_named():
    tree = example()
    tree["posterior"]["weights"].values[1, 2:5, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"posterior/weights: 3 of 2000 draws .* not finite"):
        align_draws(tree, loadings="loadings", weights="weights")
    stacked = xr.DataTree.from_dict({"posterior": example()["posterior"].dataset.isel(chain=0)})
    with pytest.raises(ValueError, match="posterior/loadings has no dim 'chain'"):
        align_draws(stacked, loadings="loadings")


def test_heavy_tails_of_a_few_draws_and_rows_do_not_rule_the_others():
    rng = np.random.default_rng(12)
    clean, weights = planted(rng, k=5, rows=12, noise=0.3)
    mixed = scramble(rng, clean, weights, signed_permutation, per_draw=True)[0]
    clean, mixed = clean.reshape(-1, 12, 5), mixed.reshape(-1, 12, 5)
    size = np.where(rng.random(len(mixed)) < 0.05, 1e4, 1.0)[:, None, None]
    unit = np.geomspace(1e-3, 1e3, 12)[:, None]
    aligned = mixed @ signed_permutations(mixed * size * unit)
    assert aligned.std(axis=0).mean() == pytest.approx(clean.std(axis=0).mean(), rel=1e-12)


def test_zero_rows_and_zero_draws_are_harmless():
    draws = np.random.default_rng(13).standard_normal((20, 6, 3))
    draws[:, 2] = 0.0
    draws[4] = 0.0
    assert np.isfinite(draws @ signed_permutations(draws)).all()
