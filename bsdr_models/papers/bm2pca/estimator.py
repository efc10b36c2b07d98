"""Scikit-learn classifier of BM2PCA as printed, by every inference method."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bsdr_models.bm2pca.base import BaseBM2PCA, MarginClassifier
from bsdr_models.bm2pca.engines import MOST_SAMPLES
from bsdr_models.bm2pca.posterior import Predictor, Probabilities
from bsdr_models.bm2pca.priors import SAMPLING, Priors
from bsdr_models.bm2pca.problem import Candidate, Problem, Strategy
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.data.targets import Targets
from bsdr_models.data.training import Training
from bsdr_models.data.validation import feature_names, read_views, warn_unless_mixed
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference.result import Result
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.rng import RandomState
from bsdr_models.numerics.row_space import Rows
from bsdr_models.options import COUNT, Options, Sampling, StrOptions
from bsdr_models.papers.bm2pca import engines
from bsdr_models.papers.bm2pca.select import cross_validate

if TYPE_CHECKING:
    import pymc as pm

Inference = Literal["mean_field", "gibbs", "nuts", "advi"]

# Compared costs, those of the paper, and numbers of sweeps.
COSTS: tuple[float, ...] = (10.0, 20.0, 30.0, 40.0)
SWEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
# Fallback, if no samples can be held out.
N_SWEEPS = 3


class ConjugateEstimator(BaseBM2PCA):
    """Views, hyper-parameters and settings of mean field, and the PyMC model."""

    _sparse = False

    @property
    def _named_views(self) -> list[tuple[str, IntArray]] | None:
        """Names and features of the views."""
        return read_views(self.views, list(feature_names(self)))

    def _scale(self, X: Rows) -> Rows:
        _ = self._named_views  # refused before any work
        return super()._scale(X)

    def _make_problem(self, Y: FloatArray, **options: Any) -> Problem:
        """Scaled samples and encoded targets, with the columns of the views."""
        X = self._context.X
        views = self._named_views
        columns: tuple[IntArray | None, ...] = (None,)
        if views is not None and len(views) > 1:
            columns = tuple(own for _, own in self._scaler.positions(views))
        return Problem(
            X=X,
            Y=Y,
            n_components=min(self._most_components(X.shape[1]), X.shape[1]),
            priors=self._option("priors"),
            columns=columns,
            **options,
        )

    def _most_components(self, n_features: int) -> int:
        """The number of components asked for."""
        return int(self.n_components)

    def _divide(self, targets: Targets, rng: np.random.Generator) -> Training:
        """Training samples with the folds that are held out."""
        context = self._context
        return Training.of(
            context.X,
            targets.classes,
            len(targets.names),
            np.ones(context.X.shape[1]),
            metric=None,
            rng=rng,
            groups=context.groups,
        )

    @property
    def model_(self) -> "pm.Model":
        """The model with one subspace as a ``pymc.Model`` on the scaled training samples.

        ``pm.sample_posterior_predictive`` with ``idata_`` draws features. Labels have a
        pseudo-likelihood only: PyMC neither draws them nor computes their log likelihood.
        """
        check_is_fitted(self)
        if self._problem.strategy != "shared":
            raise AttributeError("model_ needs strategy='shared'")
        return self._context.name_dims(engines.declare(self._problem, self.C_))


class PaperBM2PCAClassifier(MarginClassifier, ConjugateEstimator):
    r"""Bayesian maximum margin principal component analysis as printed [1]_.

    Latent coordinates explain the features and, by max-margin classifiers, the labels.
    :class:`bsdr_models.BM2PCAClassifier`, whose embedding needs no labels, predicts better.

    Parameters
    ----------
    n_components : int, default=10
        Dimension R of the latent space, at most the number of features.
    strategy : {"shared", "one_vs_rest"}, default="shared"
        One subspace for all classes, or one for each, of R components, as in the paper.
    inference : {"mean_field", "gibbs", "nuts", "advi"}, default="mean_field"
        Inference method. All but mean field need one shared subspace and complete samples of one
        view; NUTS and ADVI compile the PyMC model.
    views : dict, optional
        Lists of columns by the name of the view. Every view has its own loadings, offset and noise.
        A view may be missing (NaN) in a sample.
    priors : Priors, optional
        Hyper-parameters; the paper's for mean field, proper ones for samplers.
    sampling : Sampling, optional
        Draws of each chain, by default 1000, warm-up and chains of the samplers. Predictions
        average over at most 300 evenly spaced draws.
    n_sweeps : int, "cv" or "converged", default="cv"
        Sweeps of mean field.
    max_iter : int, default=2000
        Sweeps of mean field to convergence.
    standardize : bool, default=True
        Whether to scale each feature to unit variance.
    loss, unlabeled, n_jobs, progressbar, random_state
        As for :class:`bsdr_models.BM2PCAClassifier`.

    Attributes
    ----------
    C_, n_sweeps_ : float, int or None
        Cost, and sweeps of mean field; None if it ran to convergence.
    cv_results_ : dict or None
        ``"candidates"`` with their held-out ``"log_loss"``; of samplers by short Gibbs runs.
    lower_bounds_ : ndarray of shape (n_iter,)
        Bound in nats after each iteration.
    converged_ : bool
        False for a fixed number of sweeps.
    model_ : pymc.Model
        The model with one subspace on the training samples.
    classes_, components_, mean_, scale_, temperature_, relevance_, n_iter_, interrupted_, idata_
        As for :class:`bsdr_models.BM2PCAClassifier`.
    held_out_score_, held_out_gain_, held_out_gain_se_
        As for :class:`bsdr_models.BM2PCAClassifier`.

    See Also
    --------
    bsdr_models.BM2PCAClassifier : the recommended model.

    Notes
    -----
    With signs :math:`y_{nc} = \pm 1` and class scores
    :math:`f_{nc} = \eta_c^\top z_n + \eta_{c0}`,

    .. math::
        z_n \sim N(0, I), \qquad x_n \sim N(W z_n + t, I / \tau), \qquad
        \phi(y_{nc} \mid z_n) = e^{-2 C \max(0,\, 1 - y_{nc} f_{nc})},

    and the hinge factor is normal given a slack scale [2]_, so that mean field is conjugate. It is
    a pseudo-likelihood: C is cross-validated, and so is the temperature of the probabilities.

    *Early stopping.* z depends on the label of a training sample; a new sample has none. With few
    samples and many features the bound keeps rising as W adapts to the features, while training
    labels are explained by latent coordinates that new samples lack: on ORL faces accuracy falls
    from 70 to 62 % between the second sweep and the twentieth. So the number of sweeps is chosen
    with C by cross-validation, and a converged bound does not indicate a good classifier. The
    samplers, which cannot stop early, are fully affected.

    Missing values are integrated out, and samples without a label contribute their features.

    References
    ----------
    .. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin
           principal component analysis. AAAI Conference on Artificial Intelligence 29, 2582-2588.
    .. [2] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines.
           Bayesian Analysis 6(1), 1-23.

    Examples
    --------
    With ten features missing in a quarter of the samples, and without their labels:

    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models.papers import PaperBM2PCAClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X[::4, 3:], y[::4] = float("nan"), -1
    >>> model = PaperBM2PCAClassifier(unlabeled=-1, random_state=0).fit(X, y)
    >>> model.classes_.tolist()
    [0, 1, 2]
    """

    _option_types: ClassVar[dict[str, type[Options]]] = {
        "loss": HingeLoss,
        "priors": Priors,
        "sampling": Sampling,
    }
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **MarginClassifier._parameter_constraints,
        "strategy": [StrOptions(set(get_args(Strategy)))],
        "inference": [StrOptions(set(get_args(Inference)))],
        "n_sweeps": [COUNT, StrOptions({"cv", "converged"})],
        "max_iter": [COUNT],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        strategy: Strategy = "shared",
        inference: Inference = "mean_field",
        loss: HingeLoss | None = None,
        unlabeled: object = None,
        views: Mapping[str, ArrayLike] | None = None,
        priors: Priors | None = None,
        standardize: bool = True,
        sampling: Sampling | None = None,
        n_sweeps: int | Literal["cv", "converged"] = "cv",
        max_iter: int = 2000,
        n_jobs: int | None = None,
        progressbar: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.strategy = strategy
        self.inference = inference
        self.loss = loss
        self.unlabeled = unlabeled
        self.views = views
        self.priors = priors
        self.standardize = standardize
        self.sampling = sampling
        self.n_sweeps = n_sweeps
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.progressbar = progressbar
        self.random_state = random_state

    def _option(self, name: str) -> Any:
        if name == "priors" and self.priors is None and self.inference != "mean_field":
            return SAMPLING
        return super()._option(name)

    def _candidates(self) -> list[Candidate]:
        """Settings to compare."""
        C = self._option("loss").C
        n_sweeps = self.n_sweeps
        costs = COSTS if C is None else (float(C),)
        sweeps: tuple[int | None, ...] = (None,)  # a sampler cannot stop early
        if self.inference == "mean_field" and n_sweeps != "converged":
            sweeps = SWEEPS if n_sweeps == "cv" else (int(n_sweeps),)
        return [{"C": cost, "n_sweeps": number} for cost in costs for number in sweeps]

    def _learn(self, targets: Targets, rng: np.random.Generator) -> Result[Predictor]:
        loss: HingeLoss = self._option("loss")
        exclusive = targets.kind == "multiclass"
        signs = signs_of(targets.coded, len(targets.names))
        problem = self._make_problem(signs, strategy=self.strategy, exclusive=exclusive)
        self._problem = problem
        mean_field = self.inference == "mean_field"
        if not mean_field:
            if self.strategy != "shared":
                raise ValueError(
                    f"inference={self.inference!r} needs strategy='shared', got {self.strategy!r}"
                )
            engines.check_samples(problem, f"inference={self.inference!r}")
        fold_rng, fit_rng, division_rng = rng.spawn(3)
        training = self._divide(targets, division_rng)
        candidates = self._candidates()
        fallback = [each for each in candidates if each["n_sweeps"] == N_SWEEPS]
        chosen = (fallback or candidates)[0]
        calibration = Calibration(temperature=loss.temperature or 1.0)
        judged: dict[str, Any] = {"held_out": HeldOutScore()}
        self.cv_results_: dict[str, object] | None = None
        fitted = loss.temperature is None and bool(loss.calibrate)
        if (fitted or len(candidates) > 1) and self._held_out_known(len(training.folds())):
            some = training.limited(MOST_SAMPLES)
            found = cross_validate(
                problem.subset(np.arange(len(training.keys))[some.kept]),
                some,
                engines.path_scores_of_sweeps if mean_field else engines.path_scores_of_draws,
                candidates,
                rng=fold_rng,
                n_jobs=self.n_jobs,
                progressbar=self.progressbar,
            )
            chosen = candidates[found.best]
            judged = found.judged.of_result(some.kept, len(training.keys))
            if fitted:
                calibration = found.judged.calibration
            self.cv_results_ = {"candidates": candidates, "log_loss": found.log_loss}
        self.C_ = chosen["C"]
        result = self._run(problem, chosen, fit_rng)
        probabilities = Probabilities(calibration=calibration, exclusive=exclusive, lapse=0.0)
        attrs = {
            "strategy": self.strategy,
            "C": float(self.C_),
            "lapse": 0.0,
            "link": "softmax",
            "objective": "lower bound of the pseudo-posterior",
            **calibration.attrs(),
        }
        posterior = replace(result.posterior, probabilities=probabilities)
        return replace(result, posterior=posterior, attrs=attrs, **judged)

    def _run(self, problem: Problem, chosen: Candidate, rng: np.random.Generator) -> Result[Any]:
        """Fit by an engine with the chosen setting."""
        if self.inference != "mean_field":
            return engines.fit_draws(
                problem, self.inference, cost=self.C_, schedule=self._schedule(), rng=rng
            )
        self.n_sweeps_ = chosen["n_sweeps"]
        return engines.fit_mean_field(
            problem,
            cost=self.C_,
            rng=rng,
            max_iter=int(self.n_sweeps_ or self.max_iter),
            tol=engines.TOL if self.n_sweeps_ is None else 0.0,
            progressbar=self.progressbar,
        )

    def _name_fitted(self) -> None:
        super()._name_fitted()
        if self.inference in ("gibbs", "nuts"):
            self.n_iter_ = int(self.idata_["posterior"].sizes["draw"]) + self._schedule().tune
            self.converged_ = warn_unless_mixed(self.idata_, SPEC.identified)

    def _selected_params(self) -> dict[str, object]:
        selected = super()._selected_params()
        if getattr(self, "n_sweeps_", None) is not None:
            selected["n_sweeps"] = self.n_sweeps_
        return selected

    @property
    def _method(self) -> Inference:
        return self.inference

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.inference == "mean_field"
        return tags
