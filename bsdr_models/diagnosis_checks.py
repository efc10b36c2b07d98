"""Checks of draws and searches, each of which returns a row of a diagnosis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import arviz_stats
import numpy as np
import xarray as xr
from arviz_stats.base import array_stats

from bsdr_models import diagnosis_checks as checks
from bsdr_models.alignment import read_draws
from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.diagnosis_report import Kind, Row
from bsdr_models.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.spec import ModelSpec

APPROXIMATION: Kind = "approximation"
SEARCH: Kind = "search"
# A spread below this fraction of the largest entry is rounding error.
ROUNDING = 1e-13
# Fewest draws of a chain for split R-hat, and of an approximation for Pareto k.
MIN_DRAWS, MIN_DRAWS_TAIL = 4, 100
# Quantiles of the tail effective sample size.
TAILS = (0.05, 0.95)
# Largest k-hat for which importance sampling is reliable.
K_HAT_LIMIT = 0.7
# Number of standard errors from which a difference of two noisy bounds counts.
STANDARD_ERRORS = 4.0
# Text before the labels of an entry in a verdict.
AT = " at "
# R-hat beyond this, as of chains that do not move, is not printed.
HUGE_R_HAT = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the checks.

    r_hat
        Largest R-hat.
    ess
        Smallest effective sample size over all chains.
    bfmi
        Smallest energy BFMI.
    gap
        Largest difference in nats between values of a bound that count as equal.
    max_entries
        Largest number of entries checked per quantity.
    """

    r_hat: float
    ess: float
    bfmi: float
    gap: float
    max_entries: int


def spaced(total: int, most: int) -> IntArray:
    """Evenly spaced indices below `total`, at most `most`."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))


def mixing(
    name: str, draws: xr.DataArray, limits: Limits, *, kind: Kind, total: int | None = None
) -> Row:
    """R-hat, effective sample sizes and Monte Carlo error of a quantity, entry by entry.

    Parameters
    ----------
    name : str
    draws : (chain, draw, ...)
    limits : Limits
    kind : str
        Kind of the row.
    total : int, optional
        Number of entries of the quantity, if only some were computed.
    """

    def none(verdict: str) -> Row:
        return Row(quantity=name, kind=kind, verdict=verdict)

    ordered = draws.transpose(CHAIN, DRAW, ...)
    values = np.asarray(ordered.values, dtype=np.float64)
    values = values.reshape(*values.shape[:2], -1)
    if values.shape[0] < 2:
        return none("not applicable: one chain cannot show what it misses")
    if values.shape[1] < MIN_DRAWS:
        return none(f"not applicable: fewer than {MIN_DRAWS} draws in a chain")
    if values.shape[2] == 0:
        return none("not applicable: no entries")
    total = total or values.shape[2]
    at = spaced(values.shape[2], limits.max_entries)
    bad = ~np.isfinite(values).all(axis=2)
    if bad.any():
        return none(f"not converged: {int(bad.sum())} of {bad.size} draws are not finite")
    spread = np.ptp(values, axis=(0, 1))
    varying = at[spread[at] > ROUNDING * np.abs(values).max()]
    if len(varying) == 0:
        return none("not applicable: every draw is the same")
    notes = [f"{len(at)} of {total} entries"] if len(at) < total else []
    if len(varying) < len(at):
        notes.append(f"{len(at) - len(varying)} constant, left out")
    label = [_entry_label(ordered, i) for i in varying]
    return _judged(name, values[:, :, varying], label, limits, kind, "; ".join(notes))


def _judged(
    name: str, values: FloatArray, label: Sequence[str], limits: Limits, kind: Kind, note: str
) -> Row:
    """Row of varying entries, (C, S, P)."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(all="ignore"):  # a constant chain has zero variance
        r_hat = arviz_stats.rhat(values, method="rank", **axes)
        bulk = arviz_stats.ess(values, method="bulk", relative=False, **axes)
        tail = arviz_stats.ess(values, method="tail", relative=False, prob=TAILS, **axes)
        mcse = arviz_stats.mcse(values, method="mean", **axes)
    r_hat = np.where(np.isnan(r_hat), np.inf, r_hat)
    bulk, tail = (np.where(np.isnan(ess), 0.0, ess) for ess in (bulk, tail))
    top, effective = int(r_hat.argmax()), np.minimum(bulk, tail)
    low = int(effective.argmin())
    causes = []
    if not r_hat[top] <= limits.r_hat:
        size = f"{r_hat[top]:.5g}" if r_hat[top] < HUGE_R_HAT else f"above {HUGE_R_HAT:.0f}"
        causes.append(f"R-hat {size}{label[top]}")
    head = "not converged" if causes else "too few draws"
    if not effective[low] >= limits.ess:
        causes.append(f"ESS {effective[low]:.0f}{label[low]}")
    verdict = f"{head}: {', '.join(causes)}" if causes else "ok"
    return Row(
        quantity=name,
        kind=kind,
        verdict=f"{verdict} ({note})" if note else verdict,
        entries=len(label),
        r_hat=float(min(r_hat[top], np.finfo(np.float64).max)),
        ess_bulk=float(bulk.min()),
        ess_tail=float(tail.min()),
        mcse_mean=float(np.nanmax(mcse, initial=0.0)),
        worst=name + label[top].removeprefix(AT),
    )


def _entry_label(draws: xr.DataArray, position: int) -> str:
    """Text `` at [label, label]`` of an entry (chain and draw are the first two axes)."""
    dims = draws.dims[2:]
    if not dims:
        return ""
    where = np.unravel_index(position, draws.shape[2:])
    labels = [
        str(draws[dim].values[i]) if dim in draws.coords else str(i)
        for dim, i in zip(dims, where, strict=True)
    ]
    return f"{AT}[{', '.join(labels)}]"


def divergences(stats: xr.Dataset) -> Row:
    """Number of divergent transitions of NUTS."""
    name = "divergences"
    if "diverging" not in stats:
        return _absent(name, "sampler", "diverging")
    diverging = np.asarray(stats["diverging"].values, dtype=bool)
    n = int(diverging.sum())
    verdict = f"ok: none of {diverging.size} transitions"
    if n:
        verdict = (
            f"not converged: {n} of {diverging.size} transitions diverged, the draws miss part of "
            "the posterior"
        )
    return Row(quantity=name, kind="sampler", verdict=verdict, value=n)


def energy(stats: xr.Dataset, limits: Limits) -> Row:
    """Smallest energy BFMI of the chains of NUTS."""
    name = "energy BFMI"
    if "energy" not in stats:
        return _absent(name, "sampler", "energy")
    values = np.asarray(stats["energy"].transpose(CHAIN, DRAW).values, dtype=np.float64)
    found = np.atleast_1d(arviz_stats.bfmi(values, chain_axis=0, draw_axis=1))
    low = int(np.argmin(np.where(np.isnan(found), -np.inf, found)))
    verdict = "ok"
    if not found[low] >= limits.bfmi:
        verdict = (
            f"not converged: BFMI {found[low]:.2g} of chain {low} is below {limits.bfmi:g}, "
            "heavy tails are not explored"
        )
    return Row(quantity=name, kind="sampler", verdict=verdict, value=float(found[low]))


def _absent(name: str, kind: Kind, *missing: str) -> Row:
    names = " and no ".join(missing)
    return Row(
        quantity=name, kind=kind, verdict=f"not applicable: sample_stats of the tree has no {names}"
    )


def k_hat(stats: xr.Dataset) -> Row:
    r"""Pareto k of the importance ratios :math:`p / q` of an approximation's draws [1]_.

    Parameters
    ----------
    stats : Dataset
        With the joint log density ``log_p`` of the model, up to a constant, and that of the
        approximation ``log_q``, in the same parametrisation, (chain, draw).

    References
    ----------
    .. [1] Y. Yao, A. Vehtari, D. Simpson, A. Gelman (2018). Yes, but did it work? Evaluating
           variational inference. International Conference on Machine Learning 35.
    """
    name, kind = "k-hat", APPROXIMATION
    missing = [needed for needed in ("log_p", "log_q") if needed not in stats]
    if missing:
        return _absent(name, kind, *missing)
    ratio = np.ravel(stats["log_p"].values - stats["log_q"].values).astype(np.float64)
    if len(ratio) < MIN_DRAWS_TAIL:
        verdict = f"not applicable: {len(ratio)} draws are too few, {MIN_DRAWS_TAIL} are needed"
        return Row(quantity=name, kind=kind, verdict=verdict)
    bad = int((~np.isfinite(ratio)).sum())
    if bad:
        verdict = f"not converged: log_p - log_q is not finite for {bad} of {len(ratio)} draws"
        return Row(quantity=name, kind=kind, verdict=verdict)
    if np.ptp(ratio) == 0.0:
        verdict = "ok: the approximation is the posterior, up to a constant"
        return Row(quantity=name, kind=kind, verdict=verdict)
    # psislw expects negative log ratios, as for leave-one-out weights.
    k = float(np.asarray(array_stats.psislw(-ratio, r_eff=1.0, axis=-1)[1]))
    limit = min(1.0 - 1.0 / np.log10(len(ratio)), K_HAT_LIMIT)
    if k <= limit:
        verdict = f"ok: up to {limit:.2g} importance weights can correct the draws"
    else:
        verdict = (
            f"not converged: {k:.2g} is above {limit:.2g}, the approximation is far from the "
            "posterior"
        )
    return Row(quantity=name, kind=kind, verdict=verdict, value=k)


def restarts(values: FloatArray, limits: Limits) -> Row:
    """Whether several restarts reach the same value (higher is better), (n,) in nats."""
    name, kind = "restarts", SEARCH
    found = np.sort(np.asarray(values, dtype=np.float64).ravel())
    found = found[np.isfinite(found)][::-1]
    if len(found) < 2:
        verdict = "not applicable: one run cannot show whether there is a better optimum"
        return Row(quantity=name, kind=kind, verdict=verdict)
    gap, spread = found[0] - found[1], found[0] - found[-1]
    same = int((found[0] - found <= limits.gap).sum())
    if same > 1:
        verdict = f"ok: {same} of {len(found)} within {limits.gap:g} nats of the best"
    else:
        verdict = f"not converged: only one of {len(found)} reaches the best value, the next is "
        verdict += f"{gap:.3g} nats below"
    if same < len(found):
        verdict += f"; the worst {spread:.3g} nats below"
    return Row(quantity=name, kind=kind, verdict=verdict, value=float(gap))


def bound_drift(elbo: FloatArray, limits: Limits) -> Row:
    """Whether a noisy bound (n_steps,) still rises from its second last to its last tenth."""
    name, kind = "bound", SEARCH
    tenth = len(elbo) // 10
    if tenth < 2:
        verdict = "not applicable: too few steps to tell whether the bound still rises"
        return Row(quantity=name, kind=kind, verdict=verdict)
    last, before = elbo[-tenth:], elbo[-2 * tenth : -tenth]
    gain = float(last.mean() - before.mean())
    error = float(np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / tenth))
    if not np.isfinite(gain):
        return Row(quantity=name, kind=kind, verdict="not converged: the bound is not finite")
    rose = f"{gain:.2g} ± {error:.1g} nats in the last tenth of the steps"
    if gain > limits.gap and gain > STANDARD_ERRORS * error:
        verdict = f"not converged: still rose by {rose}"
    else:
        verdict = f"ok: changed by {rose}"
    return Row(quantity=name, kind=kind, verdict=verdict, value=gain)


# Arguments of `align_draws` for each model; the loadings span its subspace.
ALIGNMENT: Mapping[str, Mapping[str, Any]] = {
    "bsdr": {"loadings": "projection", "weights": "weights", "method": "signed_permutation"},
    "bm2pca": {"loadings": "loadings", "weights": "weights", "method": "procrustes"},
    "dgplvm": {"loadings": "latent", "method": "procrustes"},
}


def identified(
    dataset: xr.Dataset,
    quantities: Sequence[str] | Mapping[str, xr.DataArray] | None,
    spec: ModelSpec | None,
    tree: xr.DataTree,
    group: str,
) -> dict[str, xr.DataArray]:
    """Quantities given by the user, or else the identified variables of the specification."""
    if isinstance(quantities, Mapping):
        for name, array in quantities.items():
            absent = [dim for dim in (CHAIN, DRAW) if dim not in array.dims]
            if absent:
                raise ValueError(f"quantity {name!r} has no dim {' and no '.join(absent)}")
        return dict(quantities)
    if quantities is not None:
        names = [quantities] if isinstance(quantities, str) else list(quantities)
        read_draws(tree, group, *names)
        return {name: dataset[name] for name in names}
    if spec is None:
        raise ValueError(
            "the tree is of no model of this package: give quantities=..., variables of group "
            f"{group!r} that are invariant to permutation and rotation of components; it has "
            f"{sorted(map(str, dataset.data_vars))}"
        )
    names = list(spec.identified)
    if spec.name == "bsdr" and "bias_centered" not in dataset:
        # Identified for multi-label and real outputs.
        names += ["bias", "noise_precision", "noise_scale"]
    found = {name: dataset[name] for name in names if name in dataset}
    if not found:
        raise ValueError(
            f"group {group!r} has none of the identified quantities of {spec.name!r}, "
            f"{list(spec.identified)}; its variables are {sorted(map(str, dataset.data_vars))}"
        )
    return found


def derived(tree: xr.DataTree, dataset: xr.Dataset, spec: ModelSpec, limits: Limits) -> list[Row]:
    """Rows of the subspace, and of the log likelihood."""
    rows = []
    basis = ALIGNMENT[spec.name]["loadings"] if spec.name in ALIGNMENT else None
    if basis in dataset:
        rows.append(_subspace(dataset[basis], limits))
    for group in {"log_likelihood", "approximate_log_likelihood"} & tree.children.keys():
        pointwise = tree[group].to_dataset()
        for name, array in pointwise.data_vars.items():
            inner = [dim for dim in array.dims if dim not in (CHAIN, DRAW)]
            found = {f"log likelihood of {name}": array.sum(inner)}
            if tree.attrs.get("target") == "multiclass":
                found["probability of observed class"] = array.copy(data=np.exp(array.values))
            rows += [
                checks.mixing(label, values, limits, kind="identified")
                for label, values in found.items()
            ]
    return rows


def _subspace(loadings: xr.DataArray, limits: Limits) -> Row:
    """Row of the projector onto the span of the components, which is invariant to rotations."""
    name = "subspace projector"
    [row_dim] = [dim for dim in loadings.dims if dim not in (CHAIN, DRAW, COMPONENT)]
    ordered = loadings.transpose(CHAIN, DRAW, row_dim, COMPONENT)
    n_samples, r = ordered.shape[2:]
    if r >= n_samples:
        verdict = f"not applicable: {r} components span all {n_samples} dimensions"
        return Row(quantity=name, kind="identified", verdict=verdict)
    values = ordered.values
    if not np.isfinite(values).all():
        return checks.mixing(name, ordered, limits, kind="identified")
    basis = np.linalg.qr(values)[0]  # (C, S, P, R)
    total = n_samples * (n_samples + 1) // 2
    first, second = upper_pairs(n_samples, checks.spaced(total, limits.max_entries))
    entries = _products(basis, first, second)
    labels = ordered[row_dim].values.astype(str)
    pairs = [f"{labels[i]}, {labels[j]}" for i, j in zip(first, second, strict=True)]
    array = xr.DataArray(entries, dims=(CHAIN, DRAW, "pair"), coords={"pair": pairs})
    return checks.mixing(name, array, limits, kind="identified", total=total)


def upper_pairs(n: int, at: IntArray) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries `at` (m,) of an (n, n) upper triangle in row-major order."""
    ends = np.cumsum(n - np.arange(n))
    row = np.searchsorted(ends, at, side="right")
    return row, at - ends[row] + n


def _products(basis: FloatArray, first: IntArray, second: IntArray) -> FloatArray:
    """Inner products (C, S, n) of pairs of rows of (C, S, P, R); loops over R to save memory."""
    found = np.zeros((*basis.shape[:2], len(first)))
    for component in range(basis.shape[3]):
        found += basis[:, :, first, component] * basis[:, :, second, component]
    return found
