"""Digest of the code behind a result, without comments and docstrings; version and commit."""

import ast
import hashlib
import subprocess
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeGuard

import bsdr_models

ROOTS = {"bsdr_models": Path(bsdr_models.__file__).parent, "benchmarks": Path(__file__).parent}
REPOSITORY = Path(__file__).parents[1]
# Files whose commit counts: lines and pages that a run writes are others.
CODE = ("bsdr_models", "benchmarks/*.py")
# The data have a separate digest.
ELSEWHERE = {"benchmarks.datasets"}


def code(modules: Iterable[str]) -> str:
    """Digest of modules and of all that they import, at their head or inside a function."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _read(name)[1]
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n{_read(name)[0]}\n".encode())
    return digest.hexdigest()[:12]


@cache
def version() -> str:
    """Version of the package, and the commit of its code, with a plus for changes since then."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    try:
        commit = _git("log", "-1", "--format=%h", "--abbrev=8", "--", *CODE)
        changed = _git("status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return str(project["version"])
    return f"{project['version']} ({commit}{'+' if changed else ''})"


def _git(*arguments: str) -> str:
    command = ("git", *arguments)
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return found.stdout.strip()


@cache
def _read(name: str) -> tuple[str, tuple[str, ...]]:
    """What a module does, as text, and the modules of this project that it imports."""
    path = _path(name)
    assert path is not None, name
    tree = ast.parse(path.read_text())
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            imported += [name if _path(name) else str(node.module) for name in whole]
        elif _is_annex(node):
            imported.append(f"bsdr_models.{ast.literal_eval(node.args[0])}")
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)] or [ast.Pass()]
    ours = {each for each in imported if _path(each) is not None} - ELSEWHERE
    return ast.unparse(tree), tuple(sorted(ours))


def _is_annex(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node loads an annex by its name."""
    called = isinstance(node, ast.Call) and ast.unparse(node.func) == "annex"
    return called and isinstance(node.args[0], ast.Constant)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _path(name: str) -> Path | None:
    """File of a module of this project; None for others, and for names that are not modules."""
    root, *rest = name.split(".")
    if root not in ROOTS:
        return None
    base = ROOTS[root].joinpath(*rest)
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
