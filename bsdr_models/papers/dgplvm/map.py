r"""The objective of the paper, Eqs. (13), (17) and (18), with bounds, and its optimisation.

.. math::
    F = L_r(X, \theta) + \sum_{i=1}^4 \ln \theta_i + \tfrac{1}{\sigma_d^2} J(X)

F has no minimum: :math:`F(cX, \theta_2 / c^2) = F(X, \theta_2) - 2 \ln c`, and
F is unbounded as the bias or the signal goes to 0. The result therefore depends on the bounds of
theta, here, with v the variance of a feature,

====================== ========= ========
theta                  lowest    highest
====================== ========= ========
1, output variance     1e-4 v    1e2 v
2, inverse width**2    1e-3      1e3
3, bias                1e-6 v    1e2 v
4, inverse noise       1e-2 / v  1e4 / v
====================== ========= ========

X is free or a function of the features, :math:`X = K_{bc}\, a` (17) with
:math:`k_{bc} = \exp(-\tfrac{\gamma}{2} |y - y'|^2)` (18). The variables of the optimiser are
:math:`u = L^\top a`, L the Cholesky factor of :math:`K_{bc}`: then :math:`X = L u`. The mapping is
no constraint, but it affects which optimum is found, and embeds new samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy.linalg import blas, solve_triangular
from scipy.spatial.distance import pdist

from bsdr_models.dgplvm.back_constraint import Embedder, MappingPrior, make_mapping
from bsdr_models.dgplvm.map_search import Mode, collapsed_classes, find_mode
from bsdr_models.dgplvm.priors import CriterionName, DGPLVMPriors, LogUniform
from bsdr_models.dgplvm.problem import (
    DGPLVMProblem,
    Evaluation,
    FeatureGram,
    Gradient,
    Objective,
    choose_criterion,
    class_centroids,
    factorise,
    make_criterion,
    normal_density,
)
from bsdr_models.inference.optimise import run_map
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import rbf, rbf_gradient, squared_distances
from bsdr_models.options import COUNT, POSITIVE, StrOptions, check_parameters
from bsdr_models.papers import checks
from bsdr_models.papers.coordinate_ascent import Bound

THETA_DIM = "kernel_parameter"
THETA = ("output variance", "inverse squared width", "bias", "inverse noise variance")
# Lowest and highest theta for features of unit variance; initial theta there for latent
# coordinates of unit variance: half of the variance is signal.
_LOWEST = np.array([1e-4, 1e-3, 1e-6, 1e-2])
_HIGHEST = np.array([1e2, 1e3, 1e2, 1e4])
_INITIAL = np.array([0.5, 1.0, 1e-2, 2.0])
# Power of the variance of a feature in the units of theta.
_UNITS = np.array([1.0, 0.0, 1.0, -1.0])
# Share of explained variance below which the latent coordinates explain nothing. One direction of
# hundreds of pixels has a few hundredths; a collapsed signal has at most 1e-5.
NO_SIGNAL = 1e-3
# Criterion below which every class has collapsed to a point.
NO_SCATTER = 1e-6
# Of the arguments of the objective.
CONSTRAINTS: Mapping[str, Sequence[object]] = {
    "n_components": [COUNT],
    "weight": [POSITIVE],
    "criterion": [StrOptions(set(get_args(CriterionName)))],
    "width": [POSITIVE, None],
}
# Iterations of a step.
N_ITERATIONS = 20
# Distance of log theta to a bound that counts as being at it.
_AT_BOUND = 1e-3


def theta_priors(gram: FeatureGram) -> tuple[LogUniform, ...]:
    """Priors of theta, 1 / theta within bounds, for features of the variance in a Gram matrix."""
    units = float(np.log(gram.variance)) * _UNITS
    logs = (np.log(theta) + units for theta in (_INITIAL, _LOWEST, _HIGHEST))
    return tuple(LogUniform(start, (low, high)) for start, low, high in zip(*logs, strict=True))


def evaluate_paper(latent: FloatArray, log_theta: FloatArray, gram: FeatureGram) -> Evaluation:
    """Eq. (8) of the paper with its constant, under the kernel (5); the mean is zero.

    ``log_theta`` (4,) are logs of output variance, inverse squared width, bias and inverse noise
    variance, whose prior is not included.
    """
    signal, precision, bias, noise_precision = np.exp(log_theta)
    lengthscale = 1.0 / math.sqrt(precision)
    ones = np.ones(len(latent))
    smooth = rbf(latent, None, lengthscale, signal)
    factor, log_det = factorise(latent, smooth + bias, 1.0 / noise_precision)
    value, _, G = normal_density(factor, log_det, gram.root, gram.n_features)
    total, gradient = rbf_gradient(latent, smooth, lengthscale, G)
    by_precision = 0.5 * float(np.vdot(gradient, latent))
    by_bias = bias * float(ones @ blas.dsymv(1.0, G, ones, lower=1))
    by_log = [total, by_precision, by_bias, -np.trace(G) / noise_precision]
    return Evaluation(value=value, latent=gradient, log_parameters=np.array(by_log))


def kernel_mapping(X: FloatArray, width: float | None) -> MappingPrior:
    """Latent coordinates as sums of kernels at samples (N, D), Eqs. (17) and (18).

    The width is gamma in units of 1 / the median squared distance, and L the factor of the result.
    None is the limit at infinity, in which K_bc is the identity and a are the coordinates.
    """
    none = np.zeros(len(X))
    if width is not None:
        return make_mapping(X, none, width=width, noise=0.0, mean_variance=0.0)
    free = {"decay": np.inf, "noise": 0.0, "mean_variance": 0.0}
    return MappingPrior(samples=X, mean_weights=none, factor=np.eye(len(X)), **free)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperEmbedder(Embedder):
    """Embedding by the paper's back-constraint with weights a (N, R), which is deterministic."""

    mapping: MappingPrior
    weights: FloatArray

    @classmethod
    def of(cls, mapping: MappingPrior, raw: FloatArray) -> "PaperEmbedder":
        """With the weights of coordinates u, (N, R)."""
        weights = solve_triangular(mapping.factor, raw, lower=True, trans="T")
        return cls(mapping=mapping, weights=weights)

    def latent(self, X: FloatArray) -> FloatArray:
        """Latent coordinates of samples (M, D), (M, R)."""
        return self.mapping.covariances(X) @ self.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperObjective(Objective):
    """Eq. (13) of the paper by coordinates u of the mapping."""

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Latent coordinates of coordinates u, both (N, R), and the map of gradients back."""
        return self.mapping.root(raw), self.mapping.root_transposed

    def likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Eq. (8), without the prior of theta."""
        return evaluate_paper(latent, log_kernel, self.gram)


def make_data(
    X: FloatArray,
    y: IntArray,
    *,
    n_components: int,
    weight: float = 1e4,
    criterion: CriterionName = "auto",
    width: float | None = 2.0,
) -> PaperObjective:
    """Objective of samples X (N, D) and classes 0 to K - 1 (N,), -1 without a label."""
    X = checks.read_samples(X)
    y = checks.read_classes(y, len(X), unlabeled=True)
    check_parameters(CONSTRAINTS, locals(), "make_data")
    problem = make_problem(X, y, n_components=n_components, weight=weight, criterion=criterion)
    return make_objective(problem, kernel_mapping(X, width))


def make_problem(
    X: FloatArray,
    y: IntArray,
    *,
    n_components: int,
    weight: float,
    criterion: CriterionName,
    **options: Any,
) -> DGPLVMProblem:
    """Problem of samples (N, D) and classes (N,), with the criterion that their number allows."""
    n_labelled = int(np.count_nonzero(y >= 0))
    return DGPLVMProblem(
        X=X,
        y_index=y,
        n_components=n_components,
        criterion=choose_criterion(criterion, n_components, int(y.max()) + 1, n_labelled),
        priors=DGPLVMPriors(weight=weight, criterion=criterion),
        **options,
    )


def init(data: PaperObjective, *, rng: np.random.Generator) -> FloatArray:
    """Principal components and initial theta as a vector, which `data.unpack` splits."""
    X = data.mapping.samples
    problem = DGPLVMProblem(X=X, y_index=data.criterion.order, n_components=data.n_components)
    return data.pack(problem.starts(1, rng)[0], data.log_medians)


def step(state: FloatArray, data: PaperObjective) -> tuple[FloatArray, Bound]:
    """Some iterations of L-BFGS, which never raise the objective; its terms are negative.

    ``data.latent(state)`` are the latent coordinates, (N, R).
    """
    found = run_map(data, [state], bounds=data.bounds(len(state)), max_iter=N_ITERATIONS).x
    terms = data.terms(data.latent(found), data.unpack(found)[1])
    return found, Bound({name: -value for name, value in terms.values.items()})


def make_objective(problem: DGPLVMProblem, mapping: MappingPrior) -> PaperObjective:
    """Eq. (13) of a problem."""
    gram = FeatureGram.of(problem.X - problem.X.mean(axis=0))
    return PaperObjective(
        gram=gram,
        criterion=make_criterion(problem.criterion, problem.y_index),
        weight=problem.priors.weight,
        n_components=problem.n_components,
        parameter_priors=theta_priors(gram),
        mapping=mapping,
    )


def fit_paper(
    problem: DGPLVMProblem,
    mapping: MappingPrior,
    rng: np.random.Generator,
    *,
    progressbar: bool = False,
) -> Mode[PaperObjective]:
    """Minimise the paper's objective within bounds; ValueError if no start tells classes apart."""
    objective = make_objective(problem, mapping)
    initial = problem.starts(int(problem.optimization.n_restarts), rng)
    try:
        return find_mode(objective, initial, problem.optimization, progressbar=progressbar)
    except FloatingPointError as error:
        raise ValueError(
            "the criterion of the paper is not finite in the principal components of the features, "
            "where the search begins: centroids of classes coincide there"
        ) from error


def collapse(mode: Mode[PaperObjective], problem: DGPLVMProblem) -> str | None:
    r"""A warning if the mode is degenerate, or None.

    The share of the signal is the prior variance of a feature explained by the latent coordinates,
    :math:`\theta_1 (1 - \overline{\exp(-\theta_2 |x_i - x_j|^2 / 2)})`, relative to that and the
    noise: 0 for a vanishing signal and for coinciding latent coordinates. The bias vanishes for
    centred features, which needs no warning.
    """
    log_theta = mode.log_parameters
    latent = mode.latent
    J = mode.terms.criterion
    output, inverse_width, _, inverse_noise = np.exp(log_theta)
    similarity = np.exp(-0.5 * inverse_width * squared_distances(latent)).mean()
    signal = output * (1.0 - similarity)
    share = float(signal / (signal + 1.0 / inverse_noise))
    if share < NO_SIGNAL:
        pairs = pdist(class_centroids(latent, problem.y_index), "sqeuclidean")
        return (
            "the latent coordinates explain almost nothing of the features: signal share "
            f"{share:.2g}, distance between centroids {float(np.sqrt(pairs.mean())):.2g}"
        )
    if (message := collapsed_classes(J, NO_SCATTER)) is not None:
        return message
    low, high = mode.objective.parameter_bounds
    near = (log_theta - low < _AT_BOUND) | (high - log_theta < _AT_BOUND)
    names = [name for name, at in zip(THETA, near, strict=True) if at and name != "bias"]
    if names:
        return (
            f"{' and '.join(names)} ended at a bound, on which the result then depends: "
            "the objective of the paper has no minimum of its own"
        )
    return None
