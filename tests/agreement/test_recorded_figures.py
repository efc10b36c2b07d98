"""The code of today gives the figures that the pages of benchmarks state."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import log_loss

from benchmarks import datasets, report
from benchmarks.accuracy import evaluate, read
from benchmarks.rows import of, recorded
from benchmarks.tables import OURS, TABLES
from bsdr_models import BM2PCAClassifier, BSDRClassifier, DGPLVMClassifier

needs_archives = pytest.mark.skipif(
    datasets.archive_folder() is None, reason="BSDR_MODELS_DATA names no folder of archives"
)
LINES = read(report.LINES)
SEED = 300
# One fit of each takes some seconds at most.
CASES = [
    *(("people", method, name) for method in OURS for name in ("wine",)),
    ("engines", "mean field", "wine"),
    ("ard", "ARD, 160 iterations", "vowel"),
    ("bm2pca", "BM2PCA", "20 News"),
    ("dgplvm", "D-GPLVM, paper", "USPS 3 v 5"),
]


@needs_archives
@pytest.mark.slow
@pytest.mark.parametrize(("table", "method", "source"), CASES)
def test_a_recorded_fit_is_repeated(table, method, source):
    """As good, but for what another processor's rounding does to chains and searches."""
    rows = recorded(TABLES[table], LINES).rows
    tasks = [t for t, m in TABLES[table].pairs() if t.source == source and m == method]
    for task in tasks[:2]:
        known = {row["seed"]: row for row in of(rows, task, method)}[SEED]
        found = evaluate(task, method, SEED)
        assert found["accuracy"] == pytest.approx(known["accuracy"], abs=0.03)
        assert found["log_loss"] < known["log_loss"] + 0.06


@pytest.mark.slow
@pytest.mark.parametrize("model", [BSDRClassifier, BM2PCAClassifier, DGPLVMClassifier])
@pytest.mark.parametrize(("n", "effect"), [(40, 0.7), (120, 1.5)])
def test_weak_signals_are_doubted_and_clear_ones_are_not(model, n, effect):
    """Of forty samples predictions are no worse than class frequencies, on average."""
    losses = []
    for seed in range(200, 204):
        rng, y = np.random.default_rng(seed), np.arange(n + 1000) % 2
        X = rng.standard_normal((n + 1000, 5))
        X[:, :2] += effect * y[:, None]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore" if n == 40 else "error", "no evidence")
            fitted = model(random_state=0).fit(X[:n], y[:n])
        losses.append(log_loss(y[n:], fitted.predict_proba(X[n:])))
    assert np.mean(losses) < (np.log(2.0) if n == 40 else 0.6)
