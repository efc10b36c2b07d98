"""The judge of held-out predictions: integrals by quadrature, nested folds, weak and clear signals.

Expected values are sums over samples, one by one, and integrals over the temperature by quadrature.
"""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.special import log_expit, log_softmax, softmax
from scipy.stats import norm

from bsdr_models.estimators.calibration import (
    NO_SIGNAL,
    POWER,
    Calibration,
    TemperaturePrior,
    judge,
)

PRIOR = TemperaturePrior(mean=0.3, sd=0.8)


def of_classes(values, temperature):
    """Softmax of class scores (..., K)."""
    return log_softmax(values / temperature, axis=-1)


def of_labels(values, temperature):
    """Logistic, of each label (..., T): log probabilities of 0 and of 1."""
    return log_expit(np.stack([-values, values], axis=-1) / temperature)


class Case:
    """Values of divisions, outcomes, folds and their link."""

    def __init__(self, *, labels=False, n_divisions=1, n=24, strength=1.0, seed=0):
        rng = np.random.default_rng([11, seed])
        self.link = of_labels if labels else of_classes
        self.y = (
            rng.integers(2, size=(n, 2)) if labels else np.append(np.arange(n - 6) % 3, [0] * 6)
        )
        signal = 2.0 * self.y - 1.0 if labels else np.eye(3)[self.y]
        noise = rng.standard_normal((n_divisions, *signal.shape))
        self.values = list(strength * signal + 0.7 * noise)
        self.divisions = [rng.permutation(np.arange(n) % 4) for _ in range(n_divisions)]

    def judge(self, prior=PRIOR, **options):
        return judge(self.values, self.y, self.divisions, self.link, prior, **options)


def incomplete():
    """Labels that are partly unknown, one sample without any."""
    case = Case(labels=True)
    case.y[[1, 5, 9], 0] = -1
    case.y[5, 1] = -1
    return case


def not_held_out():
    """Two samples that no division holds out, and one that only the second does."""
    case = Case(n_divisions=2)
    case.divisions[0][[2, 8, 11]] = -1
    case.divisions[1][[2, 8]] = -1
    return case


CASES = {
    "classes": Case(),
    "weak": Case(strength=0.2),
    "two divisions": Case(n_divisions=2),
    "labels": Case(labels=True),
    "incomplete labels": incomplete(),
    "not held out": not_held_out(),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def frequency(y):
    """Frequencies of the classes, or of 0 and 1 of each label."""
    if y.ndim == 1:
        return np.array([np.mean(y[y >= 0] == k) for k in range(y.max() + 1)])
    return np.array([[np.mean(own[own >= 0] == k) for k in (0, 1)] for own in y.T])


def log_of_truth(log_p, y):
    """Log probability of the outcome of a sample, a sum over known labels."""
    if np.ndim(y) == 0:
        return log_p[y]
    return sum(log_p[t, k] for t, k in enumerate(y) if k >= 0)


def log_likelihood(case, used, temperature):
    """Of samples that are held out, a mean over their divisions each."""
    pairs = zip(case.values, case.divisions, strict=True)
    log_p = [(case.link(values, temperature), fold) for values, fold in pairs]
    total = 0.0
    for n in used:
        total += np.mean([log_of_truth(own[n], case.y[n]) for own, fold in log_p if fold[n] >= 0])
    return total


def by_quadrature(case, used, share=1.0, prior=PRIOR):
    """Temperature and signal from some of the samples."""
    node, width = leggauss(60)
    log_t = prior.mean + 5.0 * prior.sd * node
    log_l = np.array([log_likelihood(case, used, t) for t in np.exp(log_t)])
    likelihood = np.exp(POWER * share * log_l)
    weight = 5.0 * width * norm.pdf(5.0 * node) * likelihood
    none = sum(log_of_truth(np.log(frequency(case.y)), case.y[n]) for n in used)
    some = (1.0 - NO_SIGNAL) * weight.sum()
    signal = some / (some + NO_SIGNAL * np.exp(POWER * share * none))
    return np.exp(weight @ log_t / weight.sum()), signal


def mixed(case, n, division, temperature, signal):
    """Probabilities of a sample by a division."""
    p = np.exp(case.link(case.values[division][n], temperature))
    return signal * p + (1.0 - signal) * frequency(case.y)


def ever(case):
    return np.flatnonzero(np.max(case.divisions, axis=0) >= 0)


@each_case
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_temperature_and_signal_are_those_of_quadrature(case, share):
    found = case.judge(share=share).calibration
    temperature, signal = by_quadrature(case, ever(case), share)
    assert found.temperature == pytest.approx(temperature, rel=3e-3)
    assert found.signal == pytest.approx(signal, abs=1e-3)
    assert np.exp(found.log_frequency) == pytest.approx(frequency(case.y))


@each_case
def test_predictions_of_a_fold_are_at_the_calibration_of_the_others(case):
    """A mean of log probabilities over the divisions, and a mean of their log scores."""
    judged = case.judge()
    log_p = [[] for _ in case.y]
    scores = [[] for _ in case.y]
    for division, fold in enumerate(case.divisions):
        for number in range(4):
            others = [n for n in ever(case) if fold[n] != number]
            calibration = by_quadrature(case, others)
            for n in np.flatnonzero(fold == number):
                log_p[n].append(np.log(mixed(case, n, division, *calibration)))
                scores[n].append(log_of_truth(log_p[n][-1], case.y[n]))
    for n in range(len(case.y)):
        if n not in ever(case):
            assert np.isnan(judged.log_p[n]).all()
            continue
        p = softmax(np.mean(log_p[n], axis=0), axis=-1)
        expected = p if case.y.ndim == 1 else p[:, 1]
        assert np.exp(judged.log_p[n]) == pytest.approx(expected, abs=2e-3)
    n_known = np.sum(case.y[ever(case)] >= 0)
    score = sum(np.mean(scores[n]) for n in ever(case)) / n_known
    assert judged.score.score == pytest.approx(score, abs=2e-3)
    y = case.y[ever(case)]
    base = sum(log_of_truth(np.log(frequency(y)), own) for own in y) / n_known
    assert judged.score.gain == pytest.approx(score - base, abs=2e-3)


def exchanged(case, held_out):
    """Other outcomes of the samples of a fold, with the same frequencies."""
    other = case.y.copy()
    other[held_out] = np.roll(other[held_out], 1, axis=0)
    assert (other[held_out] != case.y[held_out]).any()
    return other


@pytest.mark.parametrize("labels", [False, True])
def test_outcomes_of_a_fold_do_not_change_its_predictions(labels):
    case = Case(labels=labels, strength=0.3)
    held_out = case.divisions[0] == 1
    before = case.judge()
    other = judge(case.values, exchanged(case, held_out), case.divisions, case.link, PRIOR)
    np.testing.assert_allclose(other.log_p[held_out], before.log_p[held_out], rtol=1e-12)
    assert np.abs(other.log_p[~held_out] - before.log_p[~held_out]).max() > 1e-4
    assert other.score.score != pytest.approx(before.score.score, abs=1e-3)


def test_other_frequencies_change_the_predictions_of_a_fold_by_them_alone():
    case = Case(strength=0.3)
    held_out = case.divisions[0] == 1
    case.y[held_out] = 2
    found = case.judge().log_p[held_out]
    temperature, signal = by_quadrature(case, np.flatnonzero(~held_out))
    expected = [mixed(case, n, 0, temperature, signal) for n in np.flatnonzero(held_out)]
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-3)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("n_divisions", [1, 2])
def test_permuted_outcomes_leave_the_class_frequencies(labels, n_divisions):
    """Without a permutation predictions are far from these."""
    signals, gains, apart, usual = [], [], [], []
    for seed in range(8):
        case = Case(labels=labels, n_divisions=n_divisions, n=200, strength=2.0, seed=seed)
        usual.append(far_from_frequencies(case, case.judge()))
        case.y = np.random.default_rng(seed).permutation(case.y)
        judged = case.judge()
        signals.append(judged.calibration.signal)
        gains.append(judged.score.gain)
        apart.append(far_from_frequencies(case, judged))
    assert np.mean(signals) < 0.2
    assert max(gains) < 0.02
    assert np.mean(apart) < 0.03
    assert np.min(usual) > 0.3


def far_from_frequencies(case, judged):
    """Root mean square difference of held-out probabilities from the class frequencies."""
    usual = frequency(case.y)
    usual = usual if case.y.ndim == 1 else usual[:, 1]
    return np.sqrt(np.mean((np.exp(judged.log_p) - usual) ** 2))


@pytest.mark.parametrize("labels", [False, True])
def test_a_clear_signal_is_left_as_it_is(labels):
    case = Case(labels=labels, n=200, strength=2.0)
    judged = case.judge()
    assert judged.calibration.signal > 0.999
    temperature = judged.calibration.temperature
    expected = case.link(case.values[0], temperature)
    found = judged.calibration.apply(case.values[0], case.link)
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert judged.score.gain > 0.3
    assert judged.score.signal


def test_the_temperature_that_made_the_outcomes_is_found():
    rng = np.random.default_rng(3)
    values = 2.0 * rng.standard_normal((4000, 3))
    y = np.argmax(values / 1.5 + rng.gumbel(size=values.shape), axis=1)
    judged = judge([values], y, [np.arange(4000) % 5], of_classes, PRIOR)
    assert judged.calibration.temperature == pytest.approx(1.5, rel=0.08)
    assert judged.calibration.signal == pytest.approx(1.0)


def test_temperature_follows_the_unit_of_the_values():
    case = Case(n_divisions=2)
    before = case.judge()
    case.values = [1e3 * own for own in case.values]
    after = case.judge(TemperaturePrior(mean=PRIOR.mean + np.log(1e3), sd=PRIOR.sd))
    assert after.calibration.temperature == pytest.approx(1e3 * before.calibration.temperature)
    assert after.calibration.signal == pytest.approx(before.calibration.signal)
    np.testing.assert_allclose(after.log_p, before.log_p)


def test_replicates_count_as_one_sample():
    case = Case(strength=0.5)
    once = case.judge()
    case.y = np.repeat(case.y, 5)
    case.values = [np.repeat(own, 5, axis=0) for own in case.values]
    case.divisions = [np.repeat(own, 5) for own in case.divisions]
    often = case.judge(share=0.2, groups=np.repeat(np.arange(24), 5))
    assert often.calibration.attrs() == pytest.approx(once.calibration.attrs())
    assert often.score.named() == pytest.approx(once.score.named())
    assert case.judge().calibration.signal > once.calibration.signal + 0.01


def test_without_held_out_samples_the_prior_is_left():
    case = Case()
    case.divisions = [np.full(24, -1)]
    judged = case.judge()
    assert judged.calibration.temperature == pytest.approx(np.exp(PRIOR.mean))
    assert judged.calibration.signal == pytest.approx(1.0 - NO_SIGNAL)
    assert np.isnan(judged.log_p).all()
    assert np.isnan(list(judged.score.named().values())).all()


def test_no_signal_is_the_class_frequencies_and_one_the_model():
    values = np.random.default_rng(4).standard_normal((6, 3))
    pi = np.array([0.5, 0.3, 0.2])
    none, half, all_of_it = (
        Calibration(temperature=2.0, signal=s, log_frequency=np.log(pi)) for s in (0.0, 0.5, 1.0)
    )
    p = softmax(values / 2.0, axis=1)
    np.testing.assert_allclose(np.exp(none.apply(values, of_classes)), np.tile(pi, (6, 1)))
    np.testing.assert_allclose(np.exp(half.apply(values, of_classes)), 0.5 * (p + pi))
    np.testing.assert_allclose(np.exp(all_of_it.apply(values, of_classes)), p)
    alone = Calibration(temperature=2.0)
    np.testing.assert_allclose(np.exp(alone.apply(values, of_classes)), p)


def test_fields_of_a_result_are_those_of_all_samples():
    judged = Case().judge()
    kept = np.arange(24) + 3
    found = judged.of_result(kept, 30)
    assert found["held_out"] is judged.score
    np.testing.assert_array_equal(found["held_out_log_proba"][kept], judged.log_p)
    assert np.isnan(found["held_out_log_proba"][[0, 1, 2, 27, 28, 29]]).all()
