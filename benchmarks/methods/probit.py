"""The projections of :mod:`benchmarks.methods.projections` followed by the multinomial probit."""

from collections.abc import Iterable

import numpy as np

from benchmarks.methods import projections
from benchmarks.methods.base import spread
from benchmarks.methods.readouts import Fold, Reader
from bsdr_models.bsdr.mnp import MNPClassifier


def probit(Z: np.ndarray, y: np.ndarray, n_classes: int, folds: Iterable[Fold] = ()) -> Reader:
    """Multinomial probit by mean field, "+MNP" of Gönen (2013); it standardises its input."""
    model = MNPClassifier().fit(Z, y)
    return lambda new: spread(model.predict_proba(new), model.classes_, n_classes)


METHODS = projections.methods(" + probit", probit, ("benchmarks.methods.probit",))
