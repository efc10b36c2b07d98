"""What a loaded model does is what the saved one did, to the bit."""

import subprocess
import sys
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest
import xarray as xr

import bsdr_models
from bsdr_models.persistence import codec
from bsdr_models.persistence.classes import DATACLASSES, PLAIN, locate

METHODS = {
    "predict": {},
    "predict_proba": {},
    "predict_log_proba": {},
    "decision_function": {},
    "transform": {"return_cov": True},
    "impute": {},
    "out_of_range": {},
}


def answers(model, X):
    """What every method has to say of the rows."""
    given = {}
    for name, keywords in METHODS.items():
        if name == "impute" and (not isinstance(X, np.ndarray) or X.ndim != 2):
            continue
        if hasattr(model, name):
            try:
                given[name] = getattr(model, name)(X, **keywords)
            except AttributeError as error:
                given[name] = str(error)
    if "Regressor" in type(model).__name__:
        given["std"] = model.predict(X, return_std=True)
    if hasattr(model, "inverse_transform"):
        given["inverse"] = model.inverse_transform(model.transform(X))
    return given


def assert_same(got, want):
    assert type(got) is type(want)
    if isinstance(want, tuple):
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    else:
        assert got == want


def graph(model):
    """All that a model holds, as text and numbers; with classes, sharing and order of memory."""
    encoder = codec.Encoder()
    parameters = model.get_params(deep=False)
    state = {key: value for key, value in vars(model).items() if key not in parameters}
    text = encoder.value([parameters, state], "")
    return [text, encoder.arrays, encoder.objects], encoder.columns


def without_date(tree):
    tree = tree.copy()
    tree.attrs.pop("created_at")
    return tree


@pytest.mark.filterwarnings("ignore:Laplace.s approximation is not to be trusted")
def test_a_loaded_model_is_the_one_that_was_saved(variant, zoo, tmp_path):
    model, X = zoo.fitted(*(zoo.variants | zoo.compiled)[variant])
    want, path = answers(model, X), tmp_path / "model.nc"
    model.save(path)
    back = bsdr_models.load(path)
    assert type(back) is type(model)
    (text, numbers), (text_back, numbers_back) = graph(model), graph(back)
    assert text_back == text
    assert_same(tuple(numbers_back), tuple(numbers))
    for name in numbers:
        assert_same(numbers_back[name], numbers[name])
    got = answers(back, X)
    assert got.keys() == want.keys()
    for name in want:
        assert_same(got[name], want[name])
    if hasattr(type(model), "idata_"):
        assert back.idata_.identical(model.idata_)
        new, old = back.predict_idata(X), model.predict_idata(X)
        assert without_date(new).identical(without_date(old))


def test_a_model_that_was_loaded_can_be_saved_and_fitted_again(zoo, tmp_path):
    model, X = zoo.fitted(*zoo.variants["bsdr, names"])
    model.set_output(transform="pandas").save(tmp_path / "first.nc")
    first = bsdr_models.load(tmp_path / "first.nc")
    first.save(tmp_path / "second.nc")
    second = bsdr_models.load(tmp_path / "second.nc")
    assert second.transform(X).equals(model.transform(X))
    assert second.idata_.identical(model.idata_)
    assert list(second.get_feature_names_out()) == list(model.get_feature_names_out())
    y, _ = zoo.targets("text", len(X))
    for one in (model, second):
        one.set_params(max_iter=500)
    assert_same(second.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))


@pytest.mark.parametrize("name", ["bsdr", "bsdr, names", "bm2pca, frame", "dgplvm", "bsdr, gibbs"])
def test_the_file_is_a_tree_that_other_programs_read(name, zoo, tmp_path):
    model, _ = zoo.fitted(*zoo.variants[name])
    path = tmp_path / "model.nc"
    model.save(path)
    with xr.open_datatree(path) as tree:
        assert set(tree.children) == {*model.idata_.children, "estimator"}
        for group in model.idata_.children:
            got, want = tree[group].to_dataset(), model.idata_[group].to_dataset()
            for key in want.variables:
                assert_same(got[key].values.astype(want[key].dtype), want[key].values)
        assert tree.attrs["model"] == model.idata_.attrs["model"]
        assert b"bsdr_models" in tree["estimator"]["manifest"].item()


def test_what_was_added_to_the_tree_is_kept(zoo, tmp_path):
    model, _ = zoo.fitted(*zoo.variants["bsdr, columnwise"])
    notes = xr.Dataset(
        {
            "remark": ("row", np.array(["good", None, 3.5], dtype=object)),
            "seen": ("row", np.array(["2020-01-01", "2021-02-03", "NaT"], "M8[D]").astype("M8[s]")),
            "kept": ("row", np.array([True, False, True])),
            "none": ("nothing", np.zeros(0)),
            "level": ((), 1.5),
        },
        attrs={"by": "me"},
    )
    model.idata_["notes"] = xr.DataTree(notes)
    model.save(tmp_path / "model.nc")
    back = bsdr_models.load(tmp_path / "model.nc").idata_
    assert back.identical(model.idata_)
    assert back["notes"]["remark"].values.tolist() == ["good", None, 3.5]
    for name in notes:
        assert back["notes"][name].dtype == notes[name].dtype


def test_a_group_of_the_name_that_the_file_needs(zoo, tmp_path):
    model, _ = zoo.fitted(*zoo.variants["bsdr, columnwise"])
    model.idata_["estimator"] = xr.DataTree(xr.Dataset({"a": 1.0}))
    with pytest.raises(ValueError, match="idata_ has a group 'estimator'"):
        model.save(tmp_path / "model.nc")
    assert list(tmp_path.iterdir()) == []


FRESH = """
import sys
import numpy as np
import bsdr_models

for path in sys.argv[2:]:
    model = bsdr_models.load(path)
    X = np.load(sys.argv[1])
    answers = [model.predict(X)]
    answers += [model.predict_proba(X)] if hasattr(model, "predict_proba") else []
    if hasattr(model, "transform"):
        answers += [*model.transform(X, return_cov=True), model.idata_["posterior"]["weights"]
                    if "weights" in model.idata_["posterior"] else 0]
    np.savez(path + ".npz", *answers)
heavy = {"pymc", "pytensor", "matplotlib", "arviz", "arviz_base"}
print(*sorted(heavy & set(sys.modules)))
"""


def test_another_process_gives_the_same_bits_and_compiles_nothing(zoo, tmp_path):
    names = ("bsdr", "bsdr, columnwise", "bsdr, gibbs", "bsdr, real", "mnp", "bm2pca, paper")
    names += ("bm2pca, one against rest", "bm2pca, real", "dgplvm", "dgplvm, by likelihood")
    models, paths = [], [str(tmp_path / f"{i}.nc") for i in range(len(names))]
    for name, path in zip(names, paths, strict=True):
        model, X = zoo.fitted(*zoo.variants[name])
        model.save(path)
        models.append(model)
    np.save(tmp_path / "X.npy", X)
    code = [sys.executable, "-c", FRESH, str(tmp_path / "X.npy"), *paths]
    done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == []
    for model, path in zip(models, paths, strict=True):
        want = [model.predict(X)]
        want += [model.predict_proba(X)] if hasattr(model, "predict_proba") else []
        if hasattr(model, "transform"):
            want += [*model.transform(X, return_cov=True)]
        with np.load(f"{path}.npz") as got:
            for i, array in enumerate(want):
                np.testing.assert_array_equal(got[f"arr_{i}"], array)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bsdr", "bsdr, columnwise", "bm2pca, paper", "dgplvm"])
def test_the_declared_model_of_a_loaded_one(name, zoo, tmp_path):
    model, _ = zoo.fitted(*zoo.variants[name])
    model.save(tmp_path / "model.nc")
    back = bsdr_models.load(tmp_path / "model.nc")
    want, got = model.model_, back.model_
    assert got.named_vars.keys() == want.named_vars.keys()
    point = want.initial_point(random_seed=0)
    assert_same(
        got.compile_logp(mode="FAST_COMPILE")(point).item(),
        want.compile_logp(mode="FAST_COMPILE")(point).item(),
    )


@pytest.mark.slow
def test_every_class_of_the_list_is_part_of_some_model(zoo):
    """Else the list would allow more than it must."""
    seen = set()
    drawn = zoo.compiled["dgplvm, nuts"]
    for estimator, rows, target in (*zoo.variants.values(), drawn):
        (_, _, objects), _ = graph(zoo.fitted(estimator, rows, target)[0])
        seen |= {entry["class"] for entry in objects}
    assert {*DATACLASSES, *PLAIN} <= seen


def test_the_list_has_every_class_that_one_of_its_classes_may_hold():
    known = {locate(name) for name in (*DATACLASSES, *PLAIN)}
    for name in DATACLASSES:
        for hint in get_type_hints(locate(name)).values():
            held = {kind for kind in parts(hint) if kind.__module__.startswith("bsdr_models.")}
            assert all(kind in known or getattr(kind, "_is_protocol", False) for kind in held), (
                name,
                held - known,
            )


def parts(hint):
    """Classes that an annotation names."""
    if hasattr(hint, "__value__"):  # of an alias
        hint = hint.__value__
    if get_origin(hint) is not None:
        yield from (part for piece in (get_origin(hint), *get_args(hint)) for part in parts(piece))
    elif isinstance(hint, UnionType):
        yield from (part for piece in get_args(hint) for part in parts(piece))
    elif isinstance(hint, type):
        yield hint
