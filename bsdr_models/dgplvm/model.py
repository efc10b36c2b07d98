r"""D-GPLVM as a declarative PyMC model with a proper density.

As in the paper Y (N, D) are the centred features and X (N, R) the latent coordinates. With
:math:`\bar a` and T such that those of the labelled samples have mean 0 and covariance I,

.. math::
    U_{ij} \sim N(0, 1), \qquad A = L_b U, \qquad X = (A - 1 \bar a^\top) T, \\
    a, \ell, b \sim \mathrm{LogNormal}, \qquad
    y_d = m_d 1 + \epsilon_d, \quad \epsilon_d \sim N(0, K), \qquad
    K = v a \exp(-|x_i - x_j|^2 / 2 \ell^2) + v b I.

v is the mean variance of the features, whose means :math:`m_d` have a flat prior and are integrated
out. Two more factors make the latent coordinates discriminative, the paper's Eq. (12), and smooth
in the features by the mapping of covariance :math:`K_b = L_b L_b^\top`, its scale integrated out,

.. math::
    \exp\{-w J(X)\}, \qquad
    \{1 + \operatorname{tr}(X^\top \Pi X) / \nu\}^{-((N - 1) R + \nu) / 2}.

X depends on the axes of U only, which are independent of U'U under any density of U'U. The factor
:math:`|U^\top U|` therefore changes no distribution of X; without it the mode would be at U = 0.

*Pseudo-likelihood.* The labels enter the prior of X and are not an outcome: y cannot be drawn from
this model. The likelihood is raised to a power :math:`\tau \le 1` because correlated features are
not independent. So these factors are potentials, which predictive draws ignore.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import linalg

from bsdr_models.data.validation import check_features
from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.left_out import initial_coordinates
from bsdr_models.dgplvm.priors import KERNEL, MAP_DOF, DGPLVMPriors
from bsdr_models.dgplvm.problem import FeatureGram, choose_criterion
from bsdr_models.inference import dims
from bsdr_models.inference.declaring import (
    Tensor,
    declare_constant,
    named_model,
    read_declared,
    read_priors,
    starting_at,
)
from bsdr_models.numerics.arrays import (
    DeclaredTarget,
    FloatArray,
    IntArray,
    SamplesLike,
    TargetLike,
)
from bsdr_models.options import TOLERANCE, check_number

LATENT_DIMS = (dims.OBS, dims.COMPONENT)
# Why no other prior can be given.
FIXED = {"latent_raw": "its initial value comes from the labels and is of a normal variable"}


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int,
    target: DeclaredTarget = "multiclass",
    priors: DGPLVMPriors | Mapping[str, object] | None = None,
    width: float = 2.0,
    map_noise: float = 0.02,
    unlabeled: object = None,
    name: str = "",
) -> pm.Model:
    r"""Declare the pseudo-posterior of D-GPLVM as a PyMC model with named dims.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features (the paper's Y), centred here and not scaled. Column names of a data frame become
        the coordinate ``feature``.
    y : array-like of shape (N,)
        Labels of a sortable type, at least two classes.
    n_components : int
        R, from 1 to D and below N; with ``trace_ratio`` at most one less than there are classes.
    target : {"multiclass", "binary"}, default="multiclass"
        What y holds; D-GPLVM has no other targets.
    priors : DGPLVMPriors or dict, optional
        Hyper-parameters, those of the estimator by default, or priors of variables as for
        :func:`bsdr_models.bsdr.build_model`. The weight of J of n labelled samples is
        :math:`w = \kappa n D_\mathrm{eff}`, kappa being ``weight``.
    width, map_noise : float
        g and lambda of the mapping from features to latent coordinates.
    unlabeled : object, optional
        Value of y that marks a missing label. Such samples do not enter J and c.
    name : str, default=""
        Prefix of all variables, for several models in one ``with pm.Model()``. These share dims.

    Returns
    -------
    pymc.Model
        Free variables: ``latent_raw`` (obs, component), U, and ``signal_variance``,
        ``lengthscale`` and ``noise_variance``, sampled as logarithms; the MAP engine maximises
        the density on that scale, too. Deterministic: ``latent`` (obs, component), identified up
        to a rotation, and ``criterion``, J. The potentials are ``generative``, ``discriminative``,
        ``map`` and ``scale``, all but the first without constants. ``y_data`` has indices into the
        coordinate ``outcome``, -1 for no label; ``pymc.set_data`` refuses to change it or ``X``.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there are fewer than two classes, all samples
        are equal, or an option is out of range.

    See Also
    --------
    bsdr_models.DGPLVMClassifier : the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.dgplvm import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = build_model(scale(X), y, n_components=2)
    >>> "latent" in model.named_vars
    True
    """
    numbers, own = read_priors(priors, DGPLVMPriors())
    check_number("weight", numbers.weight, TOLERANCE)
    check_number("width", width)
    check_number("map_noise", map_noise)
    X_array, features = check_features(X, y, n_components)
    y_index, classes = check_labels(y, unlabeled, target, n_samples=len(X_array))
    n_labeled = int((y_index >= 0).sum())
    criterion = choose_criterion(numbers.criterion, n_components, len(classes), n_labeled)

    Y = X_array - X_array.mean(axis=0)
    gram = FeatureGram.of(Y)
    mapping = make_mapping(Y, centroid_weights(y_index), width=width, noise=map_noise)
    coords = {
        dims.OBS: list(range(len(Y))),
        dims.FEATURE: features,
        dims.COMPONENT: list(range(n_components)),
        dims.LABEL: classes,
    }
    latent = initial_coordinates(mapping, Y, y_index, n_components)
    raw = mapping.raw(mapping.shrink_towards_loo(latent))
    start = raw / np.sqrt((raw**2).mean(axis=0))
    with named_model(name, coords) as model:
        declare_constant("X", X_array, dims=(dims.OBS, dims.FEATURE))
        declare_constant("y_data", y_index, dims=(dims.OBS,))
        declare_constant("map_width", width)
        declare_constant("map_noise", map_noise)

        U = starting_at(start)("latent_raw", mu=0.0, sigma=1.0, dims=LATENT_DIMS)
        a, ell, b = (
            own.declare(pm.LogNormal, each, mu=prior.log_median, sigma=np.float64(prior.log_sd))
            for each, prior in zip(KERNEL, numbers.kernel, strict=True)
        )

        latent = pm.Deterministic("latent", whiten(mapping.factor @ U, y_index), dims=LATENT_DIMS)
        J = pm.Deterministic("criterion", class_separation(latent, y_index, criterion))
        K = kernel(latent, gram.variance * a, ell, gram.variance * b)
        log_density = log_likelihood(K, gram.root, n_features=gram.n_features)
        pm.Potential("generative", gram.temper * log_density)
        pm.Potential("discriminative", -numbers.weight * n_labeled * gram.n_effective * J)
        E = np.eye(len(Y)) - np.outer(np.ones(len(Y)), mapping.mean_weights)
        half = np.linalg.solve(mapping.factor, E)  # the square is Pi
        size = (len(Y) - 1) * n_components + MAP_DOF
        pm.Potential("map", -0.5 * size * pt.log1p(((half @ latent) ** 2).sum() / MAP_DOF))
        scale = linalg.cholesky(U.T @ U, lower=True)
        pm.Potential("scale", 2.0 * pt.log(pt.diagonal(scale)).sum())
        own.check(**FIXED)
    return model


def normal_density(K: Tensor, root: Tensor, n_columns: int | None = None) -> Tensor:
    """Log density of columns with covariance K (N, N), whose Gram matrix is root root' (N, r)."""
    L = linalg.cholesky(K, lower=True)
    half = linalg.solve_triangular(L, root, lower=True)
    log_det = 2.0 * pt.log(pt.diagonal(L)).sum() + K.shape[0] * math.log(2.0 * math.pi)
    return -0.5 * ((n_columns or root.shape[1]) * log_det + (half**2).sum())


def back_constraint(
    raw: Tensor, X: FloatArray, *, width: float = 2.0, noise: float = 0.02
) -> Tensor:
    r"""Latent coordinates that are smooth in the features: a Gaussian process of each component.

    Parameters
    ----------
    raw : tensor of shape (N, R)
        Independent standard normal variables.
    X : ndarray of shape (N, D)
        Features.
    width, noise : float
        g and lambda of the kernel :math:`e^{-g |x - x'|^2 / 2 m} + \lambda \delta`, m the median
        squared distance between samples.

    Returns
    -------
    tensor of shape (N, R)

    See Also
    --------
    build_model : a model with a back-constraint.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models.parts import back_constraint
    >>> X, _ = load_iris(return_X_y=True)
    >>> with pm.Model():
    ...     raw = pm.Normal("raw", shape=(150, 2))
    ...     latent = pm.Deterministic("latent", back_constraint(raw, X))
    >>> pm.draw(latent).shape
    (150, 2)
    """
    weights = np.full(len(X), 1.0 / len(X))
    mapping = make_mapping(X, weights, width=width, noise=noise, mean_variance=0.0)
    return pt.as_tensor(mapping.factor) @ raw


def whiten(A: Tensor, y_index: IntArray) -> Tensor:
    """Transform (N, R) so that labelled samples have mean 0 and covariance I."""
    share = (y_index >= 0) / (y_index >= 0).sum()  # (N,)
    A = A - share @ A
    factor = linalg.cholesky(A.T @ (share[:, None] * A), lower=True)
    return linalg.solve_triangular(factor, A.T, lower=True).T


def kernel(latent: Tensor, signal: Tensor, lengthscale: Tensor, noise: Tensor) -> Tensor:
    """Covariance of a feature over samples, (N, N), with noise on the diagonal."""
    return rbf(latent, latent, signal, lengthscale) + noise * pt.eye(latent.shape[0])


def rbf(a: Tensor, b: Tensor, signal: Tensor, lengthscale: Tensor) -> Tensor:
    """Covariances (N, M) of samples (N, R) and (M, R), without noise."""
    difference = a[:, None] - b[None]
    return signal * pt.exp(-0.5 * (difference**2).sum(axis=2) / lengthscale**2)


def log_likelihood(K: Tensor, root: FloatArray, *, n_features: int) -> Tensor:
    """Log density of features with root (N, r), means integrated out, as of `likelihood`."""
    n_samples = len(root)
    L = linalg.cholesky(K, lower=True)
    columns = pt.as_tensor(np.column_stack([np.ones(n_samples), root]))
    half = linalg.solve_triangular(L, columns, lower=True)
    ones = half[:, 0]
    half_root = half[:, 1:]
    weight = (ones**2).sum()
    log_det = 2.0 * pt.log(pt.diagonal(L)).sum() + pt.log(weight) - math.log(n_samples)
    mean = (ones[:, None] * half_root).sum(axis=0)
    square = (half_root**2).sum() - (mean**2).sum() / weight
    constant = (n_samples - 1) * math.log(2.0 * math.pi)
    return -0.5 * (n_features * (log_det + constant) + square)


def class_separation(latent: Tensor, y: IntArray, criterion: str = "trace_ratio") -> Tensor:
    r"""Overlap J of classes in latent coordinates: Fisher's criterion and others, for a potential.

    Parameters
    ----------
    latent : tensor of shape (N, R)
        Latent coordinates of the samples.
    y : ndarray of shape (N,)
        Indices of the classes, -1 without a label.
    criterion : {"trace_ratio", "inverse_trace", "total"}
        :math:`tr(S_b^{-1} S_w)` or :math:`1 / tr(S_w^{-1} S_b)`, for fewer components than classes;
        :math:`tr(S_t^{-1} S_w)`, for any number.

    Returns
    -------
    tensor of shape ()
        Positive; undefined where a scatter matrix is singular.

    See Also
    --------
    build_model : a model with this prior.

    Examples
    --------
    >>> import pymc as pm
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models.parts import class_separation
    >>> X, y = load_iris(return_X_y=True)
    >>> with pm.Model() as model:
    ...     projection = pm.Normal("projection", shape=(4, 2))
    ...     J = pm.Potential("discriminative", -10.0 * class_separation(X @ projection, y))
    >>> bool(pm.draw(J) < 0.0)
    True
    """
    known = y >= 0
    indicator = (y[known, None] == np.unique(y[known])).astype(np.float64)  # (N, K)
    mean = (indicator / indicator.sum(axis=0)).T
    X = latent[np.flatnonzero(known)]
    X = X - X.mean(axis=0)
    fitted = indicator @ (mean @ X)
    within = X - fitted
    if criterion == "inverse_trace":
        return 1.0 / _scatter_ratio(fitted, within)
    return _scatter_ratio(within, fitted if criterion == "trace_ratio" else X)


def _scatter_ratio(above: Tensor, below: Tensor) -> Tensor:
    """tr((B'B)^-1 A'A) of A above and B below, (N, R) each."""
    factor = linalg.cholesky(below.T @ below, lower=True)
    return (linalg.solve_triangular(factor, above.T, lower=True) ** 2).sum()


def check_labels(
    y: TargetLike, unlabeled: object, target: DeclaredTarget, *, n_samples: int
) -> tuple[IntArray, list[Any]]:
    """Class indices (N,), -1 for no label, and the classes."""
    if target not in ("multiclass", "binary"):
        raise ValueError(f"D-GPLVM has the targets 'multiclass' and 'binary' only, got {target!r}")
    return read_declared(y, target, n_samples=n_samples, unlabeled=unlabeled)
