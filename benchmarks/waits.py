"""What a user waits for: imports, fits, latent coordinates and probabilities of new samples."""

import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.datasets import load_digits, load_wine

from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import Priors

N_NEW = 1000
MODELS: dict[str, Callable[[], Any]] = {
    "BSDR": lambda: BSDRClassifier(2, random_state=0),
    "BSDR, one fit": lambda: PaperBSDRClassifier(
        2, priors=Priors(projection_prior="columnwise"), random_state=0
    ),
    "BM2PCA": lambda: BM2PCAClassifier(2, random_state=0),
    "D-GPLVM": lambda: DGPLVMClassifier(2, random_state=0),
}


def import_seconds(repeats: int = 3) -> dict[str, float]:
    """CPU seconds of a fresh interpreter that imports, less those of a bare interpreter."""
    statements = {
        "import bsdr_models": "import bsdr_models",
        "import BSDRClassifier": "from bsdr_models import BSDRClassifier",
        "import NumPy": "import numpy",
    }
    bare = _interpreter("pass", repeats)
    return {name: _interpreter(code, repeats) - bare for name, code in statements.items()}


def _interpreter(code: str, repeats: int) -> float:
    """Median CPU seconds of a fresh interpreter; the first run fills the caches."""
    command = [sys.executable, "-c", f"{code}\nimport time\nprint(time.process_time())"]
    found = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(repeats + 1)
    ]
    return statistics.median(found[1:])


def model_seconds() -> Iterator[tuple[str, float]]:
    """Fits to Wine and, of 300 digits, latent coordinates and probabilities of 1000 samples."""
    wine = load_wine(return_X_y=True)
    X, y = load_digits(return_X_y=True)
    rows, new = slice(0, 300), X[300 : 300 + N_NEW]
    for name, make in MODELS.items():
        assert make().fit(*wine).score(*wine) > 0.9, name
        yield f"{name}: fit Wine", medians(Work(run=lambda _, m=make: m().fit(*wine)))[0]
        model = make().fit(X[rows], y[rows])
        assert model.score(new, y[300 : 300 + N_NEW]) > 0.4, name
        place, predict = medians(
            Work(run=lambda _, m=model: m.transform(new)),
            Work(run=lambda _, m=model: m.predict_proba(new)),
            seconds=1.0,
        )
        yield f"{name}: latent coordinates of {N_NEW} samples", place
        yield f"{name}: probabilities of {N_NEW} samples", predict


def measure() -> dict[str, float]:
    """Seconds of CPU by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that stop at their limit
        return import_seconds() | dict(model_seconds())


def report() -> str:
    """Markdown table of the times now."""
    rows = [[name, f"{1e3 * seconds:.3g}"] for name, seconds in measure().items()]
    return (
        "CPU milliseconds, medians. Imports in a fresh interpreter, that of the interpreter taken "
        "off; models with two components and their defaults, fitted to Wine, and to 300 digits for "
        f"{N_NEW} new samples.\n\n{as_markdown(['', 'ms'], rows)}\n"
    )
