"""A fitted estimator as a JSON tree and columns of numbers, and back.

JSON says what it can: None, booleans, integers, finite floats, strings, lists. All else is an
object with one key, which says what it is:

========== ==========================================================================
float      ``"nan"``, ``"inf"``, ``"-inf"``
tuple      its items
dict       pairs of key and value
scalar     of NumPy: dtype and value
array      position in the table of arrays
object     position in the table of objects
========== ==========================================================================

An array of the table is numbers written out, if few or not numbers; or the next so many of the
column of its dtype; or a variable of a tree. Objects come after those that they hold.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bsdr_models.persistence import classes
from bsdr_models.persistence.classes import Variable

# Of what a file holds. A number more for every change of the classes in it; and in UPGRADES, under
# the number before, a function that makes a manifest of that number one of the next. A new field
# with a default needs none.
SCHEMA = 1
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

# Values within values: no fit comes near it, and Python can go that far.
DEPTH = 100
# Arrays of so many entries are written out in the JSON tree: a place of their own costs more.
FEW = 32
# Text of a dtype that is only as long as it is: bytes that one of JSON may stand for, and bytes
# that are granted to any.
EXPANSION, GRANTED = 4096, 2**20
_DTYPE = re.compile(r"[<>|=]?([biuf][1248]|U[0-9]{1,9}|O|[mM]8(\[[a-zA-Z0-9]+\])?)")

type Json = Any
type Columns = dict[str, np.ndarray]
type Fetch = Callable[[str], np.ndarray]


class Encoder:
    """Turns values into JSON; what does not go in there is in `objects`, `arrays`, `columns`.

    What is one object twice is stored once.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Json]] = []
        self.arrays: list[dict[str, Json]] = []
        self._columns: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        # By identity, with the value itself, lest another one gets its address.
        self._known: dict[int, tuple[Any, Json]] = {}
        self._depth = 0

    @property
    def columns(self) -> Columns:
        """All numbers of one dtype, in the order of the table of arrays."""
        return {name: np.concatenate(parts) for name, parts in self._columns.items()}

    def value(self, value: Any, path: str) -> Json:
        """JSON of a value.

        Raises
        ------
        TypeError
            If the value cannot be stored; with its path.
        """
        if self._depth == DEPTH:
            raise TypeError(f"{path[:80]}...: values that hold values {DEPTH} times over")
        self._depth += 1
        try:
            return self._json(value, path)
        finally:
            self._depth -= 1

    def _json(self, value: Any, path: str) -> Json:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return self._items(value, path)
        if kind is tuple:
            return {"tuple": self._items(value, path)}
        if kind is dict:
            pairs = [
                [self.value(key, f"{path}, a key"), self.value(item, f"{path}[{key!r}]")]
                for key, item in value.items()
            ]
            return {"dict": pairs}
        if isinstance(value, np.generic):
            dtype = self._dtype(value.dtype, path)
            return {"scalar": [dtype, self.value(_plain(np.asarray(value))[0], path)]}
        if kind is Variable:
            return self._once(value.array, lambda: self._array(value.array, path, value.location))
        if kind is np.ndarray:
            return self._once(value, lambda: self._array(value, path, None))
        return self._once(value, lambda: self._object(value, path))

    def _items(self, items: Any, path: str) -> list[Json]:
        return [self.value(item, f"{path}[{i}]") for i, item in enumerate(items)]

    def _once(self, value: Any, encode: Callable[[], Json]) -> Json:
        if id(value) not in self._known:
            self._known[id(value)] = value, encode()
        return self._known[id(value)][1]

    def _object(self, value: Any, path: str) -> Json:
        try:
            name, values = classes.take(value)
        except TypeError as error:
            raise TypeError(f"{path}: {error}") from None
        stored = {key: self.value(item, f"{path}.{key}") for key, item in values.items()}
        self.objects.append({"class": name, "values": stored})
        return {"object": len(self.objects) - 1}

    def _array(self, array: np.ndarray, path: str, location: str | None) -> Json:
        entry = {"dtype": self._dtype(array.dtype, path), "shape": list(array.shape)}
        axes = _axes_by_stride(array)
        if axes != sorted(axes):
            entry["axes"] = axes
        if location is not None:
            entry["variable"] = location
        elif array.dtype.kind not in "biuf" or array.size <= FEW:
            entry["values"] = self._items(_plain(array), path)
        else:
            native = column_dtype(array.dtype)
            self._columns[native.name].append(np.ravel(array).astype(native, copy=False))
        self.arrays.append(entry)
        return {"array": len(self.arrays) - 1}

    def _dtype(self, dtype: np.dtype, path: str) -> str:
        if not _DTYPE.fullmatch(dtype.str):
            raise TypeError(f"{path}: an array of dtype {dtype} cannot be stored")
        return dtype.str


class Decoder:
    """Turns JSON back into values.

    Parameters
    ----------
    column, variable : callable
        Numbers of a dtype, and of a variable of the tree, by name.
    budget : int
        Bytes that text may take, see :data:`EXPANSION`.

    Raises
    ------
    ValueError
        By all methods, if the JSON is not what an :class:`Encoder` writes.
    """

    def __init__(self, *, column: Fetch, variable: Fetch, budget: int) -> None:
        self.objects: list[Any] = []
        self.arrays: list[np.ndarray] = []
        self._column, self._variable = column, variable
        self._rest: dict[str, np.ndarray] = {}  # of each column, what no array has yet
        self._budget = budget
        self._depth = 0

    def tables(self, arrays: list[dict[str, Json]], objects: list[dict[str, Json]]) -> None:
        """Fill the tables that values refer to."""
        for entry in arrays:
            self.arrays.append(self._array(entry))
        if any(len(rest) for rest in self._rest.values()):
            raise ValueError("it holds numbers that belong nowhere")
        for entry in objects:
            values = {key: self.value(item) for key, item in entry["values"].items()}
            self.objects.append(classes.make(entry["class"], values))

    def value(self, node: Json) -> Any:
        """Value of a JSON node."""
        if self._depth == DEPTH:
            raise ValueError(f"its values hold values {DEPTH} times over")
        self._depth += 1
        try:
            return self._decoded(node)
        finally:
            self._depth -= 1

    def _decoded(self, node: Json) -> Any:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        match kind:
            case "float":
                return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
            case "tuple":
                return tuple(self.value(item) for item in content)
            case "dict":
                return {self.value(key): self.value(item) for key, item in content}
            case "scalar":
                return self._filled(parse_dtype(content[0]), [self.value(content[1])])[0]
            case "array":
                return _entry(self.arrays, content)
            case "object":
                return _entry(self.objects, content)
        raise ValueError(f"it holds a {kind!r}, which is no kind of value")

    def _array(self, entry: Mapping[str, Json]) -> np.ndarray:
        dtype, shape = parse_dtype(entry["dtype"]), tuple(entry["shape"])
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array has the shape {shape}")
        size = math.prod(shape)
        if "variable" in entry:
            flat = self._variable(entry["variable"])
            if flat.shape != shape:
                raise ValueError(f"{entry['variable']} has the shape {flat.shape}, not {shape}")
            flat = flat.reshape(-1).astype(dtype, copy=False)
        elif "values" in entry:
            flat = self._filled(dtype, [self.value(item) for item in entry["values"]])
        else:
            name = column_dtype(dtype).name
            if name not in self._rest:
                self._rest[name] = self._column(name)
            column = self._rest[name]
            flat, self._rest[name] = column[:size].astype(dtype), column[size:]
        if len(flat) != size:
            raise ValueError(f"an array of shape {shape} has {len(flat)} entries")
        array = flat.reshape(shape)
        if "axes" not in entry:
            return array
        axes = entry["axes"]
        return np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes))

    def _filled(self, dtype: np.dtype, values: list[Any]) -> np.ndarray:
        """Vector of values that were written out."""
        self._budget -= dtype.itemsize * len(values)
        if self._budget < 0:
            raise ValueError("it asks for much more memory than it takes itself")
        flat = np.empty(len(values), dtype)
        if dtype.kind in "mM":
            flat[:] = np.array(values, np.int64).view(dtype)
        else:
            for i, value in enumerate(values):
                flat[i] = value
        return flat


def parse_dtype(text: Json) -> np.dtype:
    """The dtype of a text; a ValueError if arrays of it are not stored."""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"{text!r} is no dtype of a saved array")
    return np.dtype(text)


def column_dtype(dtype: np.dtype) -> np.dtype:
    """What numbers are stored as: bytes for booleans, else themselves in native order."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")


def _plain(array: np.ndarray) -> list[Any]:
    """Entries as Python's own objects; of dates, their integers."""
    flat = np.ravel(array)
    return (flat.view(np.int64) if array.dtype.kind in "mM" else flat).tolist()


def _axes_by_stride(array: np.ndarray) -> list[int]:
    """Axes in the order of memory, outermost first.

    How arrays lie in memory decides in which order BLAS sums, so the last bits of predictions.
    """
    # The stride of an axis of one entry says nothing.
    long = [axis for axis, size in enumerate(array.shape) if size > 1]
    ordered = sorted(long, key=lambda axis: -abs(array.strides[axis]))
    if ordered == long:
        return list(range(array.ndim))
    return [axis for axis in range(array.ndim) if axis not in long] + ordered


def _entry(table: list[Any], index: Json) -> Any:
    if type(index) is not int or not 0 <= index < len(table):
        raise ValueError(f"it refers to entry {index!r} of a table of {len(table)}")
    return table[index]
