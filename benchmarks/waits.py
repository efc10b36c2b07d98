"""What a user waits for: imports, fits, latent coordinates and probabilities of new samples."""

import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_wine

from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.compare.stacking import StackedClassifier
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import Priors

N_NEW = 1000
MODELS: dict[str, Callable[[], Any]] = {
    "BSDR": lambda: BSDRClassifier(2, random_state=0),
    "BM2PCA": lambda: BM2PCAClassifier(2, random_state=0),
    "D-GPLVM": lambda: DGPLVMClassifier(2, random_state=0),
    "stack of the three": lambda: StackedClassifier(random_state=0),
    "BSDR of the paper, mean field": lambda: PaperBSDRClassifier(
        2, priors=Priors(projection_prior="columnwise"), random_state=0
    ),
}
# The first fit of a new installation, in a fresh interpreter.
FIRST = """
from sklearn.datasets import load_wine
from benchmarks.waits import MODELS
import time
model, wine = MODELS[{name!r}](), load_wine(return_X_y=True)
begin = time.process_time()
model.fit(*wine)
print(time.process_time() - begin)
"""


def import_seconds() -> dict[str, float]:
    """CPU seconds of a fresh interpreter that imports, less those of a bare interpreter."""
    statements = {
        "import bsdr_models": "import bsdr_models",
        "import BSDRClassifier": "from bsdr_models import BSDRClassifier",
        "import NumPy": "import numpy",
    }
    bare = _interpreter("pass")
    return {name: _interpreter(code) - bare for name, code in statements.items()}


def _interpreter(code: str) -> float:
    """Median CPU seconds of a fresh interpreter; the first run fills the caches."""
    found = [_printed(f"{code}\nimport time\nprint(time.process_time())") for _ in range(4)]
    return statistics.median(found[1:])


def _printed(code: str, **environment: str) -> float:
    """The number that a fresh interpreter prints."""
    command = [sys.executable, "-c", code]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return float(run.stdout)


def first_seconds(name: str) -> float:
    """Median CPU seconds of a fit to Wine that finds no compiled functions."""
    found = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            found.append(_printed(FIRST.format(name=name), NUMBA_CACHE_DIR=folder))
    return statistics.median(found)


def wide(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes with other means of the first hundred of 22 000 features."""
    rng = np.random.default_rng(0)
    y = np.arange(n_samples) % 3
    X = rng.standard_normal((n_samples, 22_000))
    X[:, :100] += rng.standard_normal((3, 100))[y]
    return X, y


def model_seconds(name: str) -> dict[str, float]:
    """CPU seconds of fits and of predictions of new samples."""
    make = MODELS[name]
    wine = load_wine(return_X_y=True)
    X, y = load_digits(return_X_y=True)
    many = slice(0, 1000)
    few = slice(0, 300)
    new = X[-N_NEW:]
    assert make().fit(*wine).score(*wine) > 0.9, name
    model = make().fit(X[few], y[few])
    assert model.score(new, y[-N_NEW:]) > 0.4, name
    X_wide, y_wide = wide(57)
    of_wide = make().fit(X_wide, y_wide)
    one = X_wide[:1]

    def fit(X: np.ndarray, y: np.ndarray, least: int) -> float:
        return medians(Work(run=lambda _: make().fit(X, y)), repeats=(least, 201))[0]

    place, predict, single = medians(
        Work(run=lambda _: model.transform(new)),
        Work(run=lambda _: model.predict_proba(new)),
        Work(run=lambda _: of_wide.predict_proba(one)),
    )
    return {
        "first fit": first_seconds(name),
        "Wine": fit(*wine, 5),
        "57 x 22 000": fit(X_wide, y_wide, 3),
        "1000 digits": fit(X[many], y[many], 1),
        f"coordinates of {N_NEW}": place,
        f"probabilities of {N_NEW}": predict,
        "those of one": single,
    }


def _milliseconds(seconds: float) -> str:
    """Three digits of them, without an exponent."""
    return f"{float(f'{1e3 * seconds:.3g}'):g}"


def report() -> str:
    """Markdown tables of the times now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that stop at their limit
        imports = import_seconds()
        found = {name: model_seconds(name) for name in MODELS}
    head = ["CPU ms", *found["BSDR"]]
    rows = [[name, *map(_milliseconds, own.values())] for name, own in found.items()]
    single = [[name, _milliseconds(seconds)] for name, seconds in imports.items()]
    return (
        "CPU milliseconds, medians. Fits with two components and the defaults, or a stack: the "
        "first fit to Wine without compiled functions, later ones to Wine, to 57 samples of "
        f"22 000 features and to 1000 digits. Latent coordinates and probabilities of {N_NEW} new "
        "digits by a fit to 300, and probabilities of one sample of 22 000 features.\n\n"
        f"{as_markdown(head, rows)}\n\nImports in a fresh interpreter, that of the interpreter "
        f"taken off:\n\n{as_markdown(['', 'CPU ms'], single)}\n"
    )
