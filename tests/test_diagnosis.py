"""Verdicts on draws: good ones pass, planted faults are named, approximations are never praised."""

import arviz_stats
import numpy as np
import pytest
import xarray as xr
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    DGPLVMClassifier,
    Sampling,
    align_draws,
    diagnose,
    papers,
)
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import SAMPLING

CHAINS, DRAWS = 4, 400


def verdicts(table):
    return table["verdict"].to_dict()


def planted(variables, groups=None, **attrs):
    """Tree of variables by name: the dims after chain and draw, and the values."""
    posterior = {name: (("chain", "draw", *dims), v) for name, (dims, v) in variables.items()}
    found = {"/": xr.Dataset(attrs=attrs), "posterior": xr.Dataset(posterior), **(groups or {})}
    labels = {d: np.arange(n) for d, n in found["posterior"].sizes.items()}
    found["posterior"] = found["posterior"].assign_coords(labels)
    return xr.DataTree.from_dict(found)


def foreign(rng, *, chains=CHAINS, draws=DRAWS, stats=None, **attrs):
    """Tree of no model of the package with two well-mixed variables."""
    variables = {
        "mu": (("site",), rng.standard_normal((chains, draws, 3))),
        "tau": ((), rng.gamma(2.0, size=(chains, draws))),
    }
    named = {name: (("chain", "draw"), values) for name, values in (stats or {}).items()}
    return planted(variables, {"sample_stats": xr.Dataset(named)} if named else None, **attrs)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


@pytest.fixture(scope="module")
def regression():
    """Gibbs of a regression with one component: it mixes well, as linear regression does."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, 0.5, 0.0] + 0.7 * rng.standard_normal(60)
    return papers.bsdr.fit(
        *(X, y),
        target="regression",
        inference="gibbs",
        n_components=1,
        priors=SAMPLING,
        sampling=Sampling(draws=2000, tune=200),
        random_state=0,
    )


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
    table = diagnose(regression)
    assert table.attrs["converged"] is True
    names = ["coef", "bias", "noise_precision", "subspace projector"]
    assert set(table.loc[names, "verdict"]) == {"ok"}
    assert set(table.loc[names, "kind"]) == {"identified"}
    assert not any(name.startswith("probability") for name in table.index)


def test_numbers_are_those_of_arviz(regression):
    row = diagnose(regression).loc["coef"]
    coef = regression["posterior"]["coef"]
    r_hat, bulk = arviz_stats.rhat(coef), arviz_stats.ess(coef)
    tail = arviz_stats.ess(coef, method="tail")
    assert row["entries"] == 3
    assert row["r_hat"] == pytest.approx(float(r_hat.max()), rel=1e-12)
    assert row["ess_bulk"] == pytest.approx(float(bulk.min()), rel=1e-12)
    assert row["ess_tail"] == pytest.approx(float(tail.min()), rel=1e-12)
    assert row["mcse"] == pytest.approx(float(arviz_stats.mcse(coef).max()), rel=1e-12)
    where = r_hat.stack(entry=("feature", "outcome")).idxmax().item()
    assert row["worst"] == f"coef[{where[0]}, {where[1]}]"


def test_a_sampler_that_is_stopped_early_has_too_few_draws(separable):
    table = diagnose(separable)
    assert table.attrs["converged"] is False
    assert table.loc["coef", "verdict"] == "too few draws"
    assert table.loc["probability of observed class", "entries"] <= 150
    assert table.loc["subspace projector", "entries"] == 10


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_many_short_chains_may_have_a_larger_r_hat(offset):
    """Of 1000 independent draws, with or without a chain elsewhere."""
    draws = np.random.default_rng(0).standard_normal((8, 125, 300))
    draws[0] += offset
    table = diagnose(planted({"mu": (("site",), draws)}), ["mu"])
    assert table.loc["mu", "r_hat"] > 1.01
    assert table.attrs["converged"] is (offset == 0.0)


@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_few_independent_draws_are_too_few_and_not_of_chains_that_disagree(offset):
    draws = np.random.default_rng(1).standard_normal((4, 25, 300))
    draws[0] += offset
    row = diagnose(planted({"mu": (("site",), draws)}), ["mu"]).loc["mu"]
    assert row["r_hat"] > 1.05
    assert row["verdict"] == ("not converged" if offset else "too few draws")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bsdr_models.numerics.process_state.DataWarning")
@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_chains_of_the_default_are_ok(load):
    X, y = load(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:80]
    table = diagnose(BSDRClassifier(random_state=0).fit(X[rows], y[rows]).idata_)
    assert {*table.loc[table["kind"] == "identified", "verdict"]} == {"ok"}


def test_one_displaced_chain_is_found_and_its_worst_entry_named(regression):
    tree = regression.copy(deep=True)
    tree["posterior"]["coef"].loc[{"chain": 2, "feature": "x1"}] += 1.0
    tree["posterior"]["noise_precision"].values[:] = np.arange(1.0, 5.0)[:, None, None]
    table = diagnose(tree)
    assert table.loc["coef", "worst"] == "coef[x1, y0]"
    assert table.loc["coef", "verdict"] == "not converged"
    assert table.loc["noise_precision", "r_hat"] > 1000.0  # every chain rests at another place
    assert table.attrs["converged"] is False


def test_loadings_that_only_permute_are_ok_after_alignment():
    """Draws planted around one value, then permuted and flipped chain by chain."""
    rng = np.random.default_rng(3)
    shape = (CHAINS, DRAWS)
    projection = rng.standard_normal((4, 2)) + 0.1 * rng.standard_normal((*shape, 4, 2))
    weights = rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((*shape, 2, 3))
    product = projection @ weights
    for chain in range(CHAINS):
        turn = np.eye(2)[rng.permutation(2)] * rng.choice([-1.0, 1.0], size=2)
        projection[chain], weights[chain] = projection[chain] @ turn, turn.T @ weights[chain]
    variables = {
        "projection": (("feature", "component"), projection),
        "weights": (("component", "outcome"), weights),
        "coef": (("feature", "outcome"), product - product.mean(axis=-1, keepdims=True)),
        "bias_centered": (("outcome",), rng.standard_normal((*shape, 3))),
    }
    tree = planted(variables, model="bsdr", inference_method="gibbs")
    table = diagnose(tree)
    assert "subspace projector" in table.index
    assert set(table["verdict"]) == {"ok"}
    assert diagnose(tree, ["projection"]).loc["projection", "verdict"] == "not converged"
    aligned = align_draws(tree, loadings="projection", weights="weights")
    table = diagnose(aligned, ["projection", "weights"], group="posterior_aligned")
    assert set(table["verdict"]) == {"ok"}


def test_subspace_projector_is_that_of_its_definition(regression):
    """Its R-hat and ESS are those of Q (Q'Q)^-1 Q', entry by entry."""
    Q = regression["posterior"]["projection"].values
    inner = np.linalg.inv(np.swapaxes(Q, 2, 3) @ Q)
    P = Q @ inner @ np.swapaxes(Q, 2, 3)
    row = diagnose(regression).loc["subspace projector"]
    upper = P[:, :, *np.triu_indices(3)]
    bulk = arviz_stats.ess(upper, chain_axis=0, draw_axis=1, method="bulk")
    assert row["entries"] == 6
    assert row["ess_bulk"] == pytest.approx(bulk.min(), rel=1e-6)


def test_positions_of_dgplvm_are_judged_up_to_rotation():
    """Planted latent coordinates, each chain rotated: invariants mix, raw coordinates do not."""
    rng = np.random.default_rng(12)
    latent = rng.standard_normal((8, 2)) + 0.1 * rng.standard_normal((CHAINS, DRAWS, 8, 2))
    turns = np.array([np.linalg.qr(rng.standard_normal((2, 2)))[0] for _ in range(CHAINS)])
    latent = latent @ turns[:, None]
    variables = {
        name: ((), rng.gamma(3.0, size=(CHAINS, DRAWS)))
        for name in ("signal_variance", "lengthscale", "noise_variance", "criterion")
    }
    variables["latent"] = ("obs", "component"), latent
    tree = planted(variables, model="dgplvm", inference_method="nuts")
    table = diagnose(tree)
    assert table.attrs["converged"] is True
    assert table.loc["subspace projector", ["verdict", "entries"]].tolist() == ["ok", 36]
    assert diagnose(tree, ["latent"]).loc["latent", "verdict"] == "not converged"


def test_subspace_of_many_features_takes_little_room(monkeypatch):
    """Of two million entries some are looked at; all of them would take half a gigabyte."""
    monkeypatch.setattr("bsdr_models.diagnosis.MAX_FEATURES", 10)
    rng = np.random.default_rng(13)
    loadings = rng.standard_normal((2, 16, 2000, 1))
    variables = {"projection": (("feature", "component"), loadings)}
    variables["coef"] = (), rng.standard_normal((2, 16))
    tree = planted(variables, model="bsdr", inference_method="gibbs")
    assert diagnose(tree).loc["subspace projector", "entries"] == 10 * 11 / 2


def test_a_single_chain_is_never_praised(regression):
    one = regression.copy()
    one["posterior"] = one["posterior"].to_dataset().isel(chain=[0])
    table = diagnose(one)
    assert table.attrs["converged"] is None
    assert table["verdict"].str.startswith("not applicable: one chain").all()
    assert "r_hat" not in table


def check_approximation(table):
    assert table.attrs["converged"] is None
    assert not {"r_hat", "ess_bulk"} & set(table)
    assert "too narrow" in table.loc["spread", "verdict"]
    return verdicts(table)


def test_mean_field_is_not_praised_for_its_spread():
    tree = foreign(np.random.default_rng(4), inference_method="mean_field", converged=1)
    assert check_approximation(diagnose(tree))["optimum"] == "ok"
    tree.attrs["converged"] = 0
    assert verdicts(diagnose(tree))["optimum"].startswith("not converged")
    tree.attrs["interrupted"] = 1
    assert verdicts(diagnose(tree))["optimum"] == "not converged: interrupted"


def test_mean_field_of_bm2pca_says_what_is_held(iris):
    tree = BM2PCAClassifier(random_state=0).fit(*iris).idata_
    assert "given metric and subspace" in check_approximation(diagnose(tree))["spread"]


def test_a_mode_has_no_spread(iris):
    table = diagnose(DGPLVMClassifier(random_state=0).fit(*iris).idata_)
    assert table.attrs["converged"] is None
    assert table.loc["spread", "verdict"] == "not applicable: a mode has no spread"
    assert table.loc["optimum", "verdict"] == "ok"


def test_divergences_and_energy_are_read():
    rng = np.random.default_rng(6)
    diverging = np.zeros((CHAINS, DRAWS), dtype=bool)
    energy = rng.standard_normal((CHAINS, DRAWS))
    good = diagnose(foreign(rng, stats={"diverging": diverging, "energy": energy}), ["mu", "tau"])
    assert good.attrs["converged"] is True
    assert good.loc["divergences", "verdict"] == "ok"
    # Independent energies have E (e_i - e_j)^2 / Var e = 2.
    assert good.loc["energy BFMI", "value"] == pytest.approx(2.0, abs=0.3)

    diverging[1, :12] = True
    energy[3] = np.cumsum(energy[3])
    bad = diagnose(foreign(rng, stats={"diverging": diverging, "energy": energy}), ["mu"])
    assert bad.attrs["converged"] is False
    assert bad.loc["mu", "verdict"] == "ok"
    assert bad.loc["divergences", ["value", "verdict"]].tolist() == [12.0, "not converged"]
    assert bad.loc["energy BFMI", "verdict"] == "not converged"

    bare = diagnose(foreign(rng, inference_method="nuts"), ["mu"])
    assert bare.loc["divergences", "verdict"].startswith("not applicable")
    assert bare.attrs["converged"] is True


def test_a_foreign_tree_names_its_quantities_and_may_bring_products():
    rng = np.random.default_rng(7)
    tree = foreign(rng)
    tree["posterior"]["tau"].values[0] += 10.0
    tree["posterior"]["twice mu"] = tree["posterior"]["mu"] * 2.0
    assert diagnose(tree, ["twice mu"]).attrs["converged"] is True
    assert diagnose(tree, "tau").attrs["converged"] is False
    with pytest.raises(
        ValueError, match=r"no model of this package: give quantities=.*'mu', 'tau'"
    ):
        diagnose(tree)
    tree["posterior"]["flat"] = tree["posterior"]["mu"][0, 0]
    with pytest.raises(ValueError, match=r"posterior/flat has no dim 'chain' and no 'draw'"):
        diagnose(tree, ["flat"])
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("flat")
    tree.attrs["inference_method"] = "pathfinder"
    with pytest.raises(ValueError, match=r"inference_method of the tree .*: 'pathfinder'"):
        diagnose(tree, ["mu"])
    tree.attrs |= {"model": "bsdr", "inference_method": "nuts"}
    with pytest.raises(ValueError, match=r"none of the identified quantities of 'bsdr', \['coef'"):
        diagnose(tree)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": "warmup"}, r"no group 'warmup'; its groups are \['posterior'\]"),
        ({"quantities": ["nu"]}, r"group 'posterior' has no variable 'nu' .*\['mu', 'tau'\]"),
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
    found = verdicts(diagnose(tree, ["mu", "tau"]))
    assert found["mu"] == "not converged: 1 of 1600 draws are not finite"
    assert found["tau"] == "not applicable: every draw is the same"
    short = verdicts(diagnose(foreign(rng, draws=3), ["mu"]))
    assert short["mu"] == "not applicable: fewer than 4 draws in a chain"
    few = diagnose(foreign(rng, draws=80), ["mu"])
    assert few.loc["mu", "verdict"] in ("too few draws", "not converged")
