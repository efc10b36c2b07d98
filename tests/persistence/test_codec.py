"""Values as JSON and columns of numbers, and back."""

import json
import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from sklearn.linear_model import LogisticRegression

from bsdr_models import BSDRClassifier, MNPClassifier, Priors
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.numerics.design import DenseDesign, SpectralDesign
from bsdr_models.persistence import codec


def there_and_back(value):
    encoder = codec.Encoder()
    node = encoder.value(value, "value")
    text = json.dumps([node, encoder.arrays, encoder.objects], allow_nan=False)
    node, arrays, objects = json.loads(text)
    decoder = codec.Decoder(
        column=encoder.columns.__getitem__,
        variable=pytest.fail,
        budget=codec.EXPANSION * len(text) + codec.GRANTED,
    )
    decoder.tables(arrays, objects)
    return decoder.value(node)


def assert_identical(got, want):
    assert type(got) is type(want)
    if isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_identical(one, other)
    elif isinstance(want, dict):
        assert_identical(list(got.items()), list(want.items()))
    elif isinstance(want, float) and math.isnan(want):
        assert math.isnan(got)
    else:
        assert got == want
        assert repr(got) == repr(want)  # tells -0.0 from 0.0


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.floats(width=32)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(
            st.text(max_size=5) | st.integers() | st.tuples(st.booleans(), st.none()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(trees)
def test_plain_values(value):
    assert_identical(there_and_back(value), value)


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1),
        np.float64("nan"),
        np.float32(1 / 3),
        np.float32("inf"),
        np.int8(-5),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.str_("é"),
        np.datetime64("2020-02-02T02:02:02"),
        np.timedelta64(3, "ms"),
        {"float": "nan"},
        {np.int64(3): (), 3.5: [[]], None: {}},
        "\ud800",
        10**40,
    ],
    ids=repr,
)
def test_scalars_and_what_looks_like_a_tag(value):
    assert_identical(there_and_back(value), value)


ARRAYS = {
    "floats": np.random.default_rng(0).standard_normal((7, 6, 5)),
    "few floats": np.array([1e-310, -0.0, np.inf, -np.inf, np.nan, 0.1]),
    "no dims": np.array(2.5),
    "empty": np.zeros((0, 3)),
    "single precision": np.arange(200, dtype=np.float32) / 3,
    "half precision": np.arange(200, dtype=np.float16) / 3,
    "integers": np.arange(99, dtype=np.int16).reshape(33, 3),
    "unsigned": np.array([2**64 - 1] * 40, dtype=np.uint64),
    "bytes": np.arange(200, dtype=np.uint8),
    "booleans": np.arange(99) % 7 == 0,
    "few booleans": np.array([[True], [False]]),
    "big endian": np.arange(100, dtype=">f8"),
    "text": np.array([["a", "bcd"], ["", "\N{GREEK SMALL LETTER ALPHA}\x00z"]]),
    "wide text": np.array(["a"], dtype="U40"),
    "dates": np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
    "objects": np.array([["x", 1], [2.5, None]], dtype=object),
    "number objects": np.array([True, np.nan, np.float64(3), 10**30], dtype=object),
}
VIEWS = {
    "as it is": lambda a: a,
    "reversed axes": lambda a: a.T,
    "Fortran": np.asfortranarray,
    "every other": lambda a: a[::2] if a.ndim else a,
    "backwards": lambda a: a[..., ::-1] if a.ndim else a,
    "rolled axes": lambda a: np.moveaxis(a, 0, -1) if a.ndim else a,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_with_their_dtype_and_order_of_axes(name, view):
    array = VIEWS[view](ARRAYS[name])
    back = there_and_back(array)
    assert type(back) is np.ndarray
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.flags.writeable
    if array.dtype == object:
        assert_identical(back.ravel().tolist(), array.ravel().tolist())
    else:
        np.testing.assert_array_equal(back, array)
    if array.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(back), np.signbit(array))
    if view in ("reversed axes", "Fortran", "rolled axes"):
        assert back.flags.f_contiguous == array.flags.f_contiguous
        assert back.flags.c_contiguous == array.flags.c_contiguous


def test_what_is_one_array_twice_is_one_afterwards():
    rows, few = np.arange(50.0), np.arange(3.0)
    back = there_and_back([rows, {"again": rows}, few, (few, rows.copy())])
    assert back[0] is back[1]["again"]
    assert back[2] is back[3][0]
    assert back[3][1] is not back[0]
    shared = Priors()
    one, other = there_and_back((shared, shared))
    assert one is other


def test_instances_keep_their_fields_and_lose_their_caches():
    prior = LogNormal(2.0, 0.5)
    assert there_and_back(prior) == prior
    X = np.random.default_rng(0).standard_normal((9, 40))
    dense, spectral = DenseDesign(X), SpectralDesign(X)
    gram = dense.gram
    dense_back, spectral_back = there_and_back([dense, spectral])
    assert list(vars(dense_back)) == ["X"]
    np.testing.assert_array_equal(dense_back.gram, gram)
    assert vars(spectral_back).keys() == vars(spectral).keys()
    np.testing.assert_array_equal(spectral_back.outside(X), spectral.outside(X))


def test_paths():
    paths = [Path("fits/first"), Path("/")]
    assert there_and_back(paths) == paths


def test_sparse_rows():
    rows = csr_array(np.arange(400.0).reshape(20, 20) * (np.arange(20) % 3 == 0))
    back = there_and_back({"X": rows})["X"]
    assert type(back) is csr_array
    assert (back != rows).nnz == 0
    np.testing.assert_array_equal(back.indices, rows.indices)


@pytest.mark.parametrize("bits", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_generators_go_on_where_they_were(bits):
    generator = np.random.Generator(getattr(np.random, bits)(5))
    generator.random(dtype=np.float32)
    generator.spawn(2)
    back = there_and_back(generator)
    assert back.bit_generator.state["bit_generator"] == bits
    np.testing.assert_array_equal(back.standard_normal(9), generator.standard_normal(9))
    np.testing.assert_array_equal(
        back.integers(0, 9, 9, dtype=np.int8), generator.integers(0, 9, 9, dtype=np.int8)
    )
    one, other = back.spawn(1)[0], generator.spawn(1)[0]
    assert one.random() == other.random()


def test_random_states_go_on_where_they_were():
    state = np.random.RandomState(3)
    state.standard_normal(3)  # an odd number leaves one in store
    back = there_and_back(state)
    np.testing.assert_array_equal(back.standard_normal(9), state.standard_normal(9))


@pytest.mark.parametrize("seed", [np.random.default_rng(4), np.random.RandomState(4)])
def test_an_estimator_with_a_stream_is_saved_with_it(seed, zoo, tmp_path):
    import bsdr_models

    _, X = zoo.fitted(*zoo.variants["bsdr, columnwise"])
    y = np.arange(len(X)) % 3
    model = BSDRClassifier(variant="paper", start="random", random_state=seed).fit(X, y)
    model.save(tmp_path / "model.nc")
    back = bsdr_models.load(tmp_path / "model.nc")
    np.testing.assert_array_equal(back.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))


UNSTORABLE = {
    "function": (np.sum, "numpy"),
    "lambda": (lambda: 0, "function"),
    "estimator": (LogisticRegression(), "LogisticRegression"),
    "class": (Priors, "type"),
    "module": (np, "module"),
    "set": ({1}, "set"),
    "ordered": (OrderedDict(a=1), "OrderedDict"),
    "complex": (1j, "complex"),
    "complex array": (np.ones(2, complex), "dtype complex128"),
    "long": (np.ones(2, np.longdouble), "dtype"),
    "record": (np.zeros(2, [("a", float)]), "dtype"),
    "masked": (np.ma.masked_array([1.0]), "MaskedArray"),
    "sparse matrix": (csr_matrix(np.eye(2)), "csr_matrix"),
    "subclass": (type("Mine", (Priors,), {"__slots__": ()})(), "Mine"),
    "odd stream": (np.random.Generator(np.random.RandomState(1)._bit_generator), "Generator"),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_cannot_be_stored_is_named_and_nothing_is_written(name, mnp, tmp_path):
    value, words = UNSTORABLE[name]
    model = MNPClassifier().fit(mnp[1], np.arange(len(mnp[1])) % 2)
    model.note_ = {"deep": [0, (value,)]}
    with pytest.raises(TypeError, match=rf"MNPClassifier\.note_\['deep'\]\[1\]\[0\].*({words})"):
        model.save(tmp_path / "model.nc")
    assert list(tmp_path.iterdir()) == []


def test_an_argument_that_cannot_be_stored(mnp, tmp_path):
    model, X = mnp
    other = MNPClassifier(progressbar=lambda: True).fit(X, model.predict(X))
    with pytest.raises(TypeError, match=r"MNPClassifier\.progressbar: a .*function"):
        other.save(tmp_path / "model.nc")
    assert list(tmp_path.iterdir()) == []
