"""Samples in the latent space, on the class probabilities that the model gives to each place."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.special import entr

from bsdr_models.data.targets import majority_share, name_groups
from bsdr_models.estimators.calibration import HeldOutScore
from bsdr_models.inference.datatree import read
from bsdr_models.inference.dims import COMPONENT, COMPONENT_AUX, LABEL, OBS
from bsdr_models.inference.latent_grid import VARIABLE, axis_limits, class_at, evaluate_on_grid
from bsdr_models.lazy import annex
from bsdr_models.metrics import log_losses
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, TargetLike
from bsdr_models.options import Number, check_parameters
from bsdr_models.plots import _layers
from bsdr_models.plots._layers import OPACITY, STEPS, SURE, Samples
from bsdr_models.plots._read import Classes, Values, caveats, read_target
from bsdr_models.plots._style import (
    GREY,
    INK,
    add_legend,
    axes_or_new,
    color,
    marker,
    set_title,
    styled,
)

if TYPE_CHECKING:
    from bsdr_models.compare.plane import PredictionPlane

# Most classes whose probabilities latent coordinates show.
MOST_LATENT = 3
# Share of samples whose predicted class is that of the background, below which the header warns.
POOR = 0.9
# Most classes that the legend repeats beside their names in the map.
MOST_LISTED = 10
OUTLIER_MEASURES = ("t2", "q_residual", "out_of_range", "tail_probability")
GOOD = "#1a6b3a"
BAD = "#bd1f01"


class _Place(NamedTuple):
    """Coordinates of samples, and class probabilities on a grid."""

    mean: FloatArray  # (M, 1 or 2)
    names: list[str]  # of the axes
    probability: xr.DataArray | None
    cov: FloatArray | None = None  # (M, R, R)
    plane: "PredictionPlane | None" = None  # of the predictions, None for latent coordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a map shows: samples with their names (M,), kind and place, background, caption."""

    samples: Samples
    place: _Place
    obs: np.ndarray
    kind: str  # "Held-out", "Training" or "New"
    gain: HeldOutScore | None
    header: str
    verdict: tuple[str, str] | None  # text and colour

    @property
    def convinced(self) -> bool:
        """Whether classes differ as far as is known."""
        return self.gain is None or self.gain.signal


def map_table(tree: xr.DataTree, group: Literal["fit", "predictions"] = "fit") -> xr.Dataset:
    r"""Table of samples: latent coordinates, classes, their uncertainty, and outlier measures.

    Parameters
    ----------
    tree
        Needs `latent_mean` and `latent_cov` in `group`, or `probability`.
    group
        "fit" for training samples, predicted without their labels, "predictions" for new ones.

    Returns
    -------
    Dataset
        If known, `mean` and `sd` (obs, component) of the latent coordinates, and the class or value
        `observed` (obs,). If the group has class probabilities: `predicted` (obs,), the largest
        probability `confidence` (obs,), and `entropy` (obs,), :math:`-\sum_c p_c \log p_c` in nats.
        If the group has them: `t2` and `q_residual` (linear maps) or `out_of_range` (D-GPLVM), and
        `tail_probability`, which is small for outliers.

    See Also
    --------
    plot_map : the plot.
    plot_outliers : T2 and Q.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> table = plots.map_table(tree, "predictions")
    >>> table["confidence"].sizes
    Frozen({'obs': 89})
    """
    dataset = read(tree, group)
    table = xr.Dataset(coords={OBS: dataset[OBS]})
    if "probability" not in dataset or "latent_mean" in dataset:
        dataset = read(tree, group, "latent_mean", "latent_cov")
        cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
        mean = dataset["latent_mean"].transpose(OBS, COMPONENT)
        table["mean"] = mean
        table["sd"] = mean.copy(data=np.sqrt(np.diagonal(cov, 0, 1, 2)))
    match read_target(tree, group):
        case Classes(index=index, names=names, title=title) if title != "predicted class":
            table["observed"] = (OBS, np.array([*names, "no label"])[index])
        case Values(values=values):
            table["observed"] = (OBS, values)
    if "probability" in dataset:
        probability = dataset["probability"].transpose(OBS, LABEL).values
        best = probability.argmax(axis=1)
        table["predicted"] = (OBS, dataset[LABEL].values[best])
        table["confidence"] = (OBS, probability.max(axis=1))
        table["entropy"] = (OBS, entr(probability).sum(axis=1))
    for name in OUTLIER_MEASURES:
        if name in dataset:
            table[name] = dataset[name]
    return table.drop_vars(LABEL, errors="ignore")


def plot_map(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] | None = None,
    space: Literal["latent", "predictions"] | None = None,
    names: int = 8,
    groups: TargetLike | None = None,
    uncertainty: bool = False,
    label: Hashable | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot samples, and what the model predicts at each place.

    Samples are drawn at their latent coordinates, or in the plane of the predictions
    (:class:`bsdr_models.PredictionPlane`), where samples with similar predictions are near each
    other and doubtful samples lie between the classes in question. Training samples are drawn by
    their held-out predictions (``held_out_log_proba_``). In the latent space training samples are
    separated even if labels are arbitrary, and such a map has a watermark.

    The background has the colour of the most probable class for a sample at that place, in steps of
    its probability: 0.5, 0.7 and 0.9; white is undecided. Colour and marker of a point are its true
    class; it is hollow if the largest predicted probability is below 0.7, and ringed if the
    predicted class is wrong. Points that would hide each other are moved apart by a few widths of a
    marker. Classes are named beside their samples, and in the legend if there are at most ten. The
    ellipse in the corner holds a typical sample's coordinates with probability 0.5.

    The header gives accuracy and log loss of the predictions and of the plane alone, and the log
    loss of the class frequencies among the training samples. Unless the gain over these per sample,
    less 0.85 standard errors, is above 0.01 nats, there is no background. One component has a strip
    for each class.

    Parameters
    ----------
    tree
        Needs in `group` `latent_mean` (obs, component) or, for the plane, `probability`; for the
        background `class_probability` (grid), for the header `probability` and `y`.
    group
        "predictions" for new or held-out samples, the default if there are any, or "fit" for
        training samples.
    space
        "latent", the first two components, without a background if there are more; or
        "predictions" for a plane learned from the predictions of the samples drawn:
        the default for more than three classes, training samples, and unknown coordinates.
    names
        Largest number of samples, among those predicted wrongly or with doubt, that are named by
        their coordinate `obs`.
    groups
        Values (M,), such as batches, that choose the markers of the samples in place of the
        classes. There are ten different markers.
    uncertainty
        Whether the own uncertainty of doubtful and of wrong samples is drawn in the latent space.
    label
        Which of several outputs colours the samples, by default the first.
    ax
        Axes to draw on, whose legend has classes and groups alone; a new figure by default.

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
    allowed = ["boolean", Number(Integral, 0, None, closed="left")]
    check_parameters({"names": allowed}, locals(), "plot_map")
    shown = read_map(tree, group, space, groups, uncertainty, label)
    return draw_map(shown, names=names, uncertainty=uncertainty, ax=ax)


# Reading


def read_map(
    tree: xr.DataTree,
    group: str | None = None,
    space: str | None = None,
    groups: TargetLike | None = None,
    uncertainty: bool = False,
    label: Hashable | None = None,
) -> Shown:
    """What a map shows, by the arguments of `plot_map`."""
    if group is None:
        has = isinstance(tree, xr.DataTree) and "predictions" in tree.children
        group = "predictions" if has else "fit"
    if space not in ("latent", "predictions", None):
        raise ValueError(f"space must be 'latent', 'predictions' or None, got {space!r}")
    if uncertainty and space == "predictions":
        raise ValueError("uncertainty is that of latent coordinates: give space='latent'")
    dataset = read(tree, group)
    if space is None:
        needed = not uncertainty and _needs_plane(dataset, group)
        space = "predictions" if needed else "latent"
    target = read_target(tree, group, label)
    batches = None
    if groups is not None:
        found, index = name_groups(groups, dataset[OBS])
        days = tuple(str(each).removesuffix(" 00:00:00") for each in found)
        batches = Classes(index=index, names=days, title="group")
    hidden = 0
    kind = "Held-out" if "fold" in dataset else "Training" if group == "fit" else "New"
    if space == "predictions":
        dataset = read(tree, group, "probability")
        seen = dataset["probability"].notnull().all(LABEL).values
        hidden = int((~seen).sum())
        dataset = dataset.isel({OBS: seen})
        target = _select(target, seen)
        batches = _select(batches, seen)
        place = _plane_coordinates(dataset)
    elif kind == "Held-out" and "latent_mean" not in dataset:
        raise ValueError(
            "held-out samples have no latent coordinates, as those of different fits have axes of "
            "their own: leave out space and uncertainty, or give group='fit'"
        )
    else:
        dataset = read(tree, group, "latent_mean", *(["latent_cov"] if uncertainty else []))
        place = _latent_coordinates(tree, dataset)
    if not np.isfinite(place.mean).all():
        raise ValueError("coordinates of samples in the tree contain NaN or infinity")
    strips = place.mean.shape[1] == 1
    at = _layers.spread_strips(place.mean[:, 0], target) if strips else place.mean
    samples = Samples(at=at, target=target, groups=batches)
    fitted = kind == "Training" and space == "latent"
    if "probability" in dataset and isinstance(target, Classes) and not fitted:
        p = dataset["probability"].transpose(OBS, LABEL).values
        if np.allclose(p.sum(axis=1), 1.0):
            samples = replace(samples, probability=p)
    gain = _held_out(dataset, samples)
    if gain is not None and not gain.signal:
        place = place._replace(probability=None)
    header, verdict = _header(tree, kind, samples, gain, place)
    if hidden:
        header += f" · not drawn: {hidden} without a held-out prediction, as alone in a class"
    return Shown(samples=samples, place=place, obs=dataset[OBS].values, kind=kind,
                 gain=gain, header=header, verdict=verdict)  # fmt: skip


def _latent_coordinates(tree: xr.DataTree, dataset: xr.Dataset) -> _Place:
    """Coordinates of the first two components, without probabilities if there are others."""
    mean = dataset["latent_mean"].transpose(OBS, COMPONENT).values[:, :2]
    cov = None
    if "latent_cov" in dataset:
        cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values[:, :2, :2]
        cov = cov if np.isfinite(cov).all() and cov.any() else None
    names = [f"Component {i}" for i in range(1, 1 + mean.shape[1])]
    share = np.atleast_1d(tree.attrs.get("component_share", []))
    if len(share) == 1:
        names[0] += ", probit units"
    else:
        for i, part in enumerate(share[: len(names)]):
            names[i] += f" ({part:.0%} of the between-class variance)"
    is_whole = dataset.sizes[COMPONENT] <= 2
    return _Place(mean, names, dataset.get(VARIABLE) if is_whole else None, cov)


def _needs_plane(dataset: xr.Dataset, group: str) -> bool:
    """Whether probabilities of classes are known that latent coordinates do not show."""
    if "probability" not in dataset:
        return False
    total = dataset["probability"].dropna(OBS).sum(LABEL)
    many = "latent_mean" not in dataset or dataset.sizes[LABEL] > MOST_LATENT
    return bool(total.size and np.allclose(total, 1.0) and (many or group == "fit"))


def _plane_coordinates(dataset: xr.Dataset) -> _Place:
    """Coordinates of the plane of the predictions, learned from them, and its probabilities.

    Classes that are predicted for no sample have none. Names contain the share of each coordinate
    in the variance of the probabilities, unless coordinates carry all of them.
    """
    probability = dataset["probability"].transpose(OBS, LABEL).values
    plane: PredictionPlane = annex("compare.plane").PredictionPlane().fit(probability)
    mean = plane.transform(probability)
    grid = evaluate_on_grid(mean, plane.predict_log_proba)[VARIABLE]
    predicted = np.bincount(probability.argmax(axis=1), minlength=probability.shape[1]) > 0
    centred = probability - probability.mean(axis=0)
    tiny = np.finfo(np.float64).tiny
    size = np.maximum(np.sum(mean**2, axis=0), tiny)
    total = max(np.sum(centred**2), tiny)
    share = np.sum((mean.T @ centred) ** 2, axis=1) / size / total
    carried = [f"{part:.0%} of their variance" for part in share]
    if plane.power_ == 1:
        carried = ["log ratios of probabilities"] * len(share)
    names = [f"Predictions {i} ({what})" for i, what in enumerate(carried, start=1)]
    shown = grid.assign_coords({LABEL: dataset[LABEL].values})
    return _Place(mean, names, shown.where(xr.DataArray(predicted, dims=LABEL), 0.0), plane=plane)


def _select[T](target: T, seen: BoolArray) -> T:
    """Classes of some samples."""
    return replace(target, index=target.index[seen]) if isinstance(target, Classes) else target


def _held_out(dataset: xr.Dataset, samples: Samples) -> HeldOutScore | None:
    """Score of predictions with known labels; None if there are none."""
    known = samples.truth >= 0
    truth = samples.truth[known]
    if samples.probability is None or "class_frequency" not in dataset or len(truth) < 2:
        return None
    # A class without training samples has the frequency of a rounding error.
    frequency = np.maximum(dataset["class_frequency"].values, np.finfo(np.float64).eps)
    log_p = -log_losses(samples.probability[known], truth)
    groups = None if samples.groups is None else samples.groups.index[known]
    return HeldOutScore.of(log_p, truth, frequency[truth], groups=groups)


def _header(
    tree: xr.DataTree,
    kind: str,
    samples: Samples,
    gain: HeldOutScore | None,
    place: _Place,
) -> tuple[str, tuple[str, str] | None]:
    """Caption, and the verdict with its colour."""
    n = len(samples.at)
    probability = samples.probability
    if probability is None:
        training = kind == "Training"
        caption = f"{n} training samples." if training else f"{n} samples, held out or new."
        warning = ("Training samples: separation here is no evidence", BAD)
        warns = training and isinstance(samples.target, Classes)
        return caption + caveats(tree, None), warning if warns else None
    if gain is None:
        caption = f"{n} samples without known labels; colour: predicted class."
        return caption + caveats(tree, None), None
    known = samples.truth >= 0
    truth = samples.truth[known]
    right = f"{np.mean(~samples.wrong[known]):.0%} right"
    guess = f"class frequencies {gain.gain - gain.score:.2f}"
    if place.plane is not None:
        log_q = place.plane.predict_log_proba(place.mean[known])
        right += f" (plane {np.mean(log_q.argmax(axis=1) == truth):.0%})"
        guess = f"plane {-log_q[np.arange(len(truth)), truth].mean():.2f}, {guess}"
    if samples.groups is not None:
        alone = majority_share(samples.groups.index, samples.truth)
        guess += f", the groups alone {alone:.0%} right"
    what = "held-out samples"
    if kind == "Training":
        what = "training samples, predicted without their labels"
    text = f"{n} {what} · {right} · log loss {-gain.score:.2f} ({guess})"
    gained = f"gain over the class frequencies: {gain.gain:z.2f} ± {gain.gain_se:.2f} nats"
    if not gain.signal:
        doubt = "Not shown to be better than chance, hence without background"
        return text, (f"{doubt}; {gained}", BAD)
    agree = 1.0
    if place.probability is not None:
        agree = np.mean(class_at(place.probability, place.mean) == probability.argmax(axis=1))
    if agree < POOR:
        other = f"{1.0 - agree:.0%} of the samples lie in the colour of another class"
        careful = f"Better than chance; {gained}. Careful: {other} than the predicted one"
        return text, (careful, BAD)
    return text, (f"Better than chance; {gained}", GOOD)


def _to_name(limit: int, samples: Samples) -> IntArray:
    """At most so many wrong or doubtful samples, by their indices, the most surprising first."""
    wrong = samples.wrong
    some = np.flatnonzero(wrong | samples.doubtful)
    if samples.probability is None:
        return some
    surprise = samples.probability[some].max(axis=1)
    if wrong.any():
        surprise = samples.probability[some, samples.truth[some]]
    return some[np.argsort(surprise, kind="stable")][:limit]


# Drawing


@styled
def draw_map(
    shown: Shown,
    *,
    names: int = 8,
    uncertainty: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a map, by the arguments of `plot_map`."""
    samples = shown.samples
    to_name = _to_name(names, samples)
    place = shown.place
    target = samples.target
    plane = place.mean.shape[1] == 2
    n_classes = len(target.names) if isinstance(target, Classes) else 0
    # Without evidence that classes differ, medians coincide. Strips have names on their axis.
    named = plane and shown.convinced
    listed = plane and not (named and n_classes > MOST_LISTED)
    height = 5.4 if plane else float(np.clip(1.9 + 0.75 * n_classes, 3.8, 9.0))
    key = ax is None
    ax = axes_or_new(ax, width=7.6, height=height, n_names=listed * n_classes + 8)
    low, high = axis_limits(place.mean)
    ax.set(xlim=(low[0], high[0]), xlabel=place.names[0])
    if plane:
        ax.set(ylim=(low[1], high[1]), ylabel=place.names[1])
    else:
        _layers.label_strips(ax, target)
    where = "latent space" if place.plane is None else "plane of their predictions"
    set_title(ax, f"{shown.kind} samples in the {where}", shown.header, verdict=shown.verdict)

    if place.probability is not None:
        _layers.draw_background(ax, place.probability)
        ax.grid(visible=False)
    if shown.kind == "Training" and place.plane is None and isinstance(target, Classes):
        ax.text(0.5, 0.5, "training samples", transform=ax.transAxes, fontsize=26.0,
                fontweight="bold", color=GREY, alpha=0.3, rotation=20.0, ha="center", va="center",
                zorder=2, gid="watermark")  # fmt: skip
    beside: list[Artist] = []
    if place.cov is not None:
        if uncertainty:
            some = samples.wrong | samples.doubtful
            _layers.draw_own(ax, samples.at[some], place.cov[some])
        beside += _layers.draw_typical(ax, np.median(place.cov, axis=0))
    beyond = _layers.mark_beyond(ax, samples)
    _draw_legend(ax, listed, samples, beyond, key=key)
    if plane:
        samples = replace(samples, at=_layers.move_apart(ax, samples.at))
    _layers.draw_samples(ax, samples)
    at = samples.at
    middle, classes, styles = _layers.class_names(at, target if named else None)
    points = np.concatenate([middle, at[to_name]])
    texts = [*classes, *map(str, shown.obs[to_name])]
    _layers.Names(ax, points, texts, avoid=at, beside=beside, required=len(classes), styles=styles)
    return ax


def _draw_legend(ax: Axes, listed: bool, samples: Samples, beyond: int, *, key: bool) -> None:
    """Classes if listed, groups by markers, and, with a key, what points and areas mean."""
    handles: list[Artist] = []
    plain: dict[str, Any] = {"linestyle": "none", "color": GREY}
    target = samples.target
    groups = samples.groups
    if isinstance(target, Classes) and listed:
        handles = [Patch(color=color(c), label=name) for c, name in enumerate(target.names)]
        if groups is None:
            handles = _layers.class_handles(target)
    if groups is not None:
        names = enumerate(groups.names)
        handles += [Line2D([], [], marker=marker(g), label=name, **plain) for g, name in names]
    if key and beyond:
        handles.append(Line2D([], [], marker="^", label=f"{beyond} beyond the axes", **plain))
    if key and samples.probability is not None:
        hollow = {"marker": "o", "markerfacecolor": "white", **plain}
        handles.append(Line2D([], [], label=f"doubtful: below {SURE:g}", **hollow))
    if key and samples.wrong.any():
        ring = {"marker": "o", "markersize": 9.0, "markerfacecolor": "none", **plain}
        handles.append(Line2D([], [], label="predicted wrongly", **ring | {"color": "black"}))
    if key and ax.images:
        place = "\nprobability of the\nclass at a place"
        steps = ("undecided", *(f"{low:g} to {high:g}" for low, high in pairwise((*STEPS, 1.0))))
        handles.append(Line2D([], [], linestyle="none", label=place))
        for opacity, step in zip(OPACITY, steps, strict=True):
            handles.append(Patch(fc=_layers.tint(INK, opacity), ec=GREY, lw=0.4, label=step))
    if handles:
        title = target.title if isinstance(target, Classes) and listed else None
        add_legend(ax, handles, title=title)
