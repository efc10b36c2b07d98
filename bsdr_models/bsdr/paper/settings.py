"""Inference methods and options of the paper's model."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from bsdr_models.bsdr.paper.mean_field import Start
from bsdr_models.options import ITERATIONS, Options, StrOptions

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Options):
    """Settings of mean field in the paper's model of BSDR.

    Parameters
    ----------
    start : {"discriminant", "pca", "random"}, default="discriminant"
        Initialisation: discriminant directions, principal components, or random; further restarts
        are random.
    n_restarts : int, default=1
        Restarts, of which the one with the highest bound is selected.
    max_iter : int, default=500
        Iterations per restart.
    tol : float, default=1e-3
        Mean field stops when a round gains less than this many nats.

    Raises
    ------
    ValueError
        If an option is out of range.

    See Also
    --------
    bsdr_models.Sampling : settings of samplers.

    Examples
    --------
    >>> from bsdr_models import BSDROptimization
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> model = PaperBSDRClassifier(optimization=BSDROptimization(n_restarts=3))
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "start": [StrOptions(set(get_args(Start)))],
        **ITERATIONS,
    }

    start: Start = "discriminant"
    n_restarts: int = 1
    max_iter: int = 500
    tol: float = 1e-3
