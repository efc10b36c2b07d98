"""Specification of a model: one type for all paper folders."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a model.

    dims
        Names of its axes, without chain and draw.
    symbol
        Symbol in the paper.
    equation
        Distribution or formula, in plain text.
    description
        One line for a reader who has not read the paper.

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

    name
        Name of its folder, and value of the root attribute ``model`` of its trees.
    paper
        Reference in one line.
    citation_bibtex
        The same in BibTeX.
    variables
        Variables that an engine may return, by public name.
    identified
        Names of the identified ones, for diagnostics; others may permute or flip.
    engines
        Available inference methods.
    is_generative
        Whether targets can be drawn from the model.

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
    engines: tuple[str, ...]
    is_generative: bool
