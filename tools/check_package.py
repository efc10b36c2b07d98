"""Build the source archive and from it the wheel, install this in an empty environment, use it."""

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

SAMPLES = """
from sklearn.datasets import load_wine

data = load_wine(as_frame=True)
data.data.assign(**{"class": data.target_names[data.target]}).to_csv("samples.csv", index=False)
"""
RELOAD = """
import bsdr_models

assert "site-packages" in bsdr_models.__file__, bsdr_models.__file__
model = bsdr_models.BSDRClassifier(random_state=0).fit(X, y)
model.save("model.skops")
assert (bsdr_models.load("model.skops").predict(X) == model.predict(X)).all()
"""


# Metadata of the installed package, from the folder of the environment.
INSTALLED = "environment/lib/python*/site-packages/bsdr_models-*.dist-info"
# The address that the archives name if the host does not set one; reserved for examples.
ADDRESS = "https://example.org/bsdr_models"


def python(*arguments: str, folder: Path, interpreter: str = sys.executable) -> None:
    """Run an interpreter, by default this one, in a folder."""
    environment = {"PROJECT_URL": ADDRESS, **os.environ}
    subprocess.run([interpreter, *arguments], cwd=folder, check=True, env=environment)


def main() -> None:
    """Raise if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", default="", help="a folder that gets the checked archives")
    outdir = parser.parse_args().outdir
    from_csv = re.search(
        r"## From a table to a report.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert from_csv is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = str(folder / "dist")
        python("-m", "build", "--installer", "uv", "--outdir", out, str(ROOT), folder=folder)
        archives = sorted((folder / "dist").iterdir())
        assert [archive.suffix for archive in archives] == [".whl", ".gz"], archives
        python("-m", "twine", "check", "--strict", *map(str, archives), folder=folder)
        interpreter = str(folder / "environment" / "bin" / "python")
        python("-m", "uv", "venv", "-q", "-p", sys.executable, "environment", folder=folder)
        install = ("-m", "uv", "pip", "install", "-q", "-p", interpreter, str(archives[0]))
        python(*install, folder=folder)
        python("-c", SAMPLES + from_csv[1] + RELOAD, folder=folder, interpreter=interpreter)
        assert (folder / "report.html").stat().st_size > 100_000
        description = importlib.metadata.PathDistribution(next(folder.glob(INSTALLED)))
        relative = re.findall(r"\]\((?!https?:|#)[^)]+\)", description.read_text("METADATA") or "")
        assert not relative, f"links of the README that a package index cannot follow: {relative}"
        if outdir:
            shutil.copytree(folder / "dist", ROOT / outdir, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
