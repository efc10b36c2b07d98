"""Specification of a model: one type for all paper folders."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Specification of a model.

    ``name`` is that of its folder, and the root attribute ``model`` of its trees;
    ``citation_bibtex`` that of the paper; ``variables`` the dims, without chain and
    draw, of those that an engine may return, by public name; ``identified`` the names of those that
    do not permute or flip, for diagnostics; ``alignment`` the arguments of `align_draws` for the
    others, whose loadings span the subspace.

    See Also
    --------
    bsdr_models.bsdr.build_model : the model in PyMC, with the distribution of each variable.

    Examples
    --------
    >>> from bsdr_models.bsdr import SPEC
    >>> SPEC.variables["projection"]
    ('feature', 'component')
    """

    name: str
    citation_bibtex: str
    variables: Mapping[str, tuple[str, ...]]
    identified: tuple[str, ...]
    alignment: Mapping[str, Any] = MappingProxyType({})


def find_spec(name: str) -> ModelSpec | None:
    """Specification in the folder of that name, None if there is no such model."""
    try:
        spec: ModelSpec = import_module(f"bsdr_models.{name}.spec").SPEC
    except ModuleNotFoundError:
        return None
    return spec
