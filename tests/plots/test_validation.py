"""What scikit-learn's searches and permutation tests return, as tables and pictures."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, permutation_test_score
from sklearn.pipeline import make_pipeline

from bsdr_models.plots import cross_validation_table, plot_cross_validation, plot_permutation

X, Y = load_iris(return_X_y=True)
MODEL = make_pipeline(PCA(), LogisticRegression(max_iter=500))


def search(grid, **options):
    return GridSearchCV(MODEL, grid, cv=4, **options).fit(X, Y)


@pytest.fixture(scope="module")
def plain():
    return search({"pca__n_components": [1, 2, 3]}, scoring="neg_log_loss")


def test_table_holds_means_and_standard_errors_of_the_folds(plain):
    table = cross_validation_table(plain)
    folds = -np.stack([plain.cv_results_[f"split{i}_test_score"] for i in range(4)])
    np.testing.assert_allclose(table["mean"], folds.mean(axis=0))
    np.testing.assert_allclose(table["standard_error"], folds.std(axis=0, ddof=1) / 2.0)
    np.testing.assert_array_equal(table["value"], [1.0, 2.0, 3.0])
    assert table.attrs == {
        "parameter": "n_components", "measure": "log loss", "larger_is_better": 0, "n_folds": 4,
    }  # fmt: skip


def test_a_loss_is_best_where_it_is_lowest(plain):
    ax = plot_cross_validation(plain)
    table = cross_validation_table(plain)
    best = int(table["mean"].values.argmin())
    (ring,) = (c for c in ax.collections if c.get_gid() == "best")
    np.testing.assert_allclose(ring.get_offsets(), [[table["value"][best], table["mean"][best]]])
    (near,) = (line for line in ax.lines if line.get_gid() == "near-best")
    assert near.get_ydata()[0] == pytest.approx(
        float(table["mean"][best] + table["standard_error"][best])
    )
    assert ax.get_ylabel() == "log loss"


def test_other_parameters_become_lines():
    grid = {"pca__n_components": [1, 2], "logisticregression__C": [0.01, 1.0, 100.0]}
    found = search(grid, scoring="accuracy")
    ax = plot_cross_validation(found)
    assert {"C=0.01", "C=1.0", "C=100.0"} <= {text.get_text() for text in ax.texts}
    (ring,) = (c for c in ax.collections if c.get_gid() == "best")
    assert ring.get_offsets()[0, 1] == pytest.approx(found.best_score_)
    assert plot_cross_validation(found, "C").get_xscale() == "log"


def test_several_scores_are_told_apart():
    found = search(
        {"pca__n_components": [1, 2]}, scoring=["accuracy", "neg_log_loss"], refit="accuracy"
    )
    assert cross_validation_table(found).attrs["measure"] == "accuracy"
    loss = cross_validation_table(found, measure="neg_log_loss")
    np.testing.assert_allclose(loss["mean"], -found.cv_results_["mean_test_neg_log_loss"])
    assert cross_validation_table(found.cv_results_, measure="accuracy").sizes["setting"] == 2
    with pytest.raises(ValueError, match=r"measure must be one of \['accuracy', 'neg_log_loss'\]"):
        cross_validation_table(found.cv_results_)


def test_words_have_ticks_by_name():
    found = search({"pca__svd_solver": ["full", "randomized"]})
    ax = plot_cross_validation(found, "svd_solver")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["full", "randomized"]


def test_settings_that_failed_are_left_out(plain):
    results = {name: np.array(values) for name, values in plain.cv_results_.items()}
    for name in results:
        if "_test_score" in name and not name.startswith("rank"):
            results[name][0] = np.nan
    ax = plot_cross_validation(results, measure="neg_log_loss")
    np.testing.assert_array_equal(ax.get_xticks(), [2.0, 3.0])
    for name in results:
        if "_test_score" in name and not name.startswith("rank"):
            results[name][:] = np.nan
    with pytest.raises(ValueError, match="every setting of the search failed"):
        plot_cross_validation(results)


def test_what_is_no_search_or_has_no_such_parameter_is_named(plain):
    with pytest.raises(ValueError, match="not fitted"):
        cross_validation_table(GridSearchCV(MODEL, {"pca__n_components": [1]}))
    with pytest.raises(ValueError, match=r"one of \['pca__n_components'\], got 'C'"):
        plot_cross_validation(plain, "C")


def test_permutations_as_scikit_learn_counts_them():
    """With nothing to see the true labels lie among the permuted ones, and p is theirs."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((60, 3))
    options = {"cv": 3, "n_permutations": 19, "random_state": 0}
    result = permutation_test_score(MODEL, noise, rng.integers(3, size=60), **options)
    ax = plot_permutation(result, measure="accuracy")
    assert sum(bar.get_height() for bar in ax.patches) == 19
    (line,) = (line for line in ax.lines if line.get_gid() == "observed")
    assert line.get_xdata()[0] == result[0]
    as_good = int(np.sum(result[1] >= result[0]))
    assert result[2] == pytest.approx((1 + as_good) / 20)
    assert f"{as_good} of 19 permutations" in ax.texts[-1].get_text().replace("\n", " ")


def test_a_loss_keeps_its_p_value_and_says_how_small_it_can_be():
    ax = plot_permutation((-0.2, -np.array([1.1, 1.2, 1.0]), 0.25), measure="neg_log_loss")
    note = ax.texts[-1].get_text().replace("\n", " ")
    assert "0 of 3 permutations" in note
    assert "smallest possible p is 0.25" in note
    assert ax.get_xlabel() == "held-out log loss"
    assert "p = 0.25" in ax.get_title(loc="left")


@pytest.mark.parametrize("null", [[], [np.nan, 1.0], [[1.0]]])
def test_scores_of_permutations_are_checked(null):
    with pytest.raises(ValueError, match="finite numbers"):
        plot_permutation((1.0, np.array(null), 0.5))
