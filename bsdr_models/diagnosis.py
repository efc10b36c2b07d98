"""Convergence diagnostics for the draws of any model and engine, in one table.

For Markov chains: R-hat and effective sample sizes of identified quantities. For approximations and
modes: convergence of the search, restarts and Pareto k, but never R-hat.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import xarray as xr

from bsdr_models import diagnosis_checks as checks
from bsdr_models.alignment import SUFFIX, align_draws, read_draws
from bsdr_models.diagnosis_checks import ALIGNMENT, Limits, derived, identified
from bsdr_models.diagnosis_report import Diagnosis, Row
from bsdr_models.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.registry import REGISTRY
from bsdr_models.spec import ModelSpec

type Engine = Literal[
    "mcmc", "hmc", "conjugate", "gibbs", "nuts", "mean_field", "advi", "laplace", "map"
]

ENGINES: tuple[str, ...] = get_args(Engine.__value__)
MCMC = ("mcmc", "hmc", "gibbs", "nuts")
INDEPENDENT = (
    "not applicable: the draws are independent by construction, so R-hat and effective sample size "
    "do not measure the approximation"
)
NARROW = {
    "mean_field": "the factors are independent, so intervals are usually too narrow",
    "advi": (
        "the approximation is a product of normals on the unconstrained scale, without "
        "correlations, and intervals are usually too narrow"
    ),
    "laplace": "a normal approximation at the mode: good for many samples, not for few",
}
HELD = (
    "metric and subspace are held fixed at their estimates: the draws are of the classifier alone, "
    "and too narrow"
)
POINT = "not applicable: a mode has no spread"


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
    """Diagnose the convergence of the draws of a tree.

    Parameters
    ----------
    tree : xarray.DataTree
        Of a model of this package or of any other.
    spec : ModelSpec, optional
        By default that of the model of this package named by the root attribute ``model``.
    quantities : sequence of str or mapping of str to DataArray, optional
        Variables of the group, or arrays with the dims chain and draw, for example a product of
        loadings and weights. By default the identified variables of the specification, the subspace
        of the components, the log likelihood and the probabilities of the observed classes.
        Required without a specification; ignored for approximations and modes.
    engine : {"mcmc", "hmc", "gibbs", "nuts", "mean_field", "advi", "laplace", "map"}, optional
        By default the root attribute ``inference_method``, or else ``"mcmc"``.
    group : str
        Group of the draws.
    r_hat, ess, bfmi : float
        Limits: largest R-hat, smallest effective sample size (bulk and tail, over all chains) and
        smallest energy BFMI.
    gap : float
        Values of a bound or log density that differ by less, in nats, count as equal.
    max_entries : int
        Largest number of entries checked per quantity, evenly spaced.

    Returns
    -------
    Diagnosis
        Prints as a table; see also ``rows``, ``table`` (a Dataset) and ``converged``.

    Raises
    ------
    TypeError
        If `tree` is not a DataTree.
    ValueError
        If the group or a quantity is missing, no quantity is known to be identified, or the engine
        is unknown.

    See Also
    --------
    align_draws : makes the R-hat of components meaningful.

    Notes
    -----
    Loadings of this package's models are aligned first (:func:`~bsdr_models.align_draws`), unless
    the tree has a group ``<group>_aligned``. R-hat is rank-normalised and split, effective sample
    sizes are those of [1]_. Approximations with ``log_p`` and ``log_q`` of their draws in
    ``sample_stats`` are checked by Pareto k [2]_.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner (2021).
           Rank-normalization, folding, and localization: an improved R-hat. Bayesian Analysis 16.
    .. [2] Y. Yao, A. Vehtari, D. Simpson, A. Gelman (2018). Yes, but did it work? Evaluating
           variational inference. International Conference on Machine Learning 35.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models import BSDRClassifier, diagnose
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::3], y[::3])
    >>> found = diagnose(model.idata_)
    >>> print(found.title)
    bsdr, hmc: 4 chains of 800 draws
    >>> "R-hat" in str(found)  # a line for each quantity, with a verdict
    True
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
            remarks.append("The run was interrupted: these are the draws until then.")
        title = f"{name}, {method}: {chains} of {draws}"
    else:
        if quantities is not None:  # only validated
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
    """Rows of aligned variables, and a remark on how they were aligned."""
    if group + SUFFIX not in tree.children:
        options = dict(ALIGNMENT.get(spec.name, {})) if spec is not None else {}
        names = [options[key] for key in ("loadings", "weights") if key in options]
        if not names or any(name not in dataset for name in names):
            return [], []
        if dataset.sizes[CHAIN] < 2 or not all(np.isfinite(dataset[n]).all() for n in names):
            found = {name: dataset[name] for name in names}  # `mixing` reports why
            return [
                checks.mixing(n, array, limits, kind="aligned") for n, array in found.items()
            ], []
        if tree.attrs.get("alignment") == "affine":
            found = {f"{name}, aligned": dataset[name] for name in names}
            return [checks.mixing(n, each, limits, kind="aligned") for n, each in found.items()], [
                "Each draw is mapped affinely into common coordinates of the latent space."
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
    """Sampler statistics of NUTS."""
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    rows = []
    if engine == "nuts" or "diverging" in stats:
        rows.append(checks.divergences(stats))
    if engine == "nuts" or "energy" in stats:
        rows.append(checks.energy(stats, limits))
    return rows


def _approximation(tree: xr.DataTree, engine: str, limits: Limits) -> list[Row]:
    """Checks of an approximation or a mode."""
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
        known = HELD if "metric_scale" in tree.attrs else NARROW[engine]
        verdict = f"not applicable: a property of the method, not measured here; {known}"
        rows.append(Row(quantity="spread", kind="approximation", verdict=verdict))
    return rows


def _search(tree: xr.DataTree, engine: str) -> Row:
    """Whether the search for an optimum converged."""
    what = "the search for the mode" if engine in ("map", "laplace") else "the bound"
    converged = tree.attrs.get("converged")
    if tree.attrs.get("interrupted"):
        verdict = "not converged: interrupted"
    elif converged is None:
        verdict = "not applicable: the tree does not say whether the search converged"
    elif converged:
        verdict = f"ok: {what} converged"
    else:
        verdict = f"not converged: {what} stopped early"
    return Row(quantity="optimum", kind="search", verdict=verdict)
