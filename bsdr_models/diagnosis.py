"""One table on what the draws of a tree are worth, whichever model and engine made them.

Of a Markov chain it asks whether its chains agree and how many independent draws theirs are worth,
on quantities that mean something in every draw; of an approximation and of a mode it asks what
they have to answer for, and never R-hat.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import xarray as xr

from bsdr_models import diagnosis_checks as checks
from bsdr_models.alignment import SUFFIX, align_draws, read_draws
from bsdr_models.diagnosis_checks import Limits
from bsdr_models.diagnosis_quantities import ALIGNMENT, derived, identified
from bsdr_models.diagnosis_report import Diagnosis, Row
from bsdr_models.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.registry import REGISTRY
from bsdr_models.spec import ModelSpec

type Engine = Literal["mcmc", "smc", "gibbs", "nuts", "mean_field", "advi", "laplace", "map"]

ENGINES: tuple[str, ...] = get_args(Engine.__value__)
MCMC = ("mcmc", "smc", "gibbs", "nuts")
INDEPENDENT = (
    "not applicable: the draws are independent by construction, R-hat and effective sample size "
    "say nothing of the posterior"
)
NARROW = {
    "mean_field": "the factors are independent of each other, so intervals are usually too narrow",
    "advi": (
        "the approximation is a product of normals on the unconstrained scale: it has no "
        "correlations, and intervals are usually too narrow"
    ),
    "laplace": "a normal distribution around the mode: right for many samples, not for few",
}
HELD = (
    "what the classifier stands on (metric, subspace) is held at its estimate: the draws are of "
    "the classifier alone, and too narrow by the rest"
)
POINT = "not applicable: a mode is one point, it has no spread"


def diagnose(
    tree: xr.DataTree,
    *,
    spec: ModelSpec | None = None,
    quantities: Sequence[str] | Mapping[str, xr.DataArray] | None = None,
    engine: Engine | None = None,
    group: str = "posterior",
    r_hat: float = 1.01,
    ess: float = 400.0,
    bfmi: float = 0.3,
    gap: float = 1.0,
    max_entries: int = 1000,
) -> Diagnosis:
    """Say in words what the draws of a tree are worth.

    Parameters
    ----------
    tree : xarray.DataTree
        Of a model of this package or of any other.
    card : ModelSpec, optional
        By default that of the root attribute ``model``, where it names a model of this package.
    quantities : sequence of str or mapping of str to DataArray, optional
        What to look at: variables of the group, or arrays with the dims chain and draw, for
        example a product of loadings and weights. By default those that the card calls identified,
        and what follows from the tree: the subspace of the components, the log likelihood and the
        probabilities of the observed classes. A tree without a card needs them. Of an
        approximation or a mode nothing is said by quantity.
    engine : {"mcmc", "smc", "gibbs", "nuts", "mean_field", "advi", "laplace", "map"}, optional
        By default the root attribute ``inference_method``, and ``"mcmc"`` without one.
    group : str
        Where the draws are.
    r_hat, ess, bfmi : float
        What passes: R-hat up to the first, effective sample sizes (bulk and tail, over all chains)
        and energy BFMI from the others on.
    gap : float
        Values of a bound or of a log density that differ by less, in nats, count as the same.
    max_entries : int
        Entries of a quantity that are looked at, evenly spaced; the verdict says if there are more.

    Returns
    -------
    Diagnosis
        Prints as a table; ``rows``, ``table`` (a Dataset) and ``converged`` hold the same.

    Raises
    ------
    TypeError
        If `tree` is not a DataTree.
    ValueError
        If the group or a quantity is missing, there is nothing known to be identified, or the
        engine is not one of those above. The message names it.

    Notes
    -----
    Loadings of this package's models are aligned first (:func:`~bsdr_models.align_draws`); if the
    tree has a group ``<group>_aligned``, its variables are taken. R-hat is rank-normalised and
    split, effective sample sizes are those of [1]_. A tree of an approximation that carries
    ``log_p`` and ``log_q`` of its draws in ``sample_stats`` is judged by Pareto k [2]_.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner (2021).
           Rank-normalization, folding, and localization: an improved R-hat. Bayesian Analysis 16.
    .. [2] Y. Yao, A. Vehtari, D. Simpson, A. Gelman (2018). Yes, but did it work? Evaluating
           variational inference. International Conference on Machine Learning 35.

    Examples
    --------
    >>> classifier = BSDRClassifier(inference="nuts").fit(X, y)  # doctest: +SKIP
    >>> print(diagnose(classifier.idata_))  # doctest: +SKIP
    """
    dataset = read_draws(tree, group)
    method = _method(tree, engine)
    spec = spec if spec is not None else _spec(tree)
    limits = Limits(r_hat=r_hat, ess=ess, bfmi=bfmi, gap=gap, max_entries=max_entries)
    name = spec.name if spec is not None else str(tree.attrs.get("model", group))
    n_chains, n_draws = dataset.sizes[CHAIN], dataset.sizes[DRAW]
    chains = "1 chain" if n_chains == 1 else f"{n_chains} chains"
    draws = "1 draw" if n_draws == 1 else f"{n_draws} draws"
    if method in MCMC:
        named = identified(dataset, quantities, spec, tree, group)
        rows = [
            checks.mixing(key, array, limits, kind="identified") for key, array in named.items()
        ]
        if spec is not None and quantities is None:
            rows += derived(tree, dataset, spec, limits)
        aligned, remarks = _aligned(tree, dataset, spec, group, limits)
        rows += aligned
        rows += _sampler(tree, method, limits)
        if tree.attrs.get("interrupted"):
            remarks.append("The run was interrupted: these are its draws until then.")
        title = f"{name}, {method}: {chains} of {draws}"
    else:
        if quantities is not None:  # nothing is said of them, but they have to be there
            identified(dataset, quantities, spec, tree, group)
        rows, remarks = _approximation(tree, method, limits), []
        title = f"{name}, {method}: {draws}"
    return Diagnosis(title=title, rows=tuple(rows), is_mcmc=method in MCMC, remarks=tuple(remarks))


def _method(tree: xr.DataTree, engine: Engine | None) -> str:
    found = str(engine if engine is not None else tree.attrs.get("inference_method", "mcmc"))
    if found not in ENGINES:
        source = "got" if engine is not None else "the tree has inference_method ="
        raise ValueError(f"engine must be one of {ENGINES}, {source} {found!r}")
    return found


def _spec(tree: xr.DataTree) -> ModelSpec | None:
    found = [spec for spec in REGISTRY if spec.name == tree.attrs.get("model")]
    return found[0] if found else None


def _aligned(
    tree: xr.DataTree, dataset: xr.Dataset, spec: ModelSpec | None, group: str, limits: Limits
) -> tuple[list[Row], list[str]]:
    """Rows of what has been aligned, or is here, and a note that says how."""
    if group + SUFFIX not in tree.children:
        options = dict(ALIGNMENT.get(spec.name, {})) if spec is not None else {}
        names = [options[key] for key in ("loadings", "weights") if key in options]
        if not names or any(name not in dataset for name in names):
            return [], []
        if dataset.sizes[CHAIN] < 2 or not all(np.isfinite(dataset[n]).all() for n in names):
            found = {name: dataset[name] for name in names}  # said as of any other draws
            return [
                checks.mixing(n, array, limits, kind="aligned") for n, array in found.items()
            ], []
        if tree.attrs.get("alignment") == "affine":
            found = {f"{name}, aligned": dataset[name] for name in names}
            return [checks.mixing(n, each, limits, kind="aligned") for n, each in found.items()], [
                "Draws are in common coordinates of the latent space, by an affine map of each."
            ]
        tree = align_draws(tree, group=group, component=COMPONENT, **options)
    aligned = tree[group + SUFFIX].to_dataset()
    rows = [
        checks.mixing(f"{name}, aligned", array, limits, kind="aligned")
        for name, array in aligned.data_vars.items()
    ]
    how = aligned.attrs.get("alignment")
    return rows, [f"Components were aligned by {how}."] if how else []


def _sampler(tree: xr.DataTree, engine: str, limits: Limits) -> list[Row]:
    """What NUTS reports of itself; other samplers have nothing of the kind."""
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    rows = []
    if engine == "nuts" or "diverging" in stats:
        rows.append(checks.divergences(stats))
    if engine == "nuts" or "energy" in stats:
        rows.append(checks.energy(stats, limits))
    return rows


def _approximation(tree: xr.DataTree, engine: str, limits: Limits) -> list[Row]:
    """What an approximation or a mode has to answer for."""
    fit = tree["fit"].to_dataset() if "fit" in tree.children else xr.Dataset()
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    rows = [Row(quantity="draws", kind="approximation", verdict=INDEPENDENT)]
    if engine == "map":
        rows = [Row(quantity="spread", kind="approximation", verdict=POINT)]
    if engine == "advi" and "elbo" in fit:
        rows.append(checks.bound_drift(fit["elbo"].values, limits))
    else:
        rows.append(_search(tree, engine))
    ends = fit["restarts"].values if "restarts" in fit else np.array([])
    rows.append(checks.restarts(ends, limits))
    if engine != "map":
        rows.append(checks.k_hat(stats))
        known = HELD if tree.attrs.get("variant") == "label_free" else NARROW[engine]
        verdict = f"not applicable: known of the method, not measured here; {known}"
        rows.append(Row(quantity="spread", kind="approximation", verdict=verdict))
    return rows


def _search(tree: xr.DataTree, engine: str) -> Row:
    """Whether the search for an optimum came to an end."""
    what = "the search for the mode" if engine in ("map", "laplace") else "the bound"
    converged = tree.attrs.get("converged")
    if tree.attrs.get("interrupted"):
        verdict = "not converged: interrupted"
    elif converged is None:
        verdict = "not applicable: the tree does not say whether the search came to an end"
    elif converged:
        verdict = f"ok: {what} came to rest"
    else:
        verdict = f"not converged: {what} stopped before it came to rest"
    return Row(quantity="optimum", kind="search", verdict=verdict)
