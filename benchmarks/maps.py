"""Maps by what they draw: two coordinates of each test sample, of every method.

    python -m benchmarks maps --seeds 300:302            # print
    python -m benchmarks maps --seeds 300:302 --write    # into docs/benchmarks.md

Predictions take no part in these scores: methods of two dimensions draw their coordinates, models
of the package, here with five components, what ``plot_map`` draws, and classifiers of all features
the plane of their predictions.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.methods import METHODS
from benchmarks.methods.base import ImpossibleError
from benchmarks.page import command, table, write
from benchmarks.protocols import Split, per_class, seed_range
from benchmarks.tables import OURS, PROJECTIONS, SETS
from bsdr_models import PredictionPlane
from bsdr_models.plots.map import MOST_LATENT

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SOURCES = ("digits", "mfeat", "vowel", "usps", "11_Tumors", "ORL")
OF_ALL_FEATURES = ("logistic regression", "RBF support vectors")
METHODS_DRAWN = (*OURS, *PROJECTIONS, *OF_ALL_FEATURES)
# Test samples of each class that are drawn, folds of the scores, and neighbours that vote.
N_DRAWN, N_FOLDS, N_NEIGHBOURS = 60, 5, 5
SCORES = ("neighbours", "coordinates")


def draw(method: str, split: Split, seed: int) -> np.ndarray:
    """Coordinates (M, 2) of the test samples in the map of a method."""
    fitted = METHODS[method].fit(split.training, 5 if method in OURS else 2, seed)
    many = split.training.n_classes > MOST_LATENT
    if METHODS[method].full or (method in OURS and many):
        return PredictionPlane().fit_transform(fitted.predict(split.X_test))
    assert fitted.transform is not None
    return np.asarray(fitted.transform(split.X_test))[:, :2]


def scores(at: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Cross-validated accuracy, among the points, of neighbours and of a linear classifier."""
    readers = (
        KNeighborsClassifier(N_NEIGHBOURS),
        make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=1000)),
    )
    cv = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    found = [100.0 * cross_val_score(reader, at, y, cv=cv).mean() for reader in readers]
    return dict(zip(SCORES, found, strict=True))


def measure(name: str, method: str, seed: int) -> dict[str, object]:
    """Scores of one map."""
    split = per_class(name, (SETS[name][0], N_DRAWN), seed)
    line = {"set": name, "method": method, "seed": seed}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        try:
            return line | scores(draw(method, split, seed), split.y_test)
        except ImpossibleError:
            return line


def text(lines: pd.DataFrame) -> str:
    """Accuracy of neighbours by set, and means over the sets of both scores, the best first."""
    cells = lines.groupby(["method", "set"])[list(SCORES)].mean()
    means = cells.groupby("method").mean().dropna()  # without methods whose library is missing
    means = means.sort_values("neighbours", ascending=False)
    names = [name for name in SOURCES if name in set(lines["set"])]
    body = []
    for method, (neighbours, coordinates) in means.iterrows():
        own = [f"{cells['neighbours'].get((method, name), np.nan):.0f}" for name in names]
        shown = f"**{method}**" if method in OURS else str(method)
        body.append([shown, f"{neighbours:.0f}", f"{coordinates:.0f}", *own])
    return table(["", "neighbours", "linear", *names], body)


def main() -> None:
    parser = command("benchmarks maps", __doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(300, 302))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SOURCES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS_DRAWN)
    parser.add_argument("--lines", type=Path, help="file to which lines are added, and read from")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    arguments = parser.parse_args()
    path, lines = arguments.lines, []
    if path is not None and path.exists():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(line["set"], line["method"], line["seed"]) for line in lines}
    for name in arguments.sets:
        for method in arguments.methods:
            for seed in arguments.seeds:
                if (name, method, seed) in done:
                    continue
                lines.append(measure(name, method, seed))
                if path is not None:
                    with path.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    found = text(pd.DataFrame(lines))
    if arguments.write:
        write(PAGE, "maps", found)
    print(found)


if __name__ == "__main__":
    main()
