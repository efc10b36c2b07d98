"""Changes of the latent basis: invariances, gain of the bound, convergence."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

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


def test_a_rotation_never_lowers_the_bound(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(6))
    before = sum(terms(problem, state).values())
    after = sum(terms(problem, rotation.rotate(state, problem.data, problem.priors)).values())
    assert np.all(after >= before - 1e-9 * np.abs(before))


def test_the_closed_form_whitens_latent_coordinates_and_makes_loadings_orthogonal(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(7))
    moved = rotation.transform(state, rotation.principal_basis(state, problem.data))
    size, r = problem.data.n_samples, problem.n_components
    white = np.broadcast_to(size * np.eye(r), moved.latent.second.shape)
    np.testing.assert_allclose(moved.latent.second, white, atol=1e-8 * size)
    second = sum(
        own.noise_precision.mean[:, None, None] * own.loadings.second(view)
        for own, view in zip(moved.views, problem.data.views, strict=True)
    )
    off = second * (1.0 - np.eye(r))
    np.testing.assert_allclose(off, 0.0, atol=1e-8 * np.abs(second).max())


def test_the_closed_form_is_optimal_without_classifiers(lab):
    """Of one view, with b_r -> 0: no basis near it of the same determinant is better."""
    problem = lab.make_problem("binary", priors=replace(PAPER, loading_rate=1e-12))
    state = lab.unfinished(problem, np.random.default_rng(7))
    basis = rotation.principal_basis(state, problem.data)
    rng = np.random.default_rng(8)

    def bound(matrices):
        moved = rotation.transform(state, matrices)
        moved = replace(
            moved, views=mf.update_loading_precision(moved, problem.data, problem.priors)
        )
        found = terms(problem, moved)
        return sum(found[name] for name in ("latent", "loadings", "loading_precision")).sum()

    best = bound(basis)
    for _ in range(20):
        turn = rng.standard_normal((3, 3))
        near = np.eye(3) + 0.05 * (turn - turn.T)
        near /= np.linalg.det(near) ** (1.0 / 3.0)
        assert bound(near[None] @ basis) < best + 1e-6
