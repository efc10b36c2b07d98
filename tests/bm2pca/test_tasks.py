"""Several tasks with one subspace and missing labels: objective, folds, predictions and trees."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss

import bsdr_models
from bsdr_models import plots, select_task
from bsdr_models.bm2pca import engines, select, transduction
from bsdr_models.bm2pca import subspace as ss
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.problem import Problem, class_index
from bsdr_models.metric import NAMES
from bsdr_models.numerics.folds import assign_folds
from bsdr_models.numerics.temperature import fit_temperature

SIZES = (3, 1, 4)
FORMS = ("default", "default_one_vs_rest", "paper", "paper_one_vs_rest", "gibbs")
every_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def make(make_form):
    return partial(make_form, unlabeled=-1, loss__C=3.0)


def quiet_fit(model, X, Y):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "R-hat of the identified quantities")
        warnings.filterwarnings("ignore", "no evidence that the targets depend on X")
        return model.fit(X, Y)


def hidden(Y, share, seed=0):
    """Y with a share of the labels missing, and sample 0 without any; two of each class stay."""
    rng = np.random.default_rng(seed)
    mask = rng.random(Y.shape) < share
    for column, own in zip(Y.T, mask.T, strict=True):
        for label in np.unique(column):
            own[np.flatnonzero(column == label)[-2:]] = False
    mask[0] = True
    return np.where(mask, -1, Y)


@pytest.fixture(scope="module")
def data():
    """Iris: the class, a linear function of the features above its median, and three ranges."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(y))
    size, ratio = X[:, 0] + X[:, 1], X[:, 2] - X[:, 0]
    ranges = np.digitize(size, np.quantile(size, [1 / 3, 2 / 3])) + 5
    return X[order], np.column_stack([y, 10 * (ratio > np.median(ratio)), ranges])[order]


@pytest.fixture(scope="module")
def fitted(data, make):
    cache = {}

    def fit(form):
        if form not in cache:
            X, Y = data
            cache[form] = quiet_fit(make(form), X[:80], hidden(Y[:80], 0.4))
        return cache[form]

    return fit


# ----------------------------------------------------------------------------------- objective


def problem(seed=0, n=30, d=6, r=3):
    rng = np.random.default_rng(seed)
    Y = []
    for size in SIZES:
        y = rng.integers(0, max(size, 2), n)
        signs = 2.0 * np.eye(size)[y] - 1.0 if size > 1 else 2.0 * y[:, None] - 1.0
        signs[rng.random(n) < 0.5] = 0.0
        Y.append(signs)
    state = ss.SubspaceState(
        projection=rng.standard_normal((d, r)), weights=rng.standard_normal((1 + r, sum(SIZES)))
    )
    return rng.standard_normal((n, d)), np.concatenate(Y, axis=1), state


def plain_objective(state, A, Y, settings):
    """J by loops over samples and tasks: terms of missing labels are left out."""
    C, v = settings.cost, settings.latent_variance
    scores = A @ state.projection @ state.weights[1:] + state.weights[0]
    square = v * np.sum(state.weights[1:] ** 2, axis=0)
    total = -0.5 * settings.projection_precision * np.sum(state.projection**2)
    total -= 0.5 * settings.weight_precision * np.sum(state.weights[1:] ** 2)
    for own in np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1]):
        all_classes = settings.multiclass and len(own) > 1
        bias = ss.BIAS_PRECISION if all_classes else settings.weight_precision
        total -= 0.5 * bias * np.sum(state.weights[0, own] ** 2)
        for n in range(len(A)):
            if not Y[n, own].any():
                continue
            if all_classes:
                f, c = scores[n, own], Y[n, own].argmax()
                wrong = np.arange(len(own)) != c
                total -= C * (logsumexp(f + wrong + 0.5 * square[own]) - f[c])
            else:
                u = 1.0 - Y[n, own] * scores[n, own]
                total -= C * np.sum(u + np.sqrt(u**2 + square[own]))
    return total


@pytest.mark.parametrize("multiclass", [False, True])
def test_missing_labels_are_terms_left_out(multiclass):
    A, Y, state = problem()
    settings = ss.Settings(
        cost=1.7,
        latent_variance=0.02,
        weight_precision=1.4,
        multiclass=multiclass,
        task_sizes=SIZES,
    )
    found, gradient = ss.objective(state, A, Y, settings)
    assert found == pytest.approx(plain_objective(state, A, Y, settings), rel=1e-12)

    def value(point):
        return plain_objective(state.unpack(point), A, Y, settings)

    expected = optimize.approx_fprime(state.packed, value, 1e-7)
    np.testing.assert_allclose(gradient.packed, expected, rtol=1e-4, atol=2e-4)


def test_samples_without_any_label_change_nothing(monkeypatch):
    """Unless pseudo-labels are found."""
    monkeypatch.setattr(transduction, "CERTAIN", 1.0)
    monkeypatch.setattr(engines, "TOL", 1e-14)
    A, Y, _ = problem(n=40)
    Y[:10] = 0.0
    task = Problem(
        X=A,
        Y=Y,
        sizes=SIZES,
        multiclass=True,
        n_components=4,
        strategy="shared",
        priors=PAPER,
        units=np.ones(A.shape[1]),
        metric_weights=np.full((1, len(NAMES)), 1.0 / len(NAMES)),
    )
    options = {"cost": 1.0, "max_iter": 2000}
    every = engines.fit_problem(task, **options).posterior.score_means(A)
    labelled = engines.fit_problem(task.subset(np.arange(10, 40)), **options).posterior.score_means(
        A
    )
    np.testing.assert_allclose(labelled, every, rtol=1e-4, atol=1e-4)


def test_initial_values_leave_missing_labels_out():
    """Weights of a task are ridge regressions on the samples that have its label."""
    A, Y, _ = problem(n=60)
    state = ss.initial_state(A, Y, 4, ss.Settings())
    for size, end in zip(SIZES, np.cumsum(SIZES), strict=True):
        own = slice(end - size, end)
        some = Y[:, own].any(axis=1)
        rows = np.column_stack([np.ones(some.sum()), A[some] @ state.projection])
        expected = np.linalg.solve(rows.T @ rows + np.eye(5), rows.T @ Y[some, own])
        np.testing.assert_allclose(state.weights[:, own], expected, rtol=1e-9)


# ----------------------------------------------------------------------------- cross-validation


def random_groups(n=80, seed=1):
    """Classes of three tasks, most missing; class 5 of the last has one sample."""
    rng = np.random.default_rng(seed)
    groups = np.column_stack([rng.integers(0, k, n) for k in (2, 3, 5)])
    groups[rng.random(groups.shape) < 0.6] = -1
    groups[0] = -1
    groups[7] = [0, 1, 5]
    return groups


def test_every_class_of_every_task_is_in_every_training_set():
    for seed in range(20):
        groups = random_groups(seed=seed)
        keys = np.random.default_rng(seed).permutation(len(groups))
        fold = assign_folds(groups, keys, n_folds=5)
        assert fold[0] == fold[7] == -1
        known = (groups >= 0).any(axis=1)
        assert np.count_nonzero(fold[known] < 0) <= 3
        sizes = np.bincount(fold[fold >= 0], minlength=5)
        assert sizes.max() <= 1.5 * sizes.mean()
        for own in groups.T:
            present = set(own[own >= 0])
            for number in range(5):
                assert set(own[(fold != number) & (own >= 0)]) == present


def test_selection_scores_all_known_labels_at_the_temperature_of_their_task():
    _, signs, _ = problem(n=200)
    scores = np.random.default_rng(4).standard_normal((2, *signs.shape))
    scores[1] += signs
    truth = class_index(signs, SIZES)
    found = select.best_of(scores, truth, SIZES)
    assert found.best == 1
    total, right, count = 0.0, 0, 0
    for index, (size, end) in enumerate(zip(SIZES, np.cumsum(SIZES), strict=True)):
        own = slice(end - size, end)
        some = signs[:, own].any(axis=1)
        f, y = scores[1][some, own], signs[some, own]
        y = y.argmax(axis=1) if size > 1 else (y[:, 0] > 0.0).astype(int)
        f = f if size > 1 else np.column_stack([np.zeros(len(f)), f])
        temperature = fit_temperature(f, y)
        assert found.temperature[index] == pytest.approx(temperature, rel=1e-6)
        total += log_loss(y, softmax(f / temperature, axis=1), normalize=False)
        right, count = right + np.sum(f.argmax(axis=1) == y), count + len(y)
    assert found.log_loss[1] == pytest.approx(total / count, rel=1e-9)
    assert found.accuracy[1] == pytest.approx(right / count)
    assert found.held_out.score == pytest.approx(-total / count, rel=1e-9)
    spoilt = select.best_of(np.where(signs == 0.0, 1e6, scores), truth, SIZES)
    np.testing.assert_allclose(spoilt.log_loss, found.log_loss)


def test_a_task_without_held_out_labels_is_not_calibrated(data, make):
    X, Y = data
    Y = np.column_stack([Y[:60, 0], np.full(60, -1)])
    Y[3, 1], Y[4, 1] = 8, 9
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class 8 has a single sample")
        with pytest.warns(UserWarning, match="no label of task 1 can be held out"):
            model = make("default", loss__calibrate=True).fit(X[:60], Y)
    assert model.temperature_[1] == 1.0
    assert np.isfinite(model.predict_log_proba(X)[1]).all()


# ----------------------------------------------------------------------------------- estimator


@every_form
def test_predictions(data, fitted, form):
    X, Y = data[0][80:], data[1][80:]
    model = fitted(form)
    assert [own.tolist() for own in model.classes_] == [[0, 1, 2], [0, 10], [5, 6, 7]]
    proba, predicted = model.predict_proba(X), model.predict(X)
    assert predicted.shape == Y.shape
    for task, (p, log_p, f, classes) in enumerate(
        zip(
            proba,
            model.predict_log_proba(X),
            model.decision_function(X),
            model.classes_,
            strict=True,
        )
    ):
        scores = np.column_stack([np.zeros(len(f)), f]) if f.ndim == 1 else f
        lapse = select.LAPSE if form.startswith("default") else 0.0
        expected = (1.0 - lapse) * softmax(scores, axis=1) + lapse / scores.shape[1]
        np.testing.assert_allclose(p, expected, rtol=1e-9)
        np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-12)
        np.testing.assert_array_equal(predicted[:, task], classes[p.argmax(axis=1)])
        assert np.mean(predicted[:, task] == Y[:, task]) > 0.6


def test_score_leaves_missing_labels_out(data, fitted):
    X, Y = data[0][80:], data[1][80:]
    model = fitted("default")
    right = model.predict(X) == Y
    assert model.score(X, Y) == right.all(axis=1).mean()
    part = np.where(np.arange(Y.size).reshape(Y.shape) % 2 == 0, Y, -1)
    part[0] = -1
    expected = (right | (part == -1)).all(axis=1)[1:]
    assert model.score(X, part) == expected.mean()
    weight = np.arange(len(Y)) + 1.0
    weighted = np.average(expected, weights=weight[1:])
    assert model.score(X, part, sample_weight=weight) == pytest.approx(weighted)
    with pytest.raises(ValueError, match="y must have a column for each of 3 tasks"):
        model.score(X, Y[:, :2])


def test_names_and_classes_of_any_type(data, make):
    """Columns of a frame name the tasks; text and numbers are not mixed up."""
    X, Y = data
    frame = pd.DataFrame(
        {"species": np.array(["s", "ve", "vi"], dtype=object)[Y[:80, 0]], "size": Y[:80, 2]}
    )
    frame.loc[:30, "size"] = None
    model = make("default", unlabeled=np.nan).fit(X[:80], frame)
    predicted = model.predict(X)
    assert set(predicted[:, 0]) <= {"s", "ve", "vi"}
    assert set(predicted[:, 1]) <= {5, 6, 7}
    tree = model.predict_idata(X[:80], frame.assign(size=Y[:80, 2]))
    assert tree["predictions"]["task"].values.tolist() == ["species", "size"]
    plots.plot_map(tree, label="size")


@pytest.mark.parametrize(
    ("columns", "again", "message"),
    [
        (["a", "b", "c"], ["c", "a", "b"], None),
        ([7, 3, 5], [5, 7, 3], None),
        ([0, 1, 2], [2, 0, 1], None),
        (None, ["a", "b", "c"], None),
        (["a", "b", "c"], None, None),
        (["a", "b", "c"], ["a", "b", "d"], "the columns .*'d'.*, the tasks of the fit are .*'c'"),
        (["a", "b", "c"], ["a", "b", "b"], "the columns .*'b', 'b'.*, the tasks of the fit"),
        (["a", "b", "c"], ["a", "b"], "y must have "),
    ],
)
def test_columns_of_new_targets_are_matched_by_name(data, make, columns, again, message):
    X, Y = data
    frame = Y if columns is None else pd.DataFrame(Y, columns=columns)
    model = make("default").fit(X[:80], frame[:80])
    new = Y[80:]
    if again is not None:
        order = range(len(again))
        if columns is not None and set(again) == set(columns):
            order = [columns.index(name) for name in again]
        new = pd.DataFrame(new[:, order], columns=again)
    if message is None:
        assert model.score(X[80:], new) == model.score(X[80:], Y[80:])
        np.testing.assert_array_equal(model.predict_idata(X[80:], new)["predictions/y"], Y[80:])
        return
    for method in (model.score, model.predict_idata):
        with pytest.raises(ValueError, match=message):
            method(X[80:], new)


ONE_CLASS = np.column_stack([np.arange(60) % 3, np.full(60, 4)])
BAD = {
    "one_class": (ONE_CLASS, {}, "task 1 of y: y has one class only, 4"),
    "no_label": (np.where(ONE_CLASS == 4, -1, ONE_CLASS), {}, "task 1 of y has no label"),
    "real": (ONE_CLASS + [0, 1] * np.arange(60)[:, None] / 7, {}, "task 1 of y: Unknown label"),
    "all_missing": (np.full((60, 2), -1), {}, "every y equals unlabeled=-1"),
    "names": (
        pd.DataFrame(ONE_CLASS % 2, columns=["a", "a"]).assign(b=np.arange(60) % 3),
        {},
        "2 columns of y are named 'a'",
    ),
    "dates": (
        pd.DataFrame({"a": np.arange(60) % 3, "b": pd.date_range("2020-01-01", periods=60)}),
        {},
        "task 'b' of y: y has labels of type Timestamp",
    ),
    "missing": (np.where(ONE_CLASS == 4, np.nan, ONE_CLASS), {}, "Input y contains NaN"),
    "temperatures": (
        np.column_stack([np.arange(60) % 3, np.arange(60) % 4]),
        {"loss__calibrate": (1.0, 2.0, 3.0)},
        "calibrate has 3 entries, and y has 2",
    ),
}


@every_form
@pytest.mark.parametrize("case", BAD)
def test_bad_tasks_are_refused_before_any_work(data, make, monkeypatch, form, case):
    def refuse(*args, **kwargs):
        raise AssertionError("work was done before the input was checked")

    monkeypatch.setattr("bsdr_models.bm2pca.classifier.one_thread", refuse)
    Y, arguments, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        make(form, **arguments).fit(data[0][:60], Y)


# ----------------------------------------------------------------------------------- trees


@every_form
def test_trees(data, fitted, form, tmp_path):
    X, Y = data[0][80:], data[1][80:]
    model = fitted(form)
    tree = model.predict_idata(X, Y)
    group = tree["predictions"]
    assert group["predicted"].dims == group["y"].dims == ("obs", "task")
    assert group.sizes["outcome"] == 8
    assert group["outcome"].values.tolist()[3:5] == ["1: 0", "1: 10"]
    np.testing.assert_array_equal(group["predicted"], model.predict(X))
    for task, p in enumerate(model.predict_proba(X)):
        one = select_task(tree, task)["predictions"]
        np.testing.assert_allclose(one["probability"], p, rtol=1e-12)
        assert one["outcome"].values.tolist() == model.classes_[task].tolist()
        np.testing.assert_array_equal(one["y"], Y[:, task])
        counts = one["class_frequency"].values
        assert counts.sum() == pytest.approx(1.0)
    # Coefficients of a task give its predictions.
    coef = select_task(model.idata_, 1)["posterior"]
    assert coef["coef"].sizes["outcome"] == 2
    index = select_task(model.idata_, 2)["fit"]["y_index"].values
    known = hidden(data[1][:80], 0.4)[:, 2]
    np.testing.assert_array_equal(index, np.where(known < 0, -1, known - 5))
    model.idata_.to_netcdf(tmp_path / "tree.nc")
    path = tmp_path / "model.skops"
    model.save(path)
    again = bsdr_models.load(path)
    for own, same in zip(again.predict_proba(X), model.predict_proba(X), strict=True):
        np.testing.assert_array_equal(own, same)
    assert select_task(again.idata_, 2).equals(select_task(model.idata_, 2))
