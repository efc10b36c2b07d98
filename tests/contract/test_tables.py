"""Tables of every library: the same numbers, the names of the columns carried and compared."""

import decimal
from copy import deepcopy

import arviz as az
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from scipy import sparse
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from bsdr_models import (
    BM2PCAClassifier,
    StackedClassifier,
    bm2pca,
    bsdr,
    compare_models,
    cross_validated_map,
    dgplvm,
    load,
    papers,
    plots,
)
from bsdr_models.papers import PaperBSDRClassifier

pytestmark = pytest.mark.usefixtures("short_runs")

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
TABLES = {
    "pandas": lambda X, names: pd.DataFrame(X, columns=names),
    "polars": lambda X, names: pl.DataFrame(
        {name: X[:, i] for i, name in enumerate(names)}, strict=False
    ),
    "xarray": lambda X, names: xr.DataArray(X, dims=("cell", "gene"), coords={"gene": names}),
    "arrow": lambda X, names: pa.table({name: X[:, i] for i, name in enumerate(names)}),
}


@pytest.fixture(scope="module")
def fitted_to(zoo):
    """Fitted once to the samples (and targets) of that name; not to be fitted again."""
    cache = {}

    def fitted(kind, name, X, y=None):
        if (kind, name) not in cache:
            cache[kind, name] = zoo.fit(zoo.make(kind), X, zoo.target(kind) if y is None else y)
        return cache[kind, name]

    return fitted


@pytest.fixture
def fitted_to_table(zoo, fitted_to):
    return lambda kind, library: fitted_to(kind, library, TABLES[library](zoo.X, NAMES))


def said(model, X):
    """What a model says of samples, as one array."""
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


# All estimators read tables and targets by the same functions.
READER = "PaperBSDRClassifier"


def test_an_excel_file_is_a_table(tmp_path):
    """With what the extra ``io`` installs; the empty cells are missing values."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["a", "b"], 15)
    table = pd.DataFrame(rng.standard_normal((30, 4)).round(3), columns=NAMES)
    table.iloc[:, 0] += 3.0 * (kind == "b")
    table.iloc[2, 1] = np.nan
    table["class"] = kind
    table.to_excel(tmp_path / "samples.xlsx", index=False)
    read = pd.read_excel(tmp_path / "samples.xlsx")
    pd.testing.assert_frame_equal(read, table)
    X = read.drop(columns="class")
    model = BM2PCAClassifier(1, random_state=0).fit(X, read["class"])
    assert model.feature_names_in_.tolist() == NAMES
    assert model.score(X, read["class"]) > 0.8


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("kind", [READER, "BSDRRegressor"])
def test_names_and_numbers_are_carried(zoo, fitted_to_table, kind, library):
    table = TABLES[library](zoo.X, NAMES)
    model = fitted_to_table(kind, library)
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(said(model, table), said(zoo.fitted(kind), zoo.X))
    assert model.idata_["constant_data/feature"].values.tolist() == NAMES


# An index of pandas, and the labels of the samples in the trees.
INDICES = {
    "text": (lambda n: [f"cell {i}" for i in range(n)], lambda index: index.to_numpy(str)),
    "numbers": (lambda n: np.arange(n)[::-1] + 7, np.asarray),
    "moments_of_a_zone": (
        lambda n: pd.date_range("2020-01-01", periods=n, tz="UTC"),
        lambda index: np.array([str(day) for day in index]),
    ),
    "mixed": (lambda n: ["one", *range(1, n)], lambda index: np.array([str(i) for i in index])),
    "levels": (
        lambda n: pd.MultiIndex.from_arrays([np.arange(n) // 3, np.arange(n) % 3]),
        lambda index: np.array([str(pair) for pair in index]),
    ),
}


@pytest.mark.parametrize("labels", INDICES)
def test_the_index_labels_the_samples_in_trees_and_files(zoo, labels, tmp_path):
    make, expected = INDICES[labels]
    table = pd.DataFrame(zoo.X, columns=NAMES, index=make(len(zoo.X)))
    names = expected(table.index)
    model = assert_labelled(zoo, table, names, names[5:8])
    if labels != "text":
        return
    model.save(tmp_path / "model.skops")
    assert load(tmp_path / "model.skops").idata_["fit/obs"].equals(model.idata_["fit/obs"])
    model.idata_.to_netcdf(tmp_path / "tree.nc")
    assert az.from_netcdf(tmp_path / "tree.nc")["fit/obs"].equals(model.idata_["fit/obs"])


TWO_NAMED = {
    "fit": lambda model, X, y: clone(model).fit(X, y),
    "predict_idata": lambda model, X, y: model.predict_idata(X, y),
    "cross_validated_map": lambda model, X, y: cross_validated_map(model, X, y, cv=3),
    "compare_models": lambda model, X, y: compare_models(X, y, cv=2),
    "score": lambda model, X, y: model.score(X, y),
    "weighted score": lambda model, X, y: model.score(X, model.predict(X), y),
    "plot_map": lambda model, X, y: model.plot_map(X, y),
}


@pytest.mark.in_turn("classifier", TWO_NAMED)
def test_samples_in_another_order_are_refused(zoo, fitted_to_table, classifier, case):
    """Whatever takes two tables with names of samples refuses those of another order."""
    model = fitted_to_table(classifier, "pandas")
    X = pd.DataFrame(zoo.X, columns=NAMES).rename(index="cell {}".format)
    y = pd.Series(zoo.y, index=X.index)
    with pytest.raises(ValueError, match=r"same labels in another order: give y\.loc\[X\.index\]"):
        TWO_NAMED[case](model, X, y[::-1])


def test_indices_of_other_labels_do_not_count(zoo):
    X = pd.DataFrame(zoo.X, columns=NAMES).rename(index="cell {}".format)
    model = zoo.fit(zoo.make(READER), X, pd.Series(zoo.y))
    np.testing.assert_array_equal(said(model, X), said(zoo.fitted(READER), zoo.X))


# Functions of samples, targets and a third table of the samples, or a tree of them.
THREE_NAMED = {
    "fit": lambda X, y, other: BM2PCAClassifier().fit(X, y, groups=other),
    "fit of a stack": lambda X, y, other: StackedClassifier().fit(X, y, groups=other),
    "cross_validated_map": lambda X, y, other: cross_validated_map(PLAIN, X, y, groups=other),
    "compare_models": lambda X, y, other: compare_models(X, y, groups=other),
    "papers.bsdr.fit": lambda X, y, other: papers.bsdr.fit(X, other),
    "papers.bm2pca.fit": lambda X, y, other: papers.bm2pca.fit(X, other, n_components=1),
    "papers.dgplvm.fit": lambda X, y, other: papers.dgplvm.fit(X, other, n_components=1),
    "bsdr.build_model": lambda X, y, other: bsdr.build_model(X, other),
    "papers.bsdr.build_model": lambda X, y, other: papers.bsdr.build_model(
        X, other, n_components=1
    ),
    "bm2pca.build_model": lambda X, y, other: bm2pca.build_model(X, other, n_components=1),
    "papers.bm2pca.build_model": lambda X, y, other: papers.bm2pca.build_model(
        X, other, n_components=1
    ),
    "dgplvm.build_model": lambda X, y, other: dgplvm.build_model(X, other, n_components=1),
    "papers.dgplvm.build_model": lambda X, y, other: papers.dgplvm.build_model(
        X, other, n_components=1
    ),
}
PLAIN = PaperBSDRClassifier()


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("function", THREE_NAMED)
@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_other_tables_in_another_order_are_refused(zoo, function, library):
    X = pd.DataFrame(zoo.X, columns=NAMES).rename(index="cell {}".format)
    y = pd.Series(zoo.y, index=X.index)
    other = y[::-1] if library == "pandas" else xr.DataArray(y[::-1], dims="cell")
    with pytest.raises(ValueError, match="same labels in another order"):
        THREE_NAMED[function](X, y, other)


def test_groups_of_a_map_and_targets_of_stacks_in_another_order_are_refused(zoo):
    X = pd.DataFrame(zoo.X, columns=NAMES).rename(index="cell {}".format)
    y = pd.Series(zoo.y, index=X.index)
    stack = zoo.fit(StackedClassifier([("plain", GaussianNB())]), X, y)
    regressor = zoo.fit(zoo.make("BM2PCARegressor"), X, y + 0.1 * X["sepal length"])
    for call in (
        lambda: plots.plot_map(stack.idata_, groups=y[::-1]),
        lambda: stack.predict_idata(X, y[::-1]),
        lambda: stack.score(X, y[::-1]),
        lambda: regressor.predict_idata(X, y[::-1]),
    ):
        with pytest.raises(ValueError, match="same labels in another order"):
            call()


@pytest.mark.parametrize("library", ["xarray", "polars"])
def test_indices_of_other_libraries(zoo, library):
    table, numbers = TABLES[library](zoo.X, NAMES), np.arange(len(zoo.X))
    if library == "xarray":
        names = np.array([f"cell {i}" for i in numbers])
        assert_labelled(zoo, table.assign_coords(cell=names), names, names[5:8])
    else:  # without an index samples are counted
        assert_labelled(zoo, table, numbers, np.arange(3))


def assert_labelled(zoo, table, names, of_new):
    model = zoo.fit(zoo.make(READER), table, zoo.y)
    for group in ("fit", "observed_data", "constant_data"):
        np.testing.assert_array_equal(model.idata_[group]["obs"], names)
    np.testing.assert_array_equal(model.idata_["observed_data/y"], zoo.y)
    new = model.predict_idata(table[5:8], zoo.y[5:8])["predictions"]
    np.testing.assert_array_equal(new["obs"], of_new)
    np.testing.assert_array_equal(new["y"], zoo.y[5:8])
    return model


# What became of the columns, and what the error says.
CHANGED = {
    "reordered": ([1, 0, 2, 3], NAMES, "must be in the same order"),
    "renamed": ([0, 1, 2, 3], [*NAMES[:3], "area"], r"(?s)unseen at fit time.*- area"),
    "left_out": ([0, 1, 2], NAMES, r"(?s)yet now missing.*- petal width"),
    "added": ([0, 1, 2, 3, 3], [*NAMES, "area"], r"(?s)unseen at fit time.*- area"),
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize(
    ("kind", "library"),
    [
        (READER, "pandas"),
        (READER, "polars"),
        (READER, "xarray"),
        ("BM2PCARegressor", "pandas"),  # which can impute
    ],
)
def test_changed_columns_are_refused_by_name(zoo, fitted_to_table, kind, library, change):
    model = fitted_to_table(kind, library)
    columns, names, match = CHANGED[change]
    names = [names[i] for i in columns] if change == "reordered" else names[: len(columns)]
    table = TABLES[library](zoo.X[:, columns], names)
    for method in ("predict", "predict_proba", "transform", "predict_idata", "impute"):
        if hasattr(model, method):
            with pytest.raises(ValueError, match=match):
                getattr(model, method)(table)


def test_an_array_after_a_frame_is_taken_with_a_warning(zoo, fitted_to_table, kind):
    table, model = TABLES["pandas"](zoo.X, NAMES), fitted_to_table(kind, "pandas")
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        got = said(model, zoo.X)
    np.testing.assert_array_equal(got, said(model, table))
    with pytest.warns(UserWarning, match="X has feature names, but .* was fitted without"):
        zoo.fitted(kind).predict(table)


# Headers that are no text. Those numbered from 0 are no names, in whatever type.
HEADERS = {
    "wavelengths": [1000.0, 1010.5, 1020.0, 1030.0],
    "numbers": [3, 4, 5, 6],
    "numbers_from_0_in_another_order": [2, 0, 1, 3],
    "dates": pd.date_range("2020-01-01", periods=4),
    "tuples": pd.Index([("a", 1), ("a", 2), ("b", 1), ("b", 2)], tupleize_cols=False),
    "two_levels": pd.MultiIndex.from_product([["a", "b"], [1, 2]]),
}


# Kinds of tables with each header; coordinates have one level, and BM2PCA takes sparse samples.
HEADED = [
    *((READER, "pandas", header) for header in HEADERS),
    *((READER, "xarray", header) for header in ("wavelengths", "dates")),
    ("BM2PCAClassifier", "sparse", "two_levels"),
]


@pytest.mark.parametrize(("kind", "library", "header"), HEADED)
def test_headers_that_are_no_text_are_names(zoo, kind, header, library):
    labels = HEADERS[header]
    table = pd.DataFrame(zoo.X, columns=labels)
    if library == "sparse":
        table = table.astype(pd.SparseDtype("float64", 0.0))
    make = (
        (lambda t: xr.DataArray(t, dims=("cell", "gene"))) if library == "xarray" else lambda t: t
    )
    model = zoo.fit(zoo.make(kind), make(table), zoo.target(kind))
    names = [str(label) for label in labels]
    assert model.feature_names_in_.tolist() == names
    assert model.idata_["fit/projection_mean"]["feature"].values.tolist() == names
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(make(table.iloc[:, ::-1]))
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*yet now missing"):
        model.predict(make(table.set_axis(["a", "b", "c", "d"], axis=1)))
    with pytest.raises(ValueError, match="yet now missing"):
        model.predict(make(table.iloc[:, :3]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_allclose(said(model, zoo.X), said(model, make(table)))


@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_columns_numbered_from_0_have_no_names(zoo, library):
    """As scikit-learn has it for frames; the tree counts them. Their order is compared."""
    table = pd.DataFrame(zoo.X)
    if library == "xarray":
        table = xr.DataArray(zoo.X, dims=("cell", "gene"), coords={"gene": range(4)})
    model = zoo.fit(zoo.make(READER), table, zoo.y)
    assert not hasattr(model, "feature_names_in_")
    assert model.idata_["constant_data/feature"].values.tolist() == ["x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(said(model, table), said(model, zoo.X))
    shuffled = pd.DataFrame(zoo.X)[[3, 1, 2, 0]]
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(shuffled)
    with pytest.raises(ValueError, match="must be in the same order"):
        zoo.fit(zoo.make(READER), shuffled, zoo.y).predict(pd.DataFrame(zoo.X))


TEXTS, NUMBERED = ["ugly", "bad", "good"], [20, 3, 100]


@pytest.mark.parametrize(
    ("several", "names"),
    [
        # Models of label sets and of several outputs.
        ("PaperBSDRClassifier", NUMBERED),
        ("BM2PCAClassifier", TEXTS),
        ("BSDRRegressor", NUMBERED),
    ],
)
def test_columns_of_targets_are_matched_by_name(zoo, several, names):
    labels = zoo.y[:, None] != np.arange(3)
    real = several.endswith("Regressor")
    Y = pd.DataFrame(labels + 0.1 * zoo.X[:, :3] if real else labels.astype(int), columns=names)
    model = zoo.fit(zoo.make(several), zoo.X, Y)
    text = [str(name) for name in names]
    assert model.idata_["observed_data/outcome"].values.tolist() == text
    if not real:
        assert model.classes_.tolist() == [0, 1, 2]  # as in scikit-learn
    assert f"3: {', '.join(text)}" in model.summary()["value"].tolist()
    other = Y[names[::-1]]
    says = [model.score]
    if hasattr(model, "log_density"):
        says.append(model.log_density)
    says.append(lambda X, y: model.predict_idata(X, y)["predictions/y"].values)
    for function in says:
        expected = function(zoo.X, Y.to_numpy())
        for same in (Y, other, xr.DataArray(other, dims=("cell", "kind"))):
            np.testing.assert_allclose(function(zoo.X, same), expected, rtol=1e-12)
        for bad in (Y.rename(columns={names[0]: "new"}), Y[names[:2]]):
            with pytest.raises(ValueError, match=r"y has the columns .*, the fit had"):
                function(zoo.X, bad)
    assert model.predict_idata(zoo.X)["predictions/outcome"].values.tolist() == text


def test_columns_of_targets_numbered_from_0_are_matched(zoo):
    Y = pd.DataFrame((zoo.y[:, None] != np.arange(3)).astype(int))
    model = zoo.fit(zoo.make("BM2PCAClassifier"), zoo.X, Y.to_numpy())
    assert model.score(zoo.X, Y[[2, 0, 1]]) == model.score(zoo.X, Y.to_numpy())
    assert model.idata_["observed_data/outcome"].values.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="2 columns of y are named '0'"):
        model.fit(zoo.X, Y[[0, 0, 1]])


class Iterated:
    """What NumPy would iterate over, for minutes."""

    def __init__(self, X):
        self.shape = X.shape

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        raise AssertionError("iterated")


class Annotated(Iterated):
    """As AnnData is."""

    obs = var = ()


def test_views_are_of_names_that_are_numbers(zoo):
    table = pd.DataFrame(zoo.X, columns=[1, 2, 3, 7])
    fits = [
        zoo.fit(zoo.make("BSDRClassifier", views=views), X[::3], zoo.y[::3])
        for views, X in (
            ({"a": [1, 2], "b": [3, 7]}, table),
            ({"a": [0, 1], "b": [2, 3]}, zoo.X),
        )
    ]
    expected = fits[1].predict_proba(zoo.X)
    np.testing.assert_array_equal(fits[0].predict_proba(table), expected)


REFUSED = {
    "dataset": (
        lambda X: xr.Dataset({"a": ("r", X[:, 0])}),
        TypeError,
        "create an xarray.DataArray",
    ),
    "lazy": (lambda X: TABLES["polars"](X, NAMES).lazy(), TypeError, r"got LazyFrame: .*collect"),
    "annotated": (lambda X: Annotated(X), TypeError, r"got Annotated: give .* adata\.to_df\(\)"),
    "epochs": (lambda X: Iterated(X), TypeError, "got Iterated: give an array or a data frame"),
    "one_dim": (lambda X: xr.DataArray(X[:, 0]), ValueError, "1D array"),
    "three_dims": (lambda X: xr.DataArray(X[:, :, None]), ValueError, "dim 3"),
}


@pytest.mark.usefixtures("no_work")
@pytest.mark.in_turn("kind", REFUSED)
def test_what_is_no_table_is_refused_with_advice(zoo, kind, case):
    make, error, match = REFUSED[case]
    with pytest.raises(error, match=match):
        zoo.make(kind).fit(make(zoo.X), zoo.target(kind))


@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("library", ["pandas", "polars", "xarray"])
def test_coordinates_in_the_container_that_was_asked_for(zoo, fitted_to_table, library, container):
    model = deepcopy(fitted_to_table(READER, library)).set_output(transform=container)
    got = model.transform(TABLES[library](zoo.X, NAMES))
    assert isinstance(got, {"pandas": pd.DataFrame, "polars": pl.DataFrame}[container])
    assert list(got.columns) == model.get_feature_names_out().tolist()
    assert list(got.columns) == [f"{READER.lower()}{i}" for i in range(got.shape[1])]
    if container == library == "pandas":
        assert (got.index == TABLES[library](zoo.X, NAMES).index).all()
    np.testing.assert_array_equal(np.asarray(got), zoo.fitted(READER).transform(zoo.X))
    mean, cov = model.transform(TABLES[library](zoo.X, NAMES), return_cov=True)
    assert type(mean) is type(got)
    assert cov.shape == (*mean.shape, mean.shape[1])


WHOLE = {
    "nullable": lambda X: pd.DataFrame(X, columns=NAMES).astype("Int64"),
    "arrow_types": lambda X: pd.DataFrame(X, columns=NAMES).astype("int64[pyarrow]"),
    "text": lambda X: pd.DataFrame(X, columns=NAMES).astype("int").astype("string"),
    "arrow_text": lambda X: pd.DataFrame(X, columns=NAMES).astype("int").astype("string[pyarrow]"),
    "categories": lambda X: pd.DataFrame(X, columns=NAMES).astype("category"),
    "polars_integers": lambda X: TABLES["polars"](X, NAMES).cast(pl.Int16),
    "polars_text": lambda X: TABLES["polars"](X, NAMES).cast(pl.String),
    "polars_decimals": lambda X: TABLES["polars"](X, NAMES).cast(pl.Decimal(10, 2)),
    "decimals": lambda X: np.vectorize(lambda v: decimal.Decimal(int(v)), otypes=[object])(X),
    "objects": lambda X: X.astype(object),
    "int32": lambda X: X.astype(np.int32),
    "bytes": lambda X: X.astype(np.uint8),
    "float32": lambda X: X.astype(np.float32),
    "fortran_order": np.asfortranarray,
    "nested_lists": lambda X: X.tolist(),
    "no_mask": lambda X: np.ma.masked_greater(X, 100.0),
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_numbers_in_any_type(zoo, fitted_to, case):
    whole = np.round(10 * zoo.X)
    model = fitted_to(READER, "whole numbers", whole)
    got = zoo.fit(zoo.make(READER), WHOLE[case](whole), zoo.y)
    np.testing.assert_array_equal(said(got, WHOLE[case](whole)), said(model, whole))


SPARSE = {
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_array": sparse.coo_array,
    "sparse_columns": lambda X: pd.DataFrame(X, columns=NAMES).astype(
        pd.SparseDtype("float64", 0.0)
    ),
}


@pytest.mark.parametrize("case", SPARSE)
def test_sparse_samples_in_any_format(zoo, fitted_to, case):
    taker = "BM2PCAClassifier"
    X, y = np.where(zoo.X > 2.0, zoo.X, 0.0)[::3], zoo.y[::3]
    model = fitted_to(taker, "sparse", sparse.csr_array(X), y)
    got = zoo.fit(zoo.make(taker), SPARSE[case](X), y)
    np.testing.assert_allclose(said(got, SPARSE[case](X)), said(model, sparse.csr_array(X)))


TEXT = np.array(["b", "c", "a"])
LABELS = {
    "list": lambda y: TEXT[y].tolist(),
    "tuple": lambda y: tuple(TEXT[y].tolist()),
    "pandas": lambda y: pd.Series(TEXT[y], name="species"),
    "index": lambda y: pd.Index(TEXT[y]),
    "nullable_text": lambda y: pd.Series(TEXT[y], dtype="string"),
    "arrow_text": lambda y: pd.Series(TEXT[y], dtype="string[pyarrow]"),
    "categories": lambda y: pd.Categorical(TEXT[y], categories=["z", "c", "b", "a"], ordered=True),
    "polars": lambda y: pl.Series("species", TEXT[y].tolist()),
    "polars_categories": lambda y: pl.Series(TEXT[y].tolist(), dtype=pl.Categorical),
    "polars_enum": lambda y: pl.Series(TEXT[y].tolist(), dtype=pl.Enum(["c", "b", "a", "z"])),
    "xarray": lambda y: xr.DataArray(TEXT[y], dims="cell"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_in_any_container(zoo, fitted_to, case):
    """Sorted as text, whatever the order of categories; those that do not occur are no classes."""
    model = zoo.fit(zoo.make(READER), zoo.X, LABELS[case](zoo.y))
    assert model.classes_.tolist() == ["a", "b", "c"]
    expected = fitted_to(READER, "text labels", zoo.X, TEXT[zoo.y])
    np.testing.assert_array_equal(model.predict_proba(zoo.X), expected.predict_proba(zoo.X))
    assert model.score(zoo.X, TEXT[zoo.y]) > 0.75
    tree = model.predict_idata(zoo.X, LABELS[case](zoo.y))
    assert tree["predictions/y"].values.tolist() == TEXT[zoo.y].tolist()


NUMBERS = {
    "list": lambda y: y.tolist(),
    "pandas": pd.Series,
    "nullable": lambda y: pd.Series(y, dtype="Float64"),
    "arrow": lambda y: pd.Series(y, dtype="float64[pyarrow]"),
    "objects": lambda y: y.astype(object),
    "text": lambda y: y.astype(str),
    "polars": pl.Series,
    "xarray": lambda y: xr.DataArray(y, dims="cell"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_in_any_container(zoo, case):
    kind = "BSDRRegressor"
    y = zoo.target(kind)
    model = zoo.fit(zoo.make(kind), zoo.X, NUMBERS[case](y))
    np.testing.assert_array_equal(model.predict(zoo.X), zoo.fitted(kind).predict(zoo.X))
    tree = model.predict_idata(zoo.X, NUMBERS[case](y))
    assert tree["predictions/y"].shape[0] == len(y)


@pytest.mark.parametrize("dtype", ["Int64", "boolean"])
def test_nullable_labels(zoo, dtype):
    y = np.minimum(zoo.y, 1)
    model = zoo.fit(zoo.make(READER), zoo.X, pd.Series(y).astype(dtype))
    assert model.predict(zoo.X).dtype == {"Int64": np.int64, "boolean": bool}[dtype]
    assert model.score(zoo.X, y.astype(model.classes_.dtype)) > 0.9
