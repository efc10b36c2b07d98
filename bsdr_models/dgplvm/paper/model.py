r"""Eq. (13) of Urtasun and Darrell (2007) as a PyMC model with a proper density.

With the centred features Y (N, D), :math:`K = \theta_1 e^{-\theta_2 |x_i - x_j|^2 / 2} + \theta_3 +
\delta_{ij} / \theta_4` and the back-constraint :math:`X = L U`, Eqs. (17) and (18),

.. math::
    \log \theta_i \sim U(l_i, h_i), \quad U_{ij} \sim N(0, s^2), \qquad
    y_d \sim N(0, K), \qquad p(X) \propto e^{-w J(X)} .

The paper has no prior of U and no bounds of :math:`\theta`, and its density no finite integral. A
large s and the bounds of :mod:`~bsdr_models.dgplvm.paper.objective` make it proper; the posterior
depends on them.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import linalg

from bsdr_models import dims
from bsdr_models.dgplvm.likelihood import FeatureGram
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.model import LATENT_DIMS, class_separation, kernel
from bsdr_models.dgplvm.paper.objective import THETA, KernelMapping, theta_priors
from bsdr_models.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS

# s, so large that the prior hardly affects latent coordinates of unit variance.
RAW_SCALE = np.float64(100.0)  # a Python float would be single precision


def declare(task: Task, mapping: KernelMapping | None) -> pm.Model:
    """The model of a task, with its mapping, if any.

    Free variables are ``log_theta`` (theta,) and ``latent_raw`` (basis, component), coefficients of
    kernels, or the latent coordinates themselves without a mapping. The likelihood
    and J are the potentials ``generative`` and ``discriminative``.
    """
    (n, d), r = task.X.shape, task.n_components
    gram = FeatureGram.of(task.X - task.X.mean(axis=0))
    priors = theta_priors(gram)
    low, high = np.array([prior.bounds for prior in priors]).T
    start = task.starts(1, np.random.default_rng(0))[0]
    basis, raw = np.eye(n), start
    if mapping is not None:
        basis, raw = mapping.factor, mapping.raw(start)
    coords = {OBS: range(n), FEATURE: range(d), COMPONENT: range(r), LABEL: range(task.n_labels)}
    coords[BASIS] = range(len(raw))
    with pm.Model(coords={**coords, dims.THETA: THETA}) as model:
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
        half = linalg.solve_triangular(L, pt.as_tensor(gram.root), lower=True)
        log_det = 2.0 * pt.log(pt.diagonal(L)).sum() + n * np.log(2.0 * np.pi)
        pm.Potential("generative", -0.5 * (d * log_det + (half**2).sum()))
        pm.Potential("discriminative", -task.priors.weight * J)
    return model
