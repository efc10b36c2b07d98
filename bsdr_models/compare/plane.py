r"""A plane that shows the predictions of a classifier.

Predicted probabilities of K classes are points of a simplex, which has more than two dimensions
from four classes on; two axes of an embedding would hide the others. With the unit vectors
:math:`r = \sqrt t` of sharpened probabilities :math:`t_k \propto p_k^g` of a sample,

.. math::
    u = V^\top \frac{r - m}{s}, \qquad
    q(k \mid u) \propto e^{w_k^\top u + b_k},

where m is their mean and s their root mean square distance from it. V, W and b minimise the cross
entropy of the sharpened probabilities, with a penalty that balances V and W and bounds both,

.. math::
    - \sum_n \sum_k t_{nk} \log q(k \mid u_n)
    + \lambda \bigl(\lVert V \rVert^2 + \lVert W \rVert^2\bigr) :

a reduced-rank multinomial logistic regression [1]_. As two dimensions are less sure than the K
classes that they show, g is 2, and more if predictions are flat: until the largest t of a sample is
0.9 on average. W and b are at last multiplied by the number from 0 to 1 that makes q as sure on
average as the predictions. Coordinates are the principal axes of the samples, each of positive
third moment.

Up to one class more than axes nothing has to be lost: r is log p, V and W are contrasts of the
classes, and q is p.

References
----------
.. [1] T. W. Yee, T. J. Hastie (2003). Reduced-rank vector generalized linear models. Statistical
       Modelling 3(1), 15-41.
"""

from typing import Self

import numpy as np
from scipy.linalg import helmert
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from bsdr_models.numerics.arrays import FloatArray, SamplesLike
from bsdr_models.options import COUNT, check_number

# Penalty of squared weights, in nats.
RIDGE = 0.05
# Size of the coordinates at the start of the search.
_START = 3.0
# Most iterations of the search.
_MAX_ITER = 500
# Largest power g.
_MAX_POWER = 12
# Mean of the largest sharpened probability at which a power is enough.
_SURE = 0.9
_FLOOR = 1e-4  # added to probabilities before their logarithm
_TOLERANCE = 1e-3  # of sums of probabilities


class PredictionPlane(TransformerMixin, BaseEstimator):
    """Plane of the predicted probabilities of any classifier, with a classifier of its own.

    The plane is learned from predictions alone, without labels. Samples with similar predictions
    are near each other, and doubtful samples lie between the classes in question. To show what a
    classifier predicts for new samples, learn the plane from held-out predictions.

    Parameters
    ----------
    n_components : int, default=2
        Number R of coordinates. For two classes, whose predictions have one dimension, it is one.

    Attributes
    ----------
    power_ : int
        Exponent g by which probabilities are sharpened; 1 if nothing is lost.
    mean_ : ndarray of shape (n_classes,)
        Mean square roots of the sharpened probabilities, or log probabilities.
    components_ : ndarray of shape (n_components, n_classes)
        Coordinates are linear in these square roots or logarithms, less their mean.
    weights_, intercept_ : ndarray of shape (n_components, n_classes) and (n_classes,)
        Log probabilities of the classes at coordinates u are ``u @ weights_ + intercept_``, up to
        normalisation.

    See Also
    --------
    cross_validated_map : maps of held-out samples.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> from sklearn.model_selection import cross_val_predict
    >>> from bsdr_models import PredictionPlane
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    >>> p = cross_val_predict(model, X[:300], y[:300], method="predict_proba")
    >>> plane = PredictionPlane().fit(p)
    >>> same = plane.predict_log_proba(plane.transform(p)).argmax(axis=1) == p.argmax(axis=1)
    >>> bool(same.mean() > 0.9)
    True
    """

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def fit(self, probabilities: SamplesLike, y: object = None) -> Self:
        """Learn the plane.

        Parameters
        ----------
        probabilities : array-like of shape (n_samples, n_classes)
            Class probabilities of the samples.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If rows are not probabilities, there are fewer than two classes, or an argument is out
            of range.
        """
        check_number("n_components", self.n_components, COUNT)
        p = check_probabilities(probabilities)
        k = p.shape[1]
        if k < 2:
            raise ValueError("probabilities of one class have no plane")
        rank = min(int(self.n_components), k - 1)
        self.power_ = 1
        sure = rank == k - 1
        while not sure and self.power_ < _MAX_POWER:
            self.power_ += 1
            sure = (self._read(p) ** 2).max(axis=1).mean() >= _SURE
        x = self._read(p)
        self.mean_ = x.mean(axis=0)
        centred = x - self.mean_
        V = helmert(k).T
        W = helmert(k)
        b = self.mean_
        size = 1.0
        if rank < k - 1:
            size = float(np.sqrt(np.mean(np.sum(centred**2, axis=1)))) or 1.0
            V, W, b = _fit(centred / size, x**2, rank)
        latent = centred / size @ V
        axes = np.linalg.svd(latent.T @ latent)[2].T
        axes = axes * np.where(np.sum((latent @ axes) ** 3, axis=0) < 0.0, -1.0, 1.0)
        scores = latent @ W + b
        aim = p.max(axis=1).mean()

        def too_sure(scale: float) -> float:
            return float(softmax(scale * scores, axis=1).max(axis=1).mean() - aim) ** 2

        scale = minimize_scalar(too_sure, bounds=(0.0, 1.0), method="bounded").x
        self.components_ = (V @ axes).T / size
        self.weights_ = scale * axes.T @ W
        self.intercept_ = scale * b
        self.n_features_in_ = k
        return self

    def _read(self, p: FloatArray) -> FloatArray:
        """What coordinates are linear in, r (M, K), for probabilities."""
        if self.power_ == 1:
            return np.asarray(np.log(p + _FLOOR))
        raised = (p / p.max(axis=1, keepdims=True)) ** self.power_
        return np.asarray(np.sqrt(raised / raised.sum(axis=1, keepdims=True)))

    def transform(self, probabilities: SamplesLike) -> FloatArray:
        """Coordinates of samples with given probabilities.

        Parameters
        ----------
        probabilities : array-like of shape (n_samples, n_classes)
            Class probabilities of the samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components)

        Raises
        ------
        ValueError
            If rows are not probabilities of the same classes.
        """
        check_is_fitted(self)
        p = check_probabilities(probabilities)
        if p.shape[1] != len(self.mean_):
            raise ValueError(f"expected {len(self.mean_)} classes, got {p.shape[1]}")
        return np.asarray((self._read(p) - self.mean_) @ self.components_.T)

    def predict_log_proba(self, coordinates: SamplesLike) -> FloatArray:
        """Log probabilities of the classes at places of the plane.

        Parameters
        ----------
        coordinates : array-like of shape (n_places, n_components)
            Places in the plane.

        Returns
        -------
        ndarray of shape (n_places, n_classes)

        Raises
        ------
        ValueError
            If places have another number of coordinates than the plane.
        """
        check_is_fitted(self)
        u = check_array(coordinates, dtype=np.float64, input_name="coordinates")
        if u.shape[1] != len(self.weights_):
            raise ValueError(f"the plane has {len(self.weights_)} coordinates, got {u.shape[1]}")
        return np.asarray(log_softmax(u @ self.weights_ + self.intercept_, axis=1))


def check_probabilities(values: SamplesLike) -> FloatArray:
    """Probabilities (M, K), normalised; ValueError if a row is anything else."""
    return normalise(check_array(values, dtype=np.float64, input_name="probabilities"))


def normalise(p: FloatArray) -> FloatArray:
    """Probabilities (M, K) with sums of one; ValueError if they are far from it, or none."""
    total = p.sum(axis=1)
    good = (p.min(axis=1) >= 0.0) & (np.abs(total - 1.0) <= _TOLERANCE)
    if not good.all():
        raise ValueError(
            f"probabilities of sample {good.argmin()} are NaN, negative or do not sum to one"
        )
    return np.asarray(p / total[:, None])


def _fit(X: FloatArray, p: FloatArray, rank: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """V (K, R), W (R, K) and b (K,) of smallest penalised cross entropy, from X (N, K)."""
    n, k = p.shape

    def split(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        V, W, b = np.split(theta, [k * rank, 2 * k * rank])
        return V.reshape(k, rank), W.reshape(rank, k), b

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        V, W, b = split(theta)
        u = X @ V
        log_q = log_softmax(u @ W + b, axis=1)
        residual = np.exp(log_q) - p
        value = -np.sum(p * log_q) + RIDGE * (np.sum(V**2) + np.sum(W**2))
        gradient = [
            (X.T @ (residual @ W.T) + 2.0 * RIDGE * V).ravel(),
            (u.T @ residual + 2.0 * RIDGE * W).ravel(),
            residual.sum(axis=0),
        ]
        return value / n, np.concatenate(gradient) / n

    # From the means of the samples of each class, in their leading directions.
    weight = p / np.maximum(p.sum(axis=0), np.finfo(np.float64).tiny)
    means = weight.T @ X
    means -= means.mean(axis=0)
    V = _START * np.linalg.svd(means)[2][:rank].T
    start = np.concatenate([V.ravel(), _START * (means @ V).T.ravel(), np.zeros(k)])
    options = {"maxiter": _MAX_ITER}
    return split(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)
