"""Every estimator in every form that has code of its own, cut short.

All are asked the same questions. A test takes the parameter ``name`` (or ``classifier``,
``regressor``, ``kind``), and gets models, data and assertions from the fixture ``zoo``. Where all
estimators share what is tested, the mark ``in_turn`` gives each case to one of them.
"""

import warnings
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMOptimization,
    DGPLVMPriors,
    EpsilonInsensitiveLoss,
    Sampling,
)
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier
from bsdr_models.papers.bsdr import SAMPLING

FEW_DRAWS = {
    "inference": "gibbs",
    "sampling__draws": 8,
    "sampling__tune": 6,
    "sampling__chains": 2,
}
EXACT = {"sampling__chains": 1, "sampling__draws": 16, "temperature": 1.0, "random_state": 0}
BSDR_PAPER = {"optimization__max_iter": 15, "random_state": 0}
FREE = {"loss__C": 1.0, "loss__calibrate": False, "random_state": 0}
BM2PCA_PAPER = {"max_iter": 25, "random_state": 0}

CLASSIFIERS = {
    "bsdr": BSDRClassifier().set_params(**EXACT),
    "bsdr_paper": PaperBSDRClassifier().set_params(**BSDR_PAPER),
    "bsdr_laplace": BSDRClassifier(
        inference="laplace", sampling=Sampling(draws=30), random_state=0
    ),
    "bsdr_gibbs": PaperBSDRClassifier(priors=SAMPLING, random_state=0).set_params(**FEW_DRAWS),
    "bm2pca": BM2PCAClassifier().set_params(**FREE),
    "bm2pca_paper": PaperBM2PCAClassifier(2).set_params(**BM2PCA_PAPER),
    "bm2pca_gibbs": PaperBM2PCAClassifier(2, random_state=0).set_params(**FEW_DRAWS),
    "dgplvm": DGPLVMClassifier(random_state=0),
    "dgplvm_limit": DGPLVMClassifier(priors=DGPLVMPriors(weight=np.inf), random_state=0),
    "dgplvm_paper": PaperDGPLVMClassifier(
        optimization=DGPLVMOptimization(max_iter=25), random_state=0
    ),
}
REGRESSORS = {
    "bsdr_regressor": BSDRRegressor(sampling=Sampling(draws=30), random_state=0),
    "bm2pca_regressor": BM2PCARegressor(
        loss=EpsilonInsensitiveLoss(C=10.0, calibrate=False), max_iter=25, random_state=0
    ),
}
ESTIMATORS = {**CLASSIFIERS, **REGRESSORS}
# One of each class, the quickest.
KINDS = {
    "BM2PCAClassifier": ESTIMATORS["bm2pca"],
    "BM2PCARegressor": ESTIMATORS["bm2pca_regressor"],
    "BSDRClassifier": ESTIMATORS["bsdr"],
    "BSDRRegressor": ESTIMATORS["bsdr_regressor"],
    "PaperBSDRClassifier": ESTIMATORS["bsdr_paper"],
    "PaperBM2PCAClassifier": ESTIMATORS["bm2pca_paper"],
    "DGPLVMClassifier": ESTIMATORS["dgplvm_limit"],
    "PaperDGPLVMClassifier": ESTIMATORS["dgplvm_paper"],
}
# Classes whose `fit` and methods are those of another one, but for the engine, and the checks of
# scikit-learn that depend on it.
SAME_METHODS = {
    *("BSDRRegressor", "PaperBSDRClassifier"),
    *("PaperBM2PCAClassifier", "PaperDGPLVMClassifier"),
}
OF_ENGINES = {
    *("check_classifiers_train", "check_regressors_train", "check_fit_idempotent"),
    *("check_methods_subset_invariance", "check_methods_sample_order_invariance"),
    *("check_dict_unchanged", "check_dont_overwrite_attributes", "check_n_features_in"),
    *("check_estimators_pickle", "check_fit2d_1feature", "check_parameters_default_constructible"),
}
# Labels are read as by another form of the same class.
ALIKE = {
    *("bsdr_laplace", "bm2pca_gibbs"),
}
# Of these the fast tests ask one.
RECOMMENDED = {
    *("bsdr", "bm2pca", "dgplvm"),
    *("BSDRClassifier", "BM2PCAClassifier", "DGPLVMClassifier"),
}
# The estimators of each parameter of the tests.
FORMS = {
    "name": [*ESTIMATORS],
    "classifier": [n for n in CLASSIFIERS if n not in ALIKE],
    "regressor": [*REGRESSORS],
    "kind": [*KINDS],
}

# Expected warnings about bad input and short fits: every warning there is but
# for that of constant features.
EXPLAINED = (
    "no evidence that the targets depend on X",
    "class .* has a single sample",
    "mean field stopped after max_iter",
    "R-hat of the identified quantities",
    "the chains have not mixed",
    "every class has one sample only",
    "too few samples have a target",
    "the search stopped after max_iter",
    "all components are zero",
    "the latent coordinates explain almost nothing of the features",
    ".* ended at a bound",
    "every class has collapsed to a point",
    "Laplace's approximation is not to be trusted",
)
CONSTANT = ".* features are constant in the training samples"


def pytest_generate_tests(metafunc):
    """Estimators, cases that these take in turn, and the checks of scikit-learn.

    Of a check the form of 64-bit samples that cannot be written to; the fast tests ask the first
    estimator.
    """
    given = set()
    for mark in metafunc.definition.iter_markers("in_turn"):
        parameter, cases = mark.args
        given.add(parameter)
        metafunc.parametrize((parameter, "case"), in_turn(FORMS[parameter], cases))
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0]
        given |= set(names.replace(" ", "").split(",")) if isinstance(names, str) else set(names)
    for parameter in sorted((FORMS.keys() & metafunc.fixturenames) - given):
        metafunc.parametrize(parameter, asked(FORMS[parameter], metafunc.function.__name__))
    if "check" not in metafunc.fixturenames:
        return
    checks = {}
    for kind, model in KINDS.items():
        for _, check in estimator_checks_generator(model):
            name, options = check.func.__name__, check.keywords
            if kind in SAME_METHODS and name not in OF_ENGINES:
                continue
            if name == "check_estimator_sparse_matrix":  # that of sparse arrays is asked
                continue
            if "weight_equivalence" in name:  # up to draws and divisions: tests/test_weights.py
                continue
            last = options.get("readonly_memmap") and "X_dtype" not in options
            if kind not in checks.setdefault(name, {}) or last:
                checks[name][kind] = model, check
    cases = []
    for name, own in checks.items():
        for i, (kind, case) in enumerate(own.items()):
            marks = [] if i == 0 else pytest.mark.slow
            cases.append(pytest.param(*case, id=f"{kind}-{name}", marks=marks))
    metafunc.parametrize(("model", "check"), cases)


def asked(forms, test):
    """Estimators of a test: the fast ones ask one recommended classifier and one other.

    Which ones differs from test to test.
    """
    number = crc32(test.encode())
    kinds = ([n for n in forms if (n in RECOMMENDED) == known] for known in (True, False))
    chosen = {names[number % len(names)] for names in kinds if names}
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.slow) for name in forms]


def in_turn(forms, cases):
    """Pairs of which every form and every case has one."""
    forms = list(forms)
    cases = list(cases)
    n_pairs = max(len(forms), len(cases))
    return [(forms[i % len(forms)], cases[i % len(cases)]) for i in range(n_pairs)]


@pytest.fixture(scope="session", autouse=True)
def few_draws():
    """Of fits by mean field, and of the predictions of these, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bsdr_models.papers.bsdr.draws.N_DRAWS", 500)
        patch.setattr("bsdr_models.papers.bm2pca.fitting.count_draws", lambda *_: 60)
        yield


@pytest.fixture
def explained():
    """What the data of a test deserve to be told."""
    with warnings.catch_warnings():
        for message in (*EXPLAINED, CONSTANT):
            warnings.filterwarnings("ignore", message)
        yield


def make(name, **more):
    """A new estimator of the package."""
    return clone({**ESTIMATORS, **KINDS}[name]).set_params(**more)


def takes(name, argument):
    """Whether an estimator has an argument, or an option such as ``sampling__draws``."""
    model = make(name)
    group, _, option = argument.partition("__")
    return group in model.get_params() and (not option or hasattr(model._option(group), option))


def fit(model, X, y, explained=EXPLAINED):
    """Fit, some warnings accepted, the others errors, and NumPy's global state left alone."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    with warnings.catch_warnings():
        for message in explained:
            warnings.filterwarnings("ignore", message)
        model.fit(X, y)
    after = np.random.get_state()[1]  # noqa: NPY002
    np.testing.assert_array_equal(after, before)
    return model


def target(name, y):
    """Labels, or real numbers for a regressor."""
    real = name in REGRESSORS or name.endswith("Regressor")
    return y + 0.3 * np.sin(np.arange(len(y))) if real else y


class Zoo(SimpleNamespace):
    """Named values, in one word where a failed example is printed."""

    def __repr__(self):
        return "zoo"


@pytest.fixture(scope="session")
def zoo(iris, outputs, assert_finite):
    """Samples of iris, 15 of each class, and everything above by name."""
    X, y = iris
    cache = {}

    def fitted(name):
        """Fitted once to samples without bad input; not to be fitted again."""
        if name not in cache:
            cache[name] = fit(make(name), X, target(name, y))
        return cache[name]

    return Zoo(
        X=X,
        y=y,
        make=make,
        takes=takes,
        fit=fit,
        fitted=fitted,
        target=lambda name, labels=y: target(name, labels),
        outputs=outputs,
        assert_finite=assert_finite,
        explained=EXPLAINED,
        estimators=ESTIMATORS,
        kinds=KINDS,
    )


@pytest.fixture
def no_work(monkeypatch):
    """Any computing is an error: what is refused is refused before."""

    def refuse(*args, **kwargs):
        raise AssertionError("work was done before the input was checked")

    for module in ("estimators.base", "data.replicates"):
        monkeypatch.setattr(f"bsdr_models.{module}.one_thread", refuse)
