"""What is claimed of accuracy and log loss, on the first three splits of the benchmark.

The claims are about means of ten splits (``docs/benchmarks.md``). With three the tolerance is
two standard errors of such a mean, from the spread that the ten splits have.
"""

import numpy as np
import pytest

from benchmarks import datasets
from benchmarks.accuracy import evaluate
from benchmarks.tables import RIVALS, TABLES, Task

pytestmark = pytest.mark.slow
SEEDS = range(3)
needs_archives = pytest.mark.skipif(
    datasets.archive_folder() is None, reason="BSDR_MODELS_DATA names no folder of archives"
)


def mean_over_splits(task: Task, method: str, what: str, seeds=SEEDS) -> float:
    return float(np.mean([evaluate(task, method, seed).get(what, np.inf) for seed in seeds]))


@pytest.mark.parametrize("task", TABLES["few-samples"].tasks, ids=str)
def test_few_samples_log_loss_beats_the_rivals(task):
    """Two standard errors of the paired difference come to 0.03 at most."""
    best = min(mean_over_splits(task, rival, "log_loss") for rival in RIVALS)
    assert mean_over_splits(task, "default", "log_loss") < best + 0.03


@pytest.mark.parametrize("task", TABLES["noise"].tasks, ids=str)
def test_noise_is_called_noise(task):
    """Uniform probabilities have log loss 1.099; a claim about noise is at most 1.15 + 2 s.e."""
    assert mean_over_splits(task, "default", "log_loss") < 1.15 + 0.05


@needs_archives
@pytest.mark.parametrize(
    ("source", "accuracy", "log_loss"),
    [("vowel", 0.92, 0.35), ("mfeat", 0.94, 0.28), ("digits", 0.74, 0.77), ("usps", 0.70, 1.00)],
)
def test_real_data(source, accuracy, log_loss):
    """The stated figures are met by the default on a split; they vary by 2 points and by .05."""
    (task,) = (task for task in TABLES["real"].tasks if task.source == source)
    found = evaluate(task, "default", 0)
    assert found["accuracy"] > accuracy - 0.04
    assert found["log_loss"] < log_loss + 0.1


@pytest.mark.parametrize("task", TABLES["engines"].tasks, ids=str)
def test_mean_field_agrees_with_gibbs_and_lda(task):
    """Engines of one model within a point, the default within one s.d. of LDA (1.3 to 1.6).

    The mean of three splits has a standard error of one point.
    """
    mean_field = mean_over_splits(task, "mean field", "accuracy")
    assert abs(mean_field - mean_over_splits(task, "Gibbs", "accuracy")) < 0.01 + 0.02
    default, rival = (mean_over_splits(task, m, "accuracy") for m in ("default", "full LDA"))
    assert default > rival - 0.013 - 0.01


@needs_archives
def test_relevance_determination_on_vowel():
    """The paper has 98.5 % with four of eight columns; a mean of three splits varies by 0.15."""
    (task,) = TABLES["ard"].tasks
    found = [evaluate(task, "ARD, 160 iterations", seed) for seed in SEEDS]
    assert np.mean([f["accuracy"] for f in found]) > 0.98
    assert np.mean([f["live"] for f in found]) == pytest.approx(4.0, abs=1.0)
