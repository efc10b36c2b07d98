"""Public names and annexes, loaded on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_on_use(package: str, modules: Mapping[str, str | None]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``, given the module within it of each public name.

    None is for a name that is itself a module; a dot before that of a module beside the package.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        if module is None:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f".{module}", package), name)

    return load


def annex(module: str) -> Any:
    """Module of an annex, which the core loads when a user asks for what is in it."""
    return import_module(f"bsdr_models.{module}")
