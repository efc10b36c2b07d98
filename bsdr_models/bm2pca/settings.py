"""Loss functions of BM2PCA, and the settings that a cross-validation of the classifier compares."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.paper import regression
from bsdr_models.bm2pca.task import Candidate, Strategy
from bsdr_models.options import POSITIVE, TOLERANCE, Options, StrOptions

# Compared costs, the first of which is the fallback. Few samples need one only, or two with the
# hinge of all classes.
COSTS: dict[Strategy, tuple[float, ...]] = {
    "one_vs_rest": (10.0, 1.0, 0.1),
    "shared": (subspace.Settings().cost, 1.0, 0.1),
}
MULTICLASS_COSTS: tuple[float, ...] = (1.0, 3.0, 0.3)
# Compared scales of the metric, and the fallback.
SCALES = (1.0, 10.0, 100.0, np.inf)
SCALE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HingeLoss(Options):
    """Hinge loss of the classes in BM2PCA.

    Parameters
    ----------
    C : float or "cv", optional
        Half the slope of the hinge. ``"cv"`` compares a few values by cross-validation, and so does
        None, except where samples of `BM2PCAClassifier` do not outnumber features.
    strategy : {"shared", "one_vs_rest"}, default="shared"
        One subspace for all classes, or one for each as in the paper. The latter are concatenated:
        R components per class in the paper's model, one per class in `BM2PCAClassifier`.
    calibrate : bool, float or tuple of float, default=True
        Fit a softmax temperature to held-out class scores, to those of each task its own; otherwise
        it is one, or the given positive number, or numbers of several tasks.

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

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [POSITIVE, StrOptions({"cv"}), None],
        "strategy": [StrOptions(set(get_args(Strategy)))],
        "calibrate": ["boolean", POSITIVE, tuple],
    }

    C: float | Literal["cv"] | None = None
    strategy: Strategy = "shared"
    calibrate: bool | float | tuple[float, ...] = True

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        given = self.calibrate if isinstance(self.calibrate, tuple) else ()
        if not all(isinstance(each, Real) and 0.0 < float(each) < np.inf for each in given):
            raise ValueError(f"calibrate must hold positive finite numbers, got {given}")

    @property
    def temperature(self) -> float | tuple[float, ...] | None:
        """The given temperature, or that of each task; None if none is given."""
        if isinstance(self.calibrate, bool | np.bool_):
            return None
        return self.calibrate if isinstance(self.calibrate, tuple) else float(self.calibrate)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonInsensitiveLoss(Options):
    """Loss of real targets in BM2PCA: linear beyond an interval without loss.

    Parameters
    ----------
    C : float, "bound" or "cv", default=3.0
        Half the slope beyond epsilon, per standard deviation of the output. ``"bound"`` takes the
        candidate with the highest evidence lower bound, ``"cv"`` the one with the smallest held-out
        squared error.
    epsilon : float, "bound" or "cv", default=0.1
        Half width of the interval without loss, in standard deviations of the output.
    calibrate : bool, default=True
        Multiply predictions, shrunk too much where few components explain the features, by the
        slope of a regression of held-out targets on them, in five folds, and scale standard
        deviations, too small under mean field, to the size of its residuals.

    Raises
    ------
    ValueError
        If an option is out of range, or C and epsilon are to be chosen by different criteria.

    See Also
    --------
    HingeLoss : classes.

    Examples
    --------
    >>> from bsdr_models import BM2PCARegressor, EpsilonInsensitiveLoss
    >>> model = BM2PCARegressor(loss=EpsilonInsensitiveLoss(C="cv", epsilon="cv"))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [POSITIVE, StrOptions({"bound", "cv"})],
        "epsilon": [TOLERANCE, StrOptions({"bound", "cv"})],
        "calibrate": ["boolean"],
    }

    C: float | Literal["bound", "cv"] = regression.COST
    epsilon: float | Literal["bound", "cv"] = regression.EPSILON
    calibrate: bool = True

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if len({value for value in (self.C, self.epsilon) if isinstance(value, str)}) > 1:
            raise ValueError(
                f"C={self.C!r} and epsilon={self.epsilon!r} must be chosen by the same criterion"
            )


def candidates(
    loss: HingeLoss, metric_scale: float | str, *, wide: bool, multiclass: bool
) -> list[Candidate]:
    """Compared values of C and of the metric scale.

    If samples do not outnumber features (``wide``), any labels are linearly separable, and all
    larger costs lead to about the same fit of the labels one by one.
    """
    costs = MULTICLASS_COSTS if multiclass else COSTS[loss.strategy]
    if loss.C is None and wide:
        costs = costs[: 1 + multiclass]
    elif not (loss.C is None or loss.C == "cv"):
        costs = (float(loss.C),)
    scales = SCALES if isinstance(metric_scale, str) else (float(metric_scale),)
    return [{"C": cost, "metric_scale": scale} for cost in costs for scale in scales]
