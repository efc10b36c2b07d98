"""Option objects of BM2PCA, and candidate settings of the classifier."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bsdr_models.bm2pca.conjugate import regression
from bsdr_models.bm2pca.conjugate.mean_field import Start
from bsdr_models.bm2pca.label_free import subspace
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.task import Strategy
from bsdr_models.options import COUNT, ITERATIONS, POSITIVE, TOLERANCE, Options

Variant = Literal["label_free", "paper"]
Inference = Literal["mean_field", "gibbs", "nuts", "advi"]

# Candidates of a cross-validation; the first cost is the fallback without one. Costs of the
# paper's variant are the paper's. The label-free variant needs one only if samples are few, and two
# with the hinge of all classes.
COSTS: tuple[float, ...] = (10.0, 20.0, 30.0, 40.0)
LABEL_FREE_COSTS: dict[Strategy, tuple[float, ...]] = {
    "one_vs_rest": (10.0, 1.0, 0.1),
    "shared": (subspace.Settings().cost, 1.0, 0.1),
}
MULTICLASS_COSTS: tuple[float, ...] = (1.0, 3.0, 0.3)
SWEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
SCALES = (1.0, 10.0, 100.0, np.inf)
# Fallback settings, if no samples can be held out.
N_SWEEPS, SCALE = 3, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Setting of a fit: C; sweeps of the paper's variant (None to convergence); metric scale."""

    cost: float
    n_sweeps: int | None = None
    scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All combinations of costs with numbers of sweeps, or with scales."""

    costs: tuple[float, ...]
    sweeps: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates, costs first."""
        if self.scales:
            return [Candidate(cost=c, scale=s) for c in self.costs for s in self.scales]
        if self.sweeps:
            return [Candidate(cost=c, n_sweeps=s) for c in self.costs for s in self.sweeps]
        return [Candidate(cost=c) for c in self.costs]

    @property
    def fallback(self) -> Candidate:
        """The setting without cross-validation."""

        def nearest(values: tuple[Any, ...], wanted: float) -> Any:
            return wanted if wanted in values else values[0]

        return Candidate(
            cost=self.costs[0],
            n_sweeps=nearest(self.sweeps, N_SWEEPS) if self.sweeps else None,
            scale=nearest(self.scales, SCALE) if self.scales else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HingeLoss(Options):
    """Hinge loss of the classes in BM2PCA.

    Parameters
    ----------
    C : float or "cv", optional
        Half the slope of the hinge. ``"cv"`` compares a few values by cross-validation, and so does
        None, except where samples of the label-free variant do not outnumber features.
    strategy : {"shared", "one_vs_rest"}, default="shared"
        One subspace for all classes, or one for each as in the paper. The latter are concatenated:
        R components per class in the paper's variant, one per class in the label-free one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of mean field in the paper's variant, and of the search of the label-free one.

    Parameters
    ----------
    start : {"label", "pca", "random"}, default="label"
        Initial latent coordinates of mean field: labels or targets, principal components, or
        random; further restarts are random.
    n_sweeps : int, "cv" or "converged", default="cv"
        Classifier: number of sweeps of mean field. The regressor always converges.
    n_restarts : int, default=1
        Restarts of mean field to convergence; the highest bound is kept.
    max_iter : int, default=2000
        Iterations per restart.
    tol : float, default=1e-3
        Mean field has converged when a round gains less, in nats.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.Sampling : settings of samplers.

    Examples
    --------
    >>> from bsdr_models import BM2PCAClassifier, BM2PCAOptimization
    >>> options = BM2PCAOptimization(n_sweeps="converged")
    >>> model = BM2PCAClassifier(variant="paper", optimization=options)
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "start": [StrOptions(set(get_args(Start)))],
        "n_sweeps": [COUNT, StrOptions({"cv", "converged"})],
        **ITERATIONS,
    }

    start: Start = "label"
    n_sweeps: int | Literal["cv", "converged"] = "cv"
    n_restarts: int = 1
    max_iter: int = 2000
    tol: float = 1e-3


def make_grid(
    variant: Variant,
    loss: HingeLoss,
    n_sweeps: int | Literal["cv", "converged"],
    priors: Priors,
    *,
    wide: bool,
    multiclass: bool = False,
) -> Grid:
    """Candidates for the arguments of a classifier.

    Parameters
    ----------
    wide : bool
        Whether samples do not outnumber features. Then any labels are linearly separable, and
        all larger costs lead to about the same label-free fit of the labels one by one.
    multiclass : bool
        Whether the loss is the hinge of all classes.
    """
    costs = COSTS if variant == "paper" else LABEL_FREE_COSTS[loss.strategy]
    if multiclass:
        costs = MULTICLASS_COSTS
    if loss.C is None and variant == "label_free" and wide:
        costs = costs[: 1 + multiclass]
    elif not (loss.C is None or loss.C == "cv"):
        costs = (float(loss.C),)
    if variant == "label_free":
        scale = priors.metric_scale
        return Grid(costs=costs, scales=SCALES if scale == "cv" else (float(scale),))
    if n_sweeps == "converged":
        return Grid(costs=costs)
    return Grid(costs=costs, sweeps=SWEEPS if n_sweeps == "cv" else (int(n_sweeps),))
