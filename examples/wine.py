"""Demonstration on bundled data: ``python examples/wine.py``.

Wine, 20 training samples per class: scores of all models and common ones by cross-validation, and
a report of the wines that BSDR has not seen; a second report of handwritten digits, by all models
as one. Reports and the posterior of Wine are written to a folder.
"""

import argparse
from pathlib import Path

import matplotlib
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

from bsdr_models import BSDRClassifier, StackedClassifier, compare_models, report

SEED = 20
CULTIVARS = {0: "Barolo", 1: "Grignolino", 2: "Barbera"}


def main(arguments: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.use("Agg")

    X, y = load_wine(return_X_y=True, as_frame=True)
    y = y.map(CULTIVARS)
    X, X_new, y, y_new = train_test_split(X, y, train_size=60, stratify=y, random_state=SEED)
    print(f"Wine, {len(X)} training samples, held out by cross-validation:")
    print(compare_models(X, y, random_state=SEED))
    model = BSDRClassifier(random_state=SEED).fit(X, y)
    model.idata_.to_netcdf(folder / "wine.nc", engine="h5netcdf")
    report(model, folder / "index.html", X_new, y_new)

    X, y = load_digits(return_X_y=True, as_frame=True)
    X = X.loc[:, X.std() > 0.0]
    X, X_new, y, y_new = train_test_split(X, y, train_size=200, stratify=y, random_state=SEED)
    stack = StackedClassifier(random_state=SEED).fit(X, y)
    report(stack, folder / "digits.html", X_new[:500], y_new[:500])
    print(f"Open {folder / 'index.html'} and {folder / 'digits.html'} in a browser.")
    print(f"Posterior of Wine, for xarray.open_datatree: {folder / 'wine.nc'}")


if __name__ == "__main__":
    main()
