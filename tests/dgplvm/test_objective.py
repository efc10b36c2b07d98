"""The objective against its terms, and its gradient against finite differences."""

import numpy as np
import pytest
from scipy.linalg import helmert, inv, sqrtm
from scipy.spatial.distance import cdist, pdist
from scipy.stats import multivariate_normal, multivariate_t, norm

from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.objective import WellPosedObjective, make_criterion, whiten
from bsdr_models.dgplvm.priors import MAP_DOF, DGPLVMPriors
from bsdr_models.dgplvm.problem import FeatureGram

LOG_KERNEL = np.array([-1.0, 0.02, -0.4])


def make_objective(X, y, *, criterion="trace_ratio", modelled=slice(None), r=2):
    part = X[modelled]
    gram = FeatureGram.of(part - part.mean(axis=0))
    weights = centroid_weights(y)
    return WellPosedObjective(
        gram=gram,
        mapping=make_mapping(X, weights, width=1.5, noise=0.07, mean_variance=0.3),
        criterion=make_criterion(criterion, y),
        weight=7.0,
        known=np.flatnonzero(y >= 0),
        parameter_priors=DGPLVMPriors().kernel,
        n_components=r,
        temper=gram.temper,
        modelled=modelled,
    )


def some_point(objective, n, *, seed=0):
    rng = np.random.default_rng(seed)
    return objective.pack(rng.standard_normal((n, objective.n_components)), LOG_KERNEL)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("criterion", "r"), [("trace_ratio", 2), ("inverse_trace", 2), ("total", 3)]
)
def test_gradient(missing, criterion, r, problem, differences):
    X, y = problem
    if missing:
        y = np.where(np.isin(np.arange(len(y)), [3, 11]), -1, y)
    objective = make_objective(X, y, criterion=criterion, r=r)
    x = some_point(objective, len(X))
    _, gradient = objective(x)
    expected = differences(lambda v: objective(v)[0], x)
    np.testing.assert_allclose(gradient, expected, atol=1e-8 * np.abs(expected).max())


def test_gradient_with_a_density_of_some_samples(problem, differences):
    X, y = problem
    objective = make_objective(X, y, modelled=np.arange(0, len(X), 3))
    x = some_point(objective, len(X))
    expected = differences(lambda v: objective(v)[0], x)
    np.testing.assert_allclose(objective(x)[1], expected, atol=1e-7 * np.abs(expected).max())


def test_value_is_the_sum_of_reference_densities(problem):
    """Contrasts of features, a multivariate t of latent coordinates, normals of log parameters."""
    X, y = problem
    objective = make_objective(X, y)
    x = some_point(objective, len(X))
    n, d = X.shape
    latent = objective.latent(x)
    a, length, b = np.exp(LOG_KERNEL)
    v = (X**2).sum() / ((n - 1) * d)
    K = v * a * np.exp(-(cdist(latent, latent) ** 2) / (2 * length**2)) + v * b * np.eye(n)
    H = helmert(n)
    log_likelihood = multivariate_normal(np.zeros(n - 1), H @ K @ H.T).logpdf((H @ X).T).sum()
    size = np.linalg.eigvalsh(X @ X.T)
    effective = size.sum() ** 2 / (size**2).sum()

    means = np.stack([latent[y == label].mean(axis=0) for label in range(3)])
    W = latent - means[y]
    B = means[y]  # the overall mean is 0
    J = np.trace(np.linalg.solve(B.T @ B, W.T @ W))

    decay = 1.5 / (2 * np.median(pdist(X) ** 2))
    K_b = np.exp(-decay * cdist(X, X) ** 2) + 0.3 + 0.07 * np.eye(n)
    E = np.eye(n) - np.outer(np.ones(n), centroid_weights(y))
    z = (E @ latent).T.ravel()
    # The density of the t without its constants.
    square = z @ np.kron(np.eye(2), np.linalg.inv(K_b)) @ z
    nu = MAP_DOF
    dof = (n - 1) * 2 + nu
    t = multivariate_t(np.zeros(1), [[1.0]], df=dof - 1)
    reference = t.logpdf([np.sqrt(square * (dof - 1) / nu)]) - t.logpdf([0.0])

    priors = sum(
        norm(np.log(p.median), p.log_sd).logpdf(value)
        for p, value in zip(objective.parameter_priors, LOG_KERNEL, strict=True)
    )
    expected = -effective / d * log_likelihood + 7.0 * J - reference - priors
    assert objective(x)[0] == pytest.approx(expected, rel=1e-10)
    terms = objective.terms(latent, LOG_KERNEL)
    assert terms.total == pytest.approx(expected, rel=1e-10)
    assert terms.criterion == pytest.approx(J, rel=1e-10)


def test_whitened_latent_coordinates_are_a_symmetric_square_root(problem):
    X, y = problem
    rng = np.random.default_rng(2)
    raw = rng.standard_normal((len(X), 3))
    known = np.flatnonzero(y > 0)
    white = whiten(raw, known)[0]
    centred = raw - raw[known].mean(axis=0)
    cov = centred[known].T @ centred[known] / len(known)
    np.testing.assert_allclose(white, centred @ inv(sqrtm(cov)).real, atol=1e-10)
    np.testing.assert_allclose(white[known].T @ white[known] / len(known), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(whiten(white, known)[0], white, atol=1e-10)


def test_invariant_to_scale_shift_and_rotation_of_raw_coordinates(problem):
    X, y = problem
    objective = make_objective(X, y)
    rng = np.random.default_rng(4)
    raw = rng.standard_normal((len(X), 2))
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    value = objective(objective.pack(raw, LOG_KERNEL))[0]
    shear, shift = np.array([[2.0, 1.0], [0.0, 0.5]]), np.array([5.0, -2.0])
    for moved in (1e-6 * raw, 1e6 * raw, raw + shift, raw @ turn, raw @ shear @ turn):
        same = objective(objective.pack(moved, LOG_KERNEL))[0]
        assert same == pytest.approx(value, rel=1e-10)


def test_rank_deficient_latent_coordinates_raise(problem):
    X, y = problem
    objective = make_objective(X, y)
    raw = np.outer(np.arange(len(X)), [1.0, 2.0])
    with pytest.raises(np.linalg.LinAlgError, match="span"):
        objective(objective.pack(raw, LOG_KERNEL))
