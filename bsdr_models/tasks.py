"""Several tasks in one tree: classes of all tasks side by side along the dim of outcomes."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import LABEL, TASK

# Coordinates of the dim of outcomes: position of the task,
OUTCOME_TASK = "outcome_task"
# and class.
OUTCOME_CLASS = "outcome_class"

# Names of tasks with their classes.
type Tasks = Sequence[tuple[Any, np.ndarray]]


def select_task(tree: xr.DataTree, task: Hashable) -> xr.DataTree:
    """Return the tree of one of several tasks, for plots and tables of a single one.

    Parameters
    ----------
    tree : xarray.DataTree
        ``idata_`` or the result of ``predict_idata`` of a classifier with several tasks.
    task : hashable
        Name of the task, of the coordinate ``task``: the name of its column, or its number.

    Returns
    -------
    xarray.DataTree
        As of a classifier of this task. Latent coordinates and features are those of all tasks, and
        so are their relevance, the objective and the held-out score.

    Raises
    ------
    ValueError
        If the tree is not of several tasks, or has no such task.

    See Also
    --------
    BM2PCAClassifier : learns several tasks.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BM2PCAClassifier, plots, select_task
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BM2PCAClassifier(random_state=0).fit(X[::2], np.column_stack([y, y == 1])[::2])
    >>> tree = model.predict_idata(X[1::2], np.column_stack([y, y == 1])[1::2])
    >>> ax = plots.plot_map(select_task(tree, 0))
    """
    names = names_of(tree)
    if not names:
        raise ValueError("the tree is not of several tasks")
    if task not in names:
        raise ValueError(f"task must be one of {names}, got {task!r}")
    position = names.index(task)
    groups = {}
    for node in tree.subtree:
        dataset = node.to_dataset(inherit=False)
        if TASK in dataset.dims:
            dataset = dataset.isel({TASK: position}, drop=True)
        if OUTCOME_TASK in dataset.coords:
            dataset = dataset.isel({LABEL: np.flatnonzero(dataset[OUTCOME_TASK] == position)})
            classes = dataset[OUTCOME_CLASS].values
            dataset = dataset.drop_vars([OUTCOME_TASK, OUTCOME_CLASS, LABEL])
            dataset = dataset.assign_coords({LABEL: classes})
        groups[node.path] = dataset
    if "/fit" in groups:
        groups["/fit"]["y_index"] = groups["/observed_data"]["y_index"].variable
    attrs = groups["/"].attrs
    if isinstance(attrs.get("temperature"), Sequence | np.ndarray):
        attrs["temperature"] = float(attrs["temperature"][position])
    return xr.DataTree.from_dict(groups)


def by_task(values: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    """Columns of each task, of which there are so many, along the last axis."""
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)


def names_of(tree: xr.DataTree) -> list[Hashable]:
    """Names of the tasks of a tree of several; else empty."""
    for node in tree.children.values():
        if TASK in node.coords:
            names: list[Hashable] = node.coords[TASK].values.tolist()
            return names
    return []


def check_one_task(array: xr.DataArray) -> None:
    """Raise a ValueError if a variable is of several tasks."""
    if TASK in array.dims or OUTCOME_TASK in array.coords:
        raise ValueError(
            f"the tree has several tasks, and {array.name!r} is of all of them: give the tree of "
            "one, bsdr_models.select_task(tree, task)"
        )


def outcome_names(tasks: Tasks) -> list[str]:
    """Names of the classes of all tasks."""
    return [f"{name}: {label}" for name, classes in tasks for label in classes]


def task_coordinates(tasks: Tasks) -> dict[str, Any]:
    """Coordinates of the classes of all tasks."""
    position = np.repeat(np.arange(len(tasks)), [len(classes) for _, classes in tasks])
    classes = [own.astype(str) if _is_text(tasks) else own for _, own in tasks]
    return {OUTCOME_TASK: (LABEL, position), OUTCOME_CLASS: (LABEL, np.concatenate(classes))}


def as_stored(values: np.ndarray, tasks: Tasks) -> np.ndarray:
    """Classes (N, T) as they are stored in trees and files: text if some are, else numbers."""
    if _is_text(tasks):
        names = [{label: str(label) for label in classes.tolist()} for _, classes in tasks]
        columns = [
            [own.get(value, str(value)) for value in column]
            for own, column in zip(names, values.T.tolist(), strict=True)
        ]
        return np.array(columns).T
    if values.dtype == object:
        values = np.array(values.tolist())
    return values.astype(str) if values.dtype == object else values


def _is_text(tasks: Tasks) -> bool:
    return any(classes.dtype.kind in "OSU" for _, classes in tasks)
