"""BSDR's views against all features together, the best single view, and BM2PCA's views.

    python -m benchmarks.views --seeds 300:310

The data are mfeat (handwritten digits, six groups of features), mfeat with a further view of
columns of noise, and simulated samples of two informative views and one of noise. There are ten
training samples of each class, and all or 1000 others for the test. Printed are the log loss of
each split, its means, the difference from that of the views with its standard error, the share of
the view of noise, and what it costs if new samples lack one view.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import datasets
from benchmarks.evidence.page import table
from benchmarks.protocols import REPORTING_SEEDS, Split, few_samples, seed_range
from bsdr_models import BM2PCAClassifier, BSDRClassifier
from bsdr_models.bm2pca.classifier import MarginClassifier
from bsdr_models.papers import PaperBM2PCAClassifier

N_EACH, N_TEST, N_NOISE = 10, 1000, 100
SOURCES = ("mfeat", "mfeat and noise", "simulated")
INTEGRATED, IMPUTED = "one view missing, integrated", "one view missing, training means"
VIEWS, CHOSEN, HINDSIGHT = "views", "the view with the best held-out score", "the best view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Log loss of new samples by method, and the share of the view of noise (NaN without one)."""

    losses: dict[str, float]
    noise_share: float


def read(source: str, seed: int) -> tuple[Split, dict[str, np.ndarray]]:
    """Standardised samples, and the columns of each view."""
    rng = np.random.default_rng([seed, 1])
    if source == "simulated":
        split, index = simulate(rng)
    else:
        split = few_samples("mfeat", (N_EACH,), seed)
        index = datasets.load_field("mfeat", "view")
    if "noise" in source:
        split = Split(
            X_train=np.hstack([split.X_train, rng.standard_normal((len(split.X_train), N_NOISE))]),
            y_train=split.y_train,
            X_test=np.hstack([split.X_test, rng.standard_normal((len(split.X_test), N_NOISE))]),
            y_test=split.y_test,
        )
        index = np.concatenate([index, np.repeat("noise", N_NOISE)])
    return split, {str(name): np.flatnonzero(index == name) for name in np.unique(index)}


def simulate(rng: np.random.Generator, n_classes: int = 5) -> tuple[Split, np.ndarray]:
    """Four latent coordinates with class means, two of them in each informative view.

    The view of noise has as many features as both others together.
    """
    y = np.repeat(np.arange(n_classes), N_EACH + N_TEST // n_classes)
    Z = 2.0 * rng.standard_normal((n_classes, 4))[y] + rng.standard_normal((len(y), 4))
    parts = [Z[:, own] @ rng.standard_normal((2, 30)) for own in (slice(2), slice(2, 4))]
    X = np.hstack([*parts, np.zeros((len(y), 60))])
    X += 2.0 * rng.standard_normal(X.shape)
    train = np.arange(len(y)) % (len(y) // n_classes) < N_EACH
    split = Split(X_train=X[train], y_train=y[train], X_test=X[~train], y_test=y[~train])
    return split.standardised(), np.repeat(["first", "second", "noise"], [30, 30, 60])


def measure(source: str, n_components: int, seed: int) -> Result:
    """All methods on one split."""
    split, views = read(source, seed)
    columns = {name: own.tolist() for name, own in views.items()}
    losses = {}

    def fitted(X: np.ndarray, **options: object) -> BSDRClassifier:
        return BSDRClassifier(n_components, random_state=0, **options).fit(X, split.y_train)

    def loss(model: BSDRClassifier | MarginClassifier, X: np.ndarray = split.X_test) -> float:
        return float(log_loss(split.y_test, model.predict_proba(X)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of views without a signal
        losses["all features"] = loss(fitted(split.X_train))
        model = fitted(split.X_train, views=columns)
        losses[VIEWS] = loss(model)
        single = [(fitted(split.X_train[:, own]), split.X_test[:, own]) for own in views.values()]
        alone = [loss(each, X) for each, X in single]
        scores = [each.held_out_score_ for each, _ in single]
        losses[CHOSEN] = alone[int(np.nanargmax(scores))]
        losses[HINDSIGHT] = min(alone)
        for name, other in (
            ("BM2PCA", BM2PCAClassifier(n_components, random_state=0)),
            (
                "BM2PCA of the paper, views",
                PaperBM2PCAClassifier(n_components, views=columns, random_state=0),
            ),
        ):
            losses[name] = loss(other.fit(split.X_train, split.y_train))
        missing = {INTEGRATED: np.nan, IMPUTED: 0.0}
        for name, value in missing.items():
            gaps = []
            for own in views.values():
                X = split.X_test.copy()
                X[:, own] = value
                gaps.append(loss(model, X))
            losses[name] = float(np.mean(gaps))
    share = dict(zip(model.views_, model.view_share_, strict=True)).get("noise", np.nan)
    return Result(losses=losses, noise_share=float(share))


def main() -> None:
    """Print a line for each split, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=seed_range, default=REPORTING_SEEDS, help="first:past the last"
    )
    parser.add_argument("--components", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", choices=SOURCES)
    arguments = parser.parse_args()
    body = []
    for source in [arguments.only] if arguments.only else SOURCES:
        results = []
        with ProcessPoolExecutor(arguments.jobs) as pool:
            run = partial(measure, source, arguments.components)
            for seed, result in zip(arguments.seeds, pool.map(run, arguments.seeds), strict=True):
                losses = {name: round(value, 3) for name, value in result.losses.items()}
                print(source, seed, losses, f"noise {result.noise_share:.3f}", flush=True)
                results.append(result)
        for name in results[0].losses:
            found = np.array([result.losses[name] for result in results])
            gap = found - [result.losses[VIEWS] for result in results]
            error = gap.std(ddof=1) / np.sqrt(len(gap))
            difference = "" if name == VIEWS else f"{gap.mean():+.3f} ± {error:.3f}"
            body.append([source, name, f"{found.mean():.3f}", difference, f"{sum(gap > 0)}"])
    print(table(["data", "method", "log loss", "difference from views", "views better in"], body))


if __name__ == "__main__":
    main()
