"""Verdicts on draws: good ones pass, planted faults are named, approximations are never praised."""

import arviz_stats
import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.datasets import load_iris

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    BSDROptimization,
    DGPLVMClassifier,
    Priors,
    Sampling,
    align_draws,
    diagnose,
)
from bsdr_models.bsdr import SAMPLING
from bsdr_models.bsdr.spec import SPEC
from bsdr_models.diagnosis_checks import upper_pairs
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperBSDRRegressor

CHAINS, DRAWS = 4, 400
VERDICTS = ("ok", "not converged: ", "too few draws: ", "not applicable: ")


def rows_of(diagnosis):
    return {row.quantity: row for row in diagnosis.rows}


def foreign(rng, *, chains=CHAINS, draws=DRAWS, stats=None, **attrs):
    """Tree of no model of the package with two well-mixed variables."""
    posterior = xr.Dataset(
        {
            "mu": (("chain", "draw", "site"), rng.standard_normal((chains, draws, 3))),
            "tau": (("chain", "draw"), rng.gamma(2.0, size=(chains, draws))),
        },
        coords={"site": ["a", "b", "c"]},
    )
    groups = {"/": xr.Dataset(attrs=attrs), "posterior": posterior}
    if stats is not None:
        named = {name: (("chain", "draw"), values) for name, values in stats.items()}
        groups["sample_stats"] = xr.Dataset(named)
    return xr.DataTree.from_dict(groups)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def regression():
    """Gibbs of a regression with one component: it mixes well, as linear regression does."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, 0.5, 0.0] + 0.7 * rng.standard_normal(60)
    model = PaperBSDRRegressor(
        priors=SAMPLING,
        inference="gibbs",
        n_components=1,
        sampling=Sampling(draws=1000, tune=200, chains=4),
        random_state=0,
    )
    return model.fit(X, y).idata_


@pytest.fixture(scope="module")
def separable(iris):
    """Gibbs on classes that are all but separate, far too short."""
    model = PaperBSDRClassifier(
        priors=SAMPLING,
        inference="gibbs",
        sampling=Sampling(draws=60, tune=30, chains=4),
        random_state=0,
    )
    with pytest.warns(Warning, match="R-hat"):
        return model.fit(*iris).idata_


def test_a_sampler_that_mixes_is_ok(regression):
    found = diagnose(regression)
    rows = rows_of(found)
    assert found.converged is True
    assert found.title == "bsdr, gibbs: 4 chains of 1000 draws"
    for name in ("coef", "bias", "noise_precision", "subspace projector", "log likelihood of y"):
        assert rows[name].verdict == "ok", name
        assert rows[name].kind == "identified"
    # Identified quantities come first, and no class has a probability here.
    kinds = [row.kind for row in found.rows]
    assert kinds == sorted(kinds, key=("identified", "aligned").index)
    assert not any(name.startswith("probability") for name in rows)


@pytest.mark.slow
def test_chains_of_hamiltonian_monte_carlo_are_diagnosed(iris):
    """Two features of Iris, of which the classes overlap."""
    X, y = iris
    model = BSDRClassifier(sampling=Sampling(draws=512), random_state=0).fit(X[::2, :2], y[::2])
    found = diagnose(model.idata_)
    rows = rows_of(found)
    assert found.title == "bsdr, hmc: 4 chains of 512 draws"
    assert rows["coef"].kind == rows["bias_centered"].kind == "identified"
    assert rows["projection, aligned"].kind == "aligned"
    for name in ("coef", "bias_centered", "log likelihood of y", "probability of observed class"):
        assert rows[name].r_hat < 1.1, name
        assert rows[name].ess_bulk > 100, name


def test_numbers_are_those_of_arviz(regression):
    row = rows_of(diagnose(regression))["coef"]
    coef = regression["posterior"]["coef"]
    r_hat, bulk = arviz_stats.rhat(coef), arviz_stats.ess(coef)
    tail = arviz_stats.ess(coef, method="tail", prob=(0.05, 0.95))
    assert row.entries == 3
    assert row.r_hat == pytest.approx(float(r_hat.max()), rel=1e-12)
    assert row.ess_bulk == pytest.approx(float(bulk.min()), rel=1e-12)
    assert row.ess_tail == pytest.approx(float(tail.min()), rel=1e-12)
    assert row.mcse_mean == pytest.approx(float(arviz_stats.mcse(coef).max()), rel=1e-12)
    where = r_hat.stack(entry=("feature", "outcome")).idxmax().item()
    assert row.worst == f"coef[{where[0]}, {where[1]}]"


def test_a_sampler_that_does_not_mix_is_not_converged(separable):
    found = diagnose(separable)
    rows = rows_of(found)
    assert found.converged is False
    assert rows["coef"].verdict.startswith("not converged: R-hat ")
    assert rows["probability of observed class"].entries <= 150
    assert rows["subspace projector"].entries == 10
    assert rows["projection, aligned"].kind == rows["weights, aligned"].kind == "aligned"
    assert found.remarks == ("Components were aligned by signed permutation.",)


def test_one_displaced_chain_is_found_and_its_worst_entry_named(regression):
    tree = regression.copy(deep=True)
    tree["posterior"]["coef"].loc[{"chain": 2, "feature": "x1"}] += 1.0
    row = rows_of(diagnose(tree))["coef"]
    assert row.worst == "coef[x1, y0]"
    assert row.verdict.startswith("not converged: R-hat ")
    assert "at [x1, y0]" in row.verdict
    assert diagnose(tree).converged is False


def test_chains_that_rest_at_different_places_are_not_converged(regression):
    tree = regression.copy(deep=True)
    tree["posterior"]["noise_precision"].values[:] = np.arange(1.0, 5.0)[:, None, None]
    verdict = rows_of(diagnose(tree))["noise_precision"].verdict
    assert verdict.startswith("not converged: R-hat above 1000")


def test_loadings_that_only_permute_are_ok_after_alignment(separable):
    """Draws planted around one value, then permuted and flipped chain by chain."""
    rng = np.random.default_rng(3)
    tree = separable.copy(deep=True)
    tree["posterior"] = tree["posterior"].to_dataset().isel(draw=np.arange(DRAWS) % 60)
    data = tree["posterior"].to_dataset()
    shape = (CHAINS, DRAWS)
    projection = rng.standard_normal((4, 2)) + 0.1 * rng.standard_normal((*shape, 4, 2))
    weights = rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((*shape, 2, 3))
    product = projection @ weights
    for chain in range(CHAINS):
        turn = np.eye(2)[rng.permutation(2)] * rng.choice([-1.0, 1.0], size=2)
        projection[chain], weights[chain] = projection[chain] @ turn, turn.T @ weights[chain]
    centred = product - product.mean(axis=-1, keepdims=True)
    values = {"projection": projection, "weights": weights, "coef": centred}
    values["bias_centered"] = rng.standard_normal((*shape, 3))
    planted = xr.Dataset({name: data[name].copy(data=value) for name, value in values.items()})
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs=tree.attrs), "posterior": planted.drop_vars("draw")}
    )
    rows = rows_of(diagnose(tree))
    assert {name: row.verdict for name, row in rows.items()} == dict.fromkeys(rows, "ok")
    assert {"projection, aligned", "weights, aligned", "subspace projector"} <= set(rows)
    raw = rows_of(diagnose(tree, quantities=["projection"]))["projection"]
    assert raw.verdict.startswith("not converged")


def test_subspace_projector_is_that_of_its_definition(regression):
    """Its R-hat and ESS are those of Q (Q'Q)^-1 Q', entry by entry."""
    Q = regression["posterior"]["projection"].values
    inner = np.linalg.inv(np.swapaxes(Q, 2, 3) @ Q)
    P = Q @ inner @ np.swapaxes(Q, 2, 3)
    row = rows_of(diagnose(regression))["subspace projector"]
    upper = P[:, :, *np.triu_indices(3)]
    bulk = arviz_stats.ess(upper, chain_axis=0, draw_axis=1, method="bulk")
    assert row.entries == 6
    assert row.ess_bulk == pytest.approx(bulk.min(), rel=1e-6)


def test_positions_of_dgplvm_are_judged_up_to_rotation():
    """Planted latent coordinates, each chain rotated: invariants mix, raw coordinates do not."""
    rng = np.random.default_rng(12)
    latent = rng.standard_normal((8, 2)) + 0.1 * rng.standard_normal((CHAINS, DRAWS, 8, 2))
    turns = np.array([np.linalg.qr(rng.standard_normal((2, 2)))[0] for _ in range(CHAINS)])
    latent = latent @ turns[:, None]
    scalars = {
        name: (("chain", "draw"), rng.gamma(3.0, size=(CHAINS, DRAWS)))
        for name in ("signal_variance", "lengthscale", "noise_variance", "criterion")
    }
    dims = ("chain", "draw", "obs", "component")
    posterior = xr.Dataset({"latent": (dims, latent), **scalars})
    attrs = {"model": "dgplvm", "inference_method": "nuts"}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "posterior": posterior})
    found = diagnose(tree)
    rows = rows_of(found)
    assert found.converged is True
    assert rows["subspace projector"].verdict == "ok"
    assert rows["subspace projector"].entries == 36
    assert rows["latent, aligned"].verdict == "ok"
    assert not rows_of(diagnose(tree, quantities=["latent"]))["latent"].ok


@pytest.mark.parametrize("n", [1, 2, 7])
def test_pairs_of_a_triangle_are_those_of_numpy(n):
    row, column = upper_pairs(n, np.arange(n * (n + 1) // 2))
    np.testing.assert_array_equal([row, column], np.triu_indices(n))


def test_subspace_of_many_features_takes_little_room():
    """Of 20 million entries a thousand are looked at; all of them would take 5 GB."""
    rng = np.random.default_rng(13)
    loadings = rng.standard_normal((2, 16, 6000, 1))
    posterior = xr.Dataset(
        {
            "projection": (("chain", "draw", "feature", "component"), loadings),
            "coef": (("chain", "draw"), rng.standard_normal((2, 16))),
        }
    )
    attrs = {"model": "bsdr", "inference_method": "gibbs", "interrupted": 1}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "posterior": posterior})
    found = diagnose(tree)
    row = rows_of(found)["subspace projector"]
    assert row.entries == 1000
    assert row.verdict.endswith("(1000 of 18003000 entries)")
    assert found.remarks == ("The run was interrupted: these are the draws until then.",)


def test_a_single_chain_is_never_praised(regression):
    one = xr.DataTree.from_dict(
        {
            name: node.to_dataset().isel(chain=[0]) if "chain" in node.dims else node.to_dataset()
            for name, node in regression.children.items()
        }
        | {"/": xr.Dataset(attrs=regression.attrs)}
    )
    found = diagnose(one)
    assert found.converged is None
    assert len(found.rows) == 7
    for row in found.rows:
        assert row.verdict.startswith("not applicable: one chain"), row.quantity
        assert np.isnan(row.r_hat)
        assert np.isnan(row.ess_bulk)


def check_approximation(found):
    assert found.converged is None
    for row in found.rows:
        assert row.verdict.startswith(VERDICTS)
        assert np.isnan(row.r_hat)
        assert np.isnan(row.ess_bulk)
    assert "R-hat" not in str(found).split("verdict")[0]
    rows = rows_of(found)
    assert rows["draws"].verdict.startswith("not applicable: the draws are independent")
    assert "too narrow" in rows["spread"].verdict
    return rows


def test_mean_field_of_bsdr(iris):
    tree = (
        PaperBSDRClassifier(
            priors=Priors(projection_prior="columnwise", latent_scale=0.1),
            optimization=BSDROptimization(tol=5e-3),
            random_state=0,
        )
        .fit(*iris)
        .idata_
    )
    bare = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs=tree.attrs)}
        | {name: tree[name].to_dataset() for name in ("posterior", "fit")}
    )
    check_approximation(diagnose(tree))
    rows = check_approximation(diagnose(bare))
    assert rows["optimum"].verdict == "ok: the bound converged"
    assert rows["restarts"].verdict.startswith("not applicable: one run")
    assert rows["k-hat"].verdict.endswith("sample_stats of the tree has no log_p and no log_q")
    assert "factors are independent" in rows["spread"].verdict
    tree.attrs["converged"] = 0
    assert rows_of(diagnose(tree))["optimum"].verdict.startswith("not converged")
    tree.attrs["interrupted"] = 1
    assert rows_of(diagnose(tree))["optimum"].verdict == "not converged: interrupted"


def test_mean_field_of_bm2pca_says_what_is_held(iris):
    tree = BM2PCAClassifier(random_state=0).fit(*iris).idata_
    rows = check_approximation(diagnose(tree))
    assert "held fixed at their estimates" in rows["spread"].verdict


@pytest.mark.slow
def test_gibbs_of_bm2pca_is_aligned_by_rotation(iris):
    X, y = iris
    model = PaperBM2PCAClassifier(
        inference="gibbs",
        n_components=2,
        sampling=Sampling(draws=30, tune=10, chains=2),
        random_state=0,
    )
    with pytest.warns(Warning, match="R-hat"):
        tree = model.fit(X[50::2], y[50::2]).idata_  # two classes, one score
    found = diagnose(tree)
    rows = rows_of(found)
    assert found.converged is False
    assert found.remarks == ("Components were aligned by procrustes.",)
    # The first of two classes has no score of its own.
    assert rows["coef"].entries == 4
    assert rows["coef"].verdict.endswith("(4 constant, left out)")


def test_a_mode_has_no_spread(iris):
    tree = DGPLVMClassifier(random_state=0).fit(*iris).idata_
    found = diagnose(tree)
    rows = rows_of(found)
    assert found.converged is None
    assert rows["spread"].verdict == "not applicable: a mode has no spread"
    assert rows["optimum"].verdict == "ok: the search for the mode converged"
    assert set(rows) == {"spread", "optimum", "restarts"}


@pytest.mark.parametrize(
    ("ends", "verdict", "gap"),
    [
        ([-5.0, -5.4, -9.0], "ok: 2 of 3 within 1 nats of the best; the worst 4 nats below", 0.4),
        ([-5.0, -5.1], "ok: 2 of 2 within 1 nats of the best", 0.1),
        (
            [-9.0, -5.0, np.nan],
            "not converged: only one of 2 reaches the best value, the next is 4 nats below; "
            "the worst 4 nats below",
            4.0,
        ),
    ],
)
def test_starts_are_compared(ends, verdict, gap):
    tree = foreign(np.random.default_rng(1), chains=1, inference_method="map")
    tree["fit"] = xr.Dataset({"restarts": ("restart", np.array(ends))})
    row = rows_of(diagnose(tree))["restarts"]
    assert row.verdict == verdict
    assert row.value == pytest.approx(gap)


def test_advi_is_judged_by_the_drift_of_its_bound():
    rng = np.random.default_rng(2)
    tree = foreign(rng, chains=1)
    noise = rng.standard_normal(1000)
    for bound, verdict in (
        (noise, "ok: changed by"),
        (noise + 0.1 * np.arange(1000.0), "not converged: still rose by 10 "),
        (np.full(1000, np.nan), "not converged: the bound is not finite"),
        (noise[:10], "not applicable: too few steps"),
    ):
        tree["fit"] = xr.Dataset({"elbo": ("iteration", bound)})
        rows = check_approximation(diagnose(tree, engine="advi"))
        assert rows["bound"].verdict.startswith(verdict)


@pytest.mark.parametrize(("width", "ok"), [(0.2, False), (0.5, False), (0.8, True), (1.2, True)])
def test_k_hat_of_a_normal_by_a_normal(width, ok):
    """Ratios of N(0, 1) to N(0, w^2) have the tail index 1 - w^2, and no tail from w = 1 on.

    The sd of an estimate from the t = 190 largest of 4000 ratios is about (1 + k) / sqrt(t) = 0.14.
    """
    rng = np.random.default_rng(4)
    x = width * rng.standard_normal((1, 4000))
    stats = {"log_p": norm.logpdf(x), "log_q": norm.logpdf(x, scale=width)}
    tree = foreign(rng, chains=1, draws=4000, stats=stats)
    row = rows_of(diagnose(tree, engine="mean_field"))["k-hat"]
    assert row.ok is ok, row.verdict
    if width < 1.0:
        assert row.value == pytest.approx(1.0 - width**2, abs=0.3)
    else:
        assert row.value < 0.1


def test_k_hat_of_an_exact_approximation_is_ok():
    rng = np.random.default_rng(4)
    log_q = rng.standard_normal((1, 400))
    tree = foreign(rng, chains=1, stats={"log_p": log_q, "log_q": log_q})
    row = rows_of(diagnose(tree, engine="advi"))["k-hat"]
    assert row.verdict == "ok: the approximation is the posterior, up to a constant"


def test_k_hat_that_cannot_be_computed_says_why():
    rng = np.random.default_rng(5)
    zero = np.zeros((1, 50))
    tree = foreign(rng, chains=1, draws=50, stats={"log_q": zero})
    verdict = rows_of(diagnose(tree, engine="advi"))["k-hat"].verdict
    assert verdict == "not applicable: sample_stats of the tree has no log_p"
    tree = foreign(rng, chains=1, draws=50, stats={"log_q": zero, "log_p": zero})
    assert "50 draws are too few" in rows_of(diagnose(tree, engine="advi"))["k-hat"].verdict
    bad = rng.standard_normal((1, 400))
    bad[0, 7] = np.nan
    tree = foreign(rng, chains=1, stats={"log_q": bad, "log_p": np.zeros((1, 400))})
    verdict = rows_of(diagnose(tree, engine="advi"))["k-hat"].verdict
    assert verdict == "not converged: log_p - log_q is not finite for 1 of 400 draws"


def test_divergences_and_energy_are_read():
    rng = np.random.default_rng(6)
    diverging = np.zeros((CHAINS, DRAWS), dtype=bool)
    energy = rng.standard_normal((CHAINS, DRAWS))
    good = diagnose(
        foreign(rng, stats={"diverging": diverging, "energy": energy}), quantities=["mu", "tau"]
    )
    assert good.converged is True
    rows = rows_of(good)
    assert rows["divergences"].verdict == "ok: none of 1600 transitions"
    # Independent energies have E (e_i - e_j)^2 / Var e = 2.
    assert rows["energy BFMI"].value == pytest.approx(2.0, abs=0.3)

    diverging[1, :12] = True
    energy[3] = np.cumsum(energy[3])
    tree = foreign(rng, stats={"diverging": diverging, "energy": energy})
    bad = diagnose(tree, quantities=["mu"])
    rows = rows_of(bad)
    assert bad.converged is False
    assert rows["mu"].verdict == "ok"
    assert rows["divergences"].verdict.startswith("not converged: 12 of 1600 transitions diverged")
    assert rows["energy BFMI"].verdict.startswith("not converged: BFMI")
    assert "of chain 3" in rows["energy BFMI"].verdict

    bare = diagnose(foreign(rng, inference_method="nuts"), quantities=["mu"])
    assert rows_of(bare)["divergences"].verdict.endswith(
        "sample_stats of the tree has no diverging"
    )
    assert bare.converged is True


def test_a_foreign_tree_names_its_quantities_and_may_bring_products():
    rng = np.random.default_rng(7)
    tree = foreign(rng)
    tree["posterior"]["tau"].values[0] += 10.0
    product = tree["posterior"]["mu"] * 2.0
    assert diagnose(tree, quantities={"twice mu": product}).converged is True
    assert diagnose(tree, quantities="tau").converged is False
    with pytest.raises(
        ValueError, match=r"no model of this package: give quantities=.*'mu', 'tau'"
    ):
        diagnose(tree)
    with pytest.raises(ValueError, match=r"quantity 'flat' has no dim chain and no draw"):
        diagnose(tree, quantities={"flat": product[0, 0]})
    tree.attrs["inference_method"] = "pathfinder"
    with pytest.raises(ValueError, match=r"one of .*the tree has inference_method = 'pathfinder'"):
        diagnose(tree, quantities=["mu"])
    # A specification can be given in place of the attribute.
    named = xr.DataTree.from_dict(
        {"posterior": tree["posterior"].to_dataset().rename(mu="coef", tau="bias_centered")}
    )
    assert rows_of(diagnose(named, spec=SPEC))["coef"].ok


def test_an_aligned_group_is_looked_at():
    rng = np.random.default_rng(8)
    sign = rng.choice([-1.0, 1.0], size=(CHAINS, DRAWS, 1, 1))
    clean = rng.standard_normal((5, 2)) + 0.1 * rng.standard_normal((CHAINS, DRAWS, 5, 2))
    dims = ("chain", "draw", "row", "component")
    posterior = xr.Dataset({"L": (dims, sign * clean)})
    tree = align_draws(xr.DataTree.from_dict({"posterior": posterior}), loadings="L")
    product = xr.dot(posterior["L"], posterior["L"].rename(row="other"), dim="component")
    rows = rows_of(diagnose(tree, quantities={"product": product}))
    assert rows["L, aligned"].verdict == "ok"
    assert rows["L, aligned"].kind == "aligned"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": "warmup"}, r"no group 'warmup'; its groups are \['posterior'\]"),
        ({"quantities": ["nu"]}, r"group 'posterior' has no variable 'nu'; .*\['mu', 'tau'\]"),
        ({"quantities": ["nu"], "engine": "advi"}, r"has no variable 'nu'"),
        ({"engine": "pathfinder"}, r"engine must be one of .*got 'pathfinder'"),
        ({"spec": SPEC}, r"none of the identified quantities of 'bsdr', \['coef'"),
    ],
)
def test_errors_name_their_cause(arguments, message):
    with pytest.raises(ValueError, match=message):
        diagnose(foreign(np.random.default_rng(9)), **arguments)


def test_draws_that_cannot_be_judged_say_why():
    rng = np.random.default_rng(10)
    tree = foreign(rng)
    tree["posterior"]["mu"].values[1, 5, 0] = np.inf
    tree["posterior"]["tau"].values[:] = 2.0
    rows = rows_of(diagnose(tree, quantities=["mu", "tau"]))
    assert rows["mu"].verdict == "not converged: 1 of 1600 draws are not finite"
    assert rows["tau"].verdict == "not applicable: every draw is the same"
    short = rows_of(diagnose(foreign(rng, draws=3), quantities=["mu"]))["mu"]
    assert short.verdict == "not applicable: fewer than 4 draws in a chain"
    few = rows_of(diagnose(foreign(rng, draws=50), quantities=["mu"], r_hat=1.1))["mu"]
    assert few.verdict.startswith("too few draws: ESS ")
    assert diagnose(foreign(rng, draws=50), quantities=["mu"], r_hat=1.1, ess=50.0).converged


def test_of_many_entries_some_are_looked_at_and_the_verdict_says_so():
    tree = foreign(np.random.default_rng(11))
    row = rows_of(diagnose(tree, quantities=["mu"], max_entries=2))["mu"]
    assert row.verdict == "ok (2 of 3 entries)"
    assert row.entries == 2


def test_it_reads_well(regression):
    found = diagnose(regression)
    text = str(found).splitlines()
    assert text[0] == found.title
    assert text[1].split() == [
        *("quantity", "entries", "R-hat", "bulk", "ESS", "tail", "ESS", "MCSE", "verdict")
    ]
    assert len(text) >= 2 + len(found.rows) + 1
    assert max(map(len, text)) <= 100
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.rows)
    assert "Components were aligned" in page
    table = found.table
    assert table.sizes["quantity"] == len(found.rows)
    assert table["verdict"].sel(quantity="coef") == "ok"
    assert float(table["r_hat"].sel(quantity="coef")) < 1.01
