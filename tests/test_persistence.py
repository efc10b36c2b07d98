"""Loaded models equal saved ones bitwise; files are written atomically."""

import errno
import json
import os
import pickle
import random
import socket
import stat
import sys
import warnings
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from importlib import import_module
from io import BytesIO, FileIO
from pathlib import Path
from pkgutil import walk_packages
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd
import pytest
import skops.io
import xarray as xr
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bsdr_models
from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    Sampling,
    StackedClassifier,
    load,
    persistence,
)
from bsdr_models.bm2pca import posterior as bm2pca_posterior
from bsdr_models.bm2pca import subspace
from bsdr_models.bsdr import Kernel
from bsdr_models.dgplvm import gp_classifier
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier
from tests.toys import FAST, run_fresh

pytestmark = pytest.mark.usefixtures("short_runs")

DRAWS = {"sampling__draws": 12, "sampling__chains": 2, "random_state": 0}
GIBBS = {"inference": "gibbs", "sampling__tune": 12} | DRAWS
LAPLACE = {"inference": "laplace", "sampling__draws": 30, "random_state": 0}
MEAN_FIELD = {"priors__latent_scale": 0.3, "optimization__max_iter": 30, "random_state": 0}
COLUMNWISE = MEAN_FIELD | {"priors__projection_prior": "columnwise"}
MARGINS = {"loss__C": 1.0, "loss__calibrate": False, "random_state": 0}
MAP = {"mapping__width": 2.0, "mapping__noise": 0.1, "optimization__max_iter": 40}
MAP |= {"random_state": 0}
SHORT = {"optimization__max_iter": 15}
PAPER_LAPLACE = SHORT | {"approximation": "laplace"}

# Name: estimator, its arguments, samples (see `features`), targets (see `targets`).
VARIANTS = {
    "bsdr": (BSDRClassifier(), DRAWS, "dense", "class"),
    "bsdr, one component": (BSDRClassifier(1, temperature=0.5), DRAWS, "frame", "text"),
    "bsdr, label sets": (BSDRClassifier(), DRAWS, "wide", "labels"),
    "bsdr, outputs": (BSDRRegressor(), DRAWS, "dense", "reals"),
    "bsdr, kernels of views": (
        BSDRClassifier(
            kernel=Kernel("polynomial"), views={"one": ["α", "b"], "other": ["c c", "d"]}
        ),
        DRAWS,
        "frame",
        "text",
    ),
    "bsdr, laplace": (BSDRClassifier(), LAPLACE, "dense", "class"),
    "bsdr, paper": (PaperBSDRClassifier(), MEAN_FIELD, "frame", "text"),
    "bsdr, paper, wide": (PaperBSDRClassifier(), COLUMNWISE, "wide", "class"),
    "bsdr, paper, gibbs": (PaperBSDRClassifier(), GIBBS, "dense", "class"),
    "bm2pca": (BM2PCAClassifier(2), {"random_state": 0}, "frame", "text"),
    "bm2pca, truncated": (BM2PCAClassifier(2), MARGINS, "many sparse", "class"),
    "bm2pca, gaps": (BM2PCAClassifier(2), MARGINS, "gaps", "labels"),
    "bm2pca, unlabeled": (BM2PCAClassifier(2, unlabeled="?"), MARGINS, "sparse", "partly text"),
    "bm2pca, paper": (PaperBM2PCAClassifier(2, unlabeled=-1), {"C": 2.0}, "dense", "partly"),
    "bm2pca, gibbs": (PaperBM2PCAClassifier(2), GIBBS, "dense", "class"),
    "bm2pca, reals": (BM2PCARegressor(2), {"random_state": 0}, "gaps", "reals"),
    "dgplvm": (DGPLVMClassifier(), MAP, "frame", "text"),
    "dgplvm, unlabelled": (DGPLVMClassifier(), MAP, "dense", "partly"),
    "dgplvm, inducing": (DGPLVMClassifier(), MAP, "many", "class"),
    "dgplvm, paper": (PaperDGPLVMClassifier(), SHORT, "dense", "class"),
    "dgplvm, paper, Laplace": (PaperDGPLVMClassifier(), PAPER_LAPLACE, "dense", "class"),
}
# What the fast tests ask: one of each class, and of each kind of samples and targets.
QUICK = {
    *("bsdr, outputs", "bsdr, kernels of views"),
    *("bsdr, paper, wide", "bm2pca, gaps", "bm2pca, unlabeled", "bm2pca, paper", "bm2pca, reals"),
    *("dgplvm", "dgplvm, paper"),
}


def features(kind):
    """Samples of a fit, 30 of iris; with 5 more features than samples where that is asked."""
    X, _ = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X[::5].copy()
    noise = rng.standard_normal((len(X), 31))
    match kind:
        case "wide":
            return np.hstack([X, noise])
        case "sparse" | "many sparse":
            return csr_array(np.hstack([X, noise]) * (rng.random((30, 35)) < 0.6))
        case "gaps":
            X[::4, 1] = np.nan
        case "frame":
            return pd.DataFrame(X, columns=["α", "b", "c c", "d"])
    return X


def targets(kind, n_samples):
    """Targets of a fit to `features`."""
    X, y = load_iris(return_X_y=True)
    y = y[:: len(y) // n_samples]
    rng = np.random.default_rng(1)
    match kind:
        case "text":
            y = np.array(["setosa", "versicolor", "virginica"])[y]
        case "labels":
            y = np.column_stack([y == 0, (y > 0) ^ (rng.random(n_samples) < 0.1)]).astype(int)
        case "partly":
            y = np.where(np.arange(n_samples) % 3 == 0, -1, y)
        case "partly text":
            y = np.where(np.arange(n_samples) % 3 == 0, "?", np.array(["a", "b", "c"])[y])
        case "reals":
            y = X[::5, 2:] + rng.standard_normal((n_samples, 2))
    return y


def fitted(estimator, arguments, rows, target):
    """A model, and the samples of its fit."""
    X = features(rows)
    y = targets(target, X.shape[0])
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # short fits do not converge
        if rows == "many":  # for a classifier of all of them
            patch.setattr(gp_classifier, "INDUCING_SAMPLES", 8)
        if rows == "many sparse":
            patch.setattr(bm2pca_posterior, "MAX_DENSE", 5)
            patch.setattr(subspace, "MAX_AXES", 5)
        return clone(estimator).set_params(**arguments).fit(X, y), X


METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")


def answers(model, X):
    """Results of every method for the samples."""
    given = {}
    for name in (*METHODS, "out_of_range", *(["impute"] if isinstance(X, np.ndarray) else [])):
        if hasattr(model, name):
            options = {"return_cov": True} if name == "transform" else {}
            try:
                given[name] = getattr(model, name)(X, **options)
            except AttributeError as error:
                given[name] = str(error)
    if "Regressor" in type(model).__name__:
        given["std"] = model.predict(X, return_std=True)
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


def without_date(tree):
    tree = tree.copy()
    tree.attrs.pop("created_at")
    return tree


def reloaded(model, folder):
    """What is loaded from the file of a model."""
    model.save(folder / "reloaded.skops")
    return bsdr_models.load(folder / "reloaded.skops")


@pytest.fixture(scope="module")
def small():
    """A small model, and the samples of its fit."""
    return fitted(BM2PCAClassifier(1), MARGINS, "dense", "class")


@pytest.fixture(scope="module")
def contents(small, tmp_path_factory):
    """Bytes of its file."""
    path = tmp_path_factory.mktemp("saved") / "model.skops"
    small[0].save(path)
    return path.read_bytes()


@pytest.fixture
def saved(contents, tmp_path):
    """A file of these."""
    path = tmp_path / "model.skops"
    path.write_bytes(contents)
    return path


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize(
    "variant",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS],
)
@pytest.mark.filterwarnings("ignore:Laplace.s approximation is not to be trusted")
def test_a_loaded_model_is_the_one_that_was_saved(variant, tmp_path):
    model, X = fitted(*VARIANTS[variant])
    want, back = answers(model, X), reloaded(model, tmp_path)
    assert type(back) is type(model)
    assert vars(back).keys() == vars(model).keys()
    assert repr(back.get_params()) == repr(model.get_params()) == repr(clone(back).get_params())
    got = answers(back, X)
    assert got.keys() == want.keys()
    for name in want:
        assert_same(got[name], want[name])
    assert back.summary().equals(model.summary())
    assert without_date(back.idata_).identical(without_date(model.idata_))
    new, old = back.predict_idata(X), model.predict_idata(X)
    assert without_date(new).identical(without_date(old))


@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_a_model_that_was_loaded_can_be_saved_and_fitted_again(tmp_path):
    model, X = fitted(*VARIANTS["bsdr, paper"])
    second = reloaded(reloaded(model.set_output(transform="pandas"), tmp_path), tmp_path)
    assert second.transform(X).equals(model.transform(X))
    assert list(second.get_feature_names_out()) == list(model.get_feature_names_out())
    y = targets("text", len(X))
    assert_same(second.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_the_random_state_continues(kind, small, tmp_path):
    model, X = small
    y = model.predict(X)
    model = clone(model).set_params(random_state=kind(5)).fit(X, y)
    back = reloaded(model, tmp_path)
    assert type(back.random_state) is type(model.random_state)
    assert_same(back.random_state.normal(size=5), model.random_state.normal(size=5))


def test_what_was_added_to_the_tree_is_kept(small, tmp_path):
    model = copy(small[0])
    model._tree = model.idata_.copy()
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
    back = reloaded(model, tmp_path).idata_
    assert back.identical(model.idata_)
    assert back["notes"]["remark"].values.tolist() == ["good", None, 3.5]


@pytest.mark.slow
def test_files_of_many_features_are_small(tmp_path):
    """Draws of loadings and coefficients are made again."""
    rng, y = np.random.default_rng(0), np.arange(90) % 4
    X = rng.standard_normal((90, 6000)) + np.eye(4)[y] @ rng.standard_normal((4, 6000))
    model = BSDRClassifier(random_state=0, sampling=Sampling(draws=500)).fit(X, y)
    back = reloaded(model, tmp_path)
    assert (tmp_path / "reloaded.skops").stat().st_size < 30e6
    sizes = model.idata_["posterior"].sizes
    assert 80 <= sizes["chain"] * sizes["draw"] <= 120
    assert without_date(back.idata_).identical(without_date(model.idata_))
    model.save(tmp_path / "again.skops")  # with a tree
    assert (tmp_path / "again.skops").stat().st_size < 30e6


FRESH = """
import sys
import numpy as np
import bsdr_models
from bsdr_models.papers import PaperBSDRClassifier

for path in sys.argv[2:]:
    model = bsdr_models.load(path)
    X = np.load(sys.argv[1])
    answers = [model.predict(X), model.predict_proba(X), *model.transform(X, return_cov=True)]
    np.savez(path + ".npz", *answers)
heavy = {"pymc", "pytensor", "matplotlib", "arviz", "arviz_base"}
print(*sorted(heavy & set(sys.modules)))
"""


@pytest.mark.slow
def test_another_process_gives_the_same_bits_and_compiles_nothing(tmp_path):
    names = ("bsdr", "bm2pca, paper", "dgplvm, paper")
    models, paths = [], [str(tmp_path / f"{i}.skops") for i in range(len(names))]
    for name, path in zip(names, paths, strict=True):
        model, X = fitted(*VARIANTS[name])
        model.save(path)
        models.append(model)
    np.save(tmp_path / "X.npy", X)
    assert run_fresh(FRESH, str(tmp_path / "X.npy"), *paths).split() == []
    for model, path in zip(models, paths, strict=True):
        want = [model.predict(X), model.predict_proba(X), *model.transform(X, return_cov=True)]
        with np.load(f"{path}.npz") as got:
            for i, array in enumerate(want):
                np.testing.assert_array_equal(got[f"arr_{i}"], array)


def test_the_declared_model_of_a_loaded_one(small, tmp_path):
    want, got = small[0].model_, reloaded(small[0], tmp_path).model_
    assert got.named_vars.keys() == want.named_vars.keys()
    point = want.initial_point(random_seed=0)
    first, second = (m.compile_logp(**FAST)(point).item() for m in (want, got))
    assert_same(second, first)


# ---------------------------------------------------------------- what is not saved


@pytest.mark.parametrize("estimator", [BSDRClassifier(), PaperBSDRClassifier()])
def test_before_a_fit_there_is_nothing_to_save(estimator, tmp_path):
    with pytest.raises(NotFittedError):
        estimator.save(tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


class Mine(PaperBSDRClassifier):
    pass


def test_a_class_of_ones_own_is_refused(small, tmp_path):
    model, X = small
    with pytest.raises(TypeError, match=r"Mine cannot be saved, only estimators of bsdr_models"):
        Mine().fit(X, model.predict(X)).save(tmp_path / "model.skops")
    for other in (np.arange(3), LogisticRegression()):
        with pytest.raises(TypeError, match="cannot be saved"):
            persistence.save(other, tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argument", [len, lambda x: x, Mine, RBF(), open(os.devnull)])  # noqa: SIM115
def test_an_argument_that_no_file_holds(argument, small, tmp_path):
    model = copy(small[0])
    with pytest.raises(TypeError, match="an argument or attribute cannot be saved: "):
        model.set_params(n_components=argument).save(tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- writing


def test_a_path_may_be_text_and_need_not_end_in_skops(small, tmp_path):
    model, X = small
    path = f"{tmp_path}/my model"
    model.save(path)
    model.save(path)
    assert os.listdir(tmp_path) == ["my model"]
    np.testing.assert_array_equal(bsdr_models.load(path).predict(X), model.predict(X))


def test_a_link_is_followed_and_permissions_stay(small, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch(mode=0o600)
    link.symlink_to(target)
    small[0].save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert bsdr_models.load(target).n_features_in_ == 4


def test_places_where_no_file_can_be(small, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cannot save here.*none/model'"):
        small[0].save(tmp_path / "none" / "model")
    with pytest.raises(OSError, match=r"File name too long: .*longlong"):
        small[0].save(tmp_path / ("long" * 100))
    with pytest.raises(OSError, match="is a device or pipe, not a file"):
        small[0].save(os.devnull)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_special_files_are_neither_opened_nor_replaced(kind, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    if kind == "pipe":
        os.mkfifo("special")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("special")
    before = os.lstat("special")
    for function in (small[0].save, bsdr_models.load):
        with pytest.raises(OSError, match=r"device or pipe.*special"):
            function("special")
        with pytest.raises(ValueError, match="null"):
            function("a\0b")
        with pytest.raises(IsADirectoryError, match="is a directory, not a file"):
            function(tmp_path)
    after = os.lstat("special")
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert os.listdir() == ["special"]


class Full(FileIO):
    """A file on a disk that is full after some bytes."""

    def write(self, contents):
        super().write(contents[: len(contents) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_model(fault, small, saved, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = saved.read_bytes()
    if fault == "write":
        monkeypatch.setattr(persistence, "open", Full, raising=False)
    else:
        monkeypatch.setattr(persistence.os, fault, fail)
    with pytest.raises(
        OSError, match=r"nothing was changed: No space left.*model.skops'"
    ) as caught:
        small[0].save(saved)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


def test_an_interrupted_save_leaves_the_old_model(small, saved, monkeypatch):
    def interrupt(source, target):
        assert Path(source).name.startswith(".model.skops.")  # a hidden draft
        raise KeyboardInterrupt

    before = saved.read_bytes()
    monkeypatch.setattr(persistence.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        small[0].save(saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


# ---------------------------------------------------------------- files that are no models


def assert_refused(path, words):
    with pytest.raises(ValueError, match=words) as caught:
        bsdr_models.load(path)
    assert str(caught.value).startswith(f"{path} cannot be loaded: ")


def rewrite(path, change):
    """Change the members of a file, a dictionary of bytes by name."""
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with ZipFile(path, "w") as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)


def of_json(name, change):
    """A change of a member that is JSON."""

    def changed(members):
        content = json.loads(members[name])
        content = change(content) or content
        members[name] = json.dumps(content).encode()

    return changed


def test_files_of_other_kinds(tmp_path, small):
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError, match=r"No such file.*file'"):
        bsdr_models.load(path)
    for contents in (b"", b"x", b"hello" * 50, pickle.dumps(small[0]), bytes(1000), b"PK"):
        path.write_bytes(contents)
        assert_refused(path, "not a zip file")
    with ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    assert_refused(path, "it was not saved by bsdr_models")
    skops.io.dump(LogisticRegression(), path)
    assert_refused(path, "it was not saved by bsdr_models")


def test_a_file_cut_anywhere(saved):
    whole = saved.read_bytes()
    for length in {*range(1, len(whole), 499), *range(len(whole) - 25, len(whole))}:
        saved.write_bytes(whole[:length])
        assert_refused(saved, "not a zip file")


def test_one_wrong_byte_anywhere(saved, small):
    """It is found, unless it says nothing of the model, as the time of writing."""
    model, X = small
    whole = bytearray(saved.read_bytes())
    draw = random.Random(0)
    n_refused = 0
    for place in draw.sample(range(len(whole)), 120):
        kept = whole[place]
        whole[place] ^= 1 << draw.randrange(8)
        saved.write_bytes(whole)
        try:
            back = bsdr_models.load(saved)
        except ValueError:
            n_refused += 1
        else:
            assert_same(back.predict_proba(X), model.predict_proba(X))
        whole[place] = kept
    assert n_refused > 90


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(schema=persistence.SCHEMA + 1),
        lambda header: header["classes"].update({"bsdr_models.bsdr.gone.Gone": ["a"]}),
        lambda header: header["classes"]["bsdr_models.numerics.scaling.Scaler"].append("more"),
    ],
    ids=["schema", "class", "field"],
)
def test_a_file_of_another_version(change, saved):
    rewrite(saved, of_json(persistence.HEADER, lambda header: header.update(version="9.9")))
    assert bsdr_models.load(saved).n_features_in_ == 4
    rewrite(saved, of_json(persistence.HEADER, change))
    assert_refused(
        saved, r"version 9\.9 of bsdr_models \(format \d+\), .* of this version [\d.]+ \(format \d"
    )


def test_members_of_a_stack_are_read_as_estimators(tmp_path):
    """Their trees are kept, and methods that predictions would call are not replaced."""
    X, y = load_iris(return_X_y=True)
    own = make_pipeline(StandardScaler(), BM2PCAClassifier(1, random_state=0))
    other = make_pipeline(StandardScaler(), LogisticRegression())
    model = StackedClassifier([("own", own), ("other", other)], random_state=0)
    model.fit(X[::3], y[::3])
    model.estimators_[0][-1].idata_.attrs["said"] = "by the user"
    again = reloaded(model, tmp_path)
    assert again.estimators_[0][-1].idata_.attrs["said"] == "by the user"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.estimators_[1][0].__dict__["transform"] = None
    path = tmp_path / "stack.skops"
    model.save(path)
    assert_refused(path, "it replaces the method 'transform'")


def test_a_sparse_matrix_whose_indices_are_out_of_range(tmp_path):
    """Products with it would write anywhere in memory."""
    rng = np.random.default_rng(0)
    X = csr_array(rng.standard_normal((30, 6)) * (rng.random((30, 6)) < 0.5))
    y = (X.sum(axis=1) > 0.0).astype(int)
    model = BM2PCAClassifier(1, random_state=0).fit(X, y)
    path = tmp_path / "model.skops"
    model.save(path)
    assert load(path).n_features_in_ == 6
    model._context.X.indices[3] = 10**6
    model.save(path)
    assert_refused(path, "indices")


def add(value):
    """A change of a saved file: one more attribute of the estimator, a node of skops."""

    def change(members):
        with ZipFile(BytesIO(skops.io.dumps(value))) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        node = json.loads(parts.pop("schema.json"))
        of_json("schema.json", attribute(node))(members)
        members.update(parts)

    return change


def attribute(node):
    """A change of the schema of a saved file: one more attribute of the estimator."""

    def change(schema):
        schema["content"]["content"]["extra"] = {"__id__": 1, **node}

    return change


def node(name, loader="ObjectNode", **content):
    module, _, kind = name.rpartition(".")
    one = {"__module__": module, "__class__": kind, "__loader__": loader, "__id__": 1, **content}
    return of_json("schema.json", attribute(one))


def root(name, loader="ObjectNode"):
    """A change of the class of the estimator."""

    def change(schema):
        schema["__module__"], _, schema["__class__"] = name.rpartition(".")
        schema["__loader__"] = loader

    return of_json("schema.json", change)


def array(header, version=(1, 0)):
    """A change of an array of a saved file: its shape alone."""

    def change(members):
        name = next(name for name in members if name.endswith(".npy"))
        out = BytesIO()
        np.lib.format.write_array_header_1_0(out, header)
        members[name] = b"\x93NUMPY" + bytes(version) + out.getvalue()[8:] + bytes(64)

    return change


def outside(members):
    one = {"type": "numpy", "file": "../../etc/passwd"}
    node("numpy.ndarray", "NdArrayNode", **one)(members)


def deep(members):
    members["schema.json"] = b"[" * 10**6 + b"]" * 10**6


def many_lists(members):
    """Small in the archive, much larger when it is parsed."""
    lists = b"[]," * 2 * 10**6
    members["schema.json"] = members["schema.json"][:-1] + b', "more": [' + lists + b"0]}"


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**5)}
TUPLE = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode"}
CALL = "ConstructorFromReduceNode"
EMPTY = {"content": {"__id__": 3, "content": [], **TUPLE}}
FORGED = {
    "a command as the estimator": (root("os.system", CALL), r"Untrusted .*os\.system"),
    "a module that is imported": (
        root("bsdr_models.estimators.fitted.os"),
        r"Untrusted .*fitted\.os",
    ),
    "a package of a similar name": (root("bsdr_models_evil.Model"), "Untrusted types .*evil.Model"),
    "a class with methods alone": (
        node("bsdr_models.papers.coordinate_ascent._Ascent"),
        "Untrusted types .*_Ascent",
    ),
    "a class that the header does not name": (
        node("bsdr_models.dgplvm.priors.DGPLVMMapping"),
        "Untrusted types .*Mapping",
    ),
    "a partial function": (add(partial(np.exp, 1.0)), "Untrusted types .*partial"),
    "a method": (node("builtins.str", "MethodNode"), "cannot be loaded"),
    "a huge array": (array(HUGE), "cannot be loaded"),
    "a future array": (array(HUGE, (9, 0)), "cannot be loaded"),
    "a command": (node("os.system", "FunctionNode", content="os.system"), "Untrusted types"),
    "a constructor of another package": (node("pathlib.Path", CALL, **EMPTY), "Untrusted types"),
    "a loader that does not exist": (node("builtins.str", "EvilNode"), "cannot be loaded"),
    "a package that does not exist": (node("nowhere.Thing"), "cannot be loaded"),
    "a random generator that is none": (node("os.path", "RandomGeneratorNode"), "cannot be loaded"),
    "an array of objects": (array(HUGE | {"descr": "|O", "shape": (1,)}), "cannot be loaded"),
    "an array that is no part": (outside, "There is no item"),
    "lists in lists": (deep, "cannot be loaded"),
    "a header that is a list": (of_json(persistence.HEADER, dict.clear), "cannot be loaded"),
    "a schema of many megabytes": (many_lists, "schema.json has \\d+ bytes"),
    "no schema": (lambda members: members.pop("schema.json"), "cannot be loaded"),
    "a schema that is a list": (lambda m: m.update({"schema.json": b"[]"}), "cannot be loaded"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_files(kind, saved, monkeypatch):
    monkeypatch.setattr(persistence, "MAX_UNPACKED", 2**22)
    change, words = FORGED[kind]
    rewrite(saved, change)
    assert_refused(saved, words)


@pytest.mark.parametrize("name", ["index", "groups", "kept"])
def test_an_index_of_a_sample_that_is_out_of_range(name, small, tmp_path):
    """Compiled functions, and counts, would end the process."""
    model = copy(small[0])
    wrong = np.full(len(small[1]), 10**9)
    targets = replace(model._context.targets, coded=wrong)
    changed = {"targets": targets} if name == "index" else {name: wrong}
    model._context = replace(model._context, **changed)
    path = tmp_path / "model.skops"
    model.save(path)
    assert_refused(path, f"'{name}' of its samples is out of range")


def places(node):
    """Every container of a schema, with a key or position in it."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


@pytest.mark.parametrize("value", [None, -1, 10**30, "", "numpy", [], {}, 1.5, "another", "none"])
def test_a_schema_changed_anywhere_is_refused_or_holds_no_code(value, contents, saved, small):
    """At sixty places: an error of one kind, or a model whose methods are its own."""
    rng = np.random.default_rng(len(str(value)))
    for _ in range(6):
        saved.write_bytes(contents)

        def change(schema):
            every = list(places(schema))
            at, key = every[rng.integers(len(every))]
            other, of_other = every[rng.integers(len(every))]
            at[key] = deepcopy(other[of_other]) if value == "another" else value
            if value == "none":
                del at[key]

        rewrite(saved, of_json("schema.json", change))
        refusal = None
        try:
            model = bsdr_models.load(saved)
        except ValueError as error:
            refusal = str(error)
        if refusal is not None:
            assert refusal.startswith(f"{saved} cannot be loaded: ")
            continue
        assert type(model) is BM2PCAClassifier
        assert not [name for name in vars(model) if callable(getattr(type(model), name, None))]
        with suppress(Exception):
            model.predict(small[1])


def test_arrays_that_unpack_to_more_than_a_model_holds(saved, monkeypatch):
    monkeypatch.setattr(persistence, "MAX_UNPACKED", 10**6)
    with ZipFile(saved, "a", ZIP_DEFLATED) as archive:
        archive.writestr("more.npy", bytes(5 * 10**6))
    assert_refused(saved, r"its parts have \d+ bytes, more than \d+")


def test_constant_arrays_of_a_model_can_be_read(small, tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "MAX_UNPACKED", 10**6)
    model, X = copy(small[0]), small[1]
    model.zeros_ = np.zeros((1000, 5000), np.int8)
    assert_same(reloaded(model, tmp_path).predict_proba(X), model.predict_proba(X))
    assert (tmp_path / "reloaded.skops").stat().st_size > model.zeros_.nbytes


def test_a_size_that_is_not_true(saved):
    """No more is unpacked of a part than the directory of the archive says."""
    with ZipFile(saved) as archive:
        part = max(
            archive.infolist(), key=lambda part: part.file_size * part.filename.endswith("y")
        )
    whole = saved.read_bytes()
    said = part.CRC.to_bytes(4, "little") + part.compress_size.to_bytes(4, "little")
    assert whole.count(said + part.file_size.to_bytes(4, "little")) == 2
    less = (part.file_size - 8).to_bytes(4, "little")
    saved.write_bytes(whole.replace(said + part.file_size.to_bytes(4, "little"), said + less))
    assert_refused(saved, f"Bad CRC-32 for file '{part.filename}'")


def test_every_class_that_files_hold_is_state():
    """Nothing runs when frozen dataclasses and estimators of the package are filled."""
    modules = [m.name for m in walk_packages(bsdr_models.__path__, "bsdr_models.")]
    names = [f"{module}.{name}" for module in modules for name in vars(import_module(module))]
    names = [name for name in names if persistence._fields(name) is not None]
    assert "bsdr_models.bsdr.estimator.BSDRClassifier" in names
    assert "bsdr_models.numerics.scaling.Scaler" in names
    for name in names:
        module, _, attribute = name.rpartition(".")
        kind = getattr(import_module(module), attribute)
        assert kind.__new__ is object.__new__, name
        for own in (vars(c) for c in kind.__mro__ if c.__module__.startswith("bsdr_models")):
            assert "__del__" not in own, name
            if "__setstate__" in own:
                assert own["__setstate__"].__module__ == "dataclasses", name


def test_a_foreign_class_is_refused_and_not_imported(saved, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_twin.py").write_text("raise SystemExit('imported')\n")

    def change(schema):
        schema["__module__"], schema["__class__"] = "evil_twin", "PaperBSDRClassifier"

    rewrite(saved, of_json("schema.json", change))
    assert_refused(saved, r"evil_twin\.PaperBSDRClassifier")
    whole = saved.read_bytes()
    for own in ([], None):
        saved.write_bytes(whole)
        more = {"evil_twin.PaperBSDRClassifier": own}
        named = of_json(persistence.HEADER, lambda h, more=more: h["classes"].update(more))
        rewrite(saved, named)
        assert_refused(saved, "it was written by version")
    assert "evil_twin" not in sys.modules
