"""Sphinx configuration: pages, docstrings, and notebooks as they are committed."""

import base64
import json
import os
import re
import shutil
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# Notebooks are copied here to become pages, each with one of its pictures for the overview.
PAGES = HERE / "notebooks"
for written in (PAGES, HERE / "reference" / "generated"):
    shutil.rmtree(written, ignore_errors=True)
PAGES.mkdir()


def _anchor(link: re.Match[str]) -> str:
    """Convert a link to a heading from Jupyter's form to that of the pages."""
    words = re.sub(r"[^\w -]", "", link[1].lower())
    return f"(#{words.replace(' ', '-')})"


# The picture in the overview of examples, by its number in the notebook; the first if not named.
THUMBNAILS = {
    "00_quickstart": 4,
    "01_bsdr": 1,
    "02_bm2pca": 6,
    "03_dgplvm": 1,
    "06_spectra": 4,
    "07_change_the_model": 1,
    "08_kernels_and_views": 2,
}


def _picture(notebook: dict[str, Any], number: int) -> bytes:
    """Return a picture among the committed outputs of a notebook."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    pictures = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", ())]
    return base64.b64decode("".join(pictures[number]))


for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
    text = notebook.read_text().replace("](../docs/", "](../")
    (PAGES / notebook.name).write_text(re.sub(r"(?<=\])\(#([^)\s]+)\)", _anchor, text))
    (PAGES / f"{notebook.stem}.png").write_bytes(
        _picture(json.loads(text), THUMBNAILS.get(notebook.stem, 0))
    )

project = "bsdr_models"
author = "The bsdr_models developers"
copyright = author
version = release = installed("bsdr_models")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
templates_path = ["_templates"]
# Decisions are read in the repository.
exclude_patterns = ["_build", "_templates", "decisions"]
# Pages for developers are reached by links alone.
DEVELOPERS = ("architecture", "terms", "benchmarks/floors")
DECISION = r"\[([^]]+)\]\(\S*decisions/0*(\d+)[^)]*\)"
default_role = "literal"
suppress_warnings = ["mystnb.unknown_mime_type"]

# Pages with code cells are executed at every build; notebooks are shown as they are committed.
# A warning is a line without the path of a file.
os.environ["IPYTHONDIR"] = str(HERE / "_build" / "ipython")
STARTUP = Path(os.environ["IPYTHONDIR"]) / "profile_default" / "startup" / "warnings.py"
STARTUP.parent.mkdir(parents=True, exist_ok=True)
STARTUP.write_text("""import warnings

warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\\n"
""")
nb_execution_mode = "auto"
nb_execution_excludepatterns = ["notebooks/*"]
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

html_use_index = False
html_theme = "pydata_sphinx_theme"
html_title = "bsdr_models"
# One file of MathJax with all its extensions, so that formulas need no network.
MATHJAX = files("mathjax") / "static" / "mathjax" / "es5" / "tex-svg-full.js"
html_static_path = ["_static", str(MATHJAX)]
mathjax_path = "tex-svg-full.js"
html_css_files = ["style.css"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
wide = ("get_started", "pictures", "evidence", "benchmarks", "examples", "notebooks/*")
html_sidebars = {page: [] for page in wide}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "show_toc_level": 2,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _skip_what_scikit_learn_documents(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool:
    return skip or (getattr(obj, "__module__", None) or "").startswith("sklearn")


def _decisions_by_number(app: Any, page: str | Path, *args: Any) -> None:
    """Replace links to decisions, which are not on the site, by their numbers."""
    source: list[str] = args[-1]
    source[0] = re.sub(rf"\({DECISION}\)", r"(\1: decision \2 in the repository)", source[0])
    source[0] = re.sub(DECISION, r"\1", source[0])


def _only_by_link(app: Any, page: str, source: list[str]) -> None:
    """Keep pages for developers out of the search and the contents; other pages link to them."""
    if any(Path(page).match(pattern) for pattern in DEVELOPERS):
        source[0] = f"---\norphan: true\nno-search: true\n---\n{source[0]}"


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("autodoc-skip-member", _skip_what_scikit_learn_documents)
    app.connect("source-read", _decisions_by_number)
    app.connect("include-read", _decisions_by_number)
    app.connect("source-read", _only_by_link)
