"""Run notebooks from top to bottom and keep their outputs: ``python tools/execute_notebooks.py``.

Every notebook is executed in a fresh kernel of this Python, and rewritten only if no cell fails.
"""

import argparse
import base64
import io
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image
from rich.console import Console

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
TIMEOUT = 900  # seconds, of one cell
N_COLORS = 256  # of a picture; translucent ellipses take a third of the size so


def execute(path: Path) -> NotebookNode:
    """Run a notebook in its own folder and return it with outputs; without writing the file.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        extra_arguments=["--log-level=40"],  # of the kernel's own messages, errors only
        timeout=TIMEOUT,
        record_timing=False,  # times would change the file in every run
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", ()):
                output.data["image/png"] = shrink(output.data["image/png"])
    return notebook


def shrink(picture: str) -> str:
    """PNG in base 64 with a palette instead of full colour."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    small = io.BytesIO()
    image.quantize(N_COLORS, dither=Image.Dither.NONE).save(small, format="PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def main(arguments: list[str] | None = None) -> None:
    """Execute the notebooks given, or all, in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", help="default: all of notebooks/")
    console = Console()
    for path in parser.parse_args(arguments).paths or sorted(FOLDER.glob("*.ipynb")):
        begin = time.perf_counter()
        nbformat.write(execute(path.resolve()), path)
        seconds, size = time.perf_counter() - begin, path.stat().st_size
        console.print(f"{path.name}: {seconds:.0f} s, {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
