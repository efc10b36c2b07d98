"""Initial values of the papers' models in PyMC."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bsdr_models.bm2pca.subspace import Settings, initial_state
from bsdr_models.numerics.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Initial values of a PyMC model, as projection and weights of zero are a saddle point."""

    latent: FloatArray  # (N, R), centred, of unit variance
    projection: FloatArray  # from features to latent coordinates, (D, R)
    weights: FloatArray  # in the class scores, (R, K)
    bias: FloatArray  # at the mean of the features, (K,)
    intercept: FloatArray  # where they are zero, (K,)

    @classmethod
    def of(cls, X: FloatArray, Y: FloatArray, n_components: int) -> Self:
        """From samples (N, D), and signs or centred outputs (N, K), 0 where unknown.

        The first components are discriminant directions, the others principal axes of the rest.
        """
        mean = X.mean(axis=0)
        found = initial_state(X - mean, Y, n_components, Settings())
        latent = found.latent(X - mean)
        rest = X - mean - latent @ np.linalg.lstsq(latent, X - mean)[0]
        axes, size, _ = np.linalg.svd(rest, full_matrices=False)
        more = n_components - latent.shape[1]
        others = np.sqrt(len(X)) * axes[:, :more] * (size[:more] > 0.0)
        latent = np.hstack([latent, others, np.zeros((len(X), more - others.shape[1]))])
        projection = np.linalg.lstsq(X - mean, latent)[0]
        rows = np.hstack([np.ones((len(X), 1)), latent])
        ridge = rows.T @ rows + np.eye(1 + n_components)
        weights = np.linalg.solve(ridge, rows.T @ Y)
        return cls(
            latent=latent,
            projection=projection,
            weights=weights[1:],
            bias=weights[0],
            intercept=weights[0] - mean @ projection @ weights[1:],
        )
