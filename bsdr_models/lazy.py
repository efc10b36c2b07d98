"""Public names of a package, loaded on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_on_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``, given the module within it of each public name."""

    def load(name: str) -> Any:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
