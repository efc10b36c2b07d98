"""Loss function of BM2PCA."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsdr_models.options import POSITIVE, Options


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
