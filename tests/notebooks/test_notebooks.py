"""The notebooks run, and what is committed of them is complete, small and free of the machine."""

import base64
import importlib.util
import re
import socket
from functools import partial
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pymc as pm
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image
from sklearn import model_selection

import bsdr_models
from bsdr_models import compare_models
from bsdr_models.options import Options, Sampling

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


@pytest.fixture
def few_draws(monkeypatch):
    """Samplers and folds are cut short: the committed outputs, of which the text is, are of all."""

    def check(self):
        Options.__post_init__(self)
        for name in ("draws", "tune"):
            object.__setattr__(self, name, min(getattr(self, name) or 50, 50))

    def sample(draws=50, *, original=pm.sample, **options):
        return original(min(draws, 50), **options | {"tune": 50, "nuts_sampler": "pymc"})

    def permute(*args, original=model_selection.permutation_test_score, **options):
        return original(*args, **options | {"n_permutations": 2})

    def validate(*args, original=model_selection.ValidationCurveDisplay.from_estimator, **options):
        return original(*args, **options | {"cv": options["cv"][:2]})

    monkeypatch.setattr(Sampling, "__post_init__", check)
    monkeypatch.setattr(pm, "sample", sample)
    monkeypatch.setattr(model_selection, "permutation_test_score", permute)
    monkeypatch.setattr(model_selection.ValidationCurveDisplay, "from_estimator", validate)
    monkeypatch.setattr(bsdr_models, "compare_models", partial(compare_models, cv=2))
    monkeypatch.setattr(pm.NUTS.__init__, "__defaults__", (None, 1, 1))  # depths of the trees


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("short_runs", "few_draws", "uncompiled")
@each_notebook
def test_runs(path, tmp_path, monkeypatch):
    """Without folder of data notebooks simulate theirs; pictures are drawn, not stored."""
    monkeypatch.delenv("BSDR_MODELS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(path.parent / "data")
    shell = InteractiveShell()
    with mpl.rc_context():
        for cell in code_cells(nbformat.read(path, as_version=4)):
            shell.run_cell(cell.source, silent=True).raise_error()
            for number in plt.get_fignums():
                plt.figure(number).canvas.draw()
            plt.close("all")


PICTURE = """
import matplotlib.pyplot as plt

plt.plot([0, 1], label="α")
plt.legend()
"""


@pytest.mark.slow
def test_the_tool_keeps_outputs_unless_a_cell_fails(tmp_path):
    tool, path = load_tool(), tmp_path / "one.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PICTURE)])
    nbformat.write(notebook, path)
    tool.main([str(path)])
    (cell,) = nbformat.read(path, as_version=4).cells
    assert cell.source == PICTURE
    assert cell.execution_count == 1
    picture = base64.b64decode(cell.outputs[-1].data["image/png"])
    assert Image.open(BytesIO(picture)).mode == "P"  # of few colours
    notebook.cells[0].source = "1 / 0"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        tool.main([str(path)])
    assert path.read_bytes() == before
