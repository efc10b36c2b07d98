"""What a method is: a function of training rows that returns what can be asked of the fit.

It never sees a test row, so that no setting can have been chosen on one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.protocols import Training


class ImpossibleError(Exception):
    """A method that does not exist for these rows, or whose library is not here; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fit.

    predict
        New rows -> class probabilities (M, K).
    transform
        Rows -> positions (M, R), where the method has a subspace.
    record
        Settings chosen, and what the fit says of itself.
    """

    predict: Callable[[Any], np.ndarray]
    transform: Callable[[Any], Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)


Fit = Callable[[Training, int, int], Fitted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method by its function of (training rows, number of components, seed).

    modules
        Where its code begins; what they import counts as well.
    paper
        Folder of the package that it runs through, if any.
    configuration
        Arguments that tell it from others of the same modules.
    full
        Whether it sees all features, so that the number of components is nothing to it.
    libraries
        Distributions beside NumPy, SciPy and scikit-learn.
    """

    fit: Fit
    modules: tuple[str, ...]
    paper: str = ""
    configuration: Any = None
    full: bool = False
    libraries: tuple[str, ...] = ()


def spread(probability: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Columns of the classes that had training rows, (M, K); 0 for the others."""
    found = np.zeros((len(probability), n_classes))
    found[:, classes] = probability
    return found


def of_classifier(
    model: Any, training: Training, *, subspace: bool = False, record: dict[str, Any] | None = None
) -> Fitted:
    """What a fitted classifier of scikit-learn's kind offers."""
    return Fitted(
        predict=lambda new: spread(model.predict_proba(new), model.classes_, training.n_classes),
        transform=model.transform if subspace else None,
        record=record or {},
    )


def scaler_of(training: Training) -> Callable[[Any], Any]:
    """Unit variance over the training rows, unless the protocol has prepared them."""
    if training.prepared:
        return lambda rows: rows
    return StandardScaler().fit(training.X).transform
