"""What a paper folder says about its model: data only, one type for the whole zoo."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One quantity of a model.

    dims
        Names of its axes, without chain and draw.
    symbol
        The letter of the paper.
    equation
        How it is distributed or computed, in plain text.
    description
        One line for a reader who has not read the paper.
    """

    dims: tuple[str, ...]
    symbol: str
    equation: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model of the zoo.

    name
        Name of its folder, and of the root attribute ``model`` of its trees.
    paper
        Reference in one line.
    citation_bibtex
        The same for a reference manager.
    variables
        Every variable an engine may return, by its public name.
    identified
        Names of those on which diagnostics are meaningful: the others may permute or flip.
    engines
        Inference methods that exist for it.
    is_generative
        Whether the targets can be drawn from the model.
    """

    name: str
    paper: str
    citation_bibtex: str
    variables: Mapping[str, Variable]
    identified: tuple[str, ...]
    engines: tuple[str, ...]
    is_generative: bool
