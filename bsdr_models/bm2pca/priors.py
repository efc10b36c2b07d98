"""Hyper-parameters of BM2PCA as printed, and of its factor model of the features; loss."""

from dataclasses import dataclass
from typing import ClassVar

from bsdr_models.options import POSITIVE, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCAPriors(Options):
    """Hyper-parameters of the paper's BM2PCA; every Gamma is given by shape and **rate**, as there.

    Parameters
    ----------
    loading_shape, loading_rate : float
        a_r, b_r: Gamma prior of the precision r_i of a column of the loadings, in units of
        1 / loadings**2.
    noise_shape, noise_rate : float
        a_tau, b_tau: Gamma prior of the noise precision tau, in units of 1 / X**2.
    weight_shape, weight_rate : float
        a_nu, b_nu: Gamma prior of the precision nu_c of a classifier's weights and bias.
    offset_precision : float
        delta: precision of the offset t, in units of 1 / X**2.

    Raises
    ------
    ValueError
        If a hyper-parameter is not between 1e-30 and 1e12.

    See Also
    --------
    HingeLoss, EpsilonInsensitiveLoss : the margins.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI.

    Examples
    --------
    >>> from bsdr_models import BM2PCAPriors
    >>> from bsdr_models.papers import PaperBM2PCAClassifier
    >>> model = PaperBM2PCAClassifier(priors=BM2PCAPriors(loading_shape=1.0, loading_rate=1.0))
    """

    _others: ClassVar[list[object]] = [POSITIVE]

    loading_shape: float = 1e-3
    loading_rate: float = 1e-3
    noise_shape: float = 1e-2
    noise_rate: float = 1e-5
    weight_shape: float = 1e-1
    weight_rate: float = 1e-5
    offset_precision: float = 1e-5


PAPER = BM2PCAPriors()
"""The paper's nearly flat priors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HingeLoss(Options):
    """Hinge loss of the classes in BM2PCA.

    Parameters
    ----------
    C : float, optional
        Half the slope of the hinge. By default a few values are compared by cross-validation. The
        paper's model has the best one, `BM2PCAClassifier` a weighted geometric mean.
    calibrate : bool or float, default=True
        Whether held-out class scores choose a softmax temperature; otherwise it is one, or the
        given positive number.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    EpsilonInsensitiveLoss : real targets.

    Examples
    --------
    >>> from bsdr_models import BM2PCAClassifier, HingeLoss
    >>> model = BM2PCAClassifier(loss=HingeLoss(C=1.0, calibrate=False))
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "C": [POSITIVE, None],
        "calibrate": ["boolean", POSITIVE],
    }

    C: float | None = None
    calibrate: bool | float = True
