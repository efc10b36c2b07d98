"""Stacked latent scales: folds, weights, what is fitted again, what an interrupt leaves."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import BSDRClassifier, BSDRRegressor
from bsdr_models.bsdr import fit as fit_module
from bsdr_models.bsdr import predict, stacking
from bsdr_models.bsdr.predict import NoFeatures
from bsdr_models.bsdr.priors import PAPER
from bsdr_models.bsdr.stacking import Problem, fit_mixture, fit_single, fold_index

TARGETS = ("multiclass", "multilabel", "regression")
SCALES = (0.1, 1.0)


def make_problem(target="multiclass", *, n=45, d=4, k=3, signal=1.5, seed=0, max_iter=40):
    rng = np.random.default_rng([71, seed])
    X = rng.standard_normal((n, d))
    scores = signal * X @ rng.standard_normal((d, k)) + rng.standard_normal((n, k))
    y = {
        "multiclass": scores.argmax(axis=1),
        "multilabel": scores > 0.0,
        "regression": (scores - scores.mean(axis=0)) / scores.std(axis=0),
    }[target]
    return Problem(
        X=X,
        y=y,
        n_labels=k,
        target=target,
        projection_prior="columnwise",
        priors=PAPER,
        options={
            "n_components": 2,
            "start": "discriminant",
            "n_restarts": 1,
            "max_iter": max_iter,
            "tol": 0.05,
            "quasi_newton": False,
        },
    )


# ------------------------------------------------------------------------------------- folds


def test_folds_are_stratified():
    y = np.repeat([0, 1, 2], [50, 23, 12])
    fold = fold_index(y, "multiclass", np.random.default_rng(0))
    table = np.array([np.bincount(fold[y == c], minlength=5) for c in range(3)])
    assert table.shape == (3, 5)
    assert np.ptp(table, axis=1).max() <= 1
    assert np.ptp(table.sum(axis=0)) <= 1  # and of equal size


def test_a_small_class_sets_the_number_of_folds():
    rng = np.random.default_rng(0)
    assert fold_index(np.repeat([0, 1], [20, 3]), "multiclass", rng).max() == 2
    assert fold_index(np.repeat([0, 1], [20, 1]), "multiclass", rng).max() == 4
    assert fold_index(np.arange(4), "multiclass", rng).max() == 0


@pytest.mark.parametrize(("n", "n_folds"), [(2, 2), (3, 3), (100, 5)])
@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_folds_without_classes_have_equal_sizes(target, n, n_folds):
    fold = fold_index(np.zeros((n, 2)), target, np.random.default_rng(0))
    counts = np.bincount(fold)
    assert len(counts) == n_folds
    assert np.ptp(counts) <= 1


# ----------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("target", TARGETS)
def test_weights_and_components_belong_together(target):
    mixture = fit_mixture(make_problem(target), np.random.default_rng(0), scales=SCALES)
    assert len(mixture.components) == len(mixture.weights) == len(mixture.fits) + 1
    np.testing.assert_allclose(mixture.weights.sum(), 1.0)
    assert isinstance(mixture.components[-1], NoFeatures)
    assert mixture.no_features_weight == mixture.weights[-1] < 0.3
    order = mixture.weights[:-1]
    assert (np.diff(order) <= 0.0).all()  # the first is the one to look at
    assert (order > 0.0).all()  # what has no weight is not fitted
    for fit, component in zip(mixture.fits, mixture.components, strict=False):
        assert component.latent_scale == fit.latent_scale
        assert component.state is fit.result.state
        assert component.data.n_rows == 45  # all of them, not a fold
    assert (mixture.log_scores[:-1] > mixture.log_scores[-1]).all()


def test_log_scores_are_those_of_rows_held_out(monkeypatch):
    """By hand: the same folds, fits and predictions."""
    monkeypatch.setattr(stacking, "CLIMBS", {True: 40})
    problem = make_problem()
    problem.options["quasi_newton"] = True
    mixture = fit_mixture(problem, np.random.default_rng(1), scales=(0.3,))
    fold_rng, _ = np.random.default_rng(1).spawn(2)
    folds = fold_index(problem.y, "multiclass", fold_rng)
    expected = np.empty(len(folds))
    for fold in range(folds.max() + 1):
        train = folds != fold
        fit = problem.fit(problem.data(train), 0.3, np.random.default_rng(2))
        expected[~train] = predict.log_predictive(
            fit.posterior, problem.X[~train], problem.y[~train]
        )
    np.testing.assert_allclose(mixture.log_scores[0], expected.mean(), rtol=1e-6)


def test_noise_goes_to_the_model_without_features():
    problem = make_problem(signal=0.0, n=60, seed=3)
    mixture = fit_mixture(problem, np.random.default_rng(0), scales=SCALES)
    assert mixture.no_features_weight > 0.5
    assert len(mixture.fits) >= 1  # a map is there all the same
    p = np.exp(mixture.log_average(lambda part: predict.label_log_probabilities(part, problem.X)))
    assert p.max() < 0.9


def test_all_weight_on_no_features_leaves_the_best_scale_to_look_at(monkeypatch):
    monkeypatch.setattr(stacking, "stack_weights", lambda log_prob: np.eye(len(log_prob))[-1])
    mixture = fit_mixture(make_problem(), np.random.default_rng(0), scales=SCALES)
    assert len(mixture.fits) == 1
    np.testing.assert_array_equal(mixture.weights, [0.0, 1.0])
    assert mixture.log_scores[0] == max(mixture.log_scores)


def test_selection_puts_all_weight_on_the_best_scale():
    problem = make_problem()
    each = [
        fit_mixture(problem, np.random.default_rng(0), scales=(s,), select=True).log_scores[0]
        for s in SCALES
    ]
    mixture = fit_mixture(problem, np.random.default_rng(0), scales=SCALES, select=True)
    np.testing.assert_array_equal(mixture.weights, [1.0, 0.0])
    assert mixture.fits[0].latent_scale == SCALES[int(np.argmax(each))]
    assert mixture.log_scores[0] == max(each)


def test_few_rows_offer_each_scale_with_and_without_what_lies_outside():
    problem = make_problem(n=12, d=30)
    assert problem.few_rows
    mixture = fit_mixture(problem, np.random.default_rng(0))
    assert [part.outside for part in mixture.components[:2]] == [False, True]
    assert len(mixture.components) == 2 * len(mixture.fits) + 1
    assert {fit.latent_scale for fit in mixture.fits} <= set(stacking.SCALES_FEW_ROWS)


def test_many_rows_hold_one_fold_out(monkeypatch):
    monkeypatch.setattr(stacking, "MANY_ROWS", 40)
    counted = []
    whole = Problem.fit

    def count(self, data, *args, **more):
        counted.append(data.n_rows)
        return whole(self, data, *args, **more)

    monkeypatch.setattr(Problem, "fit", count)
    problem = make_problem()
    fit_mixture(problem, np.random.default_rng(0), scales=SCALES)
    assert sum(n < 45 for n in counted) == len(SCALES) * len(stacking.CLIMBS)


@pytest.mark.parametrize("max_iter", [3, 40])
def test_sweeps_end_on_all_rows_where_they_were_scored(monkeypatch, max_iter):
    monkeypatch.setattr(stacking, "CLIMBS", {False: 5, True: 8})
    monkeypatch.setattr(
        stacking, "stack_weights", lambda log_prob: np.full(len(log_prob), 1 / len(log_prob))
    )
    problem = make_problem()
    problem.options.update(max_iter=max_iter, tol=0.0)
    limits = []
    whole = Problem.fit

    def note(self, data, *args, **more):
        limits.append((data.n_rows < 45, more["quasi_newton"], more["max_iter"]))
        return whole(self, data, *args, **more)

    monkeypatch.setattr(Problem, "fit", note)
    mixture = fit_mixture(problem, np.random.default_rng(0), scales=(0.1, 1.0))
    short, long = min(5, max_iter), min(8, max_iter)
    assert set(limits) == {
        (True, False, short),
        (True, True, long),
        (False, False, short),
        (False, True, max_iter),
    }
    lengths = sorted(len(fit.result.elbo) for fit in mixture.fits)
    assert lengths == [short, short, max_iter, max_iter]
    reached = [fit.reached(max_iter) for fit in mixture.fits]
    assert sum(reached) == (4 if max_iter == 3 else 2)


def test_a_fit_that_is_meant_to_end_early_does_not_warn(monkeypatch):
    monkeypatch.setattr(stacking, "CLIMBS", {False: 5})
    problem = make_problem()
    begin = {"n_components": 2, "latent_scale": "estimate", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BSDRClassifier(**begin).fit(problem.X, problem.y)
    assert model.n_iter_ == 5
    assert not model.converged_
    assert "where it is meant to stop" in str(model.summary())
    assert "max_iter" not in str(model.summary())
    with pytest.warns(ConvergenceWarning, match="max_iter=4"):
        model = BSDRClassifier(**begin, max_iter=4).fit(problem.X, problem.y)
    assert "a larger max_iter" in str(model.summary())
    model.set_params(max_iter=100)  # of the next fit
    assert "a larger max_iter" in str(model.summary())


def test_classes_of_one_row_leave_nothing_to_compare():
    problem = make_problem()
    X, y = problem.X[:3], np.arange(3)
    mixture = fit_mixture(
        Problem(**{**{f: getattr(problem, f) for f in problem.__slots__}, "X": X, "y": y}),
        np.random.default_rng(0),
    )
    np.testing.assert_array_equal(mixture.weights, [1.0, 0.0])


@pytest.mark.parametrize("target", TARGETS)
def test_a_given_scale_is_not_mixed(target):
    mixture = fit_single(make_problem(target), 0.3, np.random.default_rng(0))
    np.testing.assert_array_equal(mixture.weights, [1.0, 0.0])
    assert mixture.fits[0].latent_scale == 0.3


def test_progress_is_shown_and_changes_nothing(capsys):
    rng = np.random.default_rng
    shown = fit_mixture(make_problem(), rng(0), scales=SCALES, progressbar=True)
    single = fit_single(make_problem(), 0.3, rng(0), progressbar=True)
    assert "BSDR" in capsys.readouterr().out
    quiet = fit_mixture(make_problem(), rng(0), scales=SCALES)
    np.testing.assert_array_equal(shown.weights, quiet.weights)
    again = fit_single(make_problem(), 0.3, rng(0))
    np.testing.assert_array_equal(single.fits[0].result.elbo, again.fits[0].result.elbo)
    assert capsys.readouterr().out == ""


# -------------------------------------------------------------------------------- interrupts


def interrupt_at(monkeypatch, n):
    """Raise KeyboardInterrupt in the n-th sweep from now."""
    step, calls = fit_module.mean_field.step, []

    def tired(*args, **kwargs):
        calls.append(1)
        if len(calls) == n:
            raise KeyboardInterrupt
        return step(*args, **kwargs)

    monkeypatch.setattr(fit_module.mean_field, "step", tired)
    return calls


def test_an_interrupt_during_the_folds_ends_everything(monkeypatch):
    calls = interrupt_at(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        fit_mixture(make_problem(), np.random.default_rng(0), scales=SCALES)
    assert len(calls) == 5


@pytest.mark.parametrize("which", ["first", "last"])
def test_an_interrupt_of_the_last_fits_keeps_what_there_is(monkeypatch, which):
    def equal(log_prob):
        return np.full(len(log_prob), 1.0 / len(log_prob))

    monkeypatch.setattr(stacking, "stack_weights", equal)
    problem = make_problem(max_iter=30)
    sweeps = []  # calls so far at the end of every fit
    calls = interrupt_at(monkeypatch, -1)
    plain = Problem.fit

    def count(self, *args, **more):
        fit = plain(self, *args, **more)
        sweeps.append(len(calls))
        return fit

    monkeypatch.setattr(Problem, "fit", count)
    whole = fit_mixture(problem, np.random.default_rng(0), scales=SCALES)
    n_fits = len(whole.fits)
    assert n_fits >= 2
    monkeypatch.undo()
    monkeypatch.setattr(stacking, "stack_weights", equal)

    interrupted = -n_fits if which == "first" else -1
    interrupt_at(monkeypatch, sweeps[interrupted - 1] + 2)  # in the second sweep of that fit
    kept = fit_mixture(problem, np.random.default_rng(0), scales=SCALES)
    assert len(kept.fits) == (1 if which == "first" else n_fits)
    assert kept.fits[-1].result.interrupted
    np.testing.assert_allclose(kept.weights.sum(), 1.0)
    assert len(kept.weights) == len(kept.fits) + 1


def test_an_interrupted_estimator_is_unfitted_or_usable(monkeypatch):
    X, y = (part[::3] for part in load_wine(return_X_y=True))
    model = BSDRClassifier(random_state=0).fit(X, y)
    before = model.predict_proba(X[:3])
    interrupt_at(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not model.__sklearn_is_fitted__()
    monkeypatch.undo()
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X[:3]), before)

    interrupt_at(monkeypatch, 2)
    single = BSDRClassifier(latent_scale=0.1, random_state=0).fit(X, y)
    assert single.interrupted_
    assert not single.converged_
    assert single.score(X, y) > 0.9
    assert single.idata_.attrs["interrupted"] == 1


# ------------------------------------------------------------------------- the estimators' use


@pytest.mark.filterwarnings("ignore:mean field stopped")
def test_estimators_pass_the_mixture_on():
    X, y = load_wine(return_X_y=True)
    model = BSDRClassifier(random_state=0, max_iter=40).fit(X[::2], y[::2])
    mixture = model._mixture
    rows = model._scaler.transform(X[1::2])
    p = sum(
        w * np.exp(predict.label_log_probabilities(part, rows))
        for w, part in zip(mixture.weights, mixture.components, strict=True)
    )
    np.testing.assert_allclose(model.predict_proba(X[1::2]), p, rtol=1e-9)
    assert model.latent_scale_ == mixture.fits[0].latent_scale


def test_a_mixture_of_normals_has_its_moments():
    problem = make_problem("regression", k=1, signal=0.5)
    model = BSDRRegressor(random_state=0).fit(problem.X, 7.0 + 3.0 * problem.y[:, 0])
    mixture = model._mixture
    assert np.sum(mixture.weights > 0.0) > 1
    rng = np.random.default_rng(0)
    row = problem.X[:1]
    parts = [predict.score_moments(part, model._rows(row)) for part in mixture.components]
    means, stds = np.array(parts)[..., 0, 0].T
    which = rng.choice(len(parts), 400_000, p=mixture.weights)
    y = model.y_mean_ + model.y_scale_ * (
        means[which] + stds[which] * rng.standard_normal(len(which))
    )
    mean, std = model.predict(row, return_std=True)
    np.testing.assert_allclose(mean[0], y.mean(), atol=4 * y.std() / len(y) ** 0.5)
    np.testing.assert_allclose(std[0], y.std(), rtol=0.01)
