"""Predictions with group effects: by plain Monte Carlo and importance sampling from the trace."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import ndtr

from bsdr_models import bsdr, diagnose, from_trace, papers, predict_groups
from tests.toys import FAST, scaled_iris

X, Y = scaled_iris(start=50, step=3)  # two classes
GARDENS = np.array(["east", "north", "south"])[np.arange(len(Y)) % 3]
SETS = np.column_stack([X[:, 0] > 0.0, Y == 2]).astype(int)
LAPSE = 0.05


def tree_of(y, target="multiclass", n_draws=400):
    """Draws of the prior, as those of a posterior."""
    priors = {"bias_scale": 1.0} | ({} if target == "regression" else {"lapse": LAPSE})
    with bsdr.build_model(X, y, target=target, priors=priors, groups=GARDENS):
        prior = pm.sample_prior_predictive(n_draws, random_seed=0, compile_kwargs=FAST)
    groups = {"posterior": prior["prior"].to_dataset()}
    trace = xr.DataTree.from_dict(groups | {"constant_data": prior["constant_data"].to_dataset()})
    return from_trace(trace, X, y, bsdr.SPEC, target=target)


@pytest.fixture(scope="module")
def tree():
    return tree_of(Y)


def margin(tree, rows):
    """Difference of two class scores, in units of their noise, by draw and sample."""
    draws = tree["posterior"].to_dataset().isel(chain=0)
    scores = rows @ draws["coef"].values + draws["bias"].values[:, None]
    return (scores[..., 1] - scores[..., 0]) / np.sqrt(2.0)


def probability(eta):
    return (1.0 - LAPSE) * ndtr(eta) + LAPSE / 2.0


def effects_of(tree, group):
    effect = tree["posterior/group_effect"].sel(group=group).values[0]
    return (effect[:, 1] - effect[:, 0]) / np.sqrt(2.0)


def test_known_groups_have_their_effects(tree):
    found = predict_groups(tree, X[:6], GARDENS[:6])
    for n, group in enumerate(GARDENS[:6]):
        p = probability(margin(tree, X[[n]])[:, 0] + effects_of(tree, group)).mean()
        assert float(found["probability"][n, 1]) == pytest.approx(p, abs=1e-6)
    np.testing.assert_allclose(found["probability"].sum("outcome"), 1.0)
    assert found["pareto_k"].isnull().all()


def draw_new(tree, n_effects=2000):
    """Effects of new groups by draw, as differences of class scores."""
    rng = np.random.default_rng(0)
    spread = tree["posterior/group_scale"].values[0]
    return spread[:, None] * rng.standard_normal((len(spread), n_effects))


def test_the_effect_of_a_new_group_is_integrated_out(tree):
    p = probability(margin(tree, X[:4])[..., None] + draw_new(tree)[:, None]).mean(axis=(0, 2))
    found = predict_groups(tree, X[:4], ["west"] * 4)["probability"][:, 1]
    np.testing.assert_allclose(found, p, atol=5e-3)


@pytest.mark.parametrize("group", ["west", "north"])
def test_labels_weight_the_draws(tree, group):
    """Of a new group and of a known one, by self-normalised weights of many more draws."""
    few = X[10:14], Y[10:14], [group] * 4
    effect = draw_new(tree) if group == "west" else effects_of(tree, group)[:, None]
    sign = np.where(few[1] == 2, 1.0, -1.0)
    given = margin(tree, few[0])[..., None] + effect[:, None]
    weight = np.prod(probability(sign[:, None] * given), axis=1)
    p = probability(margin(tree, X[:4])[..., None] + effect[:, None])
    expected = np.sum(weight[:, None] * p, axis=(0, 2)) / weight.sum()
    groups = [group, group, group, "elsewhere"]
    found = predict_groups(tree, X[:4], groups, labelled=few)
    np.testing.assert_allclose(found["probability"][:3, 1], expected[:3], atol=0.01)
    without = predict_groups(tree, X[[3]], ["elsewhere"])["probability"]
    np.testing.assert_array_equal(found["probability"][[3]], without)
    k = found["pareto_k"].to_series()
    assert k[group] < 0.7
    assert np.isnan(k["elsewhere"])


def test_labels_and_real_outputs():
    sets = tree_of(SETS, "multilabel", n_draws=100)
    found = predict_groups(sets, X[:4], ["west"] * 4, labelled=(X[:3], SETS[:3], ["west"] * 3))
    assert found["probability"].shape == (4, 2)
    outputs = tree_of(X[:, 2:], "regression")
    draws = outputs["posterior"].to_dataset().isel(chain=0)
    frame = pd.DataFrame(X[:4], index=list("abcd"))
    found = predict_groups(outputs, frame, pd.Series(GARDENS[:4], index=list("abcd")))
    for n, group in enumerate(GARDENS[:4]):
        eta = X[n] @ draws["coef"].values + draws["bias"].values
        eta = eta + draws["group_effect"].sel(group=group).values
        sd = np.sqrt(eta.var(axis=0) + np.mean(draws["noise_scale"].values ** 2, axis=0))
        np.testing.assert_allclose(found["prediction"].sel(obs="abcd"[n]), eta.mean(axis=0))
        np.testing.assert_allclose(found["prediction_sd"].sel(obs="abcd"[n]), sd)
    few = (X[:20], X[:20, 2:] + 3.0, ["west"] * 20)
    with pytest.warns(UserWarning, match=r"Pareto k above 0.7 of the group west \("):
        moved = predict_groups(outputs, X[:4], ["west"] * 4, labelled=few)
    assert (moved["prediction"].values > found["prediction"].values).all()


def test_draws_of_ones_own_have_the_groups_of_the_model(tree):
    model = bsdr.build_model(X, Y, groups=GARDENS)
    free = {each.name: tree["posterior"][each.name].values for each in model.free_RVs}
    own = from_trace(free, X, Y, bsdr.SPEC, model=model)
    assert own["posterior/group"].values.tolist() == ["east", "north", "south"]
    found = own["posterior/group_effect"].transpose(*tree["posterior/group_effect"].dims)
    np.testing.assert_allclose(found, tree["posterior/group_effect"])
    assert {"group_scale", "group_effect"} <= {*diagnose(own).index}


def test_what_is_refused(tree):
    plain = from_trace(
        {"coef": np.zeros((1, 9, 4, 2)), "bias": np.zeros((1, 9, 2))}, X, Y, bsdr.SPEC
    )
    cases = [
        (lambda: predict_groups(plain, X, GARDENS), "no group effects: give groups="),
        (lambda: predict_groups(tree, X[:, :3], GARDENS), "X has 3 features"),
        (lambda: predict_groups(tree, X, GARDENS[1:]), "groups must have one value per sample"),
        (
            lambda: predict_groups(tree, X, GARDENS, labelled=(X[:1], [7], ["west"])),
            r"classes that the fit does not know: \[7\]",
        ),
        (
            lambda: predict_groups(tree, X, GARDENS, labelled=(X[:2], [1], ["west"] * 2)),
            "inconsistent numbers of samples",
        ),
        (lambda: papers.bsdr.predict(tree, X), "predict_groups"),
        (lambda: bsdr.build_model(X, Y, groups=GARDENS[1:]), "one value per sample"),
        (
            lambda: bsdr.build_model(X, Y, groups=GARDENS, priors={"group_offset": pm.Normal}),
            "cannot replace 'group_offset'",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
