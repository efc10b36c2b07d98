"""The projections of :mod:`benchmarks.methods.projections` followed by the multinomial probit."""

from functools import partial

import numpy as np

from benchmarks.methods.base import Method, spread
from benchmarks.methods.projections import fit_untuned
from benchmarks.methods.readouts import Reader
from bsdr_models.bsdr.mnp import MNPClassifier


def probit(Z: np.ndarray, y: np.ndarray, n_classes: int) -> Reader:
    """Multinomial probit by mean field, "+MNP" of Gönen (2013); it standardises its input."""
    model = MNPClassifier().fit(Z, y)
    return lambda new: spread(model.predict_proba(new), model.classes_, n_classes)


METHODS = {
    f"{name} + probit": Method(
        fit=partial(fit_untuned, name=name, readout=probit), modules=("benchmarks.methods.probit",)
    )
    for name in ("PCA", "factor analysis", "PLS-DA", "LDA", "NCA")
}
