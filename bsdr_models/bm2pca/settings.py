"""Loss functions of BM2PCA."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsdr_models.options import POSITIVE, TOLERANCE, Options


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

    @property
    def temperature(self) -> float | None:
        """The given temperature; None if none is given."""
        return None if isinstance(self.calibrate, bool | np.bool_) else float(self.calibrate)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonInsensitiveLoss(Options):
    """Loss of real targets in BM2PCA: linear beyond an interval without loss.

    Parameters
    ----------
    C : float, default=3.0
        Half the slope beyond epsilon, per standard deviation of the output.
    epsilon : float, default=0.1
        Half width of the interval without loss, in standard deviations of the output.
    calibrate : bool, default=True
        Whether predictions are multiplied by the slope of a regression of held-out targets on them,
        in five folds, and standard deviations scaled to the size of its residuals. Without this,
        predictions are shrunk too much where few components explain the features.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    HingeLoss : classes.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from bsdr_models import BM2PCARegressor, EpsilonInsensitiveLoss
    >>> model = BM2PCARegressor(loss=EpsilonInsensitiveLoss(epsilon=0.0))
    >>> search = GridSearchCV(model, {"loss__C": [1.0, 3.0, 10.0]})
    """

    _constraints: ClassVar[dict[str, list[object]]] = {
        "C": [POSITIVE],
        "epsilon": [TOLERANCE],
        "calibrate": ["boolean"],
    }

    C: float = 3.0
    epsilon: float = 0.1
    calibrate: bool = True
