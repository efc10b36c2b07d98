r"""Criteria of class separation in the latent space: the discriminative prior.

With scatter matrices of the :math:`N_l` labelled samples within classes, between their means, and
in total, :math:`S_t = S_b + S_w`, the criteria J are

=============== ============================================ ==================
name            J                                            in the paper
=============== ============================================ ==================
trace_ratio     :math:`tr(S_b^{-1} S_w)`                     eq. (13)
inverse_trace   :math:`1 / tr(S_w^{-1} S_b)`                 eq. (12)
total           :math:`tr(S_t^{-1} S_w)`                     -
=============== ============================================ ==================

They are invariant under :math:`X \to XQ + 1b^\top` for every invertible Q.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.numerics.arrays import FloatArray, IntArray

# A matrix is singular if an eigenvalue is below this share of the largest.
_SINGULAR = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A criterion by its name, for given labels: latent (N, R) -> (J, dJ/dlatent).

    ``order`` (N_l,) are the labelled samples, sorted by class, and ``counts`` (C,) the numbers of
    samples of the classes that are present.
    """

    name: str
    order: IntArray
    counts: IntArray

    def __call__(self, latent: FloatArray) -> tuple[float, FloatArray]:
        """J >= 0 and its gradient (N, R), which is 0 for unlabelled samples.

        A LinAlgError says that J is not defined for these latent coordinates.
        """
        X = latent[self.order]
        X = X - X.mean(axis=0)
        gradient = np.zeros(latent.shape)
        value, gradient[self.order] = _of_scatter(self.name, X, self.counts)
        return value, gradient


def _of_scatter(name: str, X: FloatArray, counts: IntArray) -> tuple[float, FloatArray]:
    r"""A criterion of scatter matrices and its gradient, at centred coordinates (N_l, R).

    With :math:`V^\top S_b V = diag(l)`, :math:`V^\top S_t V = I` and J a function of l with
    derivatives f',

    .. math::
        \frac{dJ}{dX} = \frac{2}{N_l} \big[ (BX)\, V diag(f'(1 - l)) V^\top
            - (WX)\, V diag(f'\, l) V^\top \big] .
    """
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(X, starts, axis=0) / counts[:, None]
    BX = np.repeat(means, counts, axis=0)
    WX = X - BX
    V, w, b = _axes(X, WX, BX)  # (R, R), (R,), (R,), with w + b = 1
    if name == "trace_ratio" and b[0] < _SINGULAR:
        raise np.linalg.LinAlgError("between-class scatter of the latent coordinates is singular")
    value, by_b = _combine(name, w, b)
    turned = (BX @ V) * (by_b * w) - (WX @ V) * (by_b * b)
    return value, (2.0 / len(X)) * turned @ V.T


def _axes(
    X: FloatArray, WX: FloatArray, BX: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Axes V (R, R) that diagonalise S_w and S_b, and the diagonals of both.

    WX and BX (N_l, R) are such that N_l S_w = X' W X and N_l S_b = X' B X.
    """
    n = len(X)
    S_w = X.T @ WX / n
    S_b = X.T @ BX / n
    S_t = S_w + S_b
    sd = np.sqrt(np.diagonal(S_t))
    if not (np.isfinite(sd).all() and (sd > 0.0).all()):
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    scale = np.outer(sd, sd)  # makes the test for singularity independent of units
    size, axes = np.linalg.eigh(S_t / scale)
    if size[0] < _SINGULAR:
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    white = axes / np.sqrt(size)
    b, V = np.linalg.eigh(white.T @ (S_b / scale) @ white)
    V = (white @ V) / sd[:, None]
    # 1 - b would lose precision for a class that has nearly collapsed to a point.
    within = WX @ V
    w = np.einsum("nr,nr->r", within, within) / n
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


def make_criterion(name: str, y_index: IntArray) -> Criterion:
    """The named criterion for the classes (N,) that have samples, -1 without a label."""
    labelled = np.flatnonzero(y_index >= 0)
    order = labelled[np.argsort(y_index[labelled], kind="stable")]
    present, counts = np.unique(y_index[order], return_counts=True)
    if len(present) < 2:
        raise ValueError(f"a criterion needs samples of at least two classes, got {len(present)}")
    return Criterion(name=name, order=order, counts=counts)


def class_centroids(values: FloatArray, y_index: IntArray) -> FloatArray:
    """Means (C, D) of the samples of every class (N,) that has some; -1 is none."""
    labels = np.unique(y_index[y_index >= 0])
    return np.stack([values[y_index == label].mean(axis=0) for label in labels])


def choose_criterion(name: str, n_components: int, n_classes: int, n_labelled: int) -> str:
    """The paper's criterion for fewer components than classes, else ``"total"``, if "auto".

    A ValueError says that there are too many components, for the labelled samples or the given
    criterion.
    """
    if n_components >= n_labelled:
        raise ValueError(
            f"n_components={n_components} is too large for {n_labelled} labelled samples: "
            f"{n_labelled - 1} at most"
        )
    few = n_components <= n_classes - 1
    if name == "auto":
        return "trace_ratio" if few else "total"
    if name in ("trace_ratio", "inverse_trace") and not few:
        raise ValueError(
            f"criterion={name!r} needs n_components <= {n_classes - 1}, one less than the number "
            f"of classes, got {n_components}; criterion='total' has no such limit"
        )
    return name
