r"""The multinomial probit of Gönen (2013), "MNP" and "+MNP" of the paper, by mean field.

.. math::
    w_{fc} \sim N(0, 1/\psi_{fc}), \quad b_c \sim N(0, 1/\lambda_c), \quad
    t_n \sim N(W^\top x_n + b, I), \quad y_n = \operatorname{argmax}_c t_{nc},

with Gammas on psi and lambda. q factorises as q(psi, lambda) q(b, W) q(T), with the updates of BSDR
for features as latent coordinates.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.base import Fitted, Method, of_classifier, spread
from benchmarks.methods.projections import fit_untuned
from benchmarks.methods.readouts import Reader
from benchmarks.protocols import Training
from bsdr_models.bsdr.probit_choice import mean_probabilities
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.papers.bsdr import mean_field
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.draws import N_DRAWS, standard_normals
from bsdr_models.papers.bsdr.mean_field import Data, Utilities
from bsdr_models.papers.bsdr.priors import PAPER
from bsdr_models.papers.coordinate_ascent import Bound, maximise
from bsdr_models.papers.factors import RidgeColumns, mean_log, negative_divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Factors: precisions and weights (1 + D, K), bias in row 0, and utilities (N, K)."""

    weight_precision: Gamma
    weights: RidgeColumns
    utilities: Utilities


def init(data: Data) -> State:
    """Unit precisions, and weights that fit the utilities at origin 0."""
    utilities = mean_field.make_utilities(np.zeros((data.n_samples, data.n_labels)), data)
    ones = np.ones((data.n_features, data.n_labels))
    return State(
        weight_precision=Gamma(shape=ones, rate=ones),
        weights=data.design.ridge(utilities.mean, ones, 1.0),
        utilities=utilities,
    )


def step(state: State, data: Data) -> tuple[State, Bound]:
    """One sweep of coordinate ascent, and the exact bound."""
    psi = mean_field.weight_gamma(state.weights.mean_square, PAPER)
    w = data.design.ridge(state.utilities.mean, psi.mean, 1.0)
    t = mean_field.make_utilities(w.fitted, data, start=state.utilities.mode)
    log_prior = np.sum(mean_log(psi) - LOG_2PI - psi.mean * w.mean_square)
    divergence = negative_divergence(psi, *mean_field.weight_prior(PAPER, len(psi.rate)))
    terms = {
        "precisions": float(divergence.sum()),
        "weights": 0.5 * float(log_prior) + w.entropy(),
        "utilities": t.log_prob - 0.5 * float(w.gram_trace.sum()),  # their origin is w.fitted
    }
    state = State(weight_precision=psi, weights=w, utilities=t)
    return state, Bound(terms)


class MultinomialProbit:
    """Multinomial probit of standardised features, fitted by mean field."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to samples (N, D) and labels (N,)."""
        self.classes_, index = np.unique(y, return_inverse=True)
        self._scaler = StandardScaler().fit(X)
        data = Data(design=DenseDesign(self._with_ones(X)), y=index, n_labels=len(self.classes_))
        result = maximise(
            lambda rng: init(data),
            lambda state: step(state, data),
            rng=np.random.default_rng(0),  # nothing is random
            max_iter=2000,
            tol=5e-4,
        )
        self.converged_ = result.converged
        self._design, self._state = data.design, result.posterior
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, with weights integrated out, (M, K)."""
        rows, psi = self._with_ones(X), self._state.weight_precision.mean
        variance = self._design.row_variance(rows, psi, 1.0)
        eta = rows @ self._state.weights.mean
        normal = standard_normals(N_DRAWS, eta.shape[1])
        drawn = (mean + sd * normal for mean, sd in zip(eta, np.sqrt(variance), strict=True))
        return np.concatenate([mean_probabilities(each[None]) for each in drawn])

    def _with_ones(self, X: Any) -> FloatArray:
        scaled = self._scaler.transform(X)
        return np.column_stack([np.ones(len(scaled)), scaled])


def probit(Z: np.ndarray, y: np.ndarray, n_classes: int) -> Reader:
    """Multinomial probit of the coordinates of a projection."""
    model = MultinomialProbit().fit(Z, y)
    return lambda new: spread(model.predict_proba(new), model.classes_, n_classes)


def on_all_features(training: Training, n_components: int, seed: int) -> Fitted:
    """The multinomial probit without a projection."""
    model = MultinomialProbit().fit(training.X, training.y)
    return of_classifier(model, training, record={"converged": bool(model.converged_)})


METHODS = {
    f"{name} + probit": Method(
        fit=partial(fit_untuned, name=name, readout=probit), modules=("benchmarks.methods.probit",)
    )
    for name in ("PCA", "factor analysis", "PLS-DA", "LDA", "NCA")
}
METHODS["MNP"] = Method(
    fit=on_all_features, modules=("benchmarks.methods.probit",), paper="bsdr", full=True
)
