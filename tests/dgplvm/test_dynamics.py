"""The dynamical prior against SciPy's normal density, its gradients and its predictions."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from bsdr_models.dgplvm.dynamics import DYNAMICS_PRIORS, Dynamics
from bsdr_models.dgplvm.likelihood import FeatureGram, evaluate_paper
from bsdr_models.dgplvm.map_search import Task
from bsdr_models.dgplvm.paper.objective import PaperObjective, theta_priors
from bsdr_models.dgplvm.priors import LogUniform, Priors
from bsdr_models.dgplvm.starts import starts
from bsdr_models.inference.optimise import run_map

# Three interleaved sequences; the last has one sample and no transition.
SEQUENCE = np.array(["b", "a", "b", "b", "a", "c", "a", "b", "a"])
BEFORE = [1, 4, 6, 0, 2, 3]
AFTER = [4, 6, 8, 2, 3, 7]
LOG = np.log([0.4, 0.8, 0.7, 0.2])
LOG_MEDIAN = np.array([prior.log_median for prior in DYNAMICS_PRIORS])


def rng_of(*key):
    return np.random.default_rng([43, *key])


def covariance(start, log_parameters=LOG):
    """K_X entry by entry."""
    s, scale, m, q = np.exp(log_parameters)
    K = np.empty((len(start), len(start)))
    for i, a in enumerate(start):
        for j, b in enumerate(start):
            K[i, j] = s * math.exp(-np.sum((a - b) ** 2) / (2.0 * scale**2)) + m * (a @ b)
    return K + q * np.eye(len(start))


def fourth_order(f, x, step=2e-3):
    out = np.empty_like(x)
    for i in np.ndindex(x.shape):
        values = []
        for k in (-2, -1, 1, 2):
            moved = x.copy()
            moved[i] += k * step
            values.append(f(moved))
        out[i] = (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / (12.0 * step)
    return out


def circle(n, turn=0.3, noise=0.02, seed=0):
    """Latent coordinates on a circle, of unit variance along both axes."""
    angle = turn * np.arange(n)
    points = math.sqrt(2.0) * np.column_stack([np.cos(angle), np.sin(angle)])
    return points + noise * rng_of(9, seed).standard_normal((n, 2))


# ------------------------------------------------------------------------------- transitions


def test_transitions_stay_within_a_sequence():
    found = Dynamics.of(SEQUENCE)
    assert found.before.tolist() == BEFORE
    assert found.after.tolist() == AFTER


def test_invalid_sequences_raise():
    with pytest.raises(ValueError, match="no transition"):
        Dynamics.of([3, 1, 2])
    with pytest.raises(ValueError, match=r"shape \(N,\)"):
        Dynamics.of(np.ones((3, 2)))


# ------------------------------------------------------------------------------------- the value


@pytest.mark.parametrize("r", [1, 2, 4])
def test_value_is_a_normal_density_of_the_outputs(r):
    X = rng_of(1, r).standard_normal((len(SEQUENCE), r))
    law = stats.multivariate_normal(np.zeros(len(BEFORE)), covariance(X[BEFORE]))
    expected = -np.sum(law.logpdf(X[AFTER].T))
    assert Dynamics.of(SEQUENCE).evaluate(X, LOG).value == pytest.approx(expected, rel=1e-11)


def test_sequences_are_not_joined():
    """Two sequences on a circle, the second one in reverse."""
    X = np.vstack([circle(12), circle(12)[::-1]])
    apart = Dynamics.of(np.repeat([0, 1], 12))
    joined = Dynamics.of(np.zeros(24))
    assert len(apart.after) == 22
    assert len(joined.after) == 23
    law = stats.multivariate_normal(np.zeros(22), covariance(X[apart.before]))
    found = apart.evaluate(X, LOG)
    assert found.value == pytest.approx(-np.sum(law.logpdf(X[apart.after].T)), rel=1e-11)
    # Invariant to the order of the sequences and to interleaved samples.
    order = rng_of(2).permutation(24)
    order[np.isin(order, range(12))] = np.arange(12)
    order[np.isin(order, range(12, 24))] = np.arange(12, 24)
    mixed = Dynamics.of(np.repeat([7, 3], 12)[order]).evaluate(X[order], LOG)
    assert mixed.value == pytest.approx(found.value, rel=1e-11)
    np.testing.assert_allclose(mixed.latent, found.latent[order], rtol=1e-8, atol=1e-9)


def test_noise_of_coincident_inputs_is_independent():
    X = np.array([[1.0], [1.0], [1.0], [1.0]])
    value = Dynamics.of(np.zeros(4)).evaluate(X, LOG).value
    law = stats.multivariate_normal(np.zeros(3), np.full((3, 3), 1.1) + 0.2 * np.eye(3))
    assert value == pytest.approx(-law.logpdf(np.ones(3)), rel=1e-12)


def test_invariant_to_rotation():
    X = rng_of(3).standard_normal((len(SEQUENCE), 3))
    Q = stats.ortho_group.rvs(3, random_state=rng_of(4))
    dynamics = Dynamics.of(SEQUENCE)
    a, b = dynamics.evaluate(X, LOG), dynamics.evaluate(X @ Q, LOG)
    assert a.value == pytest.approx(b.value, rel=1e-12)
    np.testing.assert_allclose(b.latent @ Q.T, a.latent, rtol=1e-9, atol=1e-10)


# ---------------------------------------------------------------------------------- the gradients


@pytest.mark.parametrize("r", [1, 3])
def test_gradients_are_those_of_differences(r):
    dynamics = Dynamics.of(SEQUENCE)
    X = rng_of(5, r).standard_normal((len(SEQUENCE), r))
    found = dynamics.evaluate(X, LOG)
    by_latent = fourth_order(lambda Z: dynamics.evaluate(Z, LOG).value, X)
    by_log = fourth_order(lambda t: dynamics.evaluate(X, t).value, LOG)
    np.testing.assert_allclose(found.latent, by_latent, atol=1e-8 * np.abs(by_latent).max())
    np.testing.assert_allclose(found.log_parameters, by_log, atol=1e-8 * np.abs(by_log).max())
    assert not found.latent[SEQUENCE == "c"].any()


# ------------------------------------------------------------------------------------ prediction


def test_prediction_is_the_conditional_of_the_joint_normal():
    X = rng_of(6).standard_normal((len(SEQUENCE), 2))
    new = rng_of(7).standard_normal((3, 2))
    mean, variance = Dynamics.of(SEQUENCE).predictor(X, LOG).predict(new)
    for x, m, v in zip(new, mean, variance, strict=True):
        joint = covariance(np.vstack([X[BEFORE], x]))
        k = np.linalg.solve(joint[:-1, :-1], joint[:-1, -1])
        np.testing.assert_allclose(m, k @ X[AFTER], rtol=1e-9, atol=1e-11)
        assert v == pytest.approx(joint[-1, -1] - k @ joint[:-1, -1], rel=1e-10)


def test_value_is_the_product_of_predictive_densities():
    """L_d of a sequence and one more step is L_d of it plus minus the log predictive density."""
    X = rng_of(8).standard_normal((7, 2))
    short = Dynamics.of(np.zeros(6))
    whole = Dynamics.of(np.zeros(7)).evaluate(X, LOG).value
    mean, variance = short.predictor(X[:6], LOG).predict(X[5:6])
    step = -stats.norm(mean[0], math.sqrt(variance[0])).logpdf(X[6]).sum()
    assert whole == pytest.approx(short.evaluate(X[:6], LOG).value + step, rel=1e-11)


def test_prediction_continues_a_circle():
    X = circle(40)
    mean, variance = Dynamics.of(np.zeros(40)).predictor(X, LOG).predict(X[-1:])
    truth = circle(41, noise=0.0)[-1]
    assert np.linalg.norm(mean[0] - truth) < 0.1 * np.linalg.norm(X[-1] - truth) + 0.1
    assert variance[0] > 0.2  # never less than the noise
    far = Dynamics.of(np.zeros(40)).predictor(X, LOG).predict(np.array([[30.0, 0.0]]))[1]
    assert far[0] > variance[0]


# -------------------------------------------------------------------------- smooth sequences


@pytest.mark.parametrize("seed", range(5))
def test_smooth_motion_is_likelier_than_a_permutation(seed):
    X = circle(40, noise=0.05, seed=seed)
    dynamics = Dynamics.of(np.repeat([0, 1], 20))
    log_parameters = LOG_MEDIAN
    ordered = dynamics.evaluate(X, log_parameters).value
    shuffled = [
        dynamics.evaluate(rng_of(10, seed, k).permutation(X), log_parameters).value
        for k in range(5)
    ]
    assert ordered < min(shuffled) - 20.0


@pytest.mark.parametrize("seed", range(3))
def test_prior_draws_are_likelier_than_a_permutation(seed):
    """A path drawn from the sequence of predictive densities."""
    rng = rng_of(11, seed)
    log_parameters = np.log([1.0, 1.0, 0.3, 0.02])
    X = rng.standard_normal((2, 2))
    while len(X) < 40:
        mean, variance = Dynamics.of(np.zeros(len(X))).predictor(X, log_parameters).predict(X[-1:])
        step = mean + np.sqrt(variance)[:, None] * rng.standard_normal((1, 2))
        X = np.vstack([X, step])
    dynamics = Dynamics.of(np.zeros(40))
    ordered = dynamics.evaluate(X, log_parameters).value
    assert ordered < dynamics.evaluate(rng.permutation(X), log_parameters).value


# ------------------------------------------------------------------- classes that differ in motion

N_TRAIN, N_TEST, LENGTH = 8, 20, 12


def turning(rng, n, basis):
    """Sequences on one noisy circle, clockwise or anticlockwise by class."""
    y = np.arange(n) % 2
    angle = rng.uniform(0.0, 2.0 * np.pi, n)[:, None] + np.outer(2 * y - 1, np.arange(LENGTH)) / 2
    points = math.sqrt(2.0) * np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(-1, 2)
    points = points + 0.1 * rng.standard_normal(points.shape)
    X = points @ basis + 0.1 * rng.standard_normal((len(points), basis.shape[1]))
    return X, np.repeat(y, LENGTH), np.repeat(np.arange(n), LENGTH)


def fit_parameters(latent, sequence):
    dynamics = Dynamics.of(sequence)

    def objective(t):
        found = dynamics.evaluate(latent, t)
        pairs = zip(DYNAMICS_PRIORS, t, strict=True)
        values, by_log = np.array([prior.negative_log_density(x) for prior, x in pairs]).T
        return found.value + values.sum(), found.log_parameters + by_log

    bounds = tuple(np.array([prior.bounds for prior in DYNAMICS_PRIORS]).T)
    return run_map(objective, [LOG_MEDIAN], bounds=bounds, max_iter=100).x


def fit_spherical(X, y, sequence):
    """Latent coordinates and log parameters of the paper's objective with a normal prior of X.

    With this prior, Eq. (7), and theta_2 = 1 the scale of the latent coordinates is identified.
    """
    task = Task(
        X=X, y_index=y, n_labels=2, n_components=3, priors=Priors(), weight=1000.0,
        criterion="total", dynamics=Dynamics.of(sequence),
    )  # fmt: skip
    gram = FeatureGram.of(X - X.mean(axis=0))
    priors = list(theta_priors(gram))
    priors[1] = LogUniform(0.0, (0.0, 0.0))
    objective = PaperObjective(
        gram=gram, criterion=task.make_criterion(), weight=task.weight, n_components=3,
        parameter_priors=(*priors, *DYNAMICS_PRIORS), dynamics=task.dynamics,
    )  # fmt: skip

    def spherical(x):
        value, gradient = objective(x)
        latent = np.concatenate([x[:-8], np.zeros(8)])
        return value + 0.5 * latent @ latent, gradient + latent

    latent = starts(X, y, 2, n_components=3, names=["lda"], rng=rng_of(12))[0]
    start = objective.pack(latent, objective.log_medians)
    x = run_map(spherical, [start], bounds=objective.bounds(len(start)), max_iter=300, tol=1e-3).x
    return objective.latent(x), x[-8:]


def class_values(fit, train, new, *, moving):
    """Minimum of the joint negative log density, initialised in either class: (2,)."""
    (X, y, sequence), mean = train, train[0].mean(axis=0)
    fitted, log_parameters = fit
    samples = np.vstack([X, new]) - mean
    # Centred by the mean of the training samples.
    gram = FeatureGram(
        root=np.asfortranarray(samples), total=1.0, variance=1.0, n_features=samples.shape[1],
        n_effective=1.0,
    )  # fmt: skip
    dynamics = Dynamics.of(np.concatenate([sequence, np.full(len(new), -1)]))

    def objective(x):
        own = x.reshape(len(new), -1)
        latent = np.vstack([fitted, own])
        found = evaluate_paper(latent, log_parameters[:4], gram)
        value, gradient = found.value + 0.5 * x @ x, found.latent[len(X) :] + own
        if moving:
            transitions = dynamics.evaluate(latent, log_parameters[4:])
            value, gradient = value + transitions.value, gradient + transitions.latent[len(X) :]
        return value, gradient.ravel()

    values = []
    for label in (0, 1):
        members = np.flatnonzero(y == label)
        nearest = members[cdist(new, X[members]).argmin(axis=1)]
        start = fitted[nearest].ravel()
        values.append(run_map(objective, [start], max_iter=150, tol=1e-3).value)
    return values


def error_by_one_process_per_class(train, test):
    """Transitions of principal components by a Gaussian process for each class."""
    X, y, sequence = train
    mean = X.mean(axis=0)
    axes = np.linalg.svd(X - mean, full_matrices=False)[2][:2].T
    scale = ((X - mean) @ axes).std(axis=0)
    latent, new = (X - mean) @ axes / scale, (test[0] - mean) @ axes / scale
    transitions = Dynamics.of(test[2])
    density = []
    for label in (0, 1):
        own = y == label
        t = fit_parameters(latent[own], sequence[own])
        predictor = Dynamics.of(sequence[own]).predictor(latent[own], t)
        expected, variance = predictor.predict(new[transitions.before])
        law = stats.norm(expected, np.sqrt(variance)[:, None])
        each = law.logpdf(new[transitions.after]).sum(axis=1)
        density.append(np.bincount(test[2][transitions.before], each))
    return np.mean(np.argmax(density, axis=0) != test[1][::LENGTH])


@pytest.mark.slow
def test_dynamics_separate_classes_with_the_same_latent_coordinates():
    """Much better than without dynamics, but not than one Gaussian process per class.

    Single samples are not informative of the class, and new sequences embedded without dynamics are
    classified at chance. With L_d nearly all sequences are classified correctly. The simpler model,
    with separate dynamics per class and no latent coordinates, makes no error at far lower cost.
    """
    still, moving, simple, single = [], [], [], []
    for seed in range(3):
        rng = np.random.default_rng([seed, 7])
        basis = rng.standard_normal((2, 6))
        train, test = turning(rng, N_TRAIN, basis), turning(rng, N_TEST, basis)
        X, y, sequence = train
        single.append(np.mean(LinearDiscriminantAnalysis().fit(X, y).predict(test[0]) != test[1]))
        simple.append(error_by_one_process_per_class(train, test))
        fit = fit_spherical(X, y, sequence)
        for errors, with_dynamics in ((still, False), (moving, True)):
            values = [
                class_values(fit, train, test[0][test[2] == k], moving=with_dynamics)
                for k in range(N_TEST)
            ]
            errors.append(np.mean(np.argmin(values, axis=1) != test[1][::LENGTH]))
    assert 0.4 < np.mean(single) < 0.6
    assert 0.25 < np.mean(still) < 0.75
    assert np.mean(moving) < 0.15
    assert np.mean(simple) < 0.05
