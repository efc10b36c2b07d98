r"""Eq. (13) of Urtasun and Darrell (2007) as a PyMC model with a proper density.

With the centred features Y (N, D), :math:`K = \theta_1 e^{-\theta_2 |x_i - x_j|^2 / 2} + \theta_3 +
\delta_{ij} / \theta_4` and the back-constraint :math:`X = \Phi U`, Eqs. (17) and (18),

.. math::
    \log \theta_i \sim U(l_i, h_i), \quad U_{ij} \sim N(0, s^2), \qquad
    y_d \sim N(0, K), \qquad p(X) \propto e^{-w J(X)} .

The paper has no prior of U and no bounds of :math:`\theta`. Its density :math:`1 / \theta` times
the last two factors has neither a maximum nor a finite integral: J does not depend on the scale of
X, which :math:`\theta_2` makes up for in the likelihood, and both go to a constant as X grows. A
large s and the bounds of :mod:`~bsdr_models.dgplvm.paper.objective` make it proper; the posterior
depends on them.
"""

from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import linalg

from bsdr_models import dims
from bsdr_models.dgplvm.criteria import choose_criterion
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.model import LATENT_DIMS, check_labels, class_separation, kernel
from bsdr_models.dgplvm.paper.objective import THETA, KernelMapping, theta_priors
from bsdr_models.dgplvm.settings import CriterionName, Priors
from bsdr_models.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS
from bsdr_models.options import check_number
from bsdr_models.validation import check_features

# s, so large that the prior hardly affects latent coordinates of unit variance.
RAW_SCALE = np.float64(100.0)  # a Python float would be single precision


def build_paper_model(
    X: Any,
    y: Any,
    *,
    n_components: int,
    weight: float = 1e4,
    criterion: CriterionName = "auto",
    mapping: Literal["kernel", "none"] = "kernel",
    width: float = 2.0,
    unlabeled: Any = None,
) -> pm.Model:
    """Declare the paper's D-GPLVM, bounded, as a PyMC model with named dims.

    Parameters
    ----------
    X : array-like of shape (N, D)
        Features (the paper's Y), centred here and not scaled.
    y : array-like of shape (N,)
        Labels of a sortable type, at least two classes.
    n_components : int
        R, from 1 to D and below N.
    weight, criterion, mapping, width, unlabeled
        As for :class:`bsdr_models.papers.PaperDGPLVMClassifier`.

    Returns
    -------
    pymc.Model
        Free variables: ``log_theta`` (theta,) and ``latent_raw`` (basis, component), coefficients
        of kernels at the samples, or the latent coordinates themselves without a mapping.
        Deterministic: ``latent`` (obs, component) and ``criterion``. The potentials are
        ``generative`` and ``discriminative``: nothing is drawn from this model but its prior.

    Raises
    ------
    ValueError
        If shapes disagree, values are not finite, there are fewer than two classes, all samples
        are equal, or an option is out of range.

    See Also
    --------
    build_model : the recommended model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models.dgplvm import build_paper_model
    >>> model = build_paper_model(*load_iris(return_X_y=True), n_components=2)
    >>> [variable.name for variable in model.free_RVs]
    ['log_theta', 'latent_raw']
    """
    check_number("weight", weight)
    check_number("width", width)
    if mapping not in ("kernel", "none"):
        raise ValueError(f"mapping must be 'kernel' or 'none', got {mapping!r}")
    X_array, features = check_features(X, n_components)
    y_index, classes = check_labels(y, unlabeled, n_samples=len(X_array))
    task = Task(
        X=X_array,
        y_index=y_index,
        n_labels=len(classes),
        n_components=n_components,
        criterion=choose_criterion(
            criterion, n_components, len(classes), int((y_index >= 0).sum())
        ),
        priors=Priors(weight=weight),
    )
    given = None if mapping == "none" else KernelMapping.at(X_array, X_array, width)
    model = declare(task, given)
    model.set_dim(FEATURE, len(features), coord_values=tuple(features))
    model.set_dim(LABEL, len(classes), coord_values=tuple(classes))
    return model


def declare(task: Task, mapping: KernelMapping | None) -> pm.Model:
    """The model of a task; with its mapping, if any."""
    (n, d), r = task.X.shape, task.n_components
    gram = FeatureGram.of(task.X - task.X.mean(axis=0))
    priors = theta_priors(gram)
    low, high = np.array([prior.bounds for prior in priors]).T
    start = task.starts(1, np.random.default_rng(0))[0]
    basis, raw = np.eye(n), start
    if mapping is not None:
        basis, raw = mapping.basis, mapping.raw(start)
    coords = {OBS: range(n), FEATURE: range(d), COMPONENT: range(r), LABEL: range(task.n_labels)}
    coords |= {BASIS: range(len(raw)), dims.THETA: list(THETA)}
    with pm.Model(coords=coords) as model:
        pm.Data("X", task.X, dims=(OBS, FEATURE))
        pm.Data("y_data", task.y_index, dims=OBS)
        medians = [prior.log_median for prior in priors]
        log_theta = pm.Uniform("log_theta", low, high, dims=dims.THETA, initval=medians)
        U = pm.Normal("latent_raw", 0.0, RAW_SCALE, dims=(BASIS, COMPONENT), initval=raw)
        latent = pm.Deterministic("latent", pt.as_tensor(basis) @ U, dims=LATENT_DIMS)
        J = class_separation(latent, task.y_index, task.criterion, features=task.X)
        pm.Deterministic("criterion", J)
        output, inverse_width, bias, inverse_noise = (pt.exp(log_theta[i]) for i in range(4))
        K = kernel(latent, output, inverse_width**-0.5, 1.0 / inverse_noise) + bias
        L = linalg.cholesky(K, lower=True)
        half = linalg.solve_triangular(L, gram.root, lower=True)
        log_det = 2.0 * pt.log(pt.diagonal(L)).sum() + n * np.log(2.0 * np.pi)
        pm.Potential("generative", -0.5 * (d * log_det + (half**2).sum()))
        pm.Potential("discriminative", -task.weight * J)
    return model
