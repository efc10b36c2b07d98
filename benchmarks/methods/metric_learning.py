"""Linear metric learners that no current library offers: LFDA and LMNN."""

from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA

# The neighbour in its class whose distance is the local scale of a sample.
NEIGHBOUR = 7


def local_affinity(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Affinity (N, N) of samples of one class with local scaling; 1 of copies, 0 between classes.

    A sample whose local scale is 0 has affinity 0 to all but its copies.
    """
    affinity = np.zeros((len(X), len(X)))
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        distance = cdist(X[members], X[members])
        scale = np.sort(distance, axis=1)[:, min(NEIGHBOUR, len(members) - 1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.exp(-(distance**2) / np.outer(scale, scale))
        affinity[np.ix_(members, members)] = np.where(distance == 0.0, 1.0, near)
    return affinity


class LFDA(TransformerMixin, BaseEstimator):
    """Local Fisher discriminant analysis (Sugiyama 2007).

    `shrinkage` is the share of a multiple of the identity in the scatter within classes, which has
    no inverse with fewer samples than features.
    """

    def __init__(self, n_components: int = 2, shrinkage: float = 0.1) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage

    def fit(self, X: np.ndarray, y: np.ndarray) -> "LFDA":
        """Find the directions, (R, D)."""
        _, index, counts = np.unique(y, return_inverse=True, return_counts=True)
        n, d = X.shape
        affinity = local_affinity(X, index)
        within = affinity / counts[index]
        between = np.where(index[:, None] == index, affinity / n - within, 1.0 / n)
        scatter_within, scatter_between = (
            X.T @ (np.diag(weight.sum(axis=1)) - weight) @ X for weight in (within, between)
        )
        size = np.trace(scatter_within) / d
        shrunken = (1.0 - self.shrinkage) * scatter_within
        shrunken += (self.shrinkage + 1e-9) * size * np.eye(d)
        _, vectors = eigh(scatter_between, shrunken)
        self.components_ = vectors[:, ::-1][:, : self.n_components].T
        return self

    def transform(self, X: np.ndarray) -> Any:
        """Latent coordinates, (N, R)."""
        return X @ self.components_.T


class LMNN(TransformerMixin, BaseEstimator):
    """Large margin nearest neighbours (Weinberger and Saul 2009), in R dimensions by L-BFGS.

    Each sample has target neighbours of its class, near in the features. `push` is the weight of
    samples of other classes within the margin, its complement that of the target neighbours.
    """

    def __init__(
        self, n_components: int = 2, n_neighbors: int = 3, push: float = 0.5, max_iter: int = 50
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.push = push
        self.max_iter = max_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> "LMNN":
        """Search from the principal components; coordinates have unit variance on average."""
        n, d = X.shape
        X = X / np.sqrt(np.mean(X**2))
        same = y[:, None] == y
        distance = np.where(same & ~np.eye(n, dtype=bool), cdist(X, X), np.inf)
        k = min(self.n_neighbors, int(np.unique(y, return_counts=True)[1].min()) - 1)
        near = np.argsort(distance, axis=1, kind="stable")[:, :k]
        r = min(self.n_components, d)
        samples = np.arange(n)[:, None]

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            L = flat.reshape(r, d)
            squared = cdist(X @ L.T, X @ L.T, "sqeuclidean")
            pulled = squared[samples, near]  # (N, k)
            margin = 1.0 + pulled[:, :, None] - squared[:, None, :]  # (N, k, N)
            active = (margin > 0.0) & ~same[:, None, :]
            weight = np.zeros((n, n))
            weight[samples, near] = (1.0 - self.push) + self.push * active.sum(axis=2)
            weight -= self.push * active.sum(axis=1)
            weight = weight + weight.T
            laplacian = np.diag(weight.sum(axis=1)) - weight
            value = (1.0 - self.push) * pulled.sum() + self.push * margin[active].sum()
            return value / n, (2.0 / n) * (L @ X.T @ laplacian @ X).ravel()

        start = PCA(r, svd_solver="full").fit(X)
        scale = np.sqrt(np.maximum(start.explained_variance_, 1e-12))
        found = minimize(
            objective,
            (start.components_ / scale[:, None]).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter},
        )
        self.components_ = found.x.reshape(r, d)
        return self

    def transform(self, X: np.ndarray) -> Any:
        """Latent coordinates, (N, R)."""
        return X @ self.components_.T
