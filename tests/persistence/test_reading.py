"""Files that are no models, are damaged, or mean harm."""

import io
import pickle
import random

import h5py
import numpy as np
import pytest
import xarray as xr

import bsdr_models
from bsdr_models.persistence import codec


def assert_refused(path, words):
    with pytest.raises(ValueError, match=words) as caught:
        bsdr_models.load(path)
    assert str(caught.value).startswith(str(path))


def test_paths_without_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no such file: '.*none\.nc'"):
        bsdr_models.load(tmp_path / "none.nc")
    with pytest.raises(IsADirectoryError, match="is a directory, not a saved model"):
        bsdr_models.load(str(tmp_path))


def test_files_of_other_kinds(tmp_path, mnp):
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert_refused(path, "is empty")
    for contents in (b"x", b"hello" * 50, pickle.dumps(mnp[0]), bytes(1000), b"\x89HDF"):
        path.write_bytes(contents)
        assert_refused(path, "is not a NetCDF-4 file, so not a model saved by bsdr_models")
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(500))
    assert_refused(path, "is cut short or damaged: it has no checksum at its end")


def test_other_files_of_the_same_format(tmp_path, zoo):
    path = tmp_path / "other.nc"
    xr.Dataset({"a": ("x", np.arange(3.0))}).to_netcdf(path, engine="h5netcdf")
    assert_refused(path, "is a NetCDF or HDF5 file that was not saved by bsdr_models")
    zoo.seal(path, io.BytesIO(path.read_bytes()))
    assert_refused(path, "is no valid model of bsdr_models: it has no 'estimator/manifest'")
    with h5py.File(path, "w") as store:
        store["estimator/other"] = 1
    assert_refused(path, "that was not saved by bsdr_models")
    model, _ = zoo.fitted(*zoo.variants["dgplvm, weightless"])
    model.idata_.to_netcdf(path, engine="h5netcdf")
    assert_refused(path, "that was not saved by bsdr_models")


def test_a_file_cut_anywhere(saved):
    whole = saved.read_bytes()
    end = len(whole)
    for length in sorted({*range(1, end, 211), *range(end - 100, end)}):
        saved.write_bytes(whole[:length])
        assert_refused(saved, "cut short|is not a NetCDF-4 file")
    saved.write_bytes(whole)
    assert bsdr_models.load(saved).n_features_in_ == 4


def test_one_wrong_byte_anywhere(saved):
    whole = bytearray(saved.read_bytes())
    draw = random.Random(0)
    places = {*draw.sample(range(len(whole)), 500), *range(len(whole) - 90, len(whole)), 0, 7, 8}
    for place in sorted(places):
        kept = whole[place]
        whole[place] ^= 1 << draw.randrange(8)
        saved.write_bytes(whole)
        assert_refused(saved, "is damaged|is not a NetCDF-4 file|has lost the checksum")
        whole[place] = kept


def test_a_file_that_another_program_has_written_to(saved, mnp):
    with h5py.File(saved, "a") as store:
        store["estimator"].attrs["note"] = "mine"
    assert_refused(saved, "has lost the checksum at its end|is damaged")
    mnp[0].save(saved)
    saved.write_bytes(saved.read_bytes() + b"\n")
    assert_refused(saved, "has lost the checksum at its end")


# ---------------------------------------------------------------- files with the right checksum


def test_a_file_of_a_newer_version(saved, zoo):
    def change(manifest, store):
        manifest |= {"schema": codec.SCHEMA + 1, "versions": {"bsdr_models": "9.9"}}
        del manifest["arrays"]

    zoo.forge(saved, change)
    assert_refused(
        saved,
        rf"was written by a newer version of bsdr_models, 9\.9 with schema {codec.SCHEMA + 1}; "
        rf".* reads up to schema {codec.SCHEMA}: upgrade",
    )


def test_a_file_of_an_older_version_is_brought_up_to_date(saved, mnp, monkeypatch):
    old = codec.SCHEMA

    def upgrade(manifest):
        manifest["state"]["was_"] = manifest["schema"]
        return manifest

    monkeypatch.setattr(codec, "SCHEMA", old + 2)
    assert not hasattr(bsdr_models.load(saved), "was_")
    monkeypatch.setitem(codec.UPGRADES, old + 1, upgrade)
    back = bsdr_models.load(saved)
    assert back.was_ == old
    np.testing.assert_array_equal(back.predict(mnp[1]), mnp[0].predict(mnp[1]))


def test_fields_with_a_default_may_be_absent(zoo, tmp_path):
    """As they are in files of before there was the field."""
    model, X = zoo.fitted(*zoo.variants["bsdr, gibbs"])
    path = tmp_path / "model.nc"
    model.save(path)

    def change(manifest, store):
        (entry,) = (e for e in manifest["objects"] if e["class"] == "bsdr.predict.DrawPosterior")
        assert entry["values"].pop("noise_precision", 0) is None

    zoo.forge(path, change)
    np.testing.assert_array_equal(bsdr_models.load(path).predict(X), model.predict(X))


def replace_object(**entry):
    def change(manifest, store):
        manifest["objects"][0] |= entry

    return change


def replace_array(**entry):
    def change(manifest, store):
        place = next(i for i, e in enumerate(manifest["arrays"]) if "values" not in e)
        manifest["arrays"][place] |= entry

    return change


def state(node):
    def change(manifest, store):
        manifest["state"]["classes_"] = node

    return change


def top(**values):
    return lambda manifest, store: manifest | values


def deep(manifest, store):
    node = 0
    for _ in range(codec.DEPTH):
        node = {"tuple": [node]}
    manifest["state"]["classes_"] = node


def huge(manifest, store):
    del store["estimator/float64"]
    store.create_dataset("estimator/float64", (10**13,), "f8", chunks=(10**6,))
    manifest["arrays"].append({"dtype": "<f8", "shape": [10**13]})


def linked(link):
    def change(manifest, store):
        del store["estimator/float64"]
        store["estimator/float64"] = link

    return change


def external(manifest, store):
    shape = store["estimator/float64"].shape
    del store["estimator/float64"]
    store.create_dataset("estimator/float64", shape, "f8", external="/etc/passwd")


def virtual(manifest, store):
    shape = store["estimator/float64"].shape
    del store["estimator/float64"]
    layout = h5py.VirtualLayout(shape, "f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape)
    store.create_virtual_dataset("estimator/float64", layout)


def retyped(manifest, store):
    values = store["estimator/float64"][()].astype("f4")
    del store["estimator/float64"]
    store["estimator/float64"] = values


def numbers_left(manifest, store):
    values = store["estimator/float64"][()]
    del store["estimator/float64"]
    store["estimator/float64"] = np.append(values, 1.0)


def group_instead(manifest, store):
    del store["estimator/float64"]
    store["estimator/float64/x"] = 1.0


FORGERIES = {
    "class of the system": (replace_object(**{"class": "os.system"}), "'os.system', which is no"),
    "class of ours": (
        replace_object(**{"class": "persistence.file.Reader"}),
        "'persistence.file.Reader', which is no part of a model",
    ),
    "private name": (replace_object(**{"class": "data.__loader__"}), "no part of a model"),
    "no text": (replace_object(**{"class": ["Scaler"]}), "no valid model"),
    "no fields": (replace_object(values={}), "lacks"),
    "more fields": (replace_object(values={"__class__": 1}), r"has no \['__class__'\]"),
    "no estimator": (top(estimator="Pipeline"), "'Pipeline' is no estimator"),
    "dataclass as estimator": (top(estimator="data.Data"), "is no estimator"),
    "no such argument": (top(parameters={"shell": "rm"}), "unexpected keyword"),
    "other format": (top(format="skops"), "manifest is of another format"),
    "list": (lambda manifest, store: [1], "manifest is of another format"),
    "schema in words": (top(schema="1"), "its schema '1' is not known"),
    "schema 0": (top(schema=0), "its schema 0 is not known"),
    "no schema": (lambda m, s: {k: v for k, v in m.items() if k != "schema"}, "no valid model"),
    "path up": (replace_array(variable="../../etc/passwd"), "it has no '../../etc/passwd'"),
    "path from the root": (replace_array(variable="/etc/passwd"), "it has no '/etc/passwd'"),
    "twice": (replace_array(variable="estimator/manifest"), "refers to 'estimator/manifest' twice"),
    "no path": (replace_array(variable=3), "no valid model"),
    "negative shape": (replace_array(shape=[-1, 4]), r"has the shape \(-1, 4\)"),
    "shape in words": (replace_array(shape=["30", 4]), "has the shape"),
    "huge shape": (replace_array(shape=[2**40, 2**40]), "an array of shape"),
    "no dtype": (replace_array(dtype="O8"), "no dtype of a saved array"),
    "record dtype": (replace_array(dtype="<f8,<f8"), "no dtype of a saved array"),
    "void dtype": (replace_array(dtype="|V8"), "no dtype of a saved array"),
    "wrong axes": (replace_array(axes=[0, 0]), "no valid model"),
    "huge text": (
        state({"scalar": ["<U99999999", "a"]}),
        "asks for much more memory than it takes",
    ),
    "unknown kind": (state({"eval": "1 + 1"}), "it holds a 'eval', which is no kind of value"),
    "two kinds": (state({"float": "nan", "tuple": []}), "no valid model"),
    "no number": (state({"float": "exec"}), "no valid model"),
    "behind the table": (state({"array": 10**6}), "refers to entry 1000000 of a table"),
    "before the table": (state({"object": -1}), "refers to entry -1 of a table"),
    "unhashable": (state({"dict": [[[1], 2]]}), "unhashable"),
    "deep": (deep, "hold values 100 times over"),
    "huge variable": (huge, r"has the shape \(10000000000000,\) but takes 0 bytes only"),
    "link out": (linked(h5py.ExternalLink("/etc/passwd", "x")), "has no 'estimator/float64'"),
    "soft link": (linked(h5py.SoftLink("/estimator/manifest")), "has no 'estimator/float64'"),
    "bytes of another file": (external, "is not a variable of this file"),
    "variable of another file": (virtual, "is not a variable of this file"),
    "other dtype": (retyped, "its numbers of float64 are of another kind"),
    "numbers left": (numbers_left, "holds numbers that belong nowhere"),
    "group": (group_instead, "is not a variable of this file"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_makes_nothing_but_an_error(name, saved, zoo):
    change, words = FORGERIES[name]
    zoo.forge(saved, change)
    assert_refused(saved, words)


def test_a_manifest_that_is_no_json(saved, zoo):
    for value in (np.frombuffer(b"{1", "S1"), np.arange(3)):
        buffer = zoo.unsealed(saved)
        with h5py.File(buffer, "r+") as store:
            del store["estimator/manifest"]
            store["estimator/manifest"] = value
        zoo.seal(saved, buffer)
        assert_refused(saved, "is no valid model of bsdr_models")


def test_links_into_a_tree_are_not_followed(zoo, tmp_path):
    model, _ = zoo.fitted(*zoo.variants["bm2pca, wide"])
    path = tmp_path / "model.nc"
    model.save(path)

    def change(manifest, store):
        store.move("posterior", "hidden")
        store["posterior"] = h5py.SoftLink("/hidden")

    zoo.forge(path, change)
    assert_refused(path, "it has no 'posterior/")


def test_a_forgery_that_changes_nothing_loads(saved, zoo, mnp):
    """So it is the changes above that are refused."""
    zoo.forge(saved, lambda manifest, store: None)
    np.testing.assert_array_equal(bsdr_models.load(saved).predict(mnp[1]), mnp[0].predict(mnp[1]))
