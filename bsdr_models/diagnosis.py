"""Convergence diagnostics for the draws of any model and engine, as a data frame.

For Markov chains: R-hat and effective sample sizes of identified quantities. For approximations and
modes: convergence of the search, but never R-hat.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import arviz_stats
import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import chi2

from bsdr_models.inference.datatree import SAMPLE_DIMS, SPREAD, read_draws, spread_of
from bsdr_models.inference.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.inference.spec import ModelSpec, find_spec
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.options import check_parameters

type Row = dict[str, Any]

MCMC = ("mcmc", "hmc", "gibbs", "nuts")
# Largest excess of R-hat over one for so many chains that have mixed. Its error, of chains that
# agree, is about the number of chains over the effective sample size.
R_HAT_EXCESS = 0.01
N_CHAINS = 4
# Probability that the largest R-hat of a quantity exceeds its limit for independent draws.
LEVEL = 0.01
# Smallest effective sample size.
ESS = 400.0
# Smallest Bayesian fraction of missing information of the energy.
BFMI = 0.3
# Fewest draws of a chain for split R-hat.
MIN_DRAWS = 4
# Most entries of a quantity that are checked.
MAX_ENTRIES = 1000
# Most features by which the subspace is checked.
MAX_FEATURES = 44
# A spread below this fraction of the largest entry is rounding error.
ROUNDING = 1e-13
COLUMNS = ("kind", "entries", "r_hat", "ess_bulk", "ess_tail", "mcse", "worst", "value", "verdict")


def diagnose(
    tree: xr.DataTree,
    quantities: Sequence[str] | None = None,
    *,
    group: str = "posterior",
) -> pd.DataFrame:
    """Diagnose the convergence of the draws of a tree.

    Parameters
    ----------
    tree : xarray.DataTree
        Tree of a model of this package or of any other. Its root attribute ``inference_method``
        says how it was sampled; without this attribute the draws are taken as Markov chains.
    quantities : sequence of str, optional
        Variables of the group. By default the identified ones of the model, the subspace of its
        components, the log likelihood and the probabilities of the observed classes. Required for a
        model of another package; not used for approximations and modes.
    group : str
        Group of the draws.

    Returns
    -------
    DataFrame
        A row for each quantity. ``kind`` is identified, sampler or approximation; ``r_hat`` is the
        largest of ``entries`` entries, ``worst`` the name of that entry, ``ess_bulk`` and
        ``ess_tail`` are the smallest, ``mcse`` is the largest Monte Carlo standard error of a mean,
        all as in ArviZ's ``summary``; ``value`` is the number of divergences or the energy BFMI;
        ``verdict`` begins with ok, not converged, too few draws, not checked or not applicable.
        The attribute ``attrs["converged"]`` is whether all quantities and the sampler pass; None
        for one chain, an approximation or a mode.

    Raises
    ------
    TypeError
        If `tree` is not a DataTree.
    ValueError
        If the group or a quantity is missing, no quantity is known to be identified, or the
        inference method is unknown.

    See Also
    --------
    align_draws : makes the R-hat of components meaningful, given ``group="posterior_aligned"``.

    Notes
    -----
    Limits are an R-hat of 1.01 for up to four chains and an effective sample size of 400, both
    rank-normalised [1]_, and an energy BFMI of 0.3. As many draws of more chains have an R-hat that
    is further from one although they are as good [2]_: the limit for eight chains is 1.02. An R-hat
    that as few independent draws may have says nothing but that there are too few. So it may be
    with many features, of which a tree holds some of the draws only: its root attributes ``r_hat``
    and ``ess_bulk`` are of all draws. Of large quantities about 1000 entries are checked.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner (2021).
           Rank-normalization, folding, and localization: an improved R-hat. Bayesian Analysis 16.
    .. [2] C. C. Margossian, M. D. Hoffman, P. Sountsov, L. Riou-Durand, A. Vehtari, A. Gelman
           (2024). Nested R-hat: assessing the convergence of Markov chain Monte Carlo when running
           many short chains. Bayesian Analysis.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models import BSDRClassifier, diagnose
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::3], y[::3])
    >>> table = diagnose(model.idata_)
    >>> bool(table.loc["coef", "r_hat"] < 1.1)
    True
    """
    check_parameters({"quantities": [Iterable, None]}, locals(), "diagnose")
    read_draws(tree, group)
    method = str(tree.attrs.get("inference_method", "mcmc"))
    if method not in (*MCMC, *SPREAD):
        raise ValueError(
            f"inference_method of the tree must be one of {(*MCMC, *SPREAD)}: {method!r}"
        )
    if method not in MCMC:
        return _frame(_approximation(tree, method), converged=None)
    spec = find_spec(tree)
    if quantities is None:
        named = _identified(tree, spec, group)
    else:
        names = [quantities] if isinstance(quantities, str) else list(quantities)
        dataset = read_draws(tree, group, *names)
        named = {name: dataset[name] for name in names}
    rows = [_mixing(name, array.transpose(CHAIN, DRAW, ...)) for name, array in named.items()]
    converged = True if any("r_hat" in row for row in rows) else None
    rows += _sampler(tree, method)
    if not all(row["verdict"].startswith(("ok", "not applicable")) for row in rows):
        converged = False
    return _frame(rows, converged=converged)


def _frame(rows: Sequence[Row], *, converged: bool | None) -> pd.DataFrame:
    """Rows as a data frame, without columns that are empty."""
    frame = pd.DataFrame(rows).set_index("quantity")
    frame = frame[[name for name in COLUMNS if name in frame]]
    frame.attrs["converged"] = converged
    return frame


def _identified(tree: xr.DataTree, spec: ModelSpec | None, group: str) -> dict[str, xr.DataArray]:
    """Identified variables of the specification, and what is derived from the draws."""
    dataset = read_draws(tree, group)
    variables = sorted(map(str, dataset.data_vars))
    if spec is None:
        raise ValueError(
            "the tree is of no model of this package: give quantities=..., variables of group "
            f"{group!r} that are invariant to permutation and rotation of components; it has "
            f"{variables}"
        )
    names = list(spec.identified)
    if spec.name == "bsdr" and "bias_centered" not in dataset:
        # Identified for multi-label and real outputs.
        names += ["bias", "noise_precision", "noise_scale"]
    found = {name: dataset[name] for name in names if name in dataset}
    if not found:
        raise ValueError(
            f"group {group!r} has none of the identified quantities of {spec.name!r}, "
            f"{list(spec.identified)}; its variables are {variables}"
        )
    basis = spec.alignment.get("loadings")
    if basis in dataset:
        found |= _projector(dataset[basis])
    if "log_likelihood" in tree.children:
        for name, array in tree["log_likelihood"].data_vars.items():
            found[f"log likelihood of {name}"] = array.sum(_inner(array))
            if tree.attrs.get("target") == "multiclass":
                found["probability of observed class"] = array.copy(data=np.exp(array.values))
    return found


def _projector(loadings: xr.DataArray) -> dict[str, xr.DataArray]:
    """The projector onto the span of the components, at pairs of some features.

    It is invariant to rotations. Empty if the components span everything.
    """
    [feature] = [dim for dim in _inner(loadings) if dim != COMPONENT]
    ordered = loadings.transpose(CHAIN, DRAW, feature, COMPONENT)
    n, r = ordered.shape[2:]
    if r >= n:
        return {}
    some = evenly_spaced(n, MAX_FEATURES)
    first, second = np.triu_indices(len(some))
    rows = np.linalg.qr(ordered.values)[0][:, :, some]  # (C, S, M, R)
    entries = np.einsum("cspr,cspr->csp", rows[:, :, first], rows[:, :, second])
    labels = ordered[feature].values[some].astype(str)
    pairs = [f"{labels[i]}, {labels[j]}" for i, j in zip(first, second, strict=True)]
    array = xr.DataArray(entries, dims=(CHAIN, DRAW, "pair"), coords={"pair": pairs})
    return {"subspace projector": array}


def _mixing(name: str, draws: xr.DataArray) -> Row:
    """R-hat, effective sample sizes and Monte Carlo error over entries of a quantity."""
    row: Row = {"quantity": name, "kind": "identified"}
    if draws.sizes[CHAIN] < 2:
        return row | {"verdict": "not applicable: one chain cannot show what it misses"}
    if draws.sizes[DRAW] < MIN_DRAWS:
        return row | {"verdict": f"not applicable: fewer than {MIN_DRAWS} draws in a chain"}
    bad = ~np.isfinite(draws.values).all(axis=tuple(range(2, draws.ndim)))
    if bad.any():
        return row | {"verdict": f"not converged: {bad.sum()} of {bad.size} draws are not finite"}
    draws = _thin(draws)
    spread = draws.max(SAMPLE_DIMS) - draws.min(SAMPLE_DIMS)
    varies = spread.values > ROUNDING * float(np.abs(draws).max())
    if not varies.any():
        return row | {"verdict": "not applicable: every draw is the same"}
    with np.errstate(all="ignore"):  # a constant chain has zero variance
        table = arviz_stats.summary(
            draws.to_dataset(name=name), kind="diagnostics", round_to="none"
        )[varies.ravel()]
    r_hat = table["r_hat"].fillna(np.inf)
    smallest = table[["ess_bulk", "ess_tail"]].min()
    verdict = "too few draws" if smallest.min() < ESS else "ok"
    n_chains = draws.sizes[CHAIN]
    limit = 1.0 + R_HAT_EXCESS * max(n_chains / N_CHAINS, 1.0)
    # Of independent draws the means of half chains differ as a chi-squared variable does.
    freedom = 2 * n_chains - 1
    by_chance = chi2.ppf(1.0 - LEVEL / len(table), freedom) / freedom
    limit = max(limit, np.sqrt(1.0 + by_chance * 2.0 / draws.sizes[DRAW]))
    return row | {
        "entries": len(table),
        "r_hat": r_hat.max(),
        **smallest,
        "mcse": table["mcse_mean"].max(),
        "worst": r_hat.idxmax(),
        "verdict": "not converged" if r_hat.max() > limit else verdict,
    }


def _inner(array: xr.DataArray) -> list[Hashable]:
    """Dims of an array but for chain and draw."""
    return [dim for dim in array.dims if dim not in SAMPLE_DIMS]


def _thin(draws: xr.DataArray) -> xr.DataArray:
    """Draws of about `MAX_ENTRIES` entries at most, evenly spaced along the longest dim."""
    n_entries = draws[0, 0].size
    if n_entries <= MAX_ENTRIES:
        return draws
    longest = max(_inner(draws), key=lambda dim: draws.sizes[dim])
    most = MAX_ENTRIES * draws.sizes[longest] // n_entries
    return draws.isel({longest: evenly_spaced(draws.sizes[longest], max(most, 1))})


def _sampler(tree: xr.DataTree, method: str) -> list[Row]:
    """Divergences and energy BFMI."""
    stats = tree.children.get("sample_stats", xr.DataTree())
    rows: list[Row] = []
    if "diverging" in stats:
        n = float(stats["diverging"].sum())
        verdict = "not converged" if n else "ok"
        rows.append({"quantity": "divergences", "value": n, "verdict": verdict})
    if "energy" in stats:
        low = float(arviz_stats.bfmi(tree)["energy"].min())
        verdict = "ok" if low >= BFMI else "not converged"
        rows.append({"quantity": "energy BFMI", "value": low, "verdict": verdict})
    if method == "nuts" and not rows:
        verdict = "not applicable: sample_stats has no diverging and no energy"
        rows.append({"quantity": "divergences", "verdict": verdict})
    return [row | {"kind": "sampler"} for row in rows]


def _approximation(tree: xr.DataTree, method: str) -> list[Row]:
    """Checks of an approximation or a mode."""
    fit = tree.children.get("fit", xr.DataTree()).to_dataset()
    rows: list[Row] = [{"quantity": "spread", "verdict": spread_of(method, fit)}]
    if method != "conjugate":
        if tree.attrs.get("interrupted"):
            verdict = "not converged: interrupted"
        elif (converged := tree.attrs.get("converged")) is None:
            verdict = "not applicable: the tree does not say whether the search converged"
        else:
            verdict = "ok" if converged else "not converged: stopped early"
        rows.append({"quantity": "optimum", "verdict": verdict})
    return [row | {"kind": "approximation"} for row in rows]
