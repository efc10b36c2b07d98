"""Samples in the latent space, on the class probabilities that the model gives to each place."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Polygon, Rectangle
from matplotlib.transforms import blended_transform_factory
from scipy.ndimage import zoom
from scipy.stats import gaussian_kde

from bsdr_models.arrays import BoolArray, FloatArray
from bsdr_models.dims import COMPONENT, COMPONENT_AUX, GRID_X, GRID_Y, LABEL, OBS
from bsdr_models.latent_grid import VARIABLE, axis_limits, class_at
from bsdr_models.metrics import MIN_GAIN, HeldOutScore, log_losses
from bsdr_models.plots._ellipses import outline, spread_samples
from bsdr_models.plots._names import Names, name_classes
from bsdr_models.plots._read import (
    Classes,
    Target,
    Values,
    caveats,
    component_coordinates,
    one_task,
    read,
    read_target,
)
from bsdr_models.plots._style import (
    GREY,
    HALO,
    INK,
    SHADES,
    add_legend,
    axes_or_new,
    color,
    figure_of,
    fix_layout,
    marker,
    set_title,
    styled,
)

# Steps of the probability of the predicted class, and the opacity above each of them.
STEPS, OPACITY = (0.5, 0.7, 0.9), (0.0, 0.16, 0.32, 0.5)
SURE = STEPS[1]
# Samples of an outline are few enough to be told apart; probability that it holds.
MAX_OUTLINES, OUTLINE = 200, 0.5
# Pixels of a grid cell of the background along each axis.
SHARPEN = 8
# Share of samples with the class of the background below which the key states it.
AGREEMENT = 0.95
# Quantile of the normal for the lower bound of the gain over class frequencies.
ONE_SIDED = 1.645
GOOD, BAD = "#1a6b3a", "#bd1f01"
# Class names up to this length are drawn in place of points, if there are many classes and not too
# many samples.
SHORT, MANY, MOST_WRITTEN = 2, 5, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Samples to draw.

    at
        Where, (M, 2).
    target
        What colours them.
    probability
        Of the classes, (M, K); None if unknown.
    wrong, doubtful
        Whether the predicted class is not the true one, and whether its probability is below 0.7.
    names
        Of the samples.
    """

    at: FloatArray
    target: Target
    probability: FloatArray | None
    wrong: BoolArray
    doubtful: BoolArray
    names: np.ndarray


@styled
def plot_map(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] | None = None,
    components: int | tuple[int, ...] = (0, 1),
    names: int | bool | Sequence[Hashable] = 8,
    groups: Any = None,
    uncertainty: Literal["doubtful", "all"] | None = None,
    contour: float | None = None,
    like: Axes | None = None,
    label: Hashable | None = None,
    title: str | None = None,
    palette: Sequence[Any] | Mapping[Any, Any] | None = None,
    s: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot samples at their latent coordinates, and what the model predicts at each place.

    The background has the colour of the most probable class for a sample at that place, in steps of
    its probability: 0.5, 0.7 and 0.9; white is undecided. It averages over what the posterior
    leaves open for all samples alike. Colour and marker of a point are its true class; it is hollow
    if the largest predicted probability is below 0.7, and ringed if the predicted class is wrong,
    thinly if it is doubtful.
    The ellipse in the corner has the size of a typical sample's own uncertainty: with probability
    0.5 its coordinates, relative to those of the others, are within it.

    The header compares the log loss with that of the class frequencies among the training samples.
    Unless the gain per sample, less 1.645 standard errors, is above 0.01 nats, there is no
    background. Training samples are separated even if labels are arbitrary; they are watermarked.

    With one component there is a strip for each class, and for two classes a scale of the
    probability.

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component); for the background `class_probability` (grid), for
        the header `probability` and `y`, in `group`.
    group
        "predictions" for new or held-out samples, "fit" for training samples. By default
        predictions if there are any.
    components
        Indices of one or two components. There is no background if the model has others.
    names
        Which samples are named after their coordinate `obs`: at most so many that are predicted
        wrongly or with doubt (True for 8, False for none), or a list of names.
    groups
        Values that colour the samples in place of the classes, (M,); no background.
    uncertainty
        Draw the own uncertainty of doubtful or wrong samples, or of all (at most 200).
    contour
        Draw the smallest regions that hold this share of the points of each class, from a kernel
        density estimate.
    like
        Axes of another map, whose limits are taken.
    label
        Which of several outputs (multi-label, regression) or tasks colours the samples; by default
        the first.
    title
        Title.
    palette
        Colours of the classes, in order or by name.
    s
        Area of the points, in square points.
    ax
        Axes to draw on, without a key; a new figure by default.

    Raises
    ------
    ValueError
        If the tree lacks the group or its latent coordinates, or an argument does not fit it.

    See Also
    --------
    map_table : the same samples as a table.
    bsdr_models.cross_validated_map : the tree of held-out samples.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import DGPLVMClassifier, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> model = DGPLVMClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_map(model.predict_idata(X[1::2], y[1::2]))
    """
    tree, label = one_task(tree, label)
    if group is None:
        has = isinstance(tree, xr.DataTree) and "predictions" in tree.children
        group = "predictions" if has else "fit"
    if uncertainty not in ("doubtful", "all", None):
        raise ValueError(f"uncertainty must be 'doubtful', 'all' or None, got {uncertainty!r}")
    if contour is not None and not 0.0 < contour < 1.0:
        raise ValueError(f"contour must lie in (0, 1), got {contour}")
    dataset = read(tree, group, "latent_mean", *(["latent_cov"] if uncertainty else []))
    chosen, axis_names = component_coordinates(dataset, components)
    mean = dataset["latent_mean"].transpose(OBS, COMPONENT).values[:, list(chosen)]
    target = read_target(tree, group, label)
    if groups is not None:
        target = _groups(groups, len(mean))
    samples = _read_samples(dataset, mean, target)
    gain = None if groups is not None else _held_out(group, dataset, samples)
    colors = _colors(target, palette)
    probability = None
    is_whole = dataset.sizes[COMPONENT] == len(chosen) and tuple(chosen) == (0, 1)[: len(chosen)]
    convincing = gain is None or _convinces(gain)
    if VARIABLE in dataset and is_whole and groups is None and convincing:
        probability = dataset[VARIABLE]

    own_figure = ax is None
    n_classes = len(target.names) if isinstance(target, Classes) else 0
    if len(chosen) == 1:
        rows = 1 if target is None or isinstance(target, Values) else max(n_classes, 2)
        ax = axes_or_new(ax, width=7.6, height=float(np.clip(1.9 + 0.75 * rows, 3.8, 9.0)))
        samples = replace(samples, at=_stack(mean[:, 0], target))
    else:
        ax = axes_or_new(ax, width=7.6, height=5.4)
    low, high = axis_limits(mean)
    ax.set_xlim(low[0], high[0])
    if len(chosen) == 2:
        ax.set_ylim(low[1], high[1])
    else:
        _label_strips(ax, target)
    if like is not None:
        ax.set(xlim=like.get_xlim(), ylim=like.get_ylim())
    ax.set_xlabel(_axis_name(tree, chosen[0], axis_names[0]))
    if len(chosen) == 2:
        ax.set_ylabel(_axis_name(tree, chosen[1], axis_names[1]))
    header, verdict = _header(tree, group, samples, gain)
    if title is None:
        title = "Training samples" if group == "fit" else "New samples"
        if "fold" in dataset:
            title = "Held-out samples"
        title += " in the latent space"
    set_title(ax, title, header, verdict=verdict)

    if probability is not None:
        _draw_background(ax, probability, colors)
        ax.grid(visible=False)
    if contour is not None:
        _draw_contours(ax, samples, colors, contour)
    if group == "fit" and isinstance(target, Classes):
        _watermark(ax)
    cov = _own_covariance(dataset, chosen)
    if uncertainty is not None and cov is not None:
        some = samples.wrong | samples.doubtful if uncertainty == "doubtful" else None
        _draw_outlines(ax, samples, cov, some)
    beside: list[Artist] = []
    if cov is not None:
        beside += _draw_glyph(ax, np.median(cov, axis=0), len(chosen))
    written = _draw_points(ax, samples, colors, s)
    beyond = _mark_beyond(ax, samples, colors)
    agreement = None if probability is None else _agreement(probability, mean, samples)
    by_class = isinstance(target, Classes) and groups is None
    if own_figure and by_class:
        _draw_key(ax, colors, samples, written, beyond, agreement, gain)
    elif isinstance(target, Classes) and groups is not None:
        add_legend(ax, title=target.title)
    fix_layout(figure_of(ax))  # the size of names is measured next
    if isinstance(target, Classes) and by_class and len(chosen) == 2 and not written:
        beside += name_classes(ax, samples.at, target, colors, probability)
    if len(some := _to_name(names, samples)):
        at, centre = samples.at, np.median(samples.at, axis=0)
        written_names = [str(name) for name in samples.names[some]]
        Names(ax, at[some], written_names, centre=centre, avoid=at, beside=beside)
    return ax


# ------------------------------------------------------------------ reading


def _groups(groups: Any, n_samples: int) -> Classes:
    values = np.asarray(groups)
    if values.shape != (n_samples,):
        raise ValueError(
            f"groups must have one value per sample, ({n_samples},), got {values.shape}"
        )
    names, index = np.unique(values.astype(str), return_inverse=True)
    return Classes(index=index.astype(np.int64), names=tuple(names.tolist()), title="group")


def _read_samples(dataset: xr.Dataset, mean: FloatArray, target: Target) -> _Samples:
    none = np.zeros(len(mean), dtype=bool)
    samples = _Samples(
        at=mean,
        target=target,
        probability=None,
        wrong=none,
        doubtful=none,
        names=dataset[OBS].values,
    )
    if "probability" not in dataset or not isinstance(target, Classes) or target.title == "group":
        return samples
    probability = dataset["probability"].transpose(OBS, LABEL).values
    if not np.allclose(probability.sum(axis=1), 1.0):
        return samples
    known = target.title == "class"
    return replace(
        samples,
        probability=probability,
        wrong=(probability.argmax(axis=1) != target.index) if known else none,
        doubtful=probability.max(axis=1) < SURE,
    )


def _held_out(group: str, dataset: xr.Dataset, samples: _Samples) -> HeldOutScore | None:
    """Score of predictions with known labels; None if there are none."""
    target, probability = samples.target, samples.probability
    if probability is None or not isinstance(target, Classes) or target.title != "class":
        return None
    if "class_frequency" not in dataset or group == "fit" or len(probability) < 2:
        return None
    # A class without training samples has the frequency of a rounding error.
    frequency = np.maximum(dataset["class_frequency"].values, np.finfo(np.float64).eps)
    log_p = -log_losses(probability, target.index)
    return HeldOutScore.of(log_p, target.index, frequency[target.index])


def _convinces(found: HeldOutScore) -> bool:
    """Whether predictions are better than the class frequencies."""
    return found.gain - ONE_SIDED * found.gain_se > MIN_GAIN


def _agreement(probability: xr.DataArray, mean: FloatArray, samples: _Samples) -> float:
    """Share of the samples at whose place the background has the predicted class."""
    if samples.probability is None:
        return 1.0
    return float(np.mean(class_at(probability, mean) == samples.probability.argmax(axis=1)))


def _header(
    tree: xr.DataTree, group: str, samples: _Samples, gain: HeldOutScore | None
) -> tuple[str, tuple[str, str] | None]:
    """Caption, and the verdict with its colour."""
    n = len(samples.at)
    if group == "fit":
        caption = f"{n} training samples." + caveats(tree, None)
        if not isinstance(samples.target, Classes):
            return caption, None
        return caption, ("Training samples: separation here is no evidence", BAD)
    if gain is None:
        caption = f"{n} samples, held out or new."
        if samples.probability is not None:
            caption = f"{n} samples without known labels; colour: predicted class."
        return caption + caveats(tree, None), None
    caption = (
        f"{n} held-out samples · {np.mean(~samples.wrong):.0%} right · "
        f"log loss {-gain.score:.2f}, by the class frequencies {gain.gain - gain.score:.2f}"
    )
    text = f"gain over the class frequencies: {gain.gain:.2f} ± {gain.gain_se:.2f} nats"
    if _convinces(gain):
        return caption, (f"Better than chance; {text}", GOOD)
    return caption, (f"Not shown to be better than chance; {text}", BAD)


def _axis_name(tree: xr.DataTree, component: int, name: str) -> str:
    """Name of an axis, with its share of the variance between classes."""
    share = np.atleast_1d(tree.attrs.get("component_share", []))
    name = name[0].upper() + name[1:]
    if component >= len(share):
        return name
    if len(share) == 1:
        return f"{name}, probit units"
    return f"{name} ({share[component]:.0%} of the between-class variance)"


def _own_covariance(dataset: xr.Dataset, chosen: Sequence[int]) -> FloatArray | None:
    """Covariance of each sample, (M, 1 or 2, 1 or 2); None if there is none."""
    if "latent_cov" not in dataset:
        return None
    cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
    cov = cov[np.ix_(range(len(cov)), list(chosen), list(chosen))]
    return cov if np.isfinite(cov).all() and cov.any() else None


def _to_name(names: int | bool | Sequence[Hashable], samples: _Samples) -> np.ndarray:
    """Indices of the samples to name, the most surprising first."""
    if isinstance(names, int | np.integer):
        limit = 8 if names is True else int(names)
        if limit < 0:
            raise ValueError(f"names must not be negative, got {names}")
        some = np.flatnonzero(samples.wrong | samples.doubtful)
        if samples.probability is None or not isinstance(samples.target, Classes):
            return some[:0]
        if samples.wrong.any():
            surprise = samples.probability[some, samples.target.index[some]]
        else:
            surprise = samples.probability[some].max(axis=1)
        return np.asarray(some[np.argsort(surprise, kind="stable")][:limit])
    place = {name: i for i, name in enumerate(samples.names.tolist())}
    unknown = [name for name in names if name not in place]
    if unknown:
        raise ValueError(f"names holds {unknown[:5]}, which are no samples of the map")
    return np.array([place[name] for name in names], dtype=np.int64)


# ------------------------------------------------------------------ colours


def _colors(target: Target, palette: Sequence[Any] | Mapping[Any, Any] | None) -> list[Any]:
    """Colour of each class."""
    if not isinstance(target, Classes):
        return []
    if palette is None:
        return [color(c) for c in range(len(target.names))]
    if isinstance(palette, Mapping):
        by_name = {str(name): shade for name, shade in palette.items()}
        missing = [name for name in target.names if name not in by_name]
        if missing:
            raise ValueError(f"palette has no colour for {missing}")
        return [by_name[name] for name in target.names]
    if len(palette) < len(target.names):
        raise ValueError(f"palette has {len(palette)} colours for {len(target.names)} classes")
    return list(palette[: len(target.names)])


def _tint(shade: Any, opacity: float) -> FloatArray:
    return 1.0 - opacity * (1.0 - np.array(to_rgb(shade)))


# ------------------------------------------------------------------ drawing


def draw_points(ax: Axes, mean: FloatArray, target: Target) -> None:
    """Draw points (N, 2) with the colour and marker of their class, or the shade of their value."""
    none = np.zeros(len(mean), dtype=bool)
    samples = _Samples(
        at=mean, target=target, probability=None, wrong=none, doubtful=none, names=np.array([])
    )
    _draw_points(ax, samples, _colors(target, None), None, may_write=False)


def _draw_points(
    ax: Axes, samples: _Samples, colors: list[Any], s: float | None, *, may_write: bool = True
) -> bool:
    """Draw the points; whether class names were written in place of them."""
    at, target = samples.at, samples.target
    size = float(np.clip(26.0 * (150.0 / max(len(at), 1)) ** 0.35, 10.0, 32.0)) if s is None else s
    if target is None:
        ax.scatter(
            at[:, 0], at[:, 1], s=size, color=GREY, edgecolors="white", linewidths=0.4, zorder=4
        )
        return False
    if isinstance(target, Values):
        points = ax.scatter(at[:, 0], at[:, 1], s=size, c=target.values, cmap=SHADES, zorder=4)
        points.set(edgecolors="white", linewidths=0.4)
        figure_of(ax).colorbar(points, ax=ax, label=target.title, pad=0.02)
        return False
    short = max(map(len, target.names)) <= SHORT and len(target.names) > MANY
    if may_write and short and len(at) <= MOST_WRITTEN and target.title != "group":
        _write_points(ax, samples, colors)
        return True
    for c in np.unique(target.index).tolist():
        shade, sign = (GREY, "o") if c < 0 else (colors[c], marker(c))
        of = target.index == c
        big = 1.5 if sign in "PX*" else 1.0
        label: str | None = target.name(c)
        for doubtful in (False, True):
            which = of & (samples.doubtful == doubtful)
            if not which.any():
                continue
            ax.scatter(
                at[which, 0],
                at[which, 1],
                s=size * big,
                marker=sign,
                facecolors="white" if doubtful else shade,
                edgecolors=shade if doubtful else "white",
                linewidths=1.3 if doubtful else 0.5,
                zorder=4 + doubtful,
                label=label,
                gid="doubtful" if doubtful else "sure",
            )
            label = None
    _ring(ax, samples, 2.9 * size)
    return False


def _ring(ax: Axes, samples: _Samples, size: float) -> None:
    """Rings around wrong predictions, thin and grey around doubtful ones."""
    if not samples.wrong.any():
        return
    doubtful = samples.doubtful[samples.wrong]
    x, y = samples.at[samples.wrong].T
    rings = ax.scatter(x, y, s=size, facecolors="none")
    rings.set(edgecolors=np.where(doubtful, GREY, "black").tolist(), zorder=6, gid="wrong")
    rings.set_linewidth(np.where(doubtful, 0.6, 1.1).tolist())


def _write_points(ax: Axes, samples: _Samples, colors: list[Any]) -> None:
    """Class names as points; pale if doubtful."""
    assert isinstance(samples.target, Classes)
    for (x, y), c, doubtful in zip(samples.at, samples.target.index, samples.doubtful, strict=True):
        shade = 0.6 * np.array(to_rgb(colors[c] if c >= 0 else GREY))
        ax.text(
            x,
            y,
            samples.target.name(int(c)) if c >= 0 else "·",
            color=1.3 * shade if doubtful else shade,
            fontsize=7.0,
            fontweight="normal" if doubtful else "bold",
            ha="center",
            va="center",
            zorder=5,
            clip_on=True,
            path_effects=HALO,
            gid="doubtful" if doubtful else "sure",
        )
    _ring(ax, samples, 75.0)


def _draw_background(ax: Axes, probability: xr.DataArray, colors: list[Any]) -> None:
    """Colour of the most probable class, in steps of its probability."""
    dims = [dim for dim in (GRID_Y, GRID_X) if dim in probability.dims]
    values = probability.transpose(*dims, LABEL).values
    x = probability[GRID_X].values
    if len(dims) == 1:
        values = np.repeat(values[None], 2, axis=0)
        low, high, factors = 0.0, 1.0, (1, SHARPEN, 1)
        transform = blended_transform_factory(ax.transData, ax.transAxes)
        place: dict[str, Any] = {"transform": transform}
    else:
        y = probability[GRID_Y].values
        low, high, factors, place = y[0], y[-1], (SHARPEN, SHARPEN, 1), {}
    # Probabilities are smooth and boundaries are not: interpolate first, then take the largest.
    fine = zoom(values, factors, order=1, mode="nearest", grid_mode=False)
    best, step = fine.argmax(axis=-1), np.digitize(fine.max(axis=-1), STEPS)
    tints = np.array([[_tint(shade, opacity) for opacity in OPACITY] for shade in colors])
    limits = ax.get_xlim(), ax.get_ylim()
    ax.imshow(
        tints[best, step],
        origin="lower",
        extent=(x[0], x[-1], low, high),
        aspect="auto",
        interpolation="bilinear",
        zorder=0,
        gid="background",
        **place,
    )
    ax.set(xlim=limits[0], ylim=limits[1])
    if len(dims) == 1 and values.shape[-1] == 2:
        _probability_scale(ax, x, values[0, :, 1], str(probability[LABEL].values[1]))


def _probability_scale(ax: Axes, x: FloatArray, probability: FloatArray, name: str) -> None:
    """Scale on top of a strip of two classes: where the second one has which probability."""
    if probability[-1] < probability[0]:
        x, probability = x[::-1], probability[::-1]
    levels = [p for p in (0.01, 0.1, 0.5, 0.9, 0.99) if probability[0] < p < probability[-1]]
    places = np.interp(levels, np.maximum.accumulate(probability), x)
    left, right = ax.get_xlim()
    size = abs(right - left)
    within = blended_transform_factory(ax.transData, ax.transAxes)
    text: dict[str, Any] = {"fontsize": 7.5, "va": "top", "color": INK, "transform": within}
    kept: list[float] = []
    # Levels too close to be told apart are left out, from the outside.
    for level, place in sorted(
        zip(levels, places, strict=True), key=lambda pair: abs(pair[0] - 0.5)
    ):
        if all(abs(place - other) > 0.07 * size for other in kept):
            kept.append(place)
            ax.plot([place, place], [0.975, 1.0], color=INK, linewidth=0.8, transform=within)
            ax.text(place, 0.965, f"{level:g}", ha="center", path_effects=HALO, **text)
    if kept:
        ax.text(
            min(kept) - 0.04 * size, 0.965, f"probability of {name}", ha="right",
            path_effects=HALO, **text,
        )  # fmt: skip


def _draw_contours(ax: Axes, samples: _Samples, colors: list[Any], share: float) -> None:
    """Highest-density regions of the points of each class that hold a share of them."""
    if not isinstance(samples.target, Classes):
        raise ValueError("contour needs classes, and the samples have none")
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    x, y = np.linspace(left, right, 120), np.linspace(bottom, top, 120)
    grid = np.stack(np.meshgrid(x, y)).reshape(2, -1)
    for c, shade in enumerate(colors):
        at = samples.at[samples.target.index == c]
        if len(at) < 3 or np.linalg.matrix_rank(at - at.mean(axis=0)) < 2:
            continue
        density = gaussian_kde(at.T)
        level = np.quantile(density(at.T), 1.0 - share)
        height = density(grid).reshape(len(y), len(x))
        lines = ax.contour(x, y, height, levels=[level], colors=[shade], linewidths=1.6)
        lines.set(zorder=3, gid="contour")


def _draw_outlines(ax: Axes, samples: _Samples, cov: FloatArray, some: BoolArray | None) -> None:
    """Own uncertainty of samples, as ellipses or bars."""
    index = np.arange(len(cov)) if some is None else np.flatnonzero(some)
    if isinstance(samples.target, Classes):
        index = index[spread_samples(samples.target.index[index], MAX_OUTLINES)]
    index = index[:MAX_OUTLINES]
    if not len(index):
        return
    if cov.shape[1] == 1:
        reach = 0.6745 * np.sqrt(cov[index, 0, 0])
        x, y = samples.at[index].T
        bars = ax.hlines(y, x - reach, x + reach, colors=INK, linewidths=0.7, alpha=0.6, zorder=3)
        bars.set_gid("own")
        return
    vertices = outline(samples.at[index], cov[index], prob=OUTLINE)
    shapes = PolyCollection(list(vertices), facecolors="none", edgecolors=INK, linewidths=0.7)
    shapes.set(alpha=0.6, zorder=3, gid="own")
    ax.add_collection(shapes, autolim=False)


def _draw_glyph(ax: Axes, cov: FloatArray, n_axes: int) -> list[Artist]:
    """Typical own uncertainty in the lower right corner, at scale, and its name."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    width = np.array([right - left, top - bottom])[:n_axes]
    reach = np.sqrt(np.diag(cov)) * (1.1774 if n_axes == 2 else 0.6745)
    part = np.abs(reach / width)
    if not np.all((part > 0.0) & (part < 0.22)):
        return []  # too large to be drawn at scale
    text: dict[str, Any] = {"fontsize": 7.0, "color": INK, "path_effects": HALO, "zorder": 8}
    if n_axes == 1:
        x, y = right - reach[0] - 0.02 * (right - left), bottom + 0.06 * (top - bottom)
        ax.errorbar(x, y, xerr=reach[0], color=INK, capsize=2.5, linewidth=1.0, zorder=8, gid="own")
        ax.annotate(
            "one sample, 50 %", (right - 0.02 * (right - left), y), (0, 5),
            textcoords="offset points", ha="right", **text,
        )  # fmt: skip
        return []
    centre = np.array([right, bottom]) + np.array([-1.0, 1.0]) * (reach + 0.02 * width)
    (vertices,) = outline(centre[None], cov[None], prob=OUTLINE)
    shape = Polygon(vertices, fill=False, edgecolor=INK, linewidth=0.9, zorder=7, gid="typical")
    ax.add_patch(shape)
    beside = (right - 2.0 * reach[0] - 0.03 * width[0], bottom + 0.015 * width[1])
    return [shape, ax.text(*beside, "one sample, 50 %", ha="right", va="bottom", **text)]


def _mark_beyond(ax: Axes, samples: _Samples, colors: list[Any]) -> int:
    """Arrowheads at the edge for samples beyond the axes; returns their number."""
    ends = np.array([ax.get_xlim(), ax.get_ylim()]).T
    low, high = ends.min(axis=0), ends.max(axis=0)
    outside = np.flatnonzero(((samples.at < low) | (samples.at > high)).any(axis=1))
    edge = 0.012 * (high - low)
    for n in outside:
        at = np.clip(samples.at[n], low + edge, high - edge)
        way = (samples.at[n] - at) / (ends[1] - ends[0])
        angle = float(np.degrees(np.arctan2(way[1], way[0]))) - 90.0
        c = samples.target.index[n] if isinstance(samples.target, Classes) else -1
        ax.plot(
            *at,
            marker=(3, 0, angle),
            color=colors[c] if c >= 0 else GREY,
            markersize=8.0,
            markeredgecolor="black",
            markeredgewidth=0.6,
            zorder=8,
            gid="beyond",
        )
    return len(outside)


def _watermark(ax: Axes) -> None:
    ax.text(
        0.5,
        0.5,
        "training samples",
        transform=ax.transAxes,
        fontsize=26.0,
        fontweight="bold",
        color=GREY,
        alpha=0.3,
        rotation=20.0,
        ha="center",
        va="center",
        zorder=2,
        gid="watermark",
    )


def _stack(x: FloatArray, target: Target) -> FloatArray:
    """Points of one coordinate, (M,), stacked as in a dot plot in a strip for each class: (M, 2).

    Values of a regression are the height instead.
    """
    if isinstance(target, Values):
        return np.column_stack([x, target.values])
    index = target.index if target is not None else np.zeros(len(x), dtype=np.int64)
    low, high = axis_limits(x[:, None])
    step = (high[0] - low[0]) / 80.0
    bins = np.round((x - low[0]) / step).astype(np.int64)
    at = np.column_stack([low[0] + step * bins, index.astype(np.float64)])
    deepest, depth = 1, np.zeros(len(x))
    for c in np.unique(index).tolist():
        for b in np.unique(bins[index == c]).tolist():
            of = np.flatnonzero((index == c) & (bins == b))
            depth[of[np.argsort(x[of], kind="stable")]] = np.arange(len(of))
            deepest = max(deepest, len(of))
    at[:, 1] -= depth * min(0.06, 0.8 / deepest) - 0.32
    return at


def _label_strips(ax: Axes, target: Target) -> None:
    if isinstance(target, Values):
        ax.set_ylabel(target.title)
        return
    if target is None:
        ax.set(yticks=[], ylim=(0.5, -0.8))
        return
    lowest = min(int(target.index.min()), 0)
    names = [target.name(c) for c in range(lowest, len(target.names))]
    ax.set_yticks(range(lowest, len(target.names)), names)
    ax.set_ylim(len(target.names) - 0.4, lowest - 0.8)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_ylabel(target.title)


def _draw_key(
    ax: Axes,
    colors: list[Any],
    samples: _Samples,
    written: bool,
    beyond: int,
    agreement: float | None,
    gain: HeldOutScore | None,
) -> None:
    """Meaning of background and points, beside the axes."""
    left, at, beside = 1.02, 1.05, 1.095
    text: dict[str, Any] = {"transform": ax.transAxes, "fontsize": 7.5}
    outside: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
    notes = []
    if gain is not None and not _convinces(gain):
        notes.append("No background: no evidence\nthat the model predicts\nbetter than chance.")
    if agreement is not None and agreement < AGREEMENT:
        notes.append(
            f"Background and prediction\nhave the same class for\n{agreement:.0%} of the samples"
        )
    if beyond:
        notes.append(f"{beyond} beyond the axes\n(arrowheads)")
    ax.text(left, 1.0, "\n\n".join(notes), va="top", color=GREY, **text)
    if samples.probability is None:
        return
    meanings = {"doubtful": f"doubtful: below {SURE:g}", "sure": "sure"}
    if samples.wrong.any():
        meanings = {"wrong": "predicted wrongly", **meanings}
    y = 0.0
    for kind, meaning in meanings.items():
        y += 0.05
        shade = GREY if kind == "doubtful" else INK
        if written:
            weight = "bold" if kind == "sure" else "normal"
            ax.text(at, y, "a", color=shade, weight=weight, ha="center", va="center", **text)
        elif kind == "doubtful":
            ax.scatter(at, y, s=22, facecolors="white", edgecolors=GREY, **outside)
        else:
            ax.scatter(at, y, s=22, facecolors=GREY, edgecolors="white", **outside)
        if kind == "wrong":
            ax.scatter(at, y, s=80, facecolors="none", edgecolors="black", **outside)
        ax.text(beside, y, meaning, va="center", **text)
    if agreement is None:
        return
    steps = ("undecided", *(f"{low:g} to {high:g}" for low, high in pairwise((*STEPS, 1.0))))
    y += 0.09
    for opacity, meaning in zip(OPACITY, steps, strict=True):
        for j, shade in enumerate(colors[:3]):
            box = Rectangle((left + 0.02 * j, y - 0.018), 0.02, 0.036, **outside)
            box.set(facecolor=_tint(shade, opacity), edgecolor="#dddddd", linewidth=0.4)
            ax.add_patch(box)
        ax.text(beside, y, meaning, va="center", **text)
        y += 0.05
    ax.text(left, y, "probability of the\nclass at a place", va="bottom", **text)
