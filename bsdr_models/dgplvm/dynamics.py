r"""Dynamical prior of the latent coordinates of sequences, the paper's Eqs. (19) and (20).

Every component of the next latent coordinates is a Gaussian process of the present ones, with zero
mean and a common kernel, for T transitions from the rows of :math:`X_{in}` to those of
:math:`X_{out}`, of all sequences:

.. math::
    k(x_i, x_j) = s \exp(-|x_i - x_j|^2 / 2 l^2) + m\, x_i^\top x_j + q\, \delta_{ij}, \qquad
    L_d = \tfrac{R}{2} \ln|K_X| + \tfrac12 tr(K_X^{-1} X_{out} X_{out}^\top)
        + \tfrac{T R}{2} \ln 2\pi .

Given the first samples of the sequences, exp(-L_d) is a density of the others.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from bsdr_models.dgplvm.likelihood import Evaluation, factorise, normal_density
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.numerics.arrays import FloatArray, IntArray, TargetLike
from bsdr_models.numerics.kernels import rbf, rbf_gradient

# Priors of s, l, m and q, for latent coordinates of unit variance. The linear part has a variance
# of about 1, for the identity has coefficients 1; if nothing else constrains the latent
# coordinates, the mode has q near its lower bound.
DYNAMICS_PRIORS = (
    LogNormal(0.3, 1.0),
    LogNormal(1.0, 0.5),
    LogNormal(1.0, 1.0),
    LogNormal(0.1, 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamics:
    """Transitions between samples, by the indices of consecutive ones, (T,) each."""

    before: IntArray
    after: IntArray

    @classmethod
    def of(cls, sequence: TargetLike) -> "Dynamics":
        """From the name or number (N,) of the sequence of each sample.

        Samples of one sequence are in order of time; sequences may be interleaved.
        """
        names = np.asarray(sequence)
        if names.ndim != 1:
            raise ValueError(f"sequence must have shape (N,), got {names.shape}")
        index = np.unique(names, return_inverse=True)[1]
        order = np.argsort(index, kind="stable")
        follows = index[order[1:]] == index[order[:-1]]
        if not follows.any():
            raise ValueError("no sequence has two samples: there is no transition")
        return cls(before=order[:-1][follows], after=order[1:][follows])

    def evaluate(self, latent: FloatArray, log_parameters: FloatArray) -> Evaluation:
        """L_d and its gradients at latent coordinates (N, R) and log s, l, m and q, (4,)."""
        signal, lengthscale, linear, noise = np.exp(log_parameters)
        start = latent[self.before]  # X_in, (T, R)
        end = latent[self.after]  # X_out, (T, R)
        smooth = rbf(start, None, lengthscale, signal)
        factor, log_det = factorise(start, smooth + linear * start @ start.T, noise)
        # A = K_X^-1 X_out is the gradient in X_out, G that in K_X.
        value, A, G = normal_density(factor, log_det, end, end.shape[1])
        by_smooth, by_input = rbf_gradient(start, smooth, lengthscale, G)
        by_scale = -float(np.vdot(by_input, start))  # the smooth part depends on start / l
        m_G_X = linear * blas.dsymm(1.0, G, start, lower=1)
        gradient = np.zeros(latent.shape)
        gradient[self.after] += A
        gradient[self.before] += by_input + 2.0 * m_G_X
        by_log = [by_smooth, by_scale, float(np.vdot(m_G_X, start)), noise * np.trace(G)]
        return Evaluation(value=value, latent=gradient, log_parameters=np.array(by_log))
