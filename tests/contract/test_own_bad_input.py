"""Bad input that one model alone has to refuse or to compute with, and interrupts of its fit."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bsdr_models import BM2PCARegressor, BSDRClassifier, BSDRRegressor, DGPLVMClassifier, Sampling
from bsdr_models.dgplvm.problem import Objective
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bsdr import gibbs
from tests.toys import with_value

pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
    pytest.mark.filterwarnings("ignore:R-hat of the identified quantities"),
]


# ------------------------------------------------------------------------------------------ BSDR


def test_constant_label_raises_with_its_index(zoo):
    on = np.column_stack([zoo.y == 0, zoo.y == 1, zoo.y >= 0]).astype(int)
    with pytest.raises(ValueError, match="label 2 of y is the same in every sample"):
        BSDRClassifier().fit(zoo.X, on)


def test_sparse_indicators_are_accepted(zoo):
    on = np.column_stack([zoo.y < 2, zoo.y > 0]).astype(int)
    dense, model = (zoo.make("bsdr").fit(zoo.X, given) for given in (on, sparse.csr_matrix(on)))
    np.testing.assert_array_equal(model.predict_proba(zoo.X), dense.predict_proba(zoo.X))
    assert model.predict(zoo.X).shape == on.shape


@pytest.mark.parametrize("shape", [(45,), (45, 1), (45, 2)])
def test_real_targets_keep_their_shape(zoo, shape):
    Y = np.resize(zoo.target("bsdr_regressor"), shape[::-1]).T
    model = BSDRRegressor(sampling=Sampling(draws=20, chains=2), random_state=0).fit(zoo.X, Y)
    mean, std = model.predict(zoo.X, return_std=True)
    assert mean.shape == std.shape == shape


# ---------------------------------------------------------------------------------------- BM2PCA

SPARSE_REFUSED = {
    "nan": (lambda X: sparse.csr_matrix(with_value(X, np.nan)), "Input X contains NaN"),
    "inf": (lambda X: sparse.csr_matrix(with_value(X, np.inf)), "Input X contains infinity"),
    "huge": (lambda X: sparse.csr_array(1e200 * X), "values too large"),
    "tiny": (lambda X: sparse.csr_array(1e-160 * X), "no value is larger"),
    "vanishing": (lambda X: sparse.csr_array(1e-200 * X), "no value is larger"),
    "equal": (lambda X: sparse.csr_matrix(np.tile(X[:1], (len(X), 1))), "X has no variation"),
}
with_gaps = pytest.mark.parametrize("form", ["bm2pca", "bm2pca_regressor"])


@pytest.mark.parametrize("case", SPARSE_REFUSED)
def test_invalid_sparse_features_raise(zoo, case):
    change, match = SPARSE_REFUSED[case]
    model = zoo.make("bm2pca")
    with pytest.raises(ValueError, match=match):
        model.fit(change(zoo.X), zoo.y)
    with pytest.raises(NotFittedError):
        model.predict(zoo.X)


@pytest.mark.parametrize("form", ["bm2pca_paper", "bm2pca_gibbs", "bm2pca_regressor"])
def test_the_other_models_refuse_sparse_samples(zoo, form):
    with pytest.raises(TypeError, match="BM2PCAClassifier"):
        zoo.make(form).fit(sparse.csr_array(zoo.X), zoo.target(form))


@with_gaps
def test_a_sample_without_observed_values_raises(zoo, form):
    X = zoo.X.copy()
    X[7] = np.nan
    with pytest.raises(ValueError, match="sample 7 of X has no observed value"):
        zoo.make(form).fit(X, zoo.target(form))


def test_an_output_without_any_target_raises(zoo):
    with pytest.raises(ValueError, match="output 1 of y has no target at all"):
        BM2PCARegressor().fit(zoo.X, np.column_stack([zoo.y, np.full(45, np.nan)]))


@with_gaps
@pytest.mark.filterwarnings("ignore:class .* has a single sample")
@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_too_few_samples_for_cross_validation(zoo, form):
    model = zoo.make(form, loss__calibrate=True)
    with pytest.warns(UserWarning, match="not calibrated"):
        model.fit(zoo.X[[0, 20, 40]], zoo.y[[0, 20, 40]])
    zoo.assert_finite(model, zoo.X)
    if form == "bm2pca":
        assert model.temperature_ == 1.0
    else:
        np.testing.assert_array_equal([model.slope_, model.std_factor_], 1.0)


@with_gaps
def test_predictions_of_incomplete_samples_do_not_depend_on_the_batch(zoo, form):
    X, model = zoo.X.copy(), zoo.fitted(form)
    X[::4, 1], X[17, 2:] = np.nan, np.nan
    together = zoo.outputs(model, X)
    for n in (0, 16, 17, 44):
        for key, values in zoo.outputs(model, X[n : n + 1]).items():
            if key != "predict":
                np.testing.assert_allclose(values[0], together[key][n], rtol=1e-8, atol=1e-10)


# --------------------------------------------------------------------------------------- D-GPLVM

each_process = pytest.mark.parametrize("form", ["dgplvm", "dgplvm_paper"])


def assert_finite(zoo, model):
    """All predictions, and the tree; NaN are the probabilities of a class without other samples."""
    zoo.assert_finite(model, zoo.X)
    for path, group in model.idata_.subtree_with_keys:
        for name, values in group.data_vars.items():
            if values.dtype.kind == "f" and path != "observed_data" and name != "probability":
                assert np.isfinite(values).all(), (path, name)


def test_unlabelled_marker_that_leaves_too_few_labels_raises(zoo):
    model = zoo.make("dgplvm", unlabeled=-1)
    with pytest.raises(ValueError, match="every y equals unlabeled=-1: no row has a label"):
        model.fit(zoo.X, np.full(45, -1))
    with pytest.raises(ValueError, match="one class only, 0"):
        model.fit(zoo.X, np.where(zoo.y == 0, 0, -1))
    with pytest.raises(ValueError, match="unlabeled must be a single value"):
        zoo.make("dgplvm", unlabeled=[0, 1]).fit(zoo.X, zoo.y)


@pytest.mark.parametrize(
    ("model", "arguments", "match"),
    [
        (PaperDGPLVMClassifier, {"weight": np.inf}, "The 'weight' parameter"),
        (
            PaperDGPLVMClassifier,
            {"n_components": 3, "criterion": "trace_ratio"},
            "_components <= 2",
        ),
        (DGPLVMClassifier, {"n_components": 3, "priors__criterion": "trace_ratio"}, "needs n_comp"),
        (DGPLVMClassifier, {"n_components": 3, "priors__criterion": "inverse_trace"}, "needs n_co"),
    ],
)
def test_incompatible_arguments_raise(zoo, model, arguments, match):
    with pytest.raises(ValueError, match=match):
        model().set_params(**arguments).fit(zoo.X, zoo.y)


@pytest.mark.parametrize(
    ("form", "n_components"),
    [("dgplvm", 1), ("dgplvm", 6), ("dgplvm_limit", 6), ("dgplvm_paper", 1)],
)
def test_other_numbers_of_components(zoo, form, n_components):
    model = zoo.make(form, n_components=n_components, optimization__max_iter=15)
    zoo.fit(model, zoo.X, zoo.y)
    assert model.transform(zoo.X).shape == (45, n_components)
    assert_finite(zoo, model)


def test_classes_of_one_sample_each_give_no_collapse_warning(zoo):
    with pytest.warns(UserWarning, match="has a single sample") as caught:
        zoo.make("dgplvm").fit(zoo.X[[0, 20, 40]], [0, 1, 2])
    assert not any("collapsed" in str(each.message) for each in caught)


@each_process
def test_a_point_for_each_class(zoo, form):
    X, y = np.repeat(zoo.X[[0, 20, 40]], 5, axis=0), zoo.y[::3]
    assert_finite(zoo, zoo.fit(zoo.make(form), X, y))


@pytest.mark.parametrize(
    ("form", "marker"),
    [("dgplvm", -1), ("dgplvm", None), ("dgplvm", "?"), ("dgplvm_paper", "?")],
)
def test_unlabelled_samples(zoo, form, marker):
    """Half of the labels are enough here; None and NA are as NaN."""
    given = zoo.y.astype(object) if marker in (None, "?") else zoo.y.astype(float)
    given[::2] = marker
    model = zoo.make(form, unlabeled=np.nan if marker is None else marker)
    zoo.fit(model, zoo.X, given)
    assert model.classes_.tolist() == [0, 1, 2]
    assert_finite(zoo, model)
    assert model.score(zoo.X, zoo.y.astype(model.classes_.dtype)) > 0.85


@each_process
def test_one_label_for_each_class(zoo, form):
    given = np.full(45, -1)
    given[[2, 17, 33]] = zoo.y[[2, 17, 33]]
    for labels in (given, np.where(given == 2, -1, given)):
        assert_finite(zoo, zoo.fit(zoo.make(form, unlabeled=-1), zoo.X, labels))


# ------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize(
    ("form", "owner", "method", "call"),
    [
        ("bsdr_gibbs", gibbs, "step", 8),  # after 6 sweeps of the warm-up
        ("bsdr_gibbs", gibbs, "step", 12),
        ("bm2pca_paper", mean_field, "step", 4),
        ("bm2pca_regressor", mean_field, "step", 4),
        ("dgplvm", Objective, "__call__", 2),
        ("dgplvm", Objective, "__call__", 5),
        ("dgplvm_paper", Objective, "__call__", 2),
        ("dgplvm_paper", Objective, "__call__", 5),
    ],
)
def test_an_interrupt_keeps_what_was_reached(zoo, interrupt, form, owner, method, call):
    restarts = {"optimization__n_restarts": 3} if owner is Objective else {}
    interrupt(owner, method, call)
    model = zoo.make(form, **restarts).fit(zoo.X, zoo.target(form))
    assert model.interrupted_
    assert not model.converged_
    assert model.idata_.attrs["interrupted"] == 1
    if method == "step":
        assert model.n_iter_ == call - 1
    if form == "bsdr_gibbs":
        assert model.idata_["posterior"].sizes["draw"] == call - 7
    assert_finite(zoo, model)
