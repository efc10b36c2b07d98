r"""Eq. (13) of Urtasun and Darrell (2007) as a PyMC model with a proper density.

With the centred features Y (N, D), :math:`K = \theta_1 e^{-\theta_2 |x_i - x_j|^2 / 2} + \theta_3 +
\delta_{ij} / \theta_4` and the back-constraint :math:`X = L U`, Eqs. (17) and (18),

.. math::
    p(\theta_i) \propto 1 / \theta_i, \quad l_i < \log \theta_i < h_i, \qquad
    U_{ij} \sim N(0, s^2), \qquad
    y_d \sim N(0, K), \qquad p(X) \propto e^{-w J(X)} .

The paper has no prior of U and no bounds of :math:`\theta`, and its density no finite integral. A
large s and the bounds of :mod:`~bsdr_models.papers.dgplvm.map` make it proper; the posterior
depends on them. Optional are the classifier, whose latent functions have the covariance K, Eqs. (1)
to (3), and new samples, Eqs. (14) to (16). The dynamics of Eqs. (19) and (20) are left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms
from pytensor.tensor import linalg

from bsdr_models.data.validation import check_features
from bsdr_models.dgplvm import model as shared
from bsdr_models.dgplvm.priors import CriterionName
from bsdr_models.dgplvm.problem import DGPLVMProblem, FeatureGram, choose_criterion
from bsdr_models.inference.declaring import (
    OwnPriors,
    Tensor,
    declare_constant,
    draw_sign,
    log_sign_probability,
    named_model,
    read_priors,
    starting_at,
)
from bsdr_models.inference.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS, SCORE
from bsdr_models.numerics.arrays import (
    DeclaredTarget,
    FloatArray,
    IntArray,
    SamplesLike,
    TargetLike,
)
from bsdr_models.numerics.linalg import squared_distances
from bsdr_models.options import check_number
from bsdr_models.papers.dgplvm.map import THETA, THETA_DIM, kernel_mapping, theta_priors

# Dim of the new samples.
NEW_OBS = "new_obs"
# s, so large that the prior hardly affects latent coordinates of unit variance.
RAW_SCALE = 100.0
# Added to the bounds of log theta: the mode may be at a bound, where the transform is infinite.
MARGIN = np.array([[-1e-9], [1e-9]])


def build_model(
    X: SamplesLike,
    y: TargetLike,
    *,
    n_components: int,
    target: DeclaredTarget = "multiclass",
    priors: Mapping[str, object] | None = None,
    weight: float = 1e4,
    criterion: CriterionName = "auto",
    width: float | None = 2.0,
    unlabeled: object = None,
    classifier: bool = False,
    X_new: SamplesLike | None = None,
    name: str = "",
) -> pm.Model:
    r"""Declare Eq. (13) of the paper as a PyMC model with named dims, within bounds.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features (the paper's Y), used as they are. Column names of a data frame become the
        coordinate ``feature``.
    y : array-like of shape (N,)
        Labels of a sortable type, at least two classes.
    n_components : int
        R, from 1 to D.
    target, name
        As for :func:`build_model`.
    priors : dict, optional
        Priors of variables by name, as for :func:`bsdr_models.bsdr.build_model`.
    weight : float, default=1e4
        1 / sigma_d**2, weight of the discriminative prior.
    criterion : {"auto", "trace_ratio", "inverse_trace", "total"}
        J of the labelled samples; "auto" is tr(S_b^-1 S_w), Eq. (13), with fewer components than
        classes.
    width : float or None, default=2
        gamma of the back-constraint, Eq. (18), in units of the inverse median squared distance of
        the samples; None for no back-constraint.
    unlabeled : object, optional
        Value of y that marks a missing label. Such samples do not enter J.
    classifier : bool, default=False
        Observe y by a Gaussian process of the latent coordinates for each class, against the rest,
        with the covariance of the features and a probit link: Eqs. (1) to (3), as Section 5 says.
    X_new : array-like of shape (M, D), optional
        New samples, which the latent coordinates ``new_latent`` (new_obs, component) explain by
        Eqs. (14) to (16); ``pm.do`` fixes the variables of the training samples.

    Returns
    -------
    pymc.Model
        Free variables: ``theta`` (kernel_parameter,) and ``latent_raw`` (basis, component),
        coefficients of kernels, or the latent coordinates without a back-constraint. Deterministic:
        ``latent`` (obs, component) and ``criterion``, J. The likelihood and J are the potentials
        ``generative`` and ``discriminative``.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there are fewer than two classes, or an argument
        is out of range.

    See Also
    --------
    bsdr_models.dgplvm.build_model : the recommended model.
    bsdr_models.papers.PaperDGPLVMClassifier : the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models.papers.dgplvm import build_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = build_model(scale(X[::3]), y[::3], n_components=2)
    >>> model.named_vars_to_dims["theta"]
    ('kernel_parameter',)
    """
    check_number("weight", weight)
    if width is not None:
        check_number("width", width)
    X_array, features = check_features(X, y, n_components)
    _, own = read_priors(priors, None)
    y_index, classes = shared.check_labels(y, unlabeled, target, n_samples=len(X_array))
    n_labelled = int((y_index >= 0).sum())
    chosen = choose_criterion(criterion, n_components, len(classes), n_labelled)
    if classifier and n_labelled < len(X_array):
        raise ValueError("classifier=True needs a label of every sample")
    mapping = kernel_mapping(X_array, width)
    mean = X_array.mean(axis=0)
    gram = FeatureGram.of(X_array - mean)
    bounds = theta_priors(gram)
    low, high = np.array([prior.bounds for prior in bounds]).T + MARGIN
    medians = [prior.log_median for prior in bounds]
    problem = DGPLVMProblem(X=X_array, y_index=y_index, n_components=n_components)
    start = problem.starts(1, np.random.default_rng(0))[0]
    coords = {
        OBS: range(len(X_array)),
        FEATURE: features,
        COMPONENT: range(n_components),
        BASIS: range(len(X_array)),
        LABEL: classes,
        THETA_DIM: THETA,
    }
    with named_model(name, coords) as model:
        declare_constant("X", X_array, dims=(OBS, FEATURE))
        declare_constant("y_data", y_index, dims=(OBS,))
        declare_constant("width", np.inf if width is None else width)
        theta = own.declare(_log_uniform, "theta", low, high, np.exp(medians), dims=THETA_DIM)
        from_labels = starting_at(mapping.raw(start))
        U = from_labels("latent_raw", mu=0.0, sigma=RAW_SCALE, dims=(BASIS, COMPONENT))
        X_latent = pt.as_tensor(mapping.factor) @ U  # Eq. (17)
        latent = pm.Deterministic("latent", X_latent, dims=shared.LATENT_DIMS)
        J = shared.class_separation(latent, y_index, chosen)
        pm.Deterministic("criterion", J)
        output, inverse_width, bias, inverse_noise = (theta[i] for i in range(4))
        lengthscale = inverse_width**-0.5
        K = shared.kernel(latent, output, lengthscale, 1.0 / inverse_noise) + bias  # Eq. (5)
        density = shared.normal_density(K, pt.as_tensor(gram.root), gram.n_features)  # Eq. (4)
        pm.Potential("generative", density)
        pm.Potential("discriminative", -weight * J)  # Eq. (12)
        L = linalg.cholesky(K, lower=True)
        if classifier:
            _classify(L, y_index, own)
        if X_new is not None:
            new = check_features(X_new, None, 1)[0]
            if new.shape[1] != len(mean):
                raise ValueError(f"X_new has {new.shape[1]} features, and X {len(mean)}")
            model.add_coord(NEW_OBS, range(len(new)))
            near = start[squared_distances(new, X_array).argmin(axis=1)]
            x = starting_at(near)("new_latent", mu=0.0, sigma=1.0, dims=(NEW_OBS, COMPONENT))
            k = shared.rbf(latent, x, output, lengthscale) + bias  # (N, M)
            half = linalg.solve_triangular(L, k, lower=True)
            Y = linalg.solve_triangular(L, pt.as_tensor(X_array - mean), lower=True)
            variance = output + bias + 1.0 / inverse_noise - (half**2).sum(axis=0)  # Eq. (16)
            mu = mean + half.T @ Y  # Eq. (15)
            sd = pt.sqrt(variance)[:, None]
            pm.Normal("new_samples", mu, sd, observed=new, dims=(NEW_OBS, FEATURE))  # Eq. (14)
        own.check(**shared.FIXED)
    return model


def _classify(L: Tensor, y_index: IntArray, own: OwnPriors) -> None:
    """Labels by latent functions of the covariance L L' (N, N); two classes share a function."""
    k = int(y_index.max()) + 1
    axes = (OBS, LABEL if k > 2 else SCORE)
    if k == 2:
        pm.modelcontext(None).add_coord(SCORE, [0])
    raw = own.declare(pm.Normal, "function_raw", 0.0, 1.0, dims=axes)
    f = pm.Deterministic("function", L @ raw, dims=axes)  # N(0, K) of Eq. (2)
    own_class = (y_index[:, None] == np.arange(k == 2, k)).astype(np.int64)
    options = {"dtype": "int64", "observed": own_class, "dims": axes}
    pm.CustomDist("y", f, dist=draw_sign, logp=log_sign_probability, **options)  # Eq. (1)


def _log_uniform(
    name: str, low: FloatArray, high: FloatArray, start: FloatArray, *, dims: str
) -> Tensor:
    """Positive variables (4,) of density 1 / theta within bounds of their logarithms."""
    ends = [pt.constant(end, dtype=pytensor.config.floatX) for end in (low, high)]
    bounds = transforms.Interval(bounds_fn=lambda *_: tuple(ends))

    def draw(low: Tensor, high: Tensor, size: Any) -> Tensor:
        return pt.cast(pt.exp(pm.Uniform.dist(low, high, size=size)), pytensor.config.floatX)

    return pm.CustomDist(
        name,
        low,
        high,
        dist=draw,
        support_point=lambda *_: pt.constant(start, dtype=pytensor.config.floatX),
        transform=transforms.Chain([transforms.log, bounds]),
        dims=dims,
    )
