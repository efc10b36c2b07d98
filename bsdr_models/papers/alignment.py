r"""Alignment of the components in posterior draws of factor models.

Factor analysis, probabilistic PCA and their supervised variants are invariant to permutations and
sign flips of components, many also to rotations. Across draws, averages of loadings are then
meaningless, and R-hat can be large although chains have converged. :func:`align_draws` resolves
this after sampling, for trees of this package and of any other model.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from bsdr_models.inference.datatree import read_draws
from bsdr_models.inference.dims import CHAIN, COMPONENT, DRAW
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.linalg import rotations
from bsdr_models.options import check_parameters

Method = Literal["signed_permutation", "procrustes"]
SUFFIX = "_aligned"
# Starts of the alignment, of which the best is taken.
_N_STARTS = 4
# Most iterations from each start.
_MAX_ITER = 50


def align_draws(
    tree: xr.DataTree,
    *,
    loadings: str = "projection",
    weights: str | None = None,
    others: Sequence[str] = (),
    component: str = COMPONENT,
    method: Method = "signed_permutation",
    group: str = "posterior",
) -> xr.DataTree:
    r"""Align the order, sign and optionally rotation of components over all draws and chains.

    For loadings :math:`Q_s` and weights :math:`W_s` of draw s, find orthogonal :math:`O_s` by which
    all :math:`[Q_s; W_s^\top] O_s` agree as well as possible; this preserves
    :math:`Q_s W_s = (Q_s O_s) (O_s^\top W_s)`. For matching, loadings and weights of each draw are
    scaled to equal norms, since only their product is identified, and rows to equal sizes.

    Parameters
    ----------
    tree : xarray.DataTree
        Tree of any model; the group needs the dims chain and draw.
    loadings : str, default="projection"
        Variable with a component dim.
    weights : str, optional
        Variable multiplied with the loadings over the component dim: weights of a classifier, or
        factor scores. It is used for matching, and transformed with the loadings.
    others : sequence of str, optional
        Further variables with the component dim, for example latent coordinates. They are
        transformed but not used for matching. Non-negative ones (precisions, scales) are only
        permuted.
    component : str, default="component"
        Name of the component dim.
    method : {"signed_permutation", "procrustes"}
        Symmetry of the model: signed permutations for priors that are sparse or differ between
        entries or columns, rotations for spherical priors. Rotating a model that is not invariant
        to it would hide part of its uncertainty.
    group : str
        Group of the variables.

    Returns
    -------
    xarray.DataTree
        The tree with a further group ``<group>_aligned``, which holds the aligned variables under
        their own names, and the method as the attribute ``alignment``; the raw draws are unchanged.

    Raises
    ------
    TypeError
        If `tree` is not a DataTree, or names are no strings.
    ValueError
        If the group, a variable or the component dim is missing, draws are not finite, or a
        non-negative variable would be rotated.

    See Also
    --------
    diagnose : convergence of quantities that need no alignment.

    Notes
    -----
    The common order, signs and rotation of all draws remain arbitrary. Signed permutations keep the
    order of a typical draw; rotations end in the principal axes of the reference, largest first.

    References
    ----------
    .. [1] P. Papastamoulis, I. Ntzoufras (2022). On the identifiability of Bayesian factor
           analytic models. Statistics and Computing 32.
    .. [2] J. C. Gower (1975). Generalized Procrustes analysis. Psychometrika 40(1).

    Examples
    --------
    Draws of loadings that were rotated at random:

    >>> import numpy as np
    >>> import xarray as xr
    >>> from bsdr_models import align_draws
    >>> rng = np.random.default_rng(0)
    >>> turns = np.linalg.qr(rng.standard_normal((4, 50, 2, 2)))[0]
    >>> draws = rng.standard_normal((6, 2)) @ turns + 0.1 * rng.standard_normal((4, 50, 6, 2))
    >>> dims = ("chain", "draw", "feature", "factor")
    >>> posterior = xr.Dataset({"loadings": (dims, draws)})
    >>> tree = xr.DataTree.from_dict({"posterior": posterior})
    >>> aligned = align_draws(tree, loadings="loadings", component="factor", method="procrustes")
    >>> spread = aligned["posterior_aligned"]["loadings"].std(["chain", "draw"]).max()
    >>> bool(spread < 0.2 < posterior["loadings"].std(["chain", "draw"]).max())
    True
    """
    if method not in (methods := get_args(Method)):
        raise ValueError(f"method must be one of {methods}, got {method!r}")
    check_parameters({"others": [Iterable]}, locals(), "align_draws")
    names = [loadings, *([] if weights is None else [weights]), *others]
    dataset = read_draws(tree, group, *names)
    flat = {name: _flat(dataset[name], component, f"{group}/{name}") for name in names}
    sizes = {name for name in others if flat[name].min(initial=0.0) >= 0.0}
    if sizes and method != "signed_permutation":
        raise ValueError(
            f"{', '.join(sorted(sizes))} of {group} is never negative, and a size per component is "
            "undefined after rotation: remove it from others, or use method='signed_permutation'"
        )
    stacked = _balanced(flat[loadings], None if weights is None else flat[weights])
    turn = rotations(stacked) if method == "procrustes" else signed_permutations(stacked)
    turned = {
        name: values @ (np.abs(turn) if name in sizes else turn) for name, values in flat.items()
    }
    aligned = xr.Dataset(
        {name: _unflat(turned[name], dataset[name], component) for name in names},
        attrs={"alignment": method.replace("_", " ")},
    )
    out = tree.copy()
    out[group + SUFFIX] = xr.DataTree(aligned)
    return out


def _flat(array: xr.DataArray, component: str, name: str) -> FloatArray:
    """Finite draws (S, P, R): chains concatenated, all dims but the component dim flattened."""
    if component not in array.dims:
        raise ValueError(
            f"{name} has no dim {component!r}; its dims are {array.dims}: give component=..., a "
            "dim that loadings and weights share, by dims= in the model"
        )
    if array.size == 0:
        raise ValueError(f"{name} is empty: its draws have shape {array.shape}")
    last = array.transpose(CHAIN, DRAW, ..., component)
    values = np.asarray(last.values, dtype=np.float64)
    values = values.reshape(values.shape[0] * values.shape[1], -1, values.shape[-1])
    bad = ~np.isfinite(values).all(axis=(1, 2))
    if bad.any():
        raise ValueError(
            f"{name}: {int(bad.sum())} of {len(bad)} draws are not finite: remove them, or their "
            "chain, before alignment"
        )
    return values


def _unflat(values: FloatArray, like: xr.DataArray, component: str) -> xr.DataArray:
    last = like.transpose(CHAIN, DRAW, ..., component)
    turned = last.copy(data=values.reshape(last.shape)).transpose(*like.dims)
    # C order, as in a model loaded from a file.
    return turned.copy(data=np.ascontiguousarray(turned.values))


def _balanced(loadings: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Loadings and weights stacked, (S, P + K, R), scaled to equal norms in every draw.

    The product does not identify the norms; one factor per draw commutes with permutations and
    rotations.
    """
    if weights is None:
        return loadings
    size, of_weights = (
        np.linalg.norm(part, axis=(1, 2), keepdims=True) for part in (loadings, weights)
    )
    ratio = of_weights / np.maximum(size, np.finfo(np.float64).tiny)
    root = np.sqrt(np.where(np.isfinite(ratio) & (ratio > 0.0), ratio, 1.0))
    return np.concatenate([loadings * root, weights / root], axis=1)


# Arrays of draws


def signed_permutations(stacked: FloatArray) -> FloatArray:
    r"""Signed permutations (S, R, R) by which the components of all draws agree best.

    Minimises :math:`\sum_s \min_\pi |A_s \pi_s - M|^2` over signed permutations :math:`\pi_s` and
    the reference M, alternating assignment problems and means. ``stacked`` (S, P, R) are variables
    with a component axis, for example Q over W' (P = D + K); rows are divided by their median size
    and each draw by its norm, for robustness.
    """
    size = np.median(np.abs(stacked), axis=(0, 2))[:, None]
    scaled = stacked / np.where(size > 0.0, size, 1.0)
    norm = np.linalg.norm(scaled, axis=(1, 2), keepdims=True)
    scaled = scaled / np.where(norm > 0.0, norm, 1.0)

    starts = evenly_spaced(len(scaled), _N_STARTS)
    candidates = [_iterate(scaled, scaled[index]) for index in starts]
    _, turn = max(candidates, key=lambda candidate: candidate[0])
    return turn


def _iterate(scaled: FloatArray, reference: FloatArray) -> tuple[float, FloatArray]:
    """Agreement (higher is better), and signed permutations (S, R, R), from a reference (P, R)."""
    r = reference.shape[1]
    turn = np.zeros((len(scaled), r, r))
    for _ in range(_MAX_ITER):
        inner = reference.T @ scaled  # (S, R, R): component of the reference, of the draw
        order = np.array([linear_sum_assignment(-each)[1] for each in np.abs(inner)])
        last = turn
        turn = (np.eye(r)[order] * np.where(inner < 0.0, -1.0, 1.0)).mT
        if np.array_equal(turn, last):
            break
        reference = np.mean(scaled @ turn, axis=0)
    return float(np.linalg.norm(reference)), turn
