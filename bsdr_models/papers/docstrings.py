"""Sections that the docstrings of ``fit`` and ``predict`` of all papers have."""

from collections.abc import Callable
from inspect import cleandoc
from typing import Any

EXAMPLE = """
Examples
--------
>>> import warnings
>>> from sklearn.datasets import load_iris
>>> from sklearn.preprocessing import scale
>>> from bsdr_models.papers import {folder}
>>> X, y = load_iris(return_X_y=True)
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")  # the objective of D-GPLVM has no minimum
...     tree = {folder}.fit(scale(X)[::3], y[::3], n_components=2, random_state=0)
"""
FIT = """

Parameters
----------
X : array-like of shape (N, D)
    Samples as the model sees them: scale features before.
y : array-like of shape (N,), or (N, K)
    {targets}
{more}**arguments
    Those of :class:`bsdr_models.papers.{estimator}`, but for ``standardize``.

Returns
-------
xarray.DataTree
    With ``posterior``, {posterior}, ``fit``, ``observed_data`` and ``constant_data``, of
    samplers also ``sample_stats`` and, if the model has one, ``log_likelihood``.

Raises
------
TypeError
    If there is no such argument.
ValueError
    If samples or targets are not finite, their shapes disagree, or an argument is out of range.

See Also
--------
predict : predictions from the tree.
bsdr_models.papers.{estimator} : the same fit as an estimator.
"""
FIT += (
    EXAMPLE
    + """>>> tree["posterior/latent"].sizes["component"]
2
"""
)

PREDICT = """

Parameters
----------
tree : xarray.DataTree
    From `fit` or :func:`bsdr_models.from_trace`{draws}.
X : array-like of shape (M, D)
    Samples, scaled as those of the fit.
{more}
Returns
-------
ndarray of shape (M, K)
    Probabilities of the classes, or that each label is one; means of real outputs.

Raises
------
TypeError
    If `tree` is no tree.
ValueError
    If variables are missing, or X has other features than the tree.

See Also
--------
fit : the fit.
"""
PREDICT += (
    EXAMPLE
    + """>>> {folder}.predict(tree, scale(X)[1::3]).shape
(50, 3)
"""
)


def with_sections[F: Callable[..., Any]](sections: str, **parts: str) -> Callable[[F], F]:
    """Add sections to the docstring of a function; "{name}" stands for a part."""

    def add(function: F) -> F:
        function.__doc__ = cleandoc(function.__doc__ or "") + sections.format(**parts)
        return function

    return add
