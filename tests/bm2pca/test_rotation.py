"""Changes of the latent basis: invariances, gain of the bound, convergence."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from bsdr_models.bm2pca.paper import mean_field as mf
from bsdr_models.bm2pca.paper import rotation
from bsdr_models.bm2pca.priors import PAPER

# Terms of the bound that change with the basis.
PRIOR_TERMS = ("latent", "loadings", "loading_precision", "weights", "weight_precision")


def some_matrices(problem, seed):
    """One per problem, neither orthogonal nor symmetric."""
    p, r = len(problem.y), problem.n_components
    return np.eye(r) + 0.5 * np.random.default_rng([37, seed]).standard_normal((p, r, r))


def terms(problem, state):
    return mf.bound_terms(state, problem.data, problem.priors)


def best_precisions(problem, state):
    state = replace(state, views=mf.update_loading_precision(state, problem.data, problem.priors))
    return replace(state, weight_precision=mf.update_weight_precision(state, problem.priors))


def numbers(value):
    """Every array within a state."""
    if is_dataclass(value):
        return [array for f in fields(value) for array in numbers(getattr(value, f.name))]
    if isinstance(value, tuple):
        return [array for each in value for array in numbers(each)]
    return [] if value is None else [np.asarray(value)]


def test_basis_change_leaves_reconstructions_scores_and_their_bound(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(1))
    moved = rotation.transform(state, some_matrices(problem, 1))
    before, after = terms(problem, state), terms(problem, moved)
    for name in before:
        same = np.allclose(before[name], after[name], rtol=1e-10, atol=1e-9)
        assert same == (name not in PRIOR_TERMS or name.endswith("precision")), name
    for got, expected in zip(mf.score_moments(moved), mf.score_moments(state), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)
    for got, expected in zip(moved.views, state.views, strict=True):
        np.testing.assert_allclose(
            moved.latent.mean @ np.swapaxes(got.loadings.mean, 1, 2),
            state.latent.mean @ np.swapaxes(expected.loadings.mean, 1, 2),
            rtol=1e-9,
            atol=1e-10,
        )


def test_basis_change_transforms_the_sufficient_statistics(lab, case):
    """Sums over samples and log determinants are those of the transformed factors."""
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(2))
    moved = rotation.transform(state, some_matrices(problem, 2))
    z = moved.latent
    again = mf.make_latent(z.mean, z.cov, problem.data)
    for got, expected in zip(numbers(z), numbers(again), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    pairs = [(own.loadings.cov, own.loadings.log_det) for own in moved.views]
    pairs += [(moved.weights.cov, moved.weights.log_det)]
    pairs += [(z.cov.dense(), None)]
    for cov, log_det in pairs:
        expected = np.linalg.slogdet(cov)[1]
        if log_det is None:
            log_det, expected = z.cov.log_det, expected.sum(axis=1)
        np.testing.assert_allclose(log_det, expected, rtol=1e-9, atol=1e-9)


def test_the_inverse_basis_change_restores_the_state(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(3))
    matrices = some_matrices(problem, 3)
    back = rotation.transform(rotation.transform(state, matrices), np.linalg.inv(matrices))
    for got, expected in zip(numbers(back), numbers(state), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


def test_the_profile_is_the_bound_at_the_optimal_precisions(lab, case):
    problem = lab.make_problem(case)
    state = best_precisions(problem, lab.unfinished(problem, np.random.default_rng(4)))
    profile = rotation.profile(state, problem.data, problem.priors)
    matrices = some_matrices(problem, 4)
    moved = best_precisions(problem, rotation.transform(state, matrices))
    gain = sum(terms(problem, moved).values()) - sum(terms(problem, state).values())
    stay = np.tile(np.eye(problem.n_components), (len(problem.y), 1, 1))
    np.testing.assert_allclose(profile(matrices)[0] - profile(stay)[0], gain, rtol=1e-9, atol=1e-8)


def test_the_gradient_of_the_profile(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(5))
    profile = rotation.profile(state, problem.data, problem.priors)
    matrices = some_matrices(problem, 5)
    slope = approx_fprime(
        matrices.ravel(), lambda v: profile(v.reshape(matrices.shape))[0].sum(), 1e-7
    )
    np.testing.assert_allclose(profile(matrices)[1].ravel(), slope, rtol=1e-5, atol=1e-4)


def test_a_rotation_never_lowers_the_bound(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(6))
    before = sum(terms(problem, state).values())
    after = sum(terms(problem, rotation.rotate(state, problem.data, problem.priors)).values())
    assert np.all(after >= before - 1e-9 * np.abs(before))


def test_a_singular_matrix_ends_the_search_at_its_initial_value(lab, monkeypatch):
    def fails(*arguments, **options):
        raise np.linalg.LinAlgError

    problem = lab.make_problem("batch")
    state = best_precisions(problem, lab.unfinished(problem, np.random.default_rng(10)))
    monkeypatch.setattr(rotation, "minimize", fails)
    moved = rotation.rotate(state, problem.data, problem.priors)
    gain = sum(terms(problem, moved).values()) - sum(terms(problem, state).values())
    assert np.all(gain > -1e-10)


@pytest.mark.parametrize("case", ["binary", "shared", "missing", "views"])
def test_steps_converge_to_the_best_basis(lab, case):
    """The optimum is found without the closed form and without our gradient."""
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(9))
    r = problem.n_components
    profile = rotation.profile(state, problem.data, problem.priors)

    def gain(matrices):
        return float((profile(matrices)[0] - profile(np.eye(r)[None])[0])[0])

    found = minimize(lambda v: -gain(v.reshape(1, r, r)), np.eye(r).ravel(), method="BFGS")
    few, many = (
        gain(rotation.best_basis(state, problem.data, problem.priors, n_steps=n))
        for n in (rotation.N_STEPS, 300)
    )
    assert many > -0.99 * found.fun > 0.0
    assert few > -0.8 * found.fun


def test_the_closed_form_is_optimal_without_classifiers(lab):
    """One view, b_r -> 0, weights near 0: the gradient is 0 there."""
    problem = lab.make_problem("binary", priors=replace(PAPER, loading_rate=1e-12))
    state = lab.unfinished(problem, np.random.default_rng(7))
    weights = state.weights
    state = replace(
        state, weights=replace(weights, mean=1e-9 * weights.mean, cov=1e-18 * weights.cov)
    )
    profile = replace(
        rotation.profile(state, problem.data, problem.priors),
        loading_shapes=(0.5 * problem.data.views[0].n_features,),
    )
    profile = replace(profile, multiplicity=profile.multiplicity + 1.0)  # K = 1 is not there
    matrices = rotation.principal_basis(state, problem.data)
    slope = profile(matrices)[1] @ np.swapaxes(matrices, 1, 2)
    np.testing.assert_allclose(slope, 0.0, atol=1e-8 * problem.y.shape[1])
    white = matrices @ state.latent.second @ np.swapaxes(matrices, 1, 2)
    np.testing.assert_allclose(white[0], problem.y.shape[1] * np.eye(3), atol=1e-9)


def test_a_second_rotation_gains_nothing(lab):
    problem = lab.make_problem("shared batch")
    state = lab.unfinished(problem, np.random.default_rng(8))
    stay = np.tile(np.eye(problem.n_components), (len(problem.y), 1, 1))
    for _ in range(2):
        matrices = rotation.best_basis(state, problem.data, problem.priors, n_steps=100)
        state = rotation.transform(state, matrices)
    profile = rotation.profile(state, problem.data, problem.priors)
    again = rotation.best_basis(state, problem.data, problem.priors)
    np.testing.assert_allclose(profile(again)[0], profile(stay)[0], rtol=1e-10)
