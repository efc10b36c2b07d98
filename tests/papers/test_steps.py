"""Data of the step functions: what is refused, in one sentence, and what is read."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from bsdr_models import BM2PCAPriors
from bsdr_models.papers import bm2pca, bsdr, dgplvm, maximise
from bsdr_models.papers.dgplvm import map as paper_map

X, Y = load_iris(return_X_y=True)
X, Y = X[::2] - X[::2].mean(axis=0), Y[::2]
SIGNS = np.where(Y[:, None] == np.arange(3), 1.0, -1.0)
ONE_HOT = (SIGNS > 0.0).astype(int)
RNG = np.random.default_rng(0)
WITH_GAP = np.where(X > 3.0, np.nan, X)

of_bsdr = bsdr.mean_field.make_data
of_bm2pca = partial(bm2pca.mean_field.make_data, cost=1.0)
of_dgplvm = partial(paper_map.make_data, n_components=2)
CLASSES = "y must hold the classes 0 to K - 1, each at least once and at least two, such as"
SAMPLES = "X must be an array of numbers: could not convert string to float"
SIGN = "y must hold signs, 1 and -1 at least once for each outcome and 0 where a label is missing"
ROWS = r"y must be given for each of 75 samples, got \(74, 1\)"

# Function and what the error says.
WRONG = {
    "BSDR, classes from 1": (lambda: of_bsdr(X, Y + 1), CLASSES),
    "BSDR, one class": (lambda: of_bsdr(X, 0 * Y), CLASSES),
    "BSDR, fractions": (lambda: of_bsdr(X, Y / 2), CLASSES),
    "BSDR, one-hot classes": (lambda: of_bsdr(X, ONE_HOT), CLASSES),
    "BSDR, text": (lambda: of_bsdr(X, Y.astype(str)), "y must be an array of numbers: they are"),
    "BSDR, n_labels": (lambda: of_bsdr(X, Y, n_labels=2), "n_labels=2, but y has 3 labels"),
    "BSDR, short y": (lambda: of_bsdr(X, Y[1:]), ROWS),
    "BSDR, prior": (
        lambda: of_bsdr(X, Y, projection_prior="column"),
        "'projection_prior' .* among 'columnwise', 'entrywise', 'rowwise'. Got 'column'",
    ),
    "BSDR, target": (
        lambda: of_bsdr(X, Y, target="multi"),
        "'target' .* must be a str among 'multiclass', 'multilabel', 'regression'. Got 'multi'",
    ),
    "BSDR, labels": (
        lambda: of_bsdr(X, SIGNS, target="multilabel"),
        "y must hold 0 and 1 for each label",
    ),
    "BSDR, NaN": (lambda: of_bsdr(WITH_GAP, Y), "X holds NaN or infinity"),
    "BSDR, X of text": (lambda: of_bsdr(pd.DataFrame(X).assign(a="b"), Y), SAMPLES),
    "BSDR, one feature as a vector": (
        lambda: of_bsdr(X[:, 0], Y),
        r"X must have the shape \(N, D\), got \(75,\)",
    ),
    "BSDR, priors of BM2PCA": (
        lambda: bsdr.mean_field.init(of_bsdr(X, Y), BM2PCAPriors(), n_components=2, rng=RNG),
        "'priors' .* must be an instance of 'bsdr_models.papers.bsdr.priors.Priors'. Got BM2PCAP",
    ),
    "BSDR, Gibbs, priors of BM2PCA": (
        lambda: bsdr.gibbs.init(of_bsdr(X, Y), BM2PCAPriors(), n_components=2, n_chains=1, rng=RNG),
        "'priors' .* must be an instance of 'bsdr_models.papers.bsdr.priors.Priors'. Got BM2PCAP",
    ),
    "BM2PCA, classes": (lambda: of_bm2pca(X, Y), SIGN),
    "BM2PCA, one-hot classes": (lambda: of_bm2pca(X, ONE_HOT), SIGN),
    "BM2PCA, a class is missing": (lambda: of_bm2pca(X, np.insert(SIGNS, 3, -1.0, axis=1)), SIGN),
    "BM2PCA, NaN in signs": (
        lambda: of_bm2pca(X, np.where(SIGNS > 0.0, 1.0, np.nan)),
        "y holds NaN or infinity",
    ),
    "BM2PCA, cost": (lambda: of_bm2pca(X, SIGNS, cost=-1.0), "cost must be a float in the range"),
    "BM2PCA, epsilon": (
        lambda: of_bm2pca(X, SIGNS, epsilon=-0.1),
        "epsilon must be a float in the range",
    ),
    "BM2PCA, infinite": (lambda: of_bm2pca(X / 0.0 * 1.0, SIGNS), "X holds infinity"),
    "BM2PCA, priors of BSDR": (
        lambda: bm2pca.mean_field.init(of_bm2pca(X, SIGNS), bsdr.Priors(), n_components=2, rng=RNG),
        "'priors' .* must be an instance of 'bsdr_models.bm2pca.priors.BM2PCAPriors'. Got Priors",
    ),
    "D-GPLVM, classes from -2": (lambda: of_dgplvm(X, Y - 2), CLASSES),
    "D-GPLVM, criterion": (
        lambda: of_dgplvm(X, Y, criterion="ratio"),
        "'criterion' .* must be a str among 'auto', 'inverse_trace', 'total', 'trace_ratio'",
    ),
    "D-GPLVM, weight": (lambda: of_dgplvm(X, Y, weight=0.0), "'weight' .* must be a float in the"),
    "D-GPLVM, width": (lambda: of_dgplvm(X, Y, width=0.0), "'width' .* must be a float in the"),
    "D-GPLVM, components": (
        lambda: of_dgplvm(X, Y, n_components=0),
        "'n_components' .* must be an int in the range",
    ),
    "D-GPLVM, short y": (lambda: of_dgplvm(X, Y[1:]), ROWS),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_are_refused(case):
    call, message = WRONG[case]
    with np.errstate(all="ignore"), pytest.raises((ValueError, TypeError), match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_lists_and_tables_are_read_as_arrays():
    expected = of_bsdr(X, Y)
    assert expected.n_labels == 3
    for table, y in ((X.tolist(), Y.tolist()), (pd.DataFrame(X), pd.Series(Y))):
        data = of_bsdr(table, y)
        np.testing.assert_array_equal(data.design.X, X)
        np.testing.assert_array_equal(data.y, Y)
        np.testing.assert_array_equal(of_bm2pca(table, SIGNS.tolist()).margins.y, SIGNS)
        np.testing.assert_array_equal(of_dgplvm(table, y).mapping.samples, X)


def test_missing_values_and_labels_of_bm2pca_are_read():
    signs = np.where(np.arange(75)[:, None] < 60, SIGNS, 0.0)
    data = of_bm2pca(WITH_GAP, signs)
    assert data.views[0].mask.sum() == (X <= 3.0).sum()
    assert data.margins.observed.sum() == 180
    one = of_bm2pca(X, SIGNS[:, 0])
    np.testing.assert_array_equal(one.margins.y, SIGNS[:, :1])


def test_draws_of_views_are_those_of_their_effects():
    data = of_bm2pca(X, SIGNS, columns=(np.array([0, 2]), np.array([1, 3])))
    state = bm2pca.mean_field.init(data, BM2PCAPriors(), n_components=2, rng=RNG)
    assert set(bm2pca.mean_field.draw(state, data, rng=RNG)) == {"coef", "intercept"}


def test_steps_of_dgplvm_never_raise_the_objective():
    data = of_dgplvm(X[::2], Y[::2], weight=10.0)
    found = maximise(
        partial(paper_map.init, data),
        partial(paper_map.step, data=data),
        max_iter=6,
        rng=np.random.default_rng(0),
    )
    assert np.all(np.diff(found.trace) > 0.0)
    np.testing.assert_allclose(found.trace[-1], -data(found.posterior)[0])
    assert data.latent(found.posterior).shape == (38, 2)
    assert dgplvm.map is paper_map
