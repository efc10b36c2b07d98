"""What engines of D-GPLVM get: training samples in a metric, their classes, and options."""

from dataclasses import dataclass, field

import numpy as np

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.criteria import Criterion, make_criterion
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.dgplvm.settings import Mapping, Optimization
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.design import SpectralDesign, standardise


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Training samples (N, B), classes (N,), -1 without a label, and options.

    Samples are in the metric of the training samples, if these are given. ``criterion`` is that of
    the priors or what "auto" stands for.
    """

    X: FloatArray
    y_index: IntArray
    n_components: int
    criterion: str = "trace_ratio"
    priors: Priors = field(default_factory=Priors)
    mapping: Mapping = field(default_factory=Mapping)
    optimization: Optimization = field(default_factory=Optimization)
    training: Training | None = None

    @property
    def known(self) -> IntArray:
        """Indices of the labelled samples."""
        return np.flatnonzero(self.y_index >= 0)

    @property
    def n_labels(self) -> int:
        """Number of classes, each of which has labelled samples."""
        return int(self.y_index.max()) + 1

    def make_criterion(self) -> Criterion:
        """Measure of class separation of latent coordinates."""
        return make_criterion(self.criterion, self.y_index)

    def starts(self, n_starts: int, rng: np.random.Generator) -> list[FloatArray]:
        """Initial latent coordinates (N, R): principal components, then normal draws.

        Columns have mean 0 and variance 1; those beyond the rank of the features are random.
        """
        if n_starts == 0:
            return []
        n = len(self.X)
        r = self.n_components
        scores = SpectralDesign.of(self.X - self.X.mean(axis=0)).X[:, :r]
        initial = [np.hstack([scores, rng.standard_normal((n, r - scores.shape[1]))])]
        initial += [rng.standard_normal((n, r)) for _ in range(n_starts - 1)]
        return [standardise(latent) for latent in initial]
