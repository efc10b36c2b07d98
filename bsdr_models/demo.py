"""Demonstration on bundled data: ``python -m bsdr_models.demo``.

Wine, 20 training samples per class: BSDR by SMC, with linear pooling, and by mean field as in its
paper; BM2PCA; D-GPLVM; and baselines. Plots and posteriors are written to a folder.
"""

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import arviz_stats
import matplotlib
import numpy as np
import xarray as xr
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import plots
from bsdr_models.arrays import FloatArray
from bsdr_models.baselines import PLSScores
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.metrics import expected_calibration_error

N_TRAIN, N_COMPONENTS, SEED = 20, 2, 20
FEATURE_NAMES = {
    "od280/od315_of_diluted_wines": "od280/od315",
    "alcalinity_of_ash": "alcalinity",
    "nonflavanoid_phenols": "nonflav_phenols",
}
CULTIVARS = np.array(["Barolo", "Grignolino", "Barbera"])

FITS: Mapping[str, dict[str, Any]] = {
    "smc": {},
    "linear": {"pooling": "linear"},
    "paper": {"variant": "paper"},
}
TITLES = {"smc": "BSDR", "linear": "BSDR, linear", "paper": "BSDR, paper"}
OTHERS: Mapping[str, Any] = {
    "BM2PCA": lambda: BM2PCAClassifier(N_COMPONENTS, progressbar=True, random_state=SEED),
    "D-GPLVM": lambda: DGPLVMClassifier(N_COMPONENTS, progressbar=True, random_state=SEED),
}


def baselines() -> dict[str, Any]:
    """Reductions to two components, each followed by logistic regression."""
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=N_COMPONENTS)
    reducers = {
        "shrinkage LDA": lda,
        "PLS-DA": PLSScores(N_COMPONENTS, scale=False),
        "PCA": PCA(N_COMPONENTS),
    }
    return {
        f"{name} + logistic": make_pipeline(
            StandardScaler(), reducer, StandardScaler(), LogisticRegression(max_iter=2000)
        )
        for name, reducer in reducers.items()
    }


def split(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training samples, equally many per class, and of the others."""
    train = np.concatenate(
        [rng.permutation(np.flatnonzero(y == label))[:N_TRAIN] for label in np.unique(y)]
    )
    return train, np.setdiff1d(np.arange(len(y)), train)


def fit_variants(X: Any, y: np.ndarray, console: Console) -> dict[str, BSDRClassifier]:
    """Fit variants of BSDR, with progress bars."""
    fitted: dict[str, BSDRClassifier] = {}
    for name, options in FITS.items():
        begin = time.perf_counter()
        model = BSDRClassifier(N_COMPONENTS, progressbar=True, random_state=SEED, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            fitted[name] = model.fit(X, y)
        seconds = time.perf_counter() - begin
        console.print(f"{TITLES[name]}: {seconds:.1f} s", style="bold")
        for warning in caught:
            if issubclass(warning.category, ConvergenceWarning):
                console.print(f"  warning: {warning.message}", style="yellow")
    return fitted


def fit_others(X: Any, y: np.ndarray, console: Console) -> dict[str, Any]:
    """Fit the other models with their defaults."""
    fitted = {}
    for title, make in OTHERS.items():
        begin = time.perf_counter()
        fitted[title] = make().fit(X, y)
        console.print(f"{title}: {time.perf_counter() - begin:.1f} s", style="bold")
    return fitted


def identified_table(tree: xr.DataTree, title: str) -> Table:
    """ArviZ's summary of the strongest identified coefficients."""
    posterior = tree["posterior"].to_dataset()
    strength = abs(posterior["coef"].mean(("chain", "draw"))).max("outcome")
    strongest = strength.sortby(strength, ascending=False)["feature"].values[:3]
    summary = arviz_stats.summary(
        posterior[["coef", "bias_centered"]].sel(feature=strongest),
        ci_prob=0.9,
        ci_kind="eti",
        round_to=3,
    )
    columns = ["mean", "sd", "eti90_lb", "eti90_ub", "ess_bulk", "r_hat"]
    table = Table(title=f"Identified quantities, {title}")
    table.add_column("quantity", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in summary[columns].iterrows():
        table.add_row(escape(str(name)), *(f"{value:.3g}" for value in row))
    return table


def score_table(y: np.ndarray, probabilities: Mapping[str, FloatArray]) -> Table:
    """Accuracy, log loss and calibration of every method on the held-out samples."""
    table = Table(title=f"Wine, {N_TRAIN} training samples per class, {len(y)} held out")
    table.add_column("method")
    for name in ("accuracy", "log loss", "calibration error"):
        table.add_column(name, justify="right")
    for name, p in probabilities.items():
        table.add_row(
            name,
            f"{accuracy_score(y, p.argmax(axis=1)):.3f}",
            f"{log_loss(y, p):.3f}",
            f"{expected_calibration_error(p, y):.3f}",
        )
    return table


def certainty_table(
    samples: np.ndarray, y: np.ndarray, names: np.ndarray, probabilities: Mapping[str, FloatArray]
) -> Table:
    """Probability of the true class of a few samples by each method."""
    table = Table(title="Probability of the true class, from the most to the least certain sample")
    table.add_column("sample (true class)", no_wrap=True)
    for name in probabilities:
        table.add_column(name.replace(" + logistic", ""), justify="right")
    for i in samples:
        values = [f"{p[i, y[i]]:.3f}" for p in probabilities.values()]
        table.add_row(f"{i} ({names[y[i]]})", *values)
    return table


def draw_pictures(
    fitted: Mapping[str, BSDRClassifier],
    others: Mapping[str, Any],
    X: Any,
    y: np.ndarray,
    folder: Path,
) -> list[Path]:
    """Draw all plots of the demo into PNG files."""
    import matplotlib.pyplot as plt

    main, margins, process = fitted["smc"], others["BM2PCA"], others["D-GPLVM"]
    tree, predictions = main.idata_, main.predict_idata(X, y)
    merged = tree.assign({"predictions": predictions["predictions"]})
    drawings = {
        "map_training": lambda ax: plots.plot_map(tree, ax=ax),
        "map_held_out": lambda ax: plots.plot_map(predictions, ax=ax),
        "map_held_out_paper": lambda ax: plots.plot_map(fitted["paper"].predict_idata(X, y), ax=ax),
        "map_held_out_bm2pca": lambda ax: plots.plot_map(margins.predict_idata(X, y), ax=ax),
        "map_held_out_dgplvm": lambda ax: plots.plot_map(process.predict_idata(X, y), ax=ax),
        "features": lambda ax: plots.plot_features(tree, ax=ax),
        "relevance": lambda ax: plots.plot_relevance(tree, ax=ax),
        "bound": lambda ax: plots.plot_bound(fitted["paper"].idata_, ax=ax),
        "confusion": lambda ax: plots.plot_confusion(merged, ax=ax),
        "reliability": lambda ax: plots.plot_reliability(merged, ax=ax),
        "certainty": lambda ax: plots.plot_certainty(merged, ax=ax),
    }
    paths = []
    for name, drawing in drawings.items():
        figure, ax = plt.subplots(figsize=(7.5, 5.5), layout="constrained")
        drawing(ax)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=130)
        plt.close(figure)
    return paths


def main(arguments: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.use("Agg")
    console = Console(width=100)

    X, y = load_wine(return_X_y=True, as_frame=True)
    X, labels = X.rename(columns=FEATURE_NAMES), CULTIVARS[y]
    names, y = np.unique(labels, return_inverse=True)  # columns of probabilities are sorted
    train, test = split(y, np.random.default_rng(SEED))
    X_train, X_test, y_train, y_test = X.iloc[train], X.iloc[test], y[train], y[test]

    fitted = fit_variants(X_train, names[y_train], console)
    others = fit_others(X_train, names[y_train], console)
    console.print(identified_table(fitted["smc"].idata_, TITLES["smc"]))

    probabilities = {TITLES[name]: model.predict_proba(X_test) for name, model in fitted.items()}
    probabilities |= {title: model.predict_proba(X_test) for title, model in others.items()}
    for name, baseline in baselines().items():
        baseline.fit(X_train.to_numpy(), y_train)
        probabilities[name] = baseline.predict_proba(X_test.to_numpy())
    console.print(score_table(y_test, probabilities))
    own = probabilities[TITLES["smc"]]
    order = np.argsort(-own[np.arange(len(y_test)), y_test])
    shown = order[np.linspace(0, len(order) - 1, 7).astype(int)]
    console.print(certainty_table(shown, y_test, names, probabilities))

    paths = draw_pictures(fitted, others, X_test, names[y_test], folder)
    for name in ("smc", "paper"):
        paths.append(folder / f"wine_{name}.nc")
        fitted[name].idata_.to_netcdf(paths[-1], engine="h5netcdf")
    for title, model in others.items():
        paths.append(folder / f"wine_{title.lower().replace('-', '')}.nc")
        model.idata_.to_netcdf(paths[-1], engine="h5netcdf")
    console.print("\nFiles written (open a posterior with xarray.open_datatree):")
    for path in paths:
        console.print(f"  {path}")


if __name__ == "__main__":
    main()
