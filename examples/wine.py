"""Demonstration on bundled data: ``python examples/wine.py``.

Wine, 20 training samples per class: the three models and baselines; handwritten digits: the map of
ten classes. A page with scores and plots of the held-out samples, and the posteriors, are written
to a folder.
"""

import argparse
import html
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import StackedClassifier, plots
from bsdr_models.arrays import FloatArray
from bsdr_models.baselines import PENALTIES, PLSScores
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.metrics import expected_calibration_error
from bsdr_models.options import Sampling

N_TRAIN, N_COMPONENTS, SEED = 20, 2, 20
# Held-out digits that are drawn.
N_DIGITS = 500
FEATURE_NAMES = {
    "od280/od315_of_diluted_wines": "od280/od315",
    "alcalinity_of_ash": "alcalinity",
    "nonflavanoid_phenols": "nonflav_phenols",
}
CULTIVARS = np.array(["Barolo", "Grignolino", "Barbera"])

MODELS: Mapping[str, Callable[..., Any]] = {
    "BSDR": BSDRClassifier,
    "BM2PCA": BM2PCAClassifier,
    "D-GPLVM": DGPLVMClassifier,
}
# A sentence for each plot of the page.
MAPS = {
    "BSDR": "A linear map with posterior draws; its axes are directions of the class means.",
    "BM2PCA": "A linear map with margins, whose probabilities are calibrated by cross-validation.",
    "D-GPLVM": "A nonlinear map by Gaussian processes.",
    "BSDR, NUTS": "The model of BSDR, sampled by NUTS as a second opinion.",
}
FEATURES = (
    "Effect of each feature on a class score of BSDR given the other features, with intervals of "
    "50 % and 90 % and the probability of its sign; the diamond is its correlation alone."
)
RELIABILITY = (
    "Of the wines that BSDR predicts with 80 %, eight in ten should be right: points on the "
    "diagonal are calibrated."
)
TEN_CLASSES = (
    f"Handwritten digits, 64 pixels, {N_TRAIN} training samples per class: held-out digits in the "
    "plane of the predictions of the three models stacked. Digits between two groups are those "
    "that the models doubt."
)
PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>bsdr_models: Wine and digits</title>
<style>
body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; line-height: 1.4 }}
img {{ max-width: 100% }}
td, th {{ padding: 0.2em 1em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }}
</style>
<h1>bsdr_models on Wine</h1>
<p>Three cultivars, 13 chemical measurements, {n_train} training samples per class. All results are
of the {n_test} wines that no model has seen.</p>
<table>
{table}
</table>
<p>Log loss is in nats, smaller is better; the calibration error is the mean difference of
probability and frequency.</p>
<p>In the maps every wine is drawn where a model puts it without having seen its label; the
background is the prediction at each place. Hollow points are doubtful, ringed ones wrong.</p>
{sections}
<h2>Ten classes</h2>
{ten_classes}
</html>
"""


def baselines() -> dict[str, Any]:
    """Reductions to two components, each followed by logistic regression, its penalty tuned."""
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=N_COMPONENTS)
    reducers = {
        "shrinkage LDA": lda,
        "PLS-DA": PLSScores(N_COMPONENTS, scale=False),
        "PCA": PCA(N_COMPONENTS),
    }
    return {
        f"{name} + logistic": GridSearchCV(
            make_pipeline(
                StandardScaler(), reducer, StandardScaler(), LogisticRegression(max_iter=2000)
            ),
            {"logisticregression__C": PENALTIES},
            scoring="neg_log_loss",
        )
        for name, reducer in reducers.items()
    }


def split(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training samples, equally many per class, and of the others."""
    train = np.concatenate(
        [rng.permutation(np.flatnonzero(y == label))[:N_TRAIN] for label in np.unique(y)]
    )
    return train, np.setdiff1d(np.arange(len(y)), train)


def fit_models(X: Any, y: np.ndarray, console: Console, *, nuts: bool) -> dict[str, Any]:
    """Fit every model with its defaults, with progress bars."""
    options: dict[str, dict[str, Any]] = {title: {} for title in MODELS}
    if nuts:
        sampling = Sampling(draws=200, tune=300, chains=2)
        options["BSDR, NUTS"] = {"inference": "nuts", "sampling": sampling}
    fitted = {}
    for title, arguments in options.items():
        begin = time.perf_counter()
        model = MODELS[title.split(",")[0]](
            N_COMPONENTS, progressbar=True, random_state=SEED, **arguments
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            fitted[title] = model.fit(X, y)
        console.print(f"{title}: {time.perf_counter() - begin:.1f} s", style="bold")
        for warning in caught:
            if issubclass(warning.category, ConvergenceWarning):
                console.print(f"  warning: {warning.message}", style="yellow")
    return fitted


def score_rows(y: np.ndarray, probabilities: Mapping[str, FloatArray]) -> list[list[str]]:
    """Header, then accuracy, log loss and calibration of every method on the held-out samples."""
    rows = [["method", "accuracy", "log loss", "calibration error"]]
    for name, p in probabilities.items():
        scores = (
            accuracy_score(y, p.argmax(axis=1)),
            log_loss(y, p),
            expected_calibration_error(p, y),
        )
        rows.append([name, *(f"{score:.3f}" for score in scores)])
    return rows


def certainty_rows(
    y: np.ndarray, names: np.ndarray, probabilities: Mapping[str, FloatArray]
) -> list[list[str]]:
    """Header, then the probability of the true class of seven samples, in decreasing order."""
    own = next(iter(probabilities.values()))
    order = np.argsort(-own[np.arange(len(y)), y])
    shown = order[np.linspace(0, len(order) - 1, 7).astype(int)]
    rows = [["sample (true class)", *probabilities]]
    for i in shown:
        values = [f"{p[i, y[i]]:.3f}" for p in probabilities.values()]
        rows.append([f"{i} ({names[y[i]]})", *values])
    return rows


def as_table(rows: list[list[str]], title: str) -> Table:
    """Table for the console."""
    table = Table(title=title)
    for k, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if k else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def draw_pictures(fitted: Mapping[str, Any], X: Any, y: np.ndarray, folder: Path) -> dict[str, str]:
    """Draw the plots of the page into PNG files, and return their sentences by file name."""
    import matplotlib.pyplot as plt

    trees = {title: model.predict_idata(X, y) for title, model in fitted.items()}
    drawings: dict[str, tuple[Any, str]] = {
        f"map_{_file_name(title)}.png": (plots.plot_map(tree, title=title), MAPS[title])
        for title, tree in trees.items()
    }
    drawings |= {
        "features.png": (plots.plot_features(fitted["BSDR"].idata_), FEATURES),
        "reliability.png": (draw_reliability(trees["BSDR"]), RELIABILITY),
    }
    for name, (ax, _) in drawings.items():
        figure = ax.get_figure(root=True)
        figure.savefig(folder / name, dpi=110)
        plt.close(figure)
    return {name: sentence for name, (_, sentence) in drawings.items()}


def draw_digits(folder: Path) -> dict[str, str]:
    """Draw the map of ten classes into a PNG file, and return its sentence by file name."""
    import matplotlib.pyplot as plt

    X, y = load_digits(return_X_y=True)
    train, test = split(y, np.random.default_rng(SEED))
    X = X[:, X[train].std(axis=0) > 0.0]
    model = StackedClassifier(random_state=SEED).fit(X[train], y[train])
    shown = np.random.default_rng(SEED).permutation(test)[:N_DIGITS]
    ax = model.plot_map(X[shown], y[shown])
    figure, name = ax.get_figure(root=True), "map_digits.png"
    figure.savefig(folder / name, dpi=110)
    plt.close(figure)
    return {name: TEN_CLASSES}


def draw_reliability(tree: xr.DataTree) -> Axes:
    """Draw how often predictions are right, by the probability of the predicted class."""
    new = tree["predictions"]
    right, stated = new["predicted"] == new["y"], new["probability"].max("outcome")
    ax = CalibrationDisplay.from_predictions(
        right, stated, n_bins=8, strategy="quantile", name="BSDR"
    ).ax_
    ax.set(xlabel="probability of the predicted class", ylabel="share of right predictions")
    return ax


def write_page(
    path: Path,
    rows: list[list[str]],
    pictures: Mapping[str, str],
    ten_classes: Mapping[str, str],
    *,
    n_test: int,
) -> None:
    """Write scores and pictures as one page."""

    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    def sections(parts: Mapping[str, str]) -> str:
        return "\n".join(
            f'<p><img src="{name}" alt="{html.escape(text)}"><br>{html.escape(text)}</p>'
            for name, text in parts.items()
        )

    table = [line(rows[0], "th"), *(line(row, "td") for row in rows[1:])]
    page = PAGE.format(
        n_train=N_TRAIN,
        n_test=n_test,
        table="\n".join(table),
        sections=sections(pictures),
        ten_classes=sections(ten_classes),
    )
    path.write_text(page, encoding="utf-8")


def _file_name(title: str) -> str:
    return title.lower().replace("-", "").replace(", ", "_")


def main(arguments: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    parser.add_argument("--nuts", action="store_true", help="sample BSDR by NUTS too (minutes)")
    parsed = parser.parse_args(arguments)
    folder = parsed.output
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.use("Agg")
    console = Console(width=100)

    X, y = load_wine(return_X_y=True, as_frame=True)
    X, labels = X.rename(columns=FEATURE_NAMES), CULTIVARS[y]
    names, y = np.unique(labels, return_inverse=True)  # columns of probabilities are sorted
    train, test = split(y, np.random.default_rng(SEED))
    X_train, X_test, y_train, y_test = X.iloc[train], X.iloc[test], y[train], y[test]

    fitted = fit_models(X_train, names[y_train], console, nuts=parsed.nuts)
    probabilities = {title: model.predict_proba(X_test) for title, model in fitted.items()}
    certainties = certainty_rows(y_test, names, probabilities)
    for name, baseline in baselines().items():
        baseline.fit(X_train.to_numpy(), y_train)
        probabilities[name] = baseline.predict_proba(X_test.to_numpy())
    scores = score_rows(y_test, probabilities)
    title = f"Wine, {N_TRAIN} training samples per class, {len(y_test)} held out"
    console.print(as_table(scores, title))
    console.print(as_table(certainties, "Probability of the true class"))

    pictures = draw_pictures(fitted, X_test, names[y_test], folder)
    digits = draw_digits(folder)
    write_page(folder / "index.html", scores, pictures, digits, n_test=len(y_test))
    posteriors = []
    for title, model in fitted.items():
        posteriors.append(folder / f"wine_{_file_name(title)}.nc")
        model.idata_.to_netcdf(posteriors[-1], engine="h5netcdf")
    console.print(f"\nOpen {folder / 'index.html'} in a browser.")
    console.print("Posteriors, for xarray.open_datatree: " + ", ".join(map(str, posteriors)))


if __name__ == "__main__":
    main()
