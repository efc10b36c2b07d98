"""Tempered particles on targets whose posterior and evidence are known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bsdr_models.inference import tempering
from bsdr_models.inference.tempering import (
    Moves,
    inverse_root,
    next_step,
    resample,
    run_tempering,
)

P = 3
MOVES = Moves(
    n_particles=150, n_moves=2, n_warm_up=4, n_kept=2, n_between=2, last_steps=24, n_last=100
)
# Independent runs, and standard errors between them that a mean may be off: of 15 figures all are
# within 4.5 with 99.9 %.
N_RUNS, BOUND = 80, 4.5


class Conjugate:
    """y ~ N(A theta, I) with theta ~ N(0, I); the posterior is narrow along one direction."""

    a = np.array([[3.0, 1.0, 0.0], [0.0, 1.0, -2.0], [4.0, 0.0, 1.0], [0.0, 0.3, 0.0]])
    y = np.array([4.0, -1.0, 5.5, 0.7])
    cov = np.linalg.inv(np.eye(P) + a.T @ a)
    mean = cov @ a.T @ y
    _marginal = np.eye(4) + a @ a.T
    log_evidence = -0.5 * (
        y @ np.linalg.solve(_marginal, y)
        + np.linalg.slogdet(_marginal)[1]
        + 4.0 * np.log(2.0 * np.pi)
    )

    @classmethod
    def log_likelihood(cls, theta):
        gap = cls.y - theta @ cls.a.T
        value = -0.5 * np.sum(gap**2, axis=1) - 2.0 * np.log(2.0 * np.pi)
        return value, gap @ cls.a


class Bimodal:
    """Likelihood w N(theta; m, s^2 I) + (1 - w) N(theta; -m, s^2 I) in two dimensions."""

    share, mean, sd = 0.25, np.array([1.5, 0.5]), 0.3
    # Both modes are as far from the prior's centre: their shares are those of the likelihood.
    log_evidence = -np.log(2.0 * np.pi * (1.0 + sd**2)) - 0.5 * mean @ mean / (1.0 + sd**2)

    @classmethod
    def log_likelihood(cls, theta):
        gaps = np.stack([cls.mean - theta, -cls.mean - theta])
        each = -0.5 * np.sum(gaps**2, axis=2) / cls.sd**2 - np.log(2.0 * np.pi * cls.sd**2)
        each += np.log([cls.share, 1.0 - cls.share])[:, None]
        value = np.logaddexp(*each)
        return value, np.einsum("gs,gsp->sp", np.exp(each - value), gaps) / cls.sd**2


def z_scores(values, truth):
    """Of the means over runs (first axis)."""
    values = np.asarray(values)
    return (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def stretch(theta, rng):
    """Proposals that multiply two of three coordinates, with the Jacobian."""
    change = 0.5 * rng.standard_normal(len(theta))
    return theta * np.exp(np.outer(change, [1.0, 1.0, 0.0])), 2.0 * change


def stretch_without_jacobian(theta, rng):
    there, log_jacobian = stretch(theta, rng)
    return there, 0.0 * log_jacobian


def check_conjugate(jump=None):
    """Mean, second moments about the true mean, log likelihood and evidence, over runs."""
    found = []
    for seed in range(N_RUNS):
        run = run_tempering(
            Conjugate.log_likelihood, P, MOVES, rng=np.random.default_rng(seed), jump=jump
        )
        gap = run.draws - Conjugate.mean
        found.append(
            [
                *gap.mean(axis=0),
                *(gap.T @ gap / len(gap))[np.triu_indices(P)],
                run.log_likelihood.mean(),
                np.exp(run.log_evidence - Conjugate.log_evidence),
            ]
        )
        assert_allclose(run.log_likelihood, Conjugate.log_likelihood(run.draws)[0])
    residual = Conjugate.y - Conjugate.a @ Conjugate.mean
    expected = -0.5 * (
        residual @ residual
        + np.trace(Conjugate.a @ Conjugate.cov @ Conjugate.a.T)
        + 4.0 * np.log(2.0 * np.pi)
    )
    truth = [0.0] * P + [*Conjugate.cov[np.triu_indices(P)], expected, 1.0]
    z = z_scores(found, np.array(truth))
    assert np.abs(z).max() < BOUND, z


def check_bimodal():
    found = []
    for seed in range(N_RUNS):
        run = run_tempering(Bimodal.log_likelihood, 2, MOVES, rng=np.random.default_rng(seed))
        share = np.mean(run.draws @ Bimodal.mean > 0.0)
        found.append([share, np.exp(run.log_evidence - Bimodal.log_evidence)])
    z = z_scores(found, np.array([Bimodal.share, 1.0]))
    assert np.abs(z).max() < BOUND, z


def check_states():
    """Whenever particles are moved they have the value and slope of where they are."""
    sound = tempering._move

    def move(cloud, log_likelihood, *args, **kwargs):
        value, slope = log_likelihood(cloud.at)
        assert_array_equal(cloud.log_likelihood, value)
        assert_array_equal(cloud.slope, slope)
        return sound(cloud, log_likelihood, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempering, "_move", move)
        run_tempering(elementwise, P, MOVES, rng=np.random.default_rng(0), jump=stretch)


def elementwise(theta):
    """A likelihood of which each particle has the same bits whatever stands beside it."""
    return -np.sum((2.0 * theta - 3.0) ** 2, axis=1), -4.0 * (2.0 * theta - 3.0)


def check_resampling():
    """Each particle is drawn S times its share of the weights, on average and nearly always."""
    rng = np.random.default_rng(0)
    weight = rng.gamma(0.5, size=20)
    weight[[0, 7, 19]] = 0.0
    share = 20 * weight / weight.sum()
    count = np.zeros((4000, 20))
    for row in count:
        chosen = resample(weight, rng=rng)
        assert (np.diff(chosen) >= 0).all()  # copies are adjacent
        row += np.bincount(chosen, minlength=20)
        assert len(resample(weight, 7, rng=rng)) == 7
    assert (np.abs(count - share) < 1.0).all()
    assert_allclose(count.mean(axis=0), share, atol=0.05)
    assert not count[:, [0, 7, 19]].any()


def test_conjugate_normal():
    check_conjugate()


def test_conjugate_normal_by_standard_deviations(monkeypatch):
    """The metric where parameters are many."""
    monkeypatch.setattr(tempering, "_SHARE", 0.0)
    check_conjugate()


@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_metric_is_the_tempered_hessian(beta):
    precision = np.eye(P) + beta * Conjugate.a.T @ Conjugate.a
    for place, batch in ((1.0, 256), (3.0, 4)):  # in one batch and in several
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempering, "_BATCH", batch)
            root = inverse_root(Conjugate.log_likelihood, np.full(P, place), beta)
        assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-6, atol=1e-8)


def test_metric_leaves_out_what_curves_upwards():
    def log_likelihood(x):  # a saddle
        return x[:, 0] ** 2 - 4.0 * x[:, 1] ** 2, x * [2.0, -8.0]

    root = inverse_root(log_likelihood, np.zeros(2), 0.5)
    assert_allclose(root @ root.T, np.diag([1.0, 0.2]), rtol=1e-6, atol=1e-9)


def test_correlation_does_not_shorten_the_steps():
    """Two parameters of which only the sum is known, to a thousandth."""

    def log_likelihood(x):
        gap = 1e3 * (x.sum(axis=1) - 1.0)
        return -0.5 * gap**2, -1e3 * gap[:, None] * np.ones(2)

    run = run_tempering(log_likelihood, 2, MOVES, rng=np.random.default_rng(0))
    assert run.acceptance.min() > 0.3
    assert_allclose(run.draws.sum(axis=1).std(), 1e-3, rtol=0.3)
    difference = (run.draws[:, 0] - run.draws[:, 1]).reshape(-1, MOVES.n_kept)
    assert_allclose(difference.std(), np.sqrt(2.0), rtol=0.3)
    assert abs(np.corrcoef(difference.T)[0, 1]) < 0.5  # of states of the same particle


def test_particles_may_be_turned():
    """A posterior around a circle keeps its law; turned towards each other its particles agree."""

    def log_likelihood(x):
        radius = np.linalg.norm(x, axis=1)
        return -50.0 * (radius - 2.0) ** 2, -100.0 * (1.0 - 2.0 / radius)[:, None] * x

    def align(particles, slope):
        turn = np.exp(-1j * np.angle(particles @ [1.0, 1j]))
        return tuple(
            np.column_stack([each.real, each.imag])
            for each in ((v @ [1.0, 1j]) * turn for v in (particles, slope))
        )

    found = {}
    for how in (None, align):
        runs = [
            run_tempering(
                log_likelihood,
                2,
                MOVES,
                rng=np.random.default_rng(seed),
                **({} if how is None else {"align": how}),
            )
            for seed in range(40)
        ]
        found[how] = [[np.linalg.norm(r.draws, axis=1).mean(), r.log_evidence] for r in runs]
    z = z_scores(np.array(found[None]) - np.array(found[align]), 0.0)
    assert np.abs(z).max() < BOUND, z


def test_conjugate_normal_with_jumps():
    check_conjugate(stretch)
    with pytest.raises(AssertionError):
        check_conjugate(stretch_without_jacobian)


def test_two_modes_keep_their_shares():
    check_bimodal()


def test_values_and_slopes_follow_the_particles():
    check_states()


def test_resampling_is_systematic_and_unbiased():
    check_resampling()


def test_same_seed_same_bits():
    a, b, c = (
        run_tempering(Conjugate.log_likelihood, P, MOVES, rng=np.random.default_rng(seed))
        for seed in (5, 5, 6)
    )
    assert_array_equal(a.draws, b.draws)
    assert a.log_evidence == b.log_evidence
    assert not np.array_equal(a.draws, c.draws)


def test_form_of_the_result():
    shares = []
    run = run_tempering(
        Conjugate.log_likelihood, P, MOVES, rng=np.random.default_rng(0), on_step=shares.append
    )
    assert run.draws.shape == (200, P)
    assert run.log_likelihood.shape == (200,)
    assert run.temperatures[-1] == 1.0
    assert (np.diff(run.temperatures, prepend=0.0) > 0.0).all()
    assert run.acceptance.shape == run.temperatures.shape
    assert ((run.acceptance > 0.3) & (run.acceptance <= 1.0)).all()
    assert not run.interrupted
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert len(shares) == len(run.temperatures) + MOVES.n_kept
    short = replace(MOVES, n_between=1, last_steps=1)
    run = run_tempering(Conjugate.log_likelihood, P, short, rng=np.random.default_rng(0))
    pairs = run.draws.reshape(100, 2, P)  # states of a particle are adjacent
    within = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2)
    assert within < np.sum((pairs[:, 0] - np.roll(pairs[:, 1], 40, axis=0)) ** 2)


def test_steps_are_long_at_temperature_one_alone(monkeypatch):
    longest = []
    sound = tempering._move

    def move(cloud, log_likelihood, beta, scale, max_steps, **kwargs):
        longest.append((beta == 1.0, len(cloud.at), max_steps))
        return sound(cloud, log_likelihood, beta, scale, max_steps, **kwargs)

    monkeypatch.setattr(tempering, "_move", move)
    run_tempering(Conjugate.log_likelihood, P, MOVES, rng=np.random.default_rng(0))
    assert set(longest) == {(False, 150, MOVES.max_steps), (True, 100, MOVES.last_steps)}


def test_flat_likelihood_is_the_prior_in_one_step():
    run = run_tempering(
        lambda x: (np.full(len(x), -3.0), np.zeros_like(x)), P, MOVES, rng=np.random.default_rng(0)
    )
    assert_array_equal(run.temperatures, [1.0])
    assert run.log_evidence == pytest.approx(-3.0)
    assert_allclose(run.draws.std(axis=0), 1.0, atol=0.15)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_next_step_keeps_the_effective_sample_size(share):
    value = np.random.default_rng(0).normal(scale=30.0, size=400) - 1e5
    step = next_step(value, 1.0, share)
    weight = np.exp(step * (value - value.max()))
    assert weight.sum() ** 2 / np.sum(weight**2) == pytest.approx(share * 400)
    assert next_step(value, 0.5 * step, share) == 0.5 * step
    assert next_step(np.full(400, -7.0), 0.3, share) == 0.3
    # Features in small units without scaling: likelihoods of any size.
    assert next_step(1e25 * value, 1.0, share) == pytest.approx(1e-25 * step, rel=1e-9)


def test_particles_of_zero_likelihood_are_lost():
    """Of a likelihood that is zero on half the space: a normal truncated in two, evidence 1 / 2."""

    def log_likelihood(x):
        return np.where(x[:, 0] > 0.0, 0.0, -np.inf), np.zeros_like(x)

    step = next_step(np.array([-np.inf, -np.inf, 0.0, 0.0]), 1.0, 0.7)
    assert 0.0 < step < 1e-10
    found = []
    for seed in range(8):
        run = run_tempering(log_likelihood, 2, MOVES, rng=np.random.default_rng(seed))
        assert (run.draws[:, 0] > 0.0).all()
        found.append([np.exp(run.log_evidence), *run.draws.mean(axis=0)])
    z = z_scores(found, np.array([0.5, np.sqrt(2.0 / np.pi), 0.0]))
    assert np.abs(z).max() < BOUND, z


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_nothing_finite_is_an_error(value):
    with pytest.raises(FloatingPointError, match="finite"):
        run_tempering(
            lambda x: (np.full(len(x), value), np.zeros_like(x)),
            P,
            MOVES,
            rng=np.random.default_rng(0),
        )


def test_interrupt_keeps_the_states_there_are():
    moves = Moves(n_particles=50, n_kept=6)
    whole = run_tempering(Conjugate.log_likelihood, P, moves, rng=np.random.default_rng(1))
    n_steps = len(whole.temperatures) + 2
    seen = []

    def stop(share):
        seen.append(share)
        if len(seen) == n_steps:
            raise KeyboardInterrupt

    run = run_tempering(
        Conjugate.log_likelihood, P, moves, rng=np.random.default_rng(1), on_step=stop
    )
    assert run.interrupted
    assert run.draws.shape == (100, P)
    assert_array_equal(run.draws.reshape(50, 2, P), whole.draws.reshape(50, 6, P)[:, :2])
    assert_array_equal(
        run.log_likelihood.reshape(50, 2), whole.log_likelihood.reshape(50, 6)[:, :2]
    )
    assert run.log_evidence == whole.log_evidence


def test_interrupt_before_a_state_is_kept_is_raised():
    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tempering(
            Conjugate.log_likelihood, P, MOVES, rng=np.random.default_rng(0), on_step=stop
        )


# ---------------------------------------------------------------------------- planted faults


def joint_without_prior(patch):
    patch.setattr(
        tempering,
        "_log_joint",
        lambda x, value, momentum: value - 0.5 * np.sum(momentum**2, axis=1),
    )


def joint_without_momentum(patch):
    patch.setattr(
        tempering, "_log_joint", lambda x, value, momentum: value - 0.5 * np.sum(x**2, axis=1)
    )


def change_moves(patch, before=lambda cloud: None, after=lambda cloud, kept: None, power=1):
    sound = tempering._move

    def faulty(cloud, log_likelihood, beta, *args, **kwargs):
        kept = before(cloud)
        mean = sound(cloud, log_likelihood, beta**power, *args, **kwargs)
        after(cloud, kept)
        return mean

    patch.setattr(tempering, "_move", faulty)


def square_of_the_temperature(patch):
    change_moves(patch, power=2)


def stale_slope_after_acceptance(patch):
    def after(cloud, kept):
        cloud.slope = kept

    change_moves(patch, before=lambda cloud: cloud.slope, after=after)


def stale_value_after_acceptance(patch):
    def after(cloud, kept):
        cloud.log_likelihood = kept

    change_moves(patch, before=lambda cloud: cloud.log_likelihood, after=after)


def stale_after_resampling(name):
    def plant(patch):
        class Cloud(tempering._Particles):
            moving = True

            def __setattr__(self, key, value):
                if key != name or Cloud.moving:
                    super().__setattr__(key, value)

        sound = tempering._move

        def move(*args, **kwargs):
            Cloud.moving = True
            mean = sound(*args, **kwargs)
            Cloud.moving = False
            return mean

        def start(*args):
            Cloud.moving = True
            cloud = Cloud(*args)
            Cloud.moving = False
            return cloud

        patch.setattr(tempering, "_move", move)
        patch.setattr(tempering, "_Particles", start)

    return plant


def jumps_at_temperature_one(patch):
    sound = tempering._try_jump

    def faulty(cloud, log_likelihood, beta, jump, *, rng):
        sound(cloud, log_likelihood, 1.0, jump, rng=rng)

    patch.setattr(tempering, "_try_jump", faulty)


def losses_accepted_too_often(patch):
    sound = tempering.acceptance_probability
    patch.setattr(tempering, "acceptance_probability", lambda gain: sound(0.5 * gain))


def sum_of_the_weights_for_their_mean(patch):
    patch.setattr(
        tempering,
        "math",
        SimpleNamespace(exp=np.exp, log=lambda x: np.log(x * MOVES.n_particles)),
    )


def roots_of_the_weights(patch):
    change_resampling(patch, np.sqrt)


def equal_weights(patch):
    change_resampling(patch, np.ones_like)


def change_resampling(patch, change):
    sound = tempering.resample
    for module in (tempering, globals()):
        setitem = patch.setattr if module is tempering else patch.setitem
        setitem(
            module, "resample", lambda weight, *args, rng: sound(change(weight), *args, rng=rng)
        )


FAULTS = {
    "joint without prior": (joint_without_prior, check_conjugate),
    "joint without momentum": (joint_without_momentum, check_conjugate),
    "square of the temperature": (square_of_the_temperature, check_conjugate),
    "stale slope after acceptance": (stale_slope_after_acceptance, check_states),
    "stale value after acceptance": (stale_value_after_acceptance, check_states),
    "stale value after resampling": (stale_after_resampling("log_likelihood"), check_states),
    "stale slope after resampling": (stale_after_resampling("slope"), check_states),
    "jumps at temperature one": (jumps_at_temperature_one, lambda: check_conjugate(stretch)),
    "losses accepted too often": (losses_accepted_too_often, check_conjugate),
    "sum of the weights for their mean": (sum_of_the_weights_for_their_mean, check_conjugate),
    "roots of the weights": (roots_of_the_weights, check_bimodal),
    "equal weights": (equal_weights, check_resampling),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name, monkeypatch):
    plant, check = FAULTS[name]
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
