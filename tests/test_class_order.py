"""Ordered categories keep their order wherever classes are shown; `classes_` is sorted."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from bsdr_models import BM2PCAClassifier, HingeLoss, StackedClassifier, cross_validated_map, plots
from bsdr_models.data.validation import find_classes
from bsdr_models.plots._read import read_target

ORDER = ["none", "mild", "severe"]
X = load_iris().data[::5]
TEXT = np.array(["mild", "severe", "none"])[load_iris().target[::5]]
Y = pd.Series(pd.Categorical(TEXT, categories=[*ORDER, "never"], ordered=True))
MODEL = BM2PCAClassifier(metric="unit", loss=HingeLoss(C=1.0, calibrate=False), random_state=0)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def legend(tree):
    return [text.get_text() for text in plots.plot_map(tree).get_legend().get_texts()][:3]


def of_file(tree, folder):
    """The tree after it was written to a file and read."""
    tree.to_netcdf(folder / "tree.nc")
    with xr.open_datatree(folder / "tree.nc") as found:
        return found.load()


SHOWN = {
    "map of the fit": lambda folder: legend(fitted().idata_),
    "map of new samples": lambda folder: legend(fitted().predict_idata(X, Y)),
    "map of a stack": lambda folder: legend(fitted(StackedClassifier([("a", MODEL)])).idata_),
    "held-out map": lambda folder: legend(cross_validated_map(LogisticRegression(), X, Y, cv=3)),
    "map of a file": lambda folder: legend(of_file(fitted().idata_, folder)),
    "effects": lambda folder: plots.features_table(fitted().idata_)["mean"]["outcome"].values,
    "summary": lambda folder: [
        part.split(" ")[0]
        for part in fitted().summary().loc["classes", "value"].split(": ")[1].split(", ")
    ],
}


def fitted(model=MODEL, y=Y):
    return model.fit(X, y)


@pytest.mark.parametrize("what", SHOWN)
def test_classes_are_shown_in_their_order(what, tmp_path):
    assert [*SHOWN[what](tmp_path)] == ORDER


@pytest.mark.parametrize("y", [Y, Y.to_frame(), Y.array])
def test_samples_have_their_own_classes(y):
    """The order changes no number: each value has the name it has without an order."""
    plain = fitted(y=TEXT).idata_
    model = fitted(y=y)
    assert model.classes_.tolist() == sorted(ORDER)
    tree = model.idata_
    target = read_target(tree, "fit")
    assert target.names == tuple(ORDER)
    assert [target.name(k) for k in target.index] == TEXT.tolist()
    xr.testing.assert_allclose(tree["posterior"].dataset, plain["posterior"].dataset)
    tables = [plots.features_table(own)["mean"] for own in (tree, plain)]
    xr.testing.assert_allclose(tables[0].sel(outcome=sorted(ORDER)), tables[1])
    seen = [plots.map_table(own).drop_vars("observed") for own in (tree, plain)]
    xr.testing.assert_allclose(*seen)


@pytest.mark.parametrize("y", [TEXT, Y.cat.as_unordered(), Y.astype(str)])
def test_other_classes_are_sorted(y):
    assert "class_order" not in fitted(y=y).idata_.attrs


@pytest.mark.parametrize(
    ("y", "expected"), [(["a", "d", "c"], [1, -1, 2]), ([7, 0], [-1, -1]), ([None, "b"], [-1, 0])]
)
def test_labels_are_found_among_classes_in_any_order(y, expected):
    assert find_classes(np.array(y), np.array(["b", "a", "c"])).tolist() == expected
