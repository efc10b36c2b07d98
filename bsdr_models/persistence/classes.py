"""What a saved model may consist of: the classes, by the names that files know them by.

Loading makes instances of these and of nothing else. A class that moves or is renamed keeps the
name that it has here. A change of what an instance holds needs a new schema, see
:mod:`bsdr_models.persistence.codec`.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_array

type Fields = dict[str, Any]

ESTIMATORS = {
    "BM2PCAClassifier": "bsdr_models.bm2pca.estimator",
    "BM2PCARegressor": "bsdr_models.bm2pca.regressor",
    "BSDRClassifier": "bsdr_models.bsdr.estimator",
    "BSDRRegressor": "bsdr_models.bsdr.estimator",
    "DGPLVMClassifier": "bsdr_models.dgplvm.estimator",
    "MNPClassifier": "bsdr_models.bsdr.mnp",
}

# Dataclasses by module; a file calls them module.Class, without the package.
_DATACLASSES = {
    "data": ("Data",),
    "inference.coordinate_ascent": ("FitResult",),
    "inference.optimise": ("MapResult",),
    "numerics.factors": ("Gamma", "NormalColumns", "NormalRows", "RidgeColumns"),
    "numerics.outliers": ("Reference",),
    "numerics.probit_functions": ("ExactFunctions", "InducedFunctions"),
    "numerics.probit_kernels": ("SmoothBiasKernel", "SmoothLinearKernel"),
    "numerics.row_covariances": ("AxisCovariances", "StackedCovariances"),
    "numerics.row_space": ("DenseAxes", "SparseAxes"),
    "numerics.scaling": ("Scaler",),
    "numerics.weighted_ridge": ("WeightedRidge",),
    "bsdr.blocks": ("Learned", "Model", "Stream"),
    "bsdr.hierarchical": ("Coordinates", "HierarchicalFit", "Posterior"),
    "bsdr.laplace": ("Normal", "Prepared"),
    "bsdr.laplace_sums": ("DataSums", "Response"),
    "bsdr.mean_field": ("Scores", "State"),
    "bsdr.mnp": ("State",),
    "bsdr.posterior": ("Metric", "Parameters"),
    "bsdr.predict": ("DrawPosterior", "MeanFieldPosterior"),
    "bsdr.priors": ("HierarchicalPriors", "Priors"),
    "bsdr.trees": ("Context",),
    "bm2pca.generative": ("Generative", "Part"),
    "bm2pca.label_free": ("OneVsRestPosterior", "SubspacePosterior"),
    "bm2pca.mean_field": ("Latent", "Pooled", "State", "Weights"),
    "bm2pca.metric": ("Metric",),
    "bm2pca.one_vs_rest": ("Data", "State", "Weights"),
    "bm2pca.predict": ("DrawPosterior", "MarginPosterior"),
    "bm2pca.priors": ("Priors",),
    "bm2pca.settings": ("Candidate",),
    "bm2pca.subspace": ("Settings", "State"),
    "bm2pca.task": ("Learned", "Sampled", "Task"),
    "bm2pca.trees": ("Context",),
    "bm2pca.truncated_metric": ("TruncatedMetric",),
    "bm2pca.views": ("Loadings", "Moments", "Offset", "ViewState"),
    "dgplvm.back_constraint": ("DenseMap", "LowRankMap"),
    "dgplvm.criteria": ("Criterion",),
    "dgplvm.decoder": ("Decoder",),
    "dgplvm.dynamics": ("Dynamics", "DynamicsPriors", "Predictor"),
    "dgplvm.fit": ("Task",),
    "dgplvm.gp_classifier": ("GPClassifier",),
    "dgplvm.learn": ("Learned", "Sampled"),
    "dgplvm.likelihood": ("Rows",),
    "dgplvm.paper": ("ByPaperMap",),
    "dgplvm.paper_fit": ("Collapse", "PaperFit"),
    "dgplvm.paper_objective": ("KernelMap", "PaperObjective"),
    "dgplvm.predict": ("ByLikelihood", "ByMap", "DrawPosterior", "Positions", "Posterior"),
    "dgplvm.priors": ("LogNormal", "Priors"),
    "dgplvm.trees": ("Context",),
}
DATACLASSES = tuple(f"{module}.{name}" for module, names in _DATACLASSES.items() for name in names)

# Other classes, with the attributes that make an instance; the rest of it is a cache.
PLAIN = {
    "numerics.design.DenseDesign": ("X",),
    "numerics.design.SpectralDesign": ("basis", "eigenvalues", "A"),
}

BIT_GENERATORS = {
    "MT19937": np.random.MT19937,
    "PCG64": np.random.PCG64,
    "PCG64DXSM": np.random.PCG64DXSM,
    "Philox": np.random.Philox,
    "SFC64": np.random.SFC64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An array of a tree, which the file keeps where ArviZ looks for it.

    location
        Group and name, ``posterior/weights``.
    """

    array: np.ndarray
    location: str


def take(value: Any) -> tuple[str, Fields]:
    """Stored name of a value's class, and what makes the value.

    Raises
    ------
    TypeError
        If the class is not one that can be stored.
    """
    kind = type(value)
    if kind in _FOREIGN:
        name, taken, _ = _FOREIGN[kind]
        return name, taken(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("bsdr_models.")
    if name not in DATACLASSES and name not in PLAIN:
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be stored; numbers, text, arrays of "
            "them, lists, dictionaries and random generators can"
        )
    return name, {key: getattr(value, key) for key in stored_fields(name)}


def make(name: str, values: Fields) -> Any:
    """Instance of a class by its stored name.

    Raises
    ------
    ValueError
        If the name is not known, or the values are not those of the class.
    """
    for foreign, _, made in _FOREIGN.values():
        if foreign == name:
            return made(values)
    known = stored_fields(name)
    if unknown := values.keys() - known.keys():
        raise ValueError(f"{name} has no {sorted(unknown)}")
    kind = locate(name)
    instance: Any = object.__new__(kind)
    for key, default in known.items():
        if key not in values and default is MISSING:
            raise ValueError(f"{name} lacks {key}")
        object.__setattr__(instance, key, values.get(key, default))
    return instance


def stored_fields(name: str) -> Fields:
    """Names of what is stored of a class, each with what stands for it in files without it."""
    if name in PLAIN:
        return dict.fromkeys(PLAIN[name], MISSING)
    kind = locate(name)
    assert is_dataclass(kind)
    return {field.name: field.default for field in fields(kind)}


@cache
def locate(name: str) -> type:
    """Class of one of ours, by its stored name; a ValueError for any other name."""
    if name in ESTIMATORS:
        return getattr(import_module(ESTIMATORS[name]), name)
    if name not in DATACLASSES and name not in PLAIN:
        raise ValueError(f"it asks for a {name!r}, which is no part of a model")
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"bsdr_models.{module}"), attribute)


# ---------------------------------------------------------------- classes of other packages


def _take_generator(generator: np.random.Generator) -> Fields:
    bits = generator.bit_generator
    name, seed = type(bits).__name__, getattr(bits, "seed_seq", None)
    if BIT_GENERATORS.get(name) is not type(bits) or type(seed) is not np.random.SeedSequence:
        raise TypeError(f"a Generator of {name} that was not seeded by NumPy cannot be stored")
    spawning = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
    return {
        "bit_generator": name,
        "state": bits.state,
        "seed": {key: getattr(seed, key) for key in spawning},
    }


def _make_generator(values: Fields) -> np.random.Generator:
    bits = BIT_GENERATORS[values["bit_generator"]](np.random.SeedSequence(**values["seed"]))
    bits.state = values["state"]
    return np.random.Generator(bits)


def _take_random_state(state: np.random.RandomState) -> Fields:
    found = state.get_state(legacy=False)
    assert isinstance(found, dict)
    if found["bit_generator"] != "MT19937":
        raise TypeError(f"a RandomState of {found['bit_generator']} cannot be stored")
    return {"state": found}


def _make_random_state(values: Fields) -> np.random.RandomState:
    state = np.random.RandomState(0)
    state.set_state(values["state"])
    return state


def _take_sparse(rows: csr_array) -> Fields:
    return {
        "shape": tuple(int(size) for size in rows.shape),
        "data": rows.data,
        "indices": rows.indices,
        "indptr": rows.indptr,
    }


def _make_sparse(values: Fields) -> csr_array:
    parts = values["data"], values["indices"], values["indptr"]
    rows = csr_array(parts, shape=values["shape"])
    rows.check_format(full_check=True)
    return rows


def _take_path(path: Path) -> Fields:
    return {"path": str(path)}


def _make_path(values: Fields) -> Path:
    return Path(values["path"])


def _take_tree(tree: xr.DataTree) -> Fields:
    """Groups in order: path, attributes, and of each variable whether it is a coordinate, ..."""
    groups = []
    for node in tree.subtree:
        dataset = node.to_dataset(inherit=False)
        variables = [
            (
                str(name),
                name in dataset.coords,
                tuple(str(dim) for dim in variable.dims),
                _variable(variable.values, f"{node.path}/{name}".lstrip("/")),
                dict(variable.attrs),
            )
            for name, variable in dataset.variables.items()
        ]
        groups.append((node.path, dict(dataset.attrs), variables))
    return {"groups": groups}


def _variable(array: np.ndarray, location: str) -> Any:
    """Numbers lie in the file; names, which NetCDF would hand back as another type, do not."""
    return Variable(array=array, location=location) if array.dtype.kind in "biuf" else array


def _make_tree(values: Fields) -> xr.DataTree:
    datasets = {}
    for path, attrs, variables in values["groups"]:
        sorts: tuple[Fields, Fields] = ({}, {})
        for name, is_coordinate, dims, array, own in variables:
            sorts[is_coordinate][name] = (dims, array, own)
        datasets[path] = xr.Dataset(*sorts, attrs=attrs)
    return xr.DataTree.from_dict(datasets)


_FOREIGN: dict[type, tuple[str, Callable[[Any], Fields], Callable[[Fields], Any]]] = {
    np.random.Generator: ("Generator", _take_generator, _make_generator),
    np.random.RandomState: ("RandomState", _take_random_state, _make_random_state),
    csr_array: ("csr_array", _take_sparse, _make_sparse),
    xr.DataTree: ("DataTree", _take_tree, _make_tree),
    type(Path()): ("Path", _take_path, _make_path),
}
