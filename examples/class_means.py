r"""A fourth model, by the recipe of CONTRIBUTING.md: shrunken class means.

Features x (D,) of a sample of class k are normal about the means of the class, which are normal
about zero, the mean of all samples after scaling:

.. math::
    m_{kd} \sim N(0, a s_d^2), \qquad x_{nd} \mid y_n = k \sim N(m_{kd}, s_d^2).

The posterior of the means is normal, and independent of other means. The within-class variances s_d
are estimated, and a has the largest marginal likelihood. Class scores are linear in the features,
and latent coordinates are those in which the posterior means of the classes differ.

``python examples/class_means.py`` fits the model to Wine.
"""

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import xarray as xr
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_wine

from bsdr_models.data.targets import Targets
from bsdr_models.data.training import Training
from bsdr_models.estimators.calibration import Calibration, TemperaturePrior, judge
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.dims import FEATURE, LABEL, OBS
from bsdr_models.inference.result import Result
from bsdr_models.inference.spec import ModelSpec
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.options import RandomState

SPEC = ModelSpec(
    name="class_means",
    citation_bibtex="""@article{efron1975stein,
  author  = {Efron, Bradley and Morris, Carl},
  title   = {Data Analysis Using {Stein's} Estimator and its Generalizations},
  journal = {Journal of the American Statistical Association},
  volume  = {70},
  pages   = {311--319},
  year    = {1975},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS,),
            "class_mean": (LABEL, FEATURE),
            "coef": (FEATURE, LABEL),
            "intercept": (LABEL,),
        }
    ),
    identified=("class_mean", "coef", "intercept"),
)
# Prior of the log temperature: class scores of independent features are too certain.
PRIOR = TemperaturePrior(mean=0.5, sd=0.7)
# Range of log a that is searched.
LOG_SPREAD = (-6.0, 6.0)
# A within-class variance is at least this share of the variance of the feature.
LEAST_VARIANCE = 1e-3
N_DRAWS = 500


# The model


def build_model(X: FloatArray, y: IntArray, sd: FloatArray, spread: float) -> pm.Model:
    """The model in PyMC, of scaled samples (N, D), classes (N,) and within-class sds (D,)."""
    n_classes = int(y.max()) + 1
    coords = {OBS: range(len(X)), FEATURE: range(X.shape[1]), LABEL: range(n_classes)}
    with pm.Model(coords=coords) as model:
        scale = np.tile(np.sqrt(spread) * sd, (n_classes, 1))
        mean = pm.Normal("class_mean", 0.0, scale, dims=(LABEL, FEATURE))
        pm.Normal("X", mean[y], sd, observed=X, dims=(OBS, FEATURE))
    return model


# The engine


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMeans:
    """The posterior: class means (K, D), what follows from it for scaled samples."""

    mean: FloatArray  # (K, D)
    sd: FloatArray  # of the class means, (K, D)
    within: FloatArray  # sd of a feature within a class, (D,)
    log_frequency: FloatArray  # of the classes, (K,)
    spread: float  # a
    log_evidence: float
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def axes(self) -> FloatArray:
        """Orthonormal directions (D, R) of scaled features in which class means differ."""
        centred = (self.mean - self.mean.mean(axis=0)) / self.within
        vectors = np.linalg.svd(centred, full_matrices=False)[2]
        return vectors[: len(self.mean) - 1].T / self.within[:, None]

    def effects(self, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effects (..., D, K) of the features and intercepts (..., K), given class means."""
        coef = np.swapaxes(mean / self.within**2, -1, -2)
        size = np.sum((mean / self.within) ** 2, axis=-1)
        return coef, self.log_frequency - 0.5 * size

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates (M, R), which are known given the features."""
        latent = X @ self.axes
        return LatentCoordinates(mean=latent, cov=np.zeros((*latent.shape, latent.shape[1])))

    def scores(self, X: FloatArray) -> FloatArray:
        """Class scores, (M, K)."""
        coef, intercept = self.effects(self.mean)
        return X @ coef + intercept

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Calibrated log probabilities, (M, K)."""
        return self.calibration.apply(self.scores(X), link)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R), between the class means elsewhere."""
        centre = self.mean.mean(axis=0)
        towards = self.axes * self.within[:, None] ** 2
        return self.log_probabilities(centre + (latent - centre @ self.axes) @ towards.T)

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Independent draws of the class means and what follows from them, (1, S, ...)."""
        normal = rng.standard_normal((1, n_draws, *self.mean.shape))
        mean = self.mean + self.sd * normal
        coef, intercept = self.effects(mean)
        return {"class_mean": mean, "coef": coef, "intercept": intercept}


def link(scores: FloatArray, temperature: float) -> FloatArray:
    """Log probabilities of class scores (M, K)."""
    return log_softmax(scores / temperature, axis=-1)


def fit_class_means(X: FloatArray, y: IntArray, n_classes: int) -> ClassMeans:
    """Posterior of scaled samples (N, D) of classes (N,)."""
    indicators = np.eye(n_classes)[y]
    count = indicators.sum(axis=0)
    average = (indicators.T @ X) / np.maximum(count, 1.0)[:, None]
    residual = X - average[y]
    dof = max(len(X) - np.count_nonzero(count), 1)
    within = np.sqrt(np.maximum(np.sum(residual**2, axis=0) / dof, LEAST_VARIANCE))
    seen = count > 0.0
    standardised = average[seen] / within

    def lack(log_spread: float) -> float:
        """Negative log marginal likelihood of the averages, which are N(0, (a + 1 / n) s^2)."""
        variance = (np.exp(log_spread) + 1.0 / count[seen])[:, None]
        return 0.5 * float(np.sum(np.log(2.0 * np.pi * variance) + standardised**2 / variance))

    best = minimize_scalar(lack, bounds=LOG_SPREAD, method="bounded")
    spread = float(np.exp(best.x))
    precision = (count + 1.0 / spread)[:, None]
    return ClassMeans(
        mean=average * count[:, None] / precision,
        sd=within / np.sqrt(precision),
        within=within,
        log_frequency=np.log((count + 1.0) / (count + 1.0).sum()),
        spread=spread,
        log_evidence=-float(best.fun),
    )


def fit_problem(training: Training) -> Result[ClassMeans]:
    """Fit to all samples, and to those outside of each fold for the calibration."""
    X = np.asarray(training.X)
    y = training.classes
    assert y is not None
    posterior = fit_class_means(X, y, training.n_classes)
    values = [np.zeros((len(X), training.n_classes)) for _ in training.divisions]
    for division, number in training.folds():
        out = training.out((division, number))
        others = fit_class_means(X[~out], y[~out], training.n_classes)
        values[division][out] = others.scores(X[out])
    judged = judge(
        values,
        y,
        training.divisions,
        link,
        PRIOR,
        groups=training.groups,
        share=training.share,
    )
    return Result(
        posterior=replace(posterior, calibration=judged.calibration),
        trace=np.array([posterior.log_evidence]),
        converged=True,
        **judged.of_result(slice(None), len(X)),
    )


# The estimator


class ClassMeansClassifier(ProbabilisticClassifier):
    """Discriminant analysis with class means that are shrunk towards each other.

    Parameters
    ----------
    random_state : int, RandomState, Generator or None
        Seed of the divisions into folds.

    Attributes
    ----------
    spread_ : float
        Variance of the class means, in units of that within classes.
    temperature_ : float
        Temperature of the class scores.

    Examples
    --------
    >>> X, y = load_wine(return_X_y=True)
    >>> model = ClassMeansClassifier(random_state=0).fit(X[::3], y[::3])
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _spec = SPEC
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {}

    def __init__(self, *, random_state: RandomState = None) -> None:
        self.random_state = random_state

    @property
    def _method(self) -> Any:
        return "conjugate"

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[ClassMeans]:
        return fit_problem(self._training(targets, rng, metric=None))

    def _name_fitted(self) -> None:
        posterior = self._result.posterior
        axes = posterior.axes
        latent = posterior.mean @ axes
        share = latent.var(axis=0) / latent.var(axis=0).sum()
        self._set_components(axes, share, np.asarray(self._context.X))
        self.spread_ = posterior.spread
        self.temperature_ = posterior.calibration.temperature

    def _mean_effects(self) -> tuple[FloatArray, FloatArray]:
        return self._posterior.effects(self._posterior.mean)

    def _make_tree(self) -> xr.DataTree:
        posterior = self._posterior
        latent = posterior.embed(np.asarray(self._context.X))
        rng = np.random.default_rng(self._seed)
        fit = {
            "latent_mean": latent.mean,
            "latent_cov": latent.cov,
            "projection_mean": posterior.axes,
            "relevance": self.relevance_,
        }
        return self._context.fit_tree(
            {"posterior": posterior.draw(N_DRAWS, rng), "fit": fit},
            SPEC,
            inference_method=self._method,
            n_components=latent.mean.shape[1],
            attrs=self._attrs(),
        )


def main() -> None:
    """Fit to every third sample of Wine."""
    X, y = load_wine(return_X_y=True)
    model = ClassMeansClassifier(random_state=0).fit(X[::3], y[::3])
    print(model.summary())
    print(f"accuracy of the others: {model.score(X, y):.3f}")


if __name__ == "__main__":
    main()
