"""Bad input specific to BSDR; see also tests/contract/test_bad_input.py."""

import numpy as np
import pytest
from scipy import sparse

from bsdr_models import BSDRClassifier, BSDRRegressor, Sampling
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import gibbs

pytestmark = [
    pytest.mark.filterwarnings("ignore:mean field stopped after max_iter=(15|30)"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
    pytest.mark.filterwarnings("ignore:R-hat of the identified quantities"),
]

JOINT_DRAWS = {
    "n_components": 2,
    "inference": "gibbs",
    "sampling__draws": 30,
    "sampling__tune": 30,
    "sampling__chains": 2,
}


def test_constant_label_raises_with_its_index(iris):
    X, y = iris
    on = np.column_stack([y == 0, y == 1, y >= 0]).astype(int)
    with pytest.raises(ValueError, match="label 2 of y is the same in every sample"):
        BSDRClassifier().fit(X, on)


def test_sparse_indicators_are_accepted(iris):
    X, y = iris
    on = np.column_stack([y < 2, y > 0]).astype(int)
    dense = BSDRClassifier(sampling=Sampling(draws=20, chains=2), random_state=0).fit(X, on)
    model = BSDRClassifier(sampling=Sampling(draws=20, chains=2), random_state=0).fit(
        X, sparse.csr_matrix(on)
    )
    np.testing.assert_array_equal(model.predict_proba(X), dense.predict_proba(X))
    assert model.predict(X).shape == on.shape


@pytest.mark.parametrize("shape", [(45,), (45, 1), (45, 2)])
def test_real_targets_keep_their_shape(iris, shape):
    X, y = iris
    Y = np.resize((y + 0.3 * np.sin(np.arange(len(y)))), shape[::-1]).T
    assert Y.shape == shape
    mean, std = (
        BSDRRegressor(sampling=Sampling(draws=20, chains=2), random_state=0)
        .fit(X, Y)
        .predict(X, return_std=True)
    )
    assert mean.shape == std.shape == ((45,) if shape == (45,) else shape)


@pytest.mark.parametrize("n_draws", [1, 12])
def test_interrupted_sampling_returns_its_draws(iris, interrupt, n_draws):
    X, y = iris
    interrupt(gibbs, "step", 31 + n_draws)
    model = PaperBSDRClassifier(random_state=0).set_params(**JOINT_DRAWS).fit(X, y)
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 30 + n_draws
    tree = model.idata_
    assert tree.attrs["interrupted"] == 1
    assert tree["posterior"].sizes["draw"] == n_draws
    mean, cov = model.transform(X, return_cov=True)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(mean).all()
    assert np.linalg.eigvalsh(cov).min() > 0.0
