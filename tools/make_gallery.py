"""Draw every plot for docs/pictures.md: ``python tools/make_gallery.py``.

One fit of each model to half of Wine; the other half is held out.
"""

import argparse
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from PIL import Image
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from bsdr_models import (
    BSDRClassifier,
    DGPLVMClassifier,
    compare_models,
    cross_validated_map,
    feature_stability,
    plots,
)

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
CULTIVARS = np.array(["Barolo", "Grignolino", "Barbera"])
DPI, N_COLORS, MAX_BYTES = 80, 256, 60_000


def draw_all() -> Mapping[str, Callable[[], Axes]]:
    """Plots by file name."""
    data = load_wine(as_frame=True)
    X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280/od315"})
    y = CULTIVARS[data.target]
    rows, others, known, truth = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    model = BSDRClassifier(random_state=0).fit(rows, known)
    tree, new = model.idata_, model.predict_idata(others, truth)
    foreign = others.copy()
    foreign.iloc[:4] = others.iloc[:4] * [1.0, *[2.0] * (X.shape[1] - 1)]
    held_out = cross_validated_map(model, X, y, cv=5, random_state=0)
    far = model.predict_idata(foreign, truth)
    two = _map_of(load_breast_cancer(as_frame=True), model, n_train=100)
    digits = _map_of(load_digits(as_frame=True), DGPLVMClassifier(random_state=0), n_train=100)
    rng = np.random.default_rng(0)
    noise = cross_validated_map(
        DGPLVMClassifier(random_state=0),
        rng.normal(size=(60, 200)),
        CULTIVARS[rng.integers(3, size=60)],
    )
    stability = feature_stability(model, random_state=0)
    comparison = compare_models(rows, known, random_state=0, progressbar=False)
    return {
        "map_held_out": lambda: plots.plot_map(held_out),
        "map_training": lambda: plots.plot_map(tree, space="latent"),
        "map_two_classes": lambda: plots.plot_map(two),
        "map_digits": lambda: plots.plot_map(digits),
        "map_uncertainty": lambda: plots.plot_map(new, uncertainty=True),
        "map_noise": lambda: plots.plot_map(noise),
        "metric": metrics,
        "features": lambda: plots.plot_features(tree, stability=stability),
        "biplot": lambda: plots.plot_biplot(tree),
        "outliers": lambda: plots.plot_outliers(far, group="predictions"),
        "comparison": lambda: plots.plot_comparison(comparison),
    }


def metrics() -> Axes:
    """New wines with 200 further features of noise, without and with the learned metric."""
    data = load_wine()
    y = CULTIVARS[data.target]
    noise = np.random.default_rng(0).standard_normal((len(y), 200))
    X = np.column_stack([data.data, noise])
    train, test, known, truth = train_test_split(X, y, train_size=60, stratify=y, random_state=0)
    _, axes = plt.subplots(1, 2, figsize=(12.5, 5.0), layout="constrained")
    headings = {"unit": "All features count alike", "auto": "The metric is learned (default)"}
    for ax, (metric, heading) in zip(axes, headings.items(), strict=True):
        model = BSDRClassifier(metric=metric, random_state=0).fit(train, known)
        plots.plot_map(model.predict_idata(test, truth), ax=ax).set_title(heading)
    return axes[0]


def _map_of(data: Bunch, model: BaseEstimator, *, n_train: int) -> xr.DataTree:
    """Held-out predictions, at most 300, of a fit to a few samples."""
    y = data.target_names[data.target].astype(str)
    train, test, known, truth = train_test_split(
        data.data, y, train_size=n_train, stratify=y, random_state=0
    )
    return clone(model).fit(train, known).predict_idata(test[:300], truth[:300])


def save(ax: Axes, path: Path) -> int:
    """Write the figure, with fewer colours if it would be too large; its size in bytes."""
    raw = io.BytesIO()
    ax.get_figure(root=True).savefig(raw, dpi=DPI)
    picture = Image.open(raw).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        picture.quantize(N_COLORS, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
    return path.stat().st_size


def main() -> None:
    """Draw all plots, or the named ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pictures to draw; all by default")
    arguments = parser.parse_args()
    mpl.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    pictures = draw_all()
    for name in arguments.names or pictures:
        size = save(pictures[name](), FOLDER / f"{name}.png")
        plt.close("all")
        if size > MAX_BYTES:
            raise SystemExit(f"{name}.png has {size} bytes, more than {MAX_BYTES}")


if __name__ == "__main__":
    main()
