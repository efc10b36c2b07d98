"""Files of one release, for later releases to read: ``python tests/persistence/make_fixtures.py``.

Writes ``files/schema_N``: for each estimator a model and what it says of some rows, and what the
classes that are stored hold. Once a version with schema N is released its files are never made
again: a change of what is stored needs the next schema, an entry in
``bsdr_models.persistence.codec.UPGRADES`` and files of its own.
"""

import json
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    MNPClassifier,
)
from bsdr_models.bm2pca import trees as bm2pca_trees
from bsdr_models.bsdr import trees as bsdr_trees
from bsdr_models.persistence import classes, codec

FOLDER = Path(__file__).parent / "files" / f"schema_{codec.SCHEMA}"
FEW_DRAWS = {"inference": "gibbs", "draws": 15, "tune": 15, "chains": 2, "random_state": 0}
ONE_POPULATION = {"draws": 1, "chains": 1, "random_state": 0}
MODELS = {
    "bsdr_classifier": BSDRClassifier(1, **ONE_POPULATION),
    "bsdr_classifier_paper": BSDRClassifier(1, variant="paper", random_state=0),
    "bsdr_classifier_gibbs": BSDRClassifier(1, variant="paper", **FEW_DRAWS),
    "bsdr_regressor": BSDRRegressor(1, **ONE_POPULATION),
    "bsdr_regressor_gibbs": BSDRRegressor(1, variant="paper", **FEW_DRAWS),
    "mnp_classifier": MNPClassifier(),
    "bm2pca_classifier": BM2PCAClassifier(1, C=1.0, metric_scale=1.0, random_state=0),
    "bm2pca_classifier_paper": BM2PCAClassifier(
        1, variant="paper", C=1.0, n_sweeps=5, random_state=0
    ),
    "bm2pca_regressor": BM2PCARegressor(1, random_state=0),
    "dgplvm_classifier": DGPLVMClassifier(1, random_state=0),
    "dgplvm_classifier_likelihood": DGPLVMClassifier(1, placement="likelihood", random_state=0),
}


def toy():
    """Twelve rows of two features; two classes, and a real target."""
    rng = np.random.default_rng(20)
    classes_of = np.arange(12) % 2
    X = rng.standard_normal((12, 2)) + 1.5 * classes_of[:, None]
    return X, classes_of, X @ [1.0, -0.5] + 0.1 * rng.standard_normal(12)


def answers(model, X):
    """What a model says of rows."""
    given = {"predict": model.predict(X)}
    if hasattr(model, "predict_proba"):
        given["predict_proba"] = model.predict_proba(X)
    else:
        given["std"] = model.predict(X, return_std=True)[1]
    if hasattr(model, "transform"):
        given["position"], given["covariance"] = model.transform(X, return_cov=True)
        posterior = model.idata_["posterior"].data_vars.values()
        given["posterior"] = [float(variable.mean()) for variable in posterior]
    return {name: np.asarray(values) for name, values in given.items()}


def stored_fields():
    """Names of what is stored of every class."""
    names = (*classes.DATACLASSES, *classes.PLAIN)
    return {name: sorted(classes.stored_fields(name)) for name in sorted(names)}


def write():
    """Make all files of the present schema."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    X, y, target = toy()
    expected = {"rows": X.tolist()}
    few = (patch.object(trees, "N_DRAWS", 20) for trees in (bsdr_trees, bm2pca_trees))
    with warnings.catch_warnings(), next(few), next(few):
        warnings.simplefilter("ignore")  # fifteen draws do not converge
        for name, model in MODELS.items():
            model.fit(X, target if "regressor" in name else y).save(FOLDER / f"{name}.nc")
            expected[name] = {key: a.tolist() for key, a in answers(model, X).items()}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (FOLDER / "classes.json").write_text(json.dumps(stored_fields(), indent=1) + "\n")


if __name__ == "__main__":
    write()
