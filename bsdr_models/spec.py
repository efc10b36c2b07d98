"""Specification of a model: one type for all paper folders."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a model.

    ``dims`` are the names of its axes, without chain and draw, ``symbol`` that of the paper,
    ``equation`` its distribution or formula in plain text, ``description`` a line for a reader who
    has not read the paper.

    See Also
    --------
    ModelSpec : the model.

    Examples
    --------
    >>> from bsdr_models.bsdr import SPEC
    >>> len(SPEC.variables) > 0
    True
    """

    dims: tuple[str, ...]
    symbol: str
    equation: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Specification of a model.

    ``name`` is that of its folder, and the root attribute ``model`` of its trees; ``paper`` the
    reference in one line, ``citation_bibtex`` in BibTeX; ``variables`` those that an engine may
    return, by public name, and ``identified`` the names of those that do not permute or flip, for
    diagnostics.

    See Also
    --------
    Variable : one of its variables.

    Examples
    --------
    >>> from bsdr_models.bsdr import SPEC
    >>> SPEC.name
    'bsdr'
    """

    name: str
    paper: str
    citation_bibtex: str
    variables: Mapping[str, Variable]
    identified: tuple[str, ...]


def find_spec(name: str) -> ModelSpec | None:
    """Specification in the folder of that name, None if there is no such model."""
    try:
        spec: ModelSpec = import_module(f"bsdr_models.{name}.spec").SPEC
    except ModuleNotFoundError:
        return None
    return spec
