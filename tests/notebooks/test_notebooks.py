"""The notebooks run, and what is committed of them is complete, small and free of the machine."""

import importlib.util
import re
import socket
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# Absolute paths of any system, and characters that only a terminal understands.
TRACES = re.compile(
    r"(?<![\w.:/])/(?:home|root|tmp|work|usr|opt|Users|private)/|\b[A-Z]:\\|\x1b|\r"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def load_tool():
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "execute_notebooks.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def written(notebook: NotebookNode) -> str:
    """Everything that a reader sees, without the pictures."""
    parts = [cell.source for cell in notebook.cells]
    for cell in code_cells(notebook):
        for output in cell.outputs:
            parts.append(output.get("text", ""))
            parts += [
                text for kind, text in output.get("data", {}).items() if kind.startswith("text/")
            ]
    return "\n".join(parts)


@each_notebook
def test_committed_in_order_without_errors(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    assert any("image/png" in out.get("data", {}) for cell in cells for out in cell.outputs)


@each_notebook
def test_names_no_machine(path):
    text = written(nbformat.read(path, as_version=4))
    found = TRACES.search(text)
    assert found is None, text[max(found.start() - 40, 0) : found.end() + 40]
    for name in (str(ROOT), str(Path.home()), socket.gethostname()):
        if len(name) > 3:
            assert name not in text


# Samplers cut short, and models not compiled: the committed outputs, with which the text agrees, are
# of long runs.
FEW_DRAWS = """
import pymc
import sklearn.model_selection
from bsdr_models.options import Options, Sampling

def check(self):
    Options.__post_init__(self)
    for name in ("draws", "tune"):
        object.__setattr__(self, name, min(getattr(self, name) or 50, 50))

Sampling.__post_init__ = check
def sample(draws=50, *, original=pymc.sample, **options):
    return original(min(draws, 50), **options | {"tune": 50, "nuts_sampler": "pymc"})

def permute(*args, original=sklearn.model_selection.permutation_test_score, **options):
    return original(*args, **options | {"n_permutations": 2})

pymc.sample = sample
sklearn.model_selection.permutation_test_score = permute
pymc.NUTS.__init__.__defaults__ = (None, 1, 1)  # variables, and depths of the trees
"""


@pytest.fixture
def short_kernel(tmp_path, monkeypatch, short_run_settings):
    """Kernels begin with short runs, and without folder of data: notebooks then simulate theirs."""
    folder = tmp_path / "ipython" / "profile_default" / "startup"
    folder.mkdir(parents=True)
    settings = [
        f"import {name.rpartition('.')[0]}\n{name} = {number}"
        for name, number in short_run_settings.items()
    ]
    (folder / "short.py").write_text("\n".join([*settings, FEW_DRAWS]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTENSOR_FLAGS", "mode=FAST_COMPILE,gcc__cxxflags=-O0")
    monkeypatch.delenv("BSDR_MODELS_DATA", raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("short_kernel")
@each_notebook
def test_runs(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    (tmp_path / "data").symlink_to(path.parent / "data")
    load_tool().main([str(copy)])  # raises if a cell fails
    before, after = (nbformat.read(p, as_version=4) for p in (path, copy))
    assert [c.source for c in after.cells] == [c.source for c in before.cells]
