"""Specification of a model: one type for all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bsdr_models.lazy import annex

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Specification of a model.

    ``name`` is the root attribute ``model`` of its trees;
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


# Modules with the specifications of the models.
MODULES = {
    "bsdr": "bsdr.trees",
    "bm2pca": "bm2pca.trees",
    "dgplvm": "dgplvm.trees",
    "stack": "compare.stacking",
}


# Root attribute of trees of other models.
ATTRIBUTE = "specification"


def spec_attrs(spec: ModelSpec) -> dict[str, str]:
    """Root attributes that tell a specification: all of it unless it is of this package."""
    if spec.name in MODULES:
        return {"model": spec.name}
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    return {"model": spec.name, ATTRIBUTE: json.dumps(values, default=dict)}


def find_spec(tree: "xr.DataTree") -> ModelSpec | None:
    """Specification of the model of a tree, None if the tree does not tell it."""
    if ATTRIBUTE in tree.attrs:
        return ModelSpec(**json.loads(tree.attrs[ATTRIBUTE]))
    module = MODULES.get(tree.attrs.get("model", ""))
    return None if module is None else annex(module).SPEC
