r"""Criteria of class separation in the latent space: the discriminative prior.

With scatter matrices of the :math:`N_l` labelled samples within classes, between their means, and
in total, :math:`S_t = S_b + S_w`, the criteria are

=============== ============================================ ==================
name            J                                            in the paper
=============== ============================================ ==================
trace_ratio     :math:`tr(S_b^{-1} S_w)`                     eq. (13)
inverse_trace   :math:`1 / tr(S_w^{-1} S_b)`                 eq. (12)
total           :math:`tr(S_t^{-1} S_w)`                     -
local_fisher    :math:`tr(S_{lb}^{-1} S_{lw})`               -
mcml            :mod:`~bsdr_models.dgplvm.mcml`              -
=============== ============================================ ==================

The local matrices [2]_ weight pairs of samples by an affinity :math:`A_{ij} \in [0, 1]` of their
features,

.. math::
    S_{lw} = \tfrac{1}{2 N_l} \sum_{ij} \frac{A_{ij}}{N_{y_i}} [y_i = y_j] \Delta_{ij}, \qquad
    S_{lb} = \tfrac{1}{2 N_l} \sum_{ij} \Big( \frac{1}{N_l}
        - [y_i = y_j] \big( \tfrac{1 - A_{ij}}{N_l} + \tfrac{A_{ij}}{N_{y_i}} \big) \Big)
        \Delta_{ij}, \qquad
    \Delta_{ij} = (x_i - x_j)(x_i - x_j)^\top ,

and A = 1 gives :math:`S_w` and :math:`S_b`. All but mcml are invariant under
:math:`X \to XQ + 1b^\top` for every invertible Q.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
.. [2] M. Sugiyama (2006). Local Fisher discriminant analysis for supervised dimensionality
       reduction. ICML.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm import mcml
from bsdr_models.dgplvm.priors import CriterionName

NAMES = tuple(name for name in get_args(CriterionName) if name != "auto")

# A matrix is singular if an eigenvalue is below this share of the largest.
_SINGULAR = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion(ABC):
    """A criterion for given labels: latent (N, R) -> (J, dJ/dlatent).

    ``order`` (N_l,) are the labelled samples, sorted by class, and ``counts`` (C,) the numbers of
    samples of the classes that are present.
    """

    n_samples: int
    order: IntArray
    counts: IntArray

    @property
    def n_labelled(self) -> int:
        """N_l."""
        return len(self.order)

    @property
    def n_present(self) -> int:
        """Number of classes with a sample."""
        return len(self.counts)

    def check(self, n_components: int) -> None:
        """Raise a ValueError if the criterion is not defined for so many components."""
        if n_components >= self.n_labelled:
            raise ValueError(
                f"{n_components} components need more labelled samples, got {self.n_labelled}"
            )

    def __call__(self, latent: FloatArray) -> tuple[float, FloatArray]:
        """J >= 0 and its gradient (N, R), which is 0 for unlabelled samples.

        A LinAlgError says that J is not defined for these latent coordinates.
        """
        self.check(latent.shape[1])
        X = latent[self.order]
        value, slope = self._evaluate(X - X.mean(axis=0))
        gradient = np.zeros(latent.shape)
        gradient[self.order] = slope
        return value, gradient

    @abstractmethod
    def _evaluate(self, X: FloatArray) -> tuple[float, FloatArray]:
        """J and its gradient at centred coordinates of the labelled samples, (N_l, R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MCMLCriterion(Criterion):
    """The criterion of :mod:`~bsdr_models.dgplvm.mcml`."""

    def _evaluate(self, X: FloatArray) -> tuple[float, FloatArray]:
        return mcml.smallest_divergence(X, self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterCriterion(Criterion):
    """A criterion of scatter matrices, by its name.

    ``within`` and ``between`` (N_l, N_l) are the Laplacians of the weights A_ij / N_c of pairs of
    one class, and A_ij (1 / N_l - 1 / N_c), the part of S_lb that depends on A; only for
    local_fisher.
    """

    name: str
    within: sparse.csr_array | None = None
    between: sparse.csr_array | None = None

    def check(self, n_components: int) -> None:
        """Raise a ValueError if the criterion is not defined for so many components."""
        if self.name == "trace_ratio" and n_components > self.n_present - 1:
            raise ValueError(
                f"trace_ratio with {self.n_present} classes present is defined for at most "
                f"{self.n_present - 1} components, got {n_components}: use 'total' or "
                "'local_fisher'"
            )
        Criterion.check(self, n_components)

    def _evaluate(self, X: FloatArray) -> tuple[float, FloatArray]:
        r"""J and its gradient.

        With :math:`V^\top S_b V = diag(l)`, :math:`V^\top S_t V = I` and J a function of l with
        derivatives f',

        .. math::
            \frac{dJ}{dX} = \frac{2}{N_l} \big[ (BX)\, V diag(f'(1 - l)) V^\top
                - (WX)\, V diag(f'\, l) V^\top \big] .
        """
        WX, BX = self._apply(X)
        V, w, b = self._axes(X, WX, BX)  # (R, R), (R,), (R,), with w + b = 1
        value, slope = _combine(self.name, w, b)
        return value, (2.0 / self.n_labelled) * (
            (BX @ V) * (slope * w) - (WX @ V) * (slope * b)
        ) @ V.T

    def _apply(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """WX and BX, (N_l, R) each, with N_l S_w = X' W X and N_l S_b = X' B X."""
        starts = np.cumsum(self.counts) - self.counts
        means = np.add.reduceat(X, starts, axis=0) / self.counts[:, None]
        BX = np.repeat(means, self.counts, axis=0)
        WX = X - BX
        if self.within is None or self.between is None:
            return WX, BX
        share = np.repeat(self.counts, self.counts)[:, None] / self.n_labelled
        return self.within @ X, X - share * WX + self.between @ X

    def _axes(
        self, X: FloatArray, WX: FloatArray, BX: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Axes V (R, R) that diagonalise both matrices, and the diagonals of both."""
        n = self.n_labelled
        S_w, S_b = X.T @ WX / n, X.T @ BX / n
        S_t = S_w + S_b
        sd = np.sqrt(np.diagonal(S_t))
        if not (np.isfinite(sd).all() and (sd > 0.0).all()):
            raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
        scale = np.outer(sd, sd)  # makes the test for singularity independent of units
        total = S_t / scale
        size, axes = np.linalg.eigh(total)
        if size[0] < _SINGULAR:
            raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
        white = axes / np.sqrt(size)
        b, V = np.linalg.eigh(white.T @ (S_b / scale) @ white)
        if self.name in ("trace_ratio", "local_fisher") and b[0] < _SINGULAR:
            raise np.linalg.LinAlgError(
                "between-class scatter of the latent coordinates is singular"
            )
        V = (white @ V) / sd[:, None]
        # 1 - b would lose precision for a class that has nearly collapsed to a point.
        left = WX if self.within is None else X
        w = np.maximum(np.einsum("nr,nr->r", left @ V, WX @ V) / n, 0.0)
        return V, w, b


def _combine(name: str, w: FloatArray, b: FloatArray) -> tuple[float, FloatArray]:
    """J of eigenvalues w of S_t^-1 S_w and b of S_t^-1 S_b, and its derivatives in b = 1 - w."""
    if name == "total":
        return float(w.sum()), -np.ones(len(b))
    if name != "inverse_trace":
        return float((w / b).sum()), -1.0 / b**2
    smallest = w.min()  # J = w_min / sum(b w_min / w), also valid for w_min = 0
    share = np.divide(smallest, w, out=np.ones(len(w)), where=w > smallest)
    total = float(b @ share)
    return float(smallest) / total, -((share / total) ** 2)


def make_criterion(
    name: str,
    y_index: IntArray,
    n_labels: int,
    *,
    affinity: FloatArray | sparse.sparray | sparse.spmatrix | None = None,
) -> Criterion:
    """The named criterion for classes (N,), -1 without a label.

    Classes without samples are ignored. ``affinity`` (N, N), for local_fisher only, is symmetric
    and between 0 and 1; entries between classes and of unlabelled samples are ignored. A ValueError
    names what is wrong with an argument.
    """
    labelled = np.flatnonzero(y_index >= 0)
    order = labelled[np.argsort(y_index[labelled], kind="stable")]
    present, counts = np.unique(y_index[order], return_counts=True)
    if len(present) < 2:
        raise ValueError(f"a criterion needs samples of at least two classes, got {len(present)}")
    n = len(y_index)
    common: dict[str, Any] = {"n_samples": n, "order": order, "counts": counts}
    if name == "mcml":
        return MCMLCriterion(**common)
    if affinity is None:
        return ScatterCriterion(name=name, **common)
    within, between = _local_laplacians(sparse.csr_array(affinity)[order][:, order], counts)
    return ScatterCriterion(name=name, within=within, between=between, **common)


def _local_laplacians(
    affinity: sparse.csr_array, counts: IntArray
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Laplacians of A_ij / N_c and A_ij (1 / N_l - 1 / N_c) over pairs of one class."""
    size = np.repeat(counts, counts)  # (N_l,) size of the class of each sample
    label = np.repeat(np.arange(len(counts)), counts)
    pairs = affinity.tocoo()
    rows, columns = pairs.coords
    same = label[rows] == label[columns]
    A = sparse.csr_array((pairs.data[same], (rows[same], columns[same])), shape=pairs.shape)
    return _laplacian(A, 1.0 / size), _laplacian(A, 1.0 / len(label) - 1.0 / size)


def _laplacian(A: sparse.csr_array, weight: FloatArray) -> sparse.csr_array:
    """diag(W 1) - W with W = diag(weight) A, weight being constant within a class."""
    W = sparse.diags_array(weight) @ A
    return sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)


def local_affinity(X: FloatArray, y_index: IntArray, n_neighbors: int = 7) -> sparse.csr_array:
    r"""Affinity (N, N) of pairs of samples (N, D) of one class with local scaling [2]_.

    :math:`A_{ij} = \exp(-|x_i - x_j|^2 / (s_i s_j))` with :math:`s_i` the distance from sample i to
    its ``n_neighbors``-th nearest neighbour in its class (to the farthest sample of a class with
    fewer). If that distance is 0, a sample has affinity 1 to its copies and 0 to the others.
    """
    n = len(y_index)
    rows, columns, values = [], [], []
    for label in np.unique(y_index[y_index >= 0]):
        members = np.flatnonzero(y_index == label)
        distance = cdist(X[members], X[members])
        nearest = min(n_neighbors, len(members) - 1)
        radius = np.partition(distance, nearest, axis=1)[:, nearest]  # column 0: the sample itself
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = distance**2 / np.outer(radius, radius)
        block = np.where(distance == 0.0, 1.0, np.exp(-exponent))
        rows.append(np.repeat(members, len(members)))
        columns.append(np.tile(members, len(members)))
        values.append(block.ravel())
    if not rows:
        return sparse.csr_array((n, n))
    index = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.concatenate(values), index), shape=(n, n))
