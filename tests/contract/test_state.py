"""Fits leave the process as it was; predictions read the fit, and there is none after an error."""

import threading
import warnings
from copy import deepcopy

import numpy as np
import pytest
import sklearn
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_info

from bsdr_models import StackedClassifier, SupervisedWhitening, compare_models
from bsdr_models.numerics.process_state import one_thread

pytestmark = pytest.mark.usefixtures("short_runs")

OTHERS = {
    "StackedClassifier": StackedClassifier([("a", GaussianNB())], random_state=0),
    "SupervisedWhitening": SupervisedWhitening(),
}


# Models of a comparison that take long; shrinkage LDA is left, after a scaler and principal axes.
COMPARED = ("logistic regression", "PLS-DA", "BM2PCA", "BSDR", "D-GPLVM", "stack")


@pytest.fixture(params=["kinds", *OTHERS])
def public(request, zoo):
    """Public estimators by name, not fitted."""
    one = {request.param: OTHERS.get(request.param)}
    return {name: zoo.make(name) for name in zoo.kinds} if request.param == "kinds" else one


def fitted_already(zoo, name, model):
    """A fit to the samples of the zoo, not to be fitted again."""
    if name in zoo.kinds:
        return zoo.fitted(name)
    return sklearn.clone(model).fit(zoo.X, zoo.target(name))


def state():
    return (
        list(warnings.filters),
        warnings.showwarning,
        np.geterr(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        [each["num_threads"] for each in threadpool_info()],
    )


def in_threads(*tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.filterwarnings("ignore")
def test_predictions_read_fitted_state_only(zoo, public):
    for name, model in public.items():
        y = zoo.target(name)
        model = deepcopy(fitted_already(zoo, name, model))
        methods = ("predict", "predict_proba", "transform", "score", "log_density")

        def answers(model=model, y=y, methods=methods):
            return [
                getattr(model, m)(zoo.X, *[y] * (m in ("score", "log_density")))
                for m in methods
                if hasattr(model, m)
            ]

        before = answers()
        model.set_params(**dict.fromkeys(model.get_params(deep=False), "other"))
        for one, other in zip(before, answers(), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_fit_that_warns_as_an_error_is_no_fit(zoo, public):
    noise = np.random.default_rng(0).standard_normal(zoo.X.shape)
    for name, model in public.items():
        model = sklearn.clone(model)
        with warnings.catch_warnings(action="error"):
            try:
                model.fit(np.c_[noise, np.ones(len(noise))], zoo.target(name))
            except Warning:
                with pytest.raises(sklearn.exceptions.NotFittedError):
                    sklearn.utils.validation.check_is_fitted(model)


@pytest.mark.filterwarnings("ignore")
def test_a_comparison_gives_arrays_if_configured_to_give_frames(zoo):
    with sklearn.config_context(transform_output="pandas"):
        short = dict.fromkeys(COMPARED, GaussianNB())
        options = {"models": short, "cv": 2, "random_state": 0, "progressbar": False}
        table = compare_models(zoo.X, zoo.y, **options).table
    assert table["log_loss"].notna().all()


@pytest.mark.filterwarnings("ignore")
def test_settings_of_the_process_change_nothing(zoo, public):
    """Errors of rounding that raise, and frames in place of arrays."""
    for name, model in public.items():
        fitted = fitted_already(zoo, name, model)
        with np.errstate(all="raise"), sklearn.config_context(transform_output="pandas"):
            found = sklearn.clone(model).fit(zoo.X, zoo.target(name))
            for method in ("predict", "predict_proba", "transform"):
                if hasattr(found, method):
                    expected = getattr(fitted, method)(zoo.X)
                    np.testing.assert_array_equal(getattr(found, method)(zoo.X), expected)
            assert set(np.geterr().values()) == {"raise"}


def test_threads_leave_the_process_as_it_was(zoo):
    class Slow(GaussianNB):
        def fit(self, X, y):
            warnings.warn("beware", UserWarning, stacklevel=2)
            for _ in range(20):
                threading.Event().wait(0.001 * np.random.default_rng().random())
            return super().fit(X, y)

    before = state()
    caught = []

    def fit():
        model = StackedClassifier([("a", Slow())], random_state=0)
        with one_thread():
            model.fit(zoo.X, zoo.y)
        caught.append(model)

    with warnings.catch_warnings(record=True, action="always") as shown:
        in_threads(*[fit] * 6)
    assert len(caught) == 6
    assert [str(each.message) for each in shown] == ["a: beware"] * 6
    assert state() == before


@pytest.mark.filterwarnings("ignore")
def test_two_fits_of_one_estimator_raise(zoo):
    model, barrier, errors = zoo.make("BM2PCAClassifier"), threading.Barrier(2), []

    def fit():
        barrier.wait()
        try:
            model.fit(zoo.X, zoo.y)
        except Exception as error:
            errors.append(error)

    in_threads(fit, fit)
    if not errors:  # one after the other
        expected = zoo.fitted("BM2PCAClassifier").predict(zoo.X)
        np.testing.assert_array_equal(model.predict(zoo.X), expected)
