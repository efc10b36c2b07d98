"""Small fitted models of every kind, and a way to forge files."""

import hashlib
import io
import json
import warnings
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAPriors,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMPriors,
    HierarchicalPriors,
    MNPClassifier,
    Priors,
)
from bsdr_models.bm2pca import label_free, truncated_metric
from bsdr_models.bsdr import blocks
from bsdr_models.dgplvm import gp_classifier

FEW_DRAWS = {"draws": 12, "tune": 12, "chains": 2}
DRAWS = {"draws": 12, "chains": 2, "random_state": 0}
COLUMNWISE = {
    "variant": "paper",
    "projection_prior": "columnwise",
    "latent_scale": 0.1,
    "max_iter": 20,
    "random_state": 0,
}
LAPLACE = {"inference": "laplace", "draws": 30, "random_state": 0}
ONE_SCALE = {"variant": "paper", "latent_scale": 0.3, "max_iter": 30, "random_state": 0}
GIBBS = {"inference": "gibbs", "random_state": 0, **FEW_DRAWS}
SAMPLED = {"variant": "paper", **GIBBS}
PAPER = {"variant": "paper", "C": 1.0, "n_sweeps": 4, "calibrate": False, "random_state": 0}
LABEL_FREE = {"C": 1.0, "metric_scale": 1.0, "calibrate": False, "random_state": 0}
QUICK = {"map_width": 2.0, "map_noise": 0.1, "max_iter": 40, "random_state": 0}

# Name: estimator, rows (see `features`), targets (see `targets`).
VARIANTS = {
    "bsdr": (BSDRClassifier(**DRAWS), "dense", "class"),
    "bsdr, any number": (
        BSDRClassifier("auto", priors=HierarchicalPriors(), pooling=0.5, **DRAWS),
        "frame",
        "text",
    ),
    "bsdr, wide": (BSDRClassifier(**DRAWS), "wide", "class"),
    "bsdr, label sets": (BSDRClassifier(**DRAWS), "dense", "labels"),
    "bsdr, outputs": (BSDRRegressor(**DRAWS), "dense", "reals"),
    "bsdr, noise": (BSDRClassifier(**DRAWS), "noise", "class"),
    "bsdr, laplace": (BSDRClassifier(**LAPLACE), "dense", "class"),
    "bsdr, names": (BSDRClassifier(**ONE_SCALE), "frame", "text"),
    "bsdr, entrywise": (
        BSDRClassifier(projection_prior="entrywise", priors=Priors(), **ONE_SCALE),
        "dense",
        "class",
    ),
    "bsdr, columnwise": (
        BSDRClassifier(projection_prior="columnwise", **ONE_SCALE),
        "dense",
        "class",
    ),
    "bsdr, rowwise": (BSDRClassifier(projection_prior="rowwise", **ONE_SCALE), "dense", "class"),
    "bsdr, entrywise, wide": (
        BSDRClassifier(projection_prior="entrywise", **ONE_SCALE),
        "wide",
        "class",
    ),
    "bsdr, columnwise, wide": (
        BSDRClassifier(projection_prior="columnwise", **ONE_SCALE),
        "wide",
        "class",
    ),
    "bsdr, blocks": (BSDRClassifier(block_rows=12, **LAPLACE), "dense", "class"),
    "bsdr, stream": (BSDRClassifier(**DRAWS), "dense", "stream"),
    "bsdr, long stream": (BSDRClassifier(**LAPLACE), "dense", "long stream"),
    "bsdr, labels": (BSDRClassifier(**ONE_SCALE), "dense", "labels"),
    "bsdr, gibbs": (BSDRClassifier(**SAMPLED), "dense", "class"),
    "bsdr, real": (BSDRRegressor(**ONE_SCALE), "dense", "real"),
    "bsdr, reals": (BSDRRegressor(**COLUMNWISE), "dense", "reals"),
    "bsdr, real, gibbs": (BSDRRegressor(**SAMPLED), "dense", "real"),
    "mnp": (MNPClassifier(), "dense", "class"),
    "mnp, wide": (MNPClassifier(standardize=False), "wide", "text"),
    "bm2pca": (BM2PCAClassifier(2, random_state=0), "dense", "class"),
    "bm2pca, wide": (BM2PCAClassifier(2, **LABEL_FREE), "wide", "class"),
    "bm2pca, frame": (BM2PCAClassifier(2, **LABEL_FREE), "frame", "text"),
    "bm2pca, one against rest": (
        BM2PCAClassifier(2, strategy="one_vs_rest", **LABEL_FREE),
        "dense",
        "class",
    ),
    "bm2pca, one against rest, wide": (
        BM2PCAClassifier(2, strategy="one_vs_rest", **LABEL_FREE),
        "wide",
        "class",
    ),
    "bm2pca, sparse": (BM2PCAClassifier(2, **LABEL_FREE), "sparse", "class"),
    "bm2pca, truncated": (BM2PCAClassifier(2, **LABEL_FREE), "many sparse", "class"),
    "bm2pca, labels": (BM2PCAClassifier(2, **LABEL_FREE), "dense", "labels"),
    "bm2pca, gaps": (BM2PCAClassifier(2, **LABEL_FREE), "gaps", "class"),
    "bm2pca, unlabeled": (BM2PCAClassifier(2, unlabeled=-1, **LABEL_FREE), "dense", "partly"),
    "bm2pca, unlabeled text": (
        BM2PCAClassifier(2, unlabeled="none", **LABEL_FREE),
        "dense",
        "partly text",
    ),
    "bm2pca, paper": (BM2PCAClassifier(2, priors=BM2PCAPriors(), **PAPER), "dense", "class"),
    "bm2pca, paper, one against rest": (
        BM2PCAClassifier(2, strategy="one_vs_rest", **PAPER),
        "dense",
        "class",
    ),
    "bm2pca, paper, views": (BM2PCAClassifier(2, views=list("aabb"), **PAPER), "gaps", "class"),
    "bm2pca, paper, unlabeled": (
        BM2PCAClassifier(2, unlabeled=-1, **PAPER),
        "dense",
        "partly",
    ),
    "bm2pca, paper, sparse": (BM2PCAClassifier(2, **PAPER), "sparse", "class"),
    "bm2pca, gibbs": (
        BM2PCAClassifier(2, variant="paper", C=1.0, calibrate=False, **GIBBS),
        "dense",
        "class",
    ),
    "bm2pca, real": (BM2PCARegressor(2, random_state=0), "dense", "real"),
    "bm2pca, reals": (BM2PCARegressor(2, random_state=0), "gaps", "reals"),
    "dgplvm": (DGPLVMClassifier(random_state=0), "dense", "class"),
    "dgplvm, frame": (DGPLVMClassifier(priors=DGPLVMPriors(), **QUICK), "frame", "text"),
    "dgplvm, weightless": (DGPLVMClassifier(weight=np.inf, **QUICK), "dense", "class"),
    "dgplvm, centres": (DGPLVMClassifier(n_centres=6, **QUICK), "dense", "class"),
    "dgplvm, free": (DGPLVMClassifier(mapping="none", **QUICK), "dense", "class"),
    "dgplvm, by likelihood": (DGPLVMClassifier(placement="likelihood", **QUICK), "dense", "class"),
    "dgplvm, expectation propagation": (
        DGPLVMClassifier(approximation="ep", **QUICK),
        "dense",
        "class",
    ),
    "dgplvm, inducing": (DGPLVMClassifier(**QUICK), "many", "class"),
    "dgplvm, inducing, expectation propagation": (
        DGPLVMClassifier(approximation="ep", **QUICK),
        "many",
        "class",
    ),
    "dgplvm, kernel reused": (DGPLVMClassifier(reuse_kernel=True, **QUICK), "dense", "class"),
    "dgplvm, unlabeled": (DGPLVMClassifier(unlabeled=-1, **QUICK), "dense", "partly"),
    "dgplvm, sequences": (DGPLVMClassifier(mapping="none", **QUICK), "dense", "sequence"),
    "dgplvm, paper": (DGPLVMClassifier(variant="paper", **QUICK), "dense", "class"),
    "dgplvm, paper, centres": (
        DGPLVMClassifier(variant="paper", n_centres=6, **QUICK),
        "dense",
        "class",
    ),
    "dgplvm, paper, sequences": (DGPLVMClassifier(variant="paper", **QUICK), "dense", "sequence"),
    "dgplvm, paper, free": (
        DGPLVMClassifier(variant="paper", mapping="none", **QUICK),
        "dense",
        "class",
    ),
}
# These compile a PyMC model.
COMPILED = {
    "bsdr, advi": (BSDRClassifier(**SAMPLED | {"inference": "advi"}), "dense", "class"),
    "bsdr, hierarchical, nuts": (
        BSDRClassifier(**GIBBS | {"inference": "nuts"}),
        "dense",
        "class",
    ),
    "bm2pca, nuts": (
        BM2PCAClassifier(
            2, variant="paper", C=1.0, calibrate=False, **GIBBS | {"inference": "nuts"}
        ),
        "dense",
        "class",
    ),
    "dgplvm, nuts": (
        DGPLVMClassifier(**QUICK, inference="nuts", **FEW_DRAWS),
        "dense",
        "class",
    ),
}


def features(kind):
    """Rows of a fit, 30 of iris; with 5 more features than rows where that is asked."""
    X, _ = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X[::5].copy()
    noise = rng.standard_normal((len(X), 31))
    match kind:
        case "wide":
            return np.hstack([X, noise])
        case "noise":
            return noise[:, :4]
        case "sparse" | "many sparse":
            return csr_array(np.hstack([X, noise]) * (rng.random((30, 35)) < 0.6))
        case "gaps":
            X[::4, 1] = np.nan
        case "frame":
            return pd.DataFrame(X, columns=["α", "b", "c c", "d"])
    return X


def targets(kind, n_rows):
    """Targets of a fit to `features`, and the keywords that it needs."""
    X, y = load_iris(return_X_y=True)
    y = y[:: len(y) // n_rows]
    rng = np.random.default_rng(1)
    match kind:
        case "text":
            y = np.array(["setosa", "versicolor", "virginica"])[y]
        case "labels":
            y = np.column_stack([y == 0, (y > 0) ^ (rng.random(n_rows) < 0.1)]).astype(int)
        case "partly":
            y = np.where(np.arange(n_rows) % 3 == 0, -1, y)
        case "partly text":
            y = np.where(np.arange(n_rows) % 3 == 0, "none", np.array(["a", "b", "c"])[y])
        case "real":
            y = X[::5, 3] + rng.standard_normal(n_rows)
        case "reals":
            y = X[::5, 2:] + rng.standard_normal((n_rows, 2))
        case "sequence":
            return y, {"sequence": np.arange(n_rows) // 10}
    return y, {}


def fitted(estimator: BaseEstimator, rows: str, target: str):
    """A model, and the rows of its fit."""
    X = features(rows)
    y, keywords = targets(target, X.shape[0])
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # short fits do not converge
        if rows == "many":  # for a classifier of all of them
            patch.setattr(gp_classifier, "EXACT_ROWS", 20)
            patch.setattr(gp_classifier, "INDUCING_ROWS", 8)
        if rows == "many sparse":
            patch.setattr(truncated_metric, "MAX_EXACT", 5)
            patch.setattr(label_free, "MAX_AXES", 5)
        if target == "long stream":
            patch.setattr(blocks, "CHUNK", 20)
            patch.setattr(blocks, "N_KEPT", 20)
        if target.endswith("stream"):
            mixed = np.argsort(np.arange(len(y)) % 10, kind="stable")
            stream = clone(estimator).partial_fit(X[mixed], y[mixed], classes=np.unique(y))
            return stream, X
        return clone(estimator).fit(X, y, **keywords), X


def unsealed(path):
    """Contents of a file without its last line, open for change."""
    return io.BytesIO(path.read_bytes()[:-85])


def seal(path, buffer):
    """Write contents with the right checksum."""
    contents = buffer.getvalue()
    digest = hashlib.sha256(contents).hexdigest()
    path.write_bytes(contents + f"\nbsdr_models sha256 {digest}\n".encode())


def forge(path, change):
    """Change manifest and variables of a file, and seal it again as a forger would."""
    buffer = unsealed(path)
    with h5py.File(buffer, "r+") as store:
        manifest = json.loads(store["estimator/manifest"][()].tobytes())
        manifest = change(manifest, store) or manifest
        text = json.dumps(manifest).encode()
        del store["estimator/manifest"]
        store["estimator/manifest"] = np.frombuffer(text, "S1")
    seal(path, buffer)


@pytest.fixture(scope="session")
def zoo():
    """What tests take from here; this folder is not a package."""
    return SimpleNamespace(
        variants=VARIANTS,
        compiled=COMPILED,
        fitted=fitted,
        targets=targets,
        unsealed=unsealed,
        seal=seal,
        forge=forge,
    )


@pytest.fixture(scope="session")
def mnp():
    """The smallest model."""
    return fitted(*VARIANTS["mnp"])


@pytest.fixture
def saved(mnp, tmp_path):
    """Its file."""
    path = tmp_path / "model.nc"
    mnp[0].save(path)
    return path


def pytest_generate_tests(metafunc):
    """One test for each variant."""
    if "variant" in metafunc.fixturenames:
        slow = [pytest.param(name, marks=pytest.mark.slow) for name in COMPILED]
        metafunc.parametrize("variant", [*VARIANTS, *slow])
