"""Settings of mean field in the paper's model, and those that a cross-validation compares."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from bsdr_models.bm2pca.paper.mean_field import Start
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.bm2pca.task import Candidate
from bsdr_models.options import COUNT, ITERATIONS, Options, StrOptions

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]

# Compared costs, those of the paper, and numbers of sweeps.
COSTS: tuple[float, ...] = (10.0, 20.0, 30.0, 40.0)
SWEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
# Fallback, if no samples can be held out.
N_SWEEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of mean field in the paper's model.

    Parameters
    ----------
    start : {"label", "pca", "random"}, default="label"
        Initial latent coordinates of mean field: labels or targets, principal components, or
        random; further restarts are random.
    n_sweeps : int, "cv" or "converged", default="cv"
        Classifier: number of sweeps. The regressor always converges.
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
    >>> from bsdr_models import BM2PCAOptimization
    >>> from bsdr_models.papers import PaperBM2PCAClassifier
    >>> options = BM2PCAOptimization(n_sweeps="converged")
    >>> model = PaperBM2PCAClassifier(optimization=options)
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


def candidates(loss: HingeLoss, n_sweeps: int | str) -> list[Candidate]:
    """Compared values of C and of the number of sweeps, None to convergence."""
    costs = COSTS if loss.C is None or loss.C == "cv" else (float(loss.C),)
    if n_sweeps == "converged":
        return [{"C": cost, "n_sweeps": None} for cost in costs]
    sweeps = SWEEPS if n_sweeps == "cv" else (int(n_sweeps),)
    return [{"C": cost, "n_sweeps": number} for cost in costs for number in sweeps]
