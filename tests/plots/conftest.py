"""Synthetic DataTrees with the groups, names and dims that every engine writes.

They are made by plain NumPy from known latent coordinates, without any fitting code, so that a plot
can be compared with its input.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from scipy.special import log_softmax, softmax

from bsdr_models.data.targets import class_frequency
from bsdr_models.inference.latent_grid import evaluate_on_grid

WINE_FEATURES = [
    "alcohol", "malic acid", "ash", "alcalinity of ash", "magnesium", "total phenols", "flavanoids",
    "nonflavanoid phenols", "proanthocyanins", "color intensity", "hue", "od280/od315", "proline",
]  # fmt: skip


def build_fit(
    *,
    n_obs=150,
    n_features=13,
    n_components=2,
    labels=("barolo", "grignolino", "barbera"),
    features=None,
    target="multiclass",
    inference_method="mean_field",
    n_draws=60,
    seed=0,
):
    """Tree of a fitted model: samples scattered about class centres in the latent space."""
    rng = np.random.default_rng(seed)
    n_labels = len(labels)
    centres = 4.0 * _spread_centres(n_labels, n_components, rng)
    index = np.sort(rng.integers(n_labels, size=n_obs))
    latent_mean = centres[index] + rng.normal(size=(n_obs, n_components)) * np.linspace(
        1.3, 0.7, n_components
    )
    factor = rng.normal(size=(n_obs, n_components, n_components)) * 0.25
    latent_cov = factor @ factor.mT + 0.15 * np.eye(n_components)

    decay = 0.8 ** np.arange(n_components)
    sparse = rng.random((n_features, n_components)) < 0.4
    projection_mean = rng.normal(size=(n_features, n_components)) * decay * (0.05 + 0.6 * sparse)
    projection_sd = rng.uniform(0.05, 0.2, size=(n_features, n_components))
    relevance = 10.0 ** -np.linspace(0.0, 3.5, n_components) if n_components > 3 else decay
    relevance = relevance / relevance.sum()
    weights = 0.6 * centres.T
    bias = -0.15 * np.sum(centres**2, axis=1)

    total = (projection_mean**2).sum()
    coords = {
        "obs": np.arange(n_obs),
        "feature": features if features is not None else np.arange(n_features),
        "component": np.arange(n_components),
        "component_aux": np.arange(n_components),
        "outcome": list(labels),
    }
    fit = xr.Dataset(
        {
            "latent_mean": (("obs", "component"), latent_mean),
            "latent_cov": (("obs", "component", "component_aux"), latent_cov),
            "projection_mean": (("feature", "component"), projection_mean),
            "projection_sd": (("feature", "component"), projection_sd),
            "relevance": ("component", relevance),
            "feature_relevance": ("feature", (projection_mean**2).sum(axis=1) / total),
        },
        coords=coords,
    )
    if target == "multiclass":
        fit["y_index"] = ("obs", index)
        observed = xr.Dataset({"y": ("obs", index)})
    else:
        scores = latent_mean @ weights + rng.normal(size=(n_obs, n_labels))
        y = (scores > 0.0).astype(np.int64) if target == "multilabel" else scores
        observed = xr.Dataset({"y": (("obs", "outcome"), y)}, coords={"outcome": list(labels)})
    draws = (2, n_draws)
    coef = projection_mean @ weights
    coef = coef + 0.1 * rng.normal(size=(*draws, *coef.shape))
    if target == "multiclass":
        coef = coef - coef.mean(axis=-1, keepdims=True)
    posterior = xr.Dataset(
        {
            "coef": (("chain", "draw", "feature", "outcome"), coef),
            "weights": (
                ("chain", "draw", "component", "outcome"),
                weights + 0.2 * rng.normal(size=(*draws, *weights.shape)),
            ),
            "bias": (
                ("chain", "draw", "outcome"),
                bias + 0.2 * rng.normal(size=(*draws, n_labels)),
            ),
        },
        coords={
            "outcome": list(labels),
            "component": np.arange(n_components),
            "feature": coords["feature"],
        },
    )
    X = latent_mean @ projection_mean.T + 0.3 * rng.normal(size=(n_obs, n_features))
    data = xr.Dataset({"X": (("obs", "feature"), X)}, {"feature": coords["feature"]})
    groups = {
        "posterior": posterior, "fit": fit, "observed_data": observed, "constant_data": data,
    }  # fmt: skip
    tree = xr.DataTree.from_dict(groups)
    tree.attrs.update(inference_method=inference_method, model="bsdr", latent_scale=1.0)
    return tree


def build_predictions(fit_tree, *, n_obs=80, labels_known=True, seed=1):
    """Tree of predictions on new samples, whose probabilities are exact."""
    rng = np.random.default_rng(seed)
    weights = fit_tree["posterior/weights"].mean(("chain", "draw")).values
    bias = fit_tree["posterior/bias"].mean(("chain", "draw")).values
    labels = fit_tree["posterior"].coords["outcome"].values
    n_components = len(weights)
    rows = rng.integers(fit_tree["fit"].sizes["obs"], size=n_obs)
    latent_mean = fit_tree["fit/latent_mean"].values[rows] + rng.normal(size=(n_obs, n_components))
    latent_cov = np.tile(0.8 * np.eye(n_components), (n_obs, 1, 1))
    scores = 0.35 * (latent_mean @ weights + bias)
    probability = softmax(scores, axis=1)
    y = np.array([rng.choice(len(labels), p=p) for p in probability])
    predictions = xr.Dataset(
        {
            "latent_mean": (("obs", "component"), latent_mean),
            "latent_cov": (("obs", "component", "component_aux"), latent_cov),
            "probability": (("obs", "outcome"), probability),
        },
        coords={
            "obs": np.arange(n_obs),
            "outcome": labels,
            "component": np.arange(n_components),
            "component_aux": np.arange(n_components),
        },
    )
    if labels_known:
        predictions["y"] = ("obs", labels[y])
    tree = xr.DataTree.from_dict({"predictions": predictions})
    tree.attrs.update(fit_tree.attrs)
    return tree


def add_probabilities(tree, *, sharpness=1.0, n_wrong=0):
    """Predictions whose probabilities are a softmax of the coordinates, their grid, and labels.

    The labels are the predicted classes, but of the first samples another one.
    """
    dataset = tree["predictions"].to_dataset()
    latent, n_classes = dataset["latent_mean"].values, dataset.sizes["outcome"]
    angle = 2.0 * np.pi * np.arange(n_classes) / n_classes
    directions = sharpness * np.stack([np.cos(angle), np.sin(angle)])[: latent.shape[1]]

    def log_proba(at):
        return log_softmax(at @ directions, axis=1)

    best = log_proba(latent).argmax(axis=1)
    dataset["probability"] = ("obs", "outcome"), np.exp(log_proba(latent))
    dataset["class_frequency"] = "outcome", class_frequency(best, n_classes)
    best[:n_wrong] = (best[:n_wrong] + 1) % n_classes
    dataset["y"] = "obs", dataset["outcome"].values[best]
    out = tree.copy()
    out["predictions"] = xr.DataTree(dataset.merge(evaluate_on_grid(latent, log_proba)))
    return out


def _spread_centres(n_labels, n_components, rng):
    """Centres about one unit apart from the middle, the first on a circle where there is one."""
    if n_components == 1:
        return np.linspace(-1.2, 1.2, n_labels)[:, None]
    angle = 2.0 * np.pi * np.arange(n_labels) / n_labels
    radius = np.where(np.arange(n_labels) % 2, 1.0, 1.7) if n_labels > 5 else np.ones(n_labels)
    plane = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    rest = 0.3 * rng.normal(size=(n_labels, n_components - 2))
    return np.column_stack([plane, rest])


@pytest.fixture(scope="module")
def coarse_grid():
    """Pictures have the grid points that users see."""


@pytest.fixture(autouse=True)
def headless():
    """Draw into memory, and leave no figure open."""
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def make_fit():
    return build_fit


@pytest.fixture(scope="session")
def make_predictions():
    return build_predictions


@pytest.fixture(scope="session")
def with_plane():
    return add_probabilities


@pytest.fixture(scope="session")
def wine():
    return build_fit(features=WINE_FEATURES)


@pytest.fixture(scope="session")
def wine_predictions(wine):
    return build_predictions(wine)
