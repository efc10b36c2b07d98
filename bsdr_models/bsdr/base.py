"""What the estimators of BSDR have in common."""

from typing import Any

from bsdr_models.bsdr.spec import SPEC
from bsdr_models.estimators.base import Estimator


class BaseBSDR(Estimator):
    """Components of a fit, and its data with the targets as the model sees them."""

    _spec = SPEC
    _context: Any
    n_components: int | None

    def _check_width(self) -> None:
        n = int(self._scaler.varies.sum())
        if self.n_components is not None and self.n_components > n:
            raise ValueError(
                f"n_components={self.n_components} must be at most n_features={n} that vary"
            )
