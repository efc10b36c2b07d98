r"""Multinomial probit without a projection, the baseline of the paper, by mean field.

.. math::
    w_{fc} \sim N(0, 1/\psi_{fc}), \quad b_c \sim N(0, 1/\lambda_c), \quad
    t_n \sim N(W^\top x_n + b, I), \quad y_n = \operatorname{argmax}_c t_{nc},

Gammas on psi and lambda. q factorises as q(psi, lambda) q(b, W) q(T), with the updates of BSDR for
features as latent coordinates.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6), Section III, "MNP".
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bsdr_models.arrays import FloatArray
from bsdr_models.base import ProbabilisticClassifier
from bsdr_models.bsdr.paper import mean_field
from bsdr_models.bsdr.paper.data import Data
from bsdr_models.bsdr.paper.mean_field import Info, Utilities
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.spec import MNP_SPEC
from bsdr_models.dims import TERM
from bsdr_models.inference.callbacks import ascent_progress
from bsdr_models.inference.coordinate_ascent import (
    Extrapolation,
    FitResult,
    run_coordinate_ascent,
)
from bsdr_models.inference.datatree import MAX_NUMBERS, Context, InferenceMethod
from bsdr_models.numerics import orthant
from bsdr_models.numerics.design import DenseDesign, Design
from bsdr_models.numerics.factors import LOG_2PI, Gamma, RidgeColumns
from bsdr_models.options import COUNT, TOLERANCE
from bsdr_models.validation import (
    encode_labels,
    feature_names,
    fit_scaler,
    one_thread,
    read_labels,
    require_targets,
    sample_labels,
    units_of_samples,
    validate_samples,
    warn_not_converged,
)

# Draws of the tree from q.
N_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All factors of q. N samples, D features, K labels.

    weight_precision
        Gammas, (1 + D, K). Row 0 is lambda, of the bias; the rest is Psi.
    weights
        [b; W], one normal per label, (1 + D, K).
    utilities
        T, (N, K).
    """

    weight_precision: Gamma
    weights: RidgeColumns
    utilities: Utilities


def make_data(X: FloatArray, y: np.ndarray, *, n_labels: int) -> Data:
    """Samples (N, D) with a leading column of ones, and labels (N,)."""
    return Data(design=DenseDesign(_with_ones(X)), y=y, n_labels=n_labels)


def _with_ones(X: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(X)), X])


def init(data: Data) -> State:
    """Unit precisions, and weights that fit the utilities at origin 0."""
    d, k = data.n_features, data.n_labels
    utilities = mean_field.make_utilities(np.zeros((data.n_samples, k)), data)
    ones = np.ones((d, k))
    return State(
        weight_precision=Gamma(shape=ones, rate=ones),
        weights=data.design.ridge(utilities.mean, ones, 1.0),
        utilities=utilities,
    )


def update_weight_precision(state: State, priors: Priors) -> Gamma:
    """Optimal q(psi, lambda) given E[w**2]."""
    return mean_field.weight_gamma(state.weights.mean_square, priors)


def update_weights(state: State, data: Data) -> RidgeColumns:
    """Optimal q(b, W): a ridge regression of each utility with the precisions psi."""
    return data.design.ridge(state.utilities.mean, state.weight_precision.mean, 1.0)


def update_utilities(state: State, data: Data) -> Utilities:
    """Optimal q(T), truncated to the argmax regions of the labels."""
    return mean_field.make_utilities(state.weights.fitted, data, start=state.utilities.mode)


def step(state: State, data: Data, priors: Priors) -> tuple[State, Info]:
    """One sweep of coordinate ascent, which never lowers the bound."""
    state = replace(state, weight_precision=update_weight_precision(state, priors))
    state = replace(state, weights=update_weights(state, data))
    state = replace(state, utilities=update_utilities(state, data))
    terms = elbo_terms(state, priors)
    return state, Info(elbo=sum(terms.values()), terms=terms)


def elbo_terms(state: State, priors: Priors) -> dict[str, float]:
    """Terms of the exact bound in nats, as :func:`bsdr_models.bsdr.paper.mean_field.elbo_terms`."""
    psi, w, t = state.weight_precision, state.weights, state.utilities
    log_prior = np.sum(psi.mean_log - LOG_2PI - psi.mean * w.mean_square)
    utilities = t.log_prob + float(np.vdot(t.mean, w.fitted - t.origin))
    utilities += 0.5 * float(np.vdot(t.origin, t.origin) - np.vdot(w.fitted, w.fitted))
    return {
        "bias_precision": mean_field.gamma_term(
            psi, slice(0, 1), priors.bias_shape, priors.bias_rate
        ),
        "weight_precision": mean_field.gamma_term(
            psi, slice(1, None), priors.weight_shape, priors.weight_rate
        ),
        "weights": 0.5 * float(log_prior) + w.entropy(),
        "utilities": utilities - 0.5 * float(w.gram_trace.sum()),
    }


def pack(state: State) -> FloatArray:
    """Vector of the values that the next sweep needs, for extrapolation."""
    return np.concatenate([np.log(state.weights.mean_square).ravel(), state.utilities.mean.ravel()])


def unpack(vector: FloatArray, state: State) -> State:
    """State with the values of :func:`pack`, consistent after the next sweep."""
    shape = state.weights.mean.shape
    log_square, utilities = np.split(vector, [state.weights.mean.size])
    square = np.exp(log_square).reshape(shape)
    return replace(
        state,
        weights=replace(state.weights, mean=np.zeros(shape), variance=square),
        utilities=replace(state.utilities, mean=utilities.reshape(state.utilities.mean.shape)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MNPPosterior:
    """Posterior of the weights, for predictions."""

    state: State
    design: Design

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draws from q of weights (S, D, K) and biases (S, K)."""
        w, precision = self.state.weights, self.state.weight_precision.mean
        size = (n_draws, w.mean.shape[1])
        full = w.mean + self.design.draw(precision, 1.0, size=size, rng=rng)
        return full[:, 1:], full[:, 0]

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes of new samples (M, D), with weights integrated out."""
        X = _with_ones(X)
        w, precision = self.state.weights, self.state.weight_precision.mean
        variance = self.design.row_variance(X, precision, 1.0, precision.shape[1])
        return orthant.label_log_probs(X @ w.mean, np.sqrt(1.0 + variance))


class MNPClassifier(ProbabilisticClassifier):
    """Multinomial probit on all features: the baseline of BSDR, without a projection.

    It is the baseline of the paper of :class:`BSDRClassifier`, with its priors.

    Parameters
    ----------
    priors : Priors, optional
        Of weights and biases; the paper's by default. Those of the projection are ignored.
    max_iter : int, default=500
        Iterations of mean field.
    tol : float, default=1e-3
        Mean field stops when a round gains less than this many nats.
    standardize : bool, default=True
        Scale the features to unit variance; otherwise they are only centred.
    progressbar : bool, default=False

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features)
        Posterior mean of the weights, for scaled features.
    intercept_ : ndarray of shape (n_classes,)
    mean_, scale_ : ndarray of shape (n_features,)
        Centre and scale of the features.
    lower_bounds_ : ndarray of shape (n_iter,)
        Exact bound in nats after each iteration.
    n_iter_ : int
    converged_ : bool
    interrupted_ : bool
        Whether the fit was stopped by the user; it can still be used.
    idata_ : xarray.DataTree
        Draws of the mean-field posterior, bound and data, for ArviZ and
        :mod:`bsdr_models.plots`.
    model_ : pymc.Model
        The same model on the scaled training samples.

    See Also
    --------
    BSDRClassifier : the same likelihood on a low-dimensional projection.
    bsdr_models.bsdr.build_mnp_model : the model in PyMC.

    Notes
    -----
    A fit is deterministic. A sweep takes one factorisation per class, of the smaller of the number
    of features and samples.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import MNPClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> MNPClassifier().fit(X, y).predict_proba(X).shape
    (178, 3)
    """

    _spec = MNP_SPEC
    _option_types: ClassVar[dict[str, type[Any]]] = {"priors": Priors}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_iter": [COUNT],
        "tol": [TOLERANCE],
    }

    def __init__(
        self,
        *,
        priors: Priors | None = None,
        max_iter: int = 500,
        tol: float = 1e-3,
        standardize: bool = True,
        progressbar: bool = False,
    ) -> None:
        self.priors = priors
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.progressbar = progressbar

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : MNPClassifier

        Raises
        ------
        ValueError
            If the input is not finite, the labels are not classes, there is only one class, no
            feature varies, or an argument is out of range.
        """
        self._reset()
        self._check_params()
        require_targets(self, y)
        samples, X = sample_labels(X), validate_samples(self, X, reset=True, least=2)
        y = read_labels(y)
        check_consistent_length(X, y)
        y = column_or_1d(y, warn=True)
        priors: Priors = self._option("priors")
        self.classes_, index = encode_labels(y)
        self._scaler = fit_scaler(X, standardize=self.standardize)
        self.mean_, self.scale_ = self._scaler.location, self._scaler.scale
        scaled = self._scaler.transform(X)
        data = make_data(scaled, index, n_labels=len(self.classes_))
        self._tree: xr.DataTree | None = None
        self._context = Context(
            X=scaled,
            y=self.classes_[index],
            samples=samples,
            index=index,
            feature_names=feature_names(self),
            labels=self.classes_,
            target="multiclass",
            config=self._config(),
        )
        bar = ascent_progress(
            "MNP, mean field",
            n_restarts=1,
            max_iter=int(self.max_iter),
            n_jobs=1,
            enabled=self.progressbar,
        )
        units = units_of_samples(scaled, standardize=self.standardize)
        with one_thread(), self._fitting(X.shape), units:
            with bar as watched:
                result = run_coordinate_ascent(
                    lambda rng, restart: init(data),
                    lambda state: step(state, data, priors),
                    rng=np.random.default_rng(0),  # nothing is random
                    max_iter=int(self.max_iter),
                    tol=self.tol,
                    extrapolation=Extrapolation(pack=pack, unpack=unpack),
                    **watched,
                )
            self._set_fitted(result, data)
        if not (self.converged_ or self.interrupted_):
            warn_not_converged(self.max_iter, self.tol)
        return self

    def _set_fitted(self, result: FitResult[State], data: Data) -> None:
        weights = result.state.weights.mean
        self._posterior = MNPPosterior(state=result.state, design=data.design)
        self._terms = {name: np.asarray(term) for name, term in result.terms.items()}
        self.intercept_, self.coef_ = weights[0], weights[1:].T
        self.lower_bounds_, self.n_iter_ = result.elbo, len(result.elbo)
        self.converged_, self.interrupted_ = result.converged, result.interrupted

    @property
    def _method(self) -> InferenceMethod:
        return "mean_field"

    def _make_tree(self) -> xr.DataTree:
        """Draws from q, and the bound."""
        rng = np.random.default_rng(0)
        shape = self.coef_.T.shape
        n_draws = int(np.clip(MAX_NUMBERS // self.coef_.size, 20, N_DRAWS))
        weights, bias = self._posterior.draw(n_draws, rng=rng)
        psi = self._posterior.state.weight_precision
        precision = rng.gamma(psi.shape, size=(n_draws, 1 + shape[0], shape[1])) / psi.rate
        draws = {
            "weights": weights,
            "bias": bias,
            "weight_precision": precision[:, 1:],
            "bias_precision": precision[:, 0],
            "coef": self._context.contrast(weights),
            "bias_centered": self._context.contrast(bias),
        }
        fit = {"elbo": self.lower_bounds_, "elbo_terms": np.column_stack([*self._terms.values()])}
        return self._context.fit_tree(
            {"posterior": {name: values[None] for name, values in draws.items()}, "fit": fit},
            self._spec,
            inference_method="mean_field",
            n_components=0,
            attrs={"converged": int(self.converged_), "interrupted": int(self.interrupted_)},
            coords={TERM: list(self._terms)},
        )

    @property
    def model_(self) -> Any:
        """The ``pymc.Model`` on the scaled training samples."""
        check_is_fitted(self)
        from bsdr_models.bsdr.paper.model import build_mnp_model

        context = self._context
        return build_mnp_model(context.X, context.y, priors=Priors(**context.config["priors"]))
