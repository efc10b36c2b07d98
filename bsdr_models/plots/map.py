"""Samples in the latent space, on the class probabilities that the model gives to each place."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import COMPONENT, COMPONENT_AUX, LABEL, OBS
from bsdr_models.latent_grid import VARIABLE, axis_limits, class_at, evaluate_on_grid
from bsdr_models.metrics import MIN_GAIN, HeldOutScore, log_losses
from bsdr_models.plane import PredictionPlane
from bsdr_models.plots._layers import (
    OPACITY,
    STEPS,
    Samples,
    class_colors,
    draw_background,
    draw_contours,
    draw_outlines,
    draw_samples,
    draw_typical,
    label_strips,
    mark_beyond,
    plain_samples,
    ring_style,
    stack_strips,
    tint,
)
from bsdr_models.plots._names import Names, name_classes
from bsdr_models.plots._read import (
    Classes,
    Target,
    caveats,
    check_prob,
    component_coordinates,
    one_task,
    read,
    read_target,
)
from bsdr_models.plots._style import (
    GREY,
    INK,
    add_legend,
    axes_or_new,
    figure_of,
    fix_layout,
    set_title,
    styled,
)

SURE = STEPS[1]
# Most classes whose probabilities latent coordinates show.
MOST_LATENT = 3
# Share of samples whose predicted class is that of the background, below which the header warns.
POOR = 0.9
# Quantile of the normal for the lower bound of the gain over class frequencies.
ONE_SIDED = 1.645
GOOD, BAD = "#1a6b3a", "#bd1f01"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coordinates:
    """Means (M, 1 or 2), covariances (M, R, R) or None, names of axes, class probabilities.

    ``plane`` is the plane of the predictions, None for latent coordinates.
    """

    mean: FloatArray
    cov: FloatArray | None
    names: list[str]
    probability: xr.DataArray | None
    plane: PredictionPlane | None = None


@styled
def plot_map(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] | None = None,
    space: Literal["latent", "predictions"] | None = None,
    components: int | tuple[int, ...] | None = None,
    names: int | bool | Sequence[Hashable] = 8,
    groups: Any = None,
    uncertainty: Literal["doubtful", "all"] | None = None,
    contour: float | None = None,
    label: Hashable | None = None,
    title: str | None = None,
    palette: Sequence[Any] | Mapping[Any, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot samples, and what the model predicts at each place.

    Places are latent coordinates, or those of the plane of the predictions
    (:class:`bsdr_models.PredictionPlane`), which shows all that is predicted for many classes: near
    samples have similar predictions, and doubtful ones lie between the classes in question.

    Training samples are drawn where the fit has predicted them without their labels, by
    cross-validation or leaving one out (``held_out_log_proba_``). In the latent space, where they
    are separated even if labels are arbitrary, they are watermarked.

    The background has the colour of the most probable class for a sample at that place, in steps of
    its probability: 0.5, 0.7 and 0.9; white is undecided. Colour and marker of a point are its true
    class; it is hollow if the largest predicted probability is below 0.7, and ringed if the
    predicted class is wrong, thinly if it is doubtful as well. The ellipse in the corner holds a
    typical sample's coordinates, relative to those of the others, with probability 0.5.

    The header gives accuracy and log loss of the predictions and of the background alone, the share
    of samples for which the two name the same class, and the log loss of the class frequencies
    among the training samples. Unless the gain over these per sample, less 1.645 standard errors,
    is above 0.01 nats, there is no background.

    With one component there is a strip for each class, and for two classes a scale of the
    probability.

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component), and for the background `class_probability` (grid), or
        `probability` for the plane of the predictions; for the header `probability` and `y`, in
        `group`.
    group
        "predictions" for new or held-out samples, the default if there are any, or "fit" for
        training samples.
    space
        "latent", or "predictions" for a plane learned from the predicted probabilities of the
        samples drawn, without their labels: the default for more than three classes, for training
        samples, and where latent coordinates are unknown.
    components
        Indices of one or two latent components, by default the first two. There is no background
        if the model has others.
    names
        Which samples are named after their coordinate `obs`: at most so many that are predicted
        wrongly or with doubt (True for 8, False for none), or a list of names.
    groups
        Values that colour the samples in place of the classes, (M,); no background.
    uncertainty
        In the latent space: draw the own uncertainty of doubtful or wrong samples, or of all (at
        most 200).
    contour
        Draw the smallest regions that hold this share of the points of each class, from a kernel
        density estimate.
    label
        Which of several outputs (multi-label, regression) or tasks colours the samples; by default
        the first.
    title
        Title.
    palette
        Colours of the classes, in order or by name.
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
    for name, value, known in (
        ("uncertainty", uncertainty, ("doubtful", "all")),
        ("space", space, ("latent", "predictions")),
    ):
        if value not in (*known, None):
            raise ValueError(f"{name} must be {known[0]!r}, {known[1]!r} or None, got {value!r}")
    if uncertainty is not None and space == "predictions":
        raise ValueError("uncertainty is that of latent coordinates: give space='latent'")
    if contour is not None:
        check_prob("contour", contour)
    dataset = read(tree, group)
    if space is None:
        needed = uncertainty is None and components is None and _needs_plane(dataset, group)
        space = "predictions" if needed else "latent"
    target = read_target(tree, group, label)
    if groups is not None:
        target = _groups(groups, dataset.sizes[OBS])
    if space == "predictions":
        dataset = read(tree, group, "probability")
        seen = dataset["probability"].notnull().all(LABEL).values
        dataset = dataset.isel({OBS: seen})
        if isinstance(target, Classes):
            target = replace(target, index=target.index[seen])
        place = _plane_coordinates(dataset)
    else:
        dataset = read(tree, group, "latent_mean", *(["latent_cov"] if uncertainty else []))
        place = _latent_coordinates(tree, dataset, (0, 1) if components is None else components)
    held_out = "fold" in dataset
    fitted = group == "fit" and space == "latent" and not held_out
    if fitted:
        dataset = dataset.drop_vars("probability", errors="ignore")
    samples = _read_samples(dataset, place.mean, target)
    gain = _held_out(dataset, samples)
    colors = class_colors(target, palette)
    shown = groups is None and (gain is None or _convinces(gain))
    probability = place.probability if shown else None

    own_figure = ax is None
    plane = place.mean.shape[1] == 2
    if plane:
        height = 5.4
    else:
        n_strips = max(len(target.names), 2) if isinstance(target, Classes) else 1
        height = float(np.clip(1.9 + 0.75 * n_strips, 3.8, 9.0))
        samples = replace(samples, at=stack_strips(place.mean[:, 0], target))
    ax = axes_or_new(ax, width=7.6, height=height)
    if not np.isfinite(place.mean).all():
        raise ValueError("coordinates of samples in the tree contain NaN or infinity")
    low, high = axis_limits(place.mean)
    ax.set(xlim=(low[0], high[0]), xlabel=place.names[0])
    if plane:
        ax.set(ylim=(low[1], high[1]), ylabel=place.names[1])
    else:
        label_strips(ax, target)
    agreement = None if probability is None else _agreement(probability, place.mean, samples)
    header, verdict = _header(tree, group, samples, gain, place, agreement)
    if title is None:
        kind = "Held-out" if held_out else "Training" if group == "fit" else "New"
        where = "latent space" if place.plane is None else "plane of their predictions"
        title = f"{kind} samples in the {where}"
    set_title(ax, title, header, verdict=verdict)

    if probability is not None:
        draw_background(ax, probability, colors)
        ax.grid(visible=False)
    if contour is not None:
        draw_contours(ax, samples, colors, contour)
    if fitted and isinstance(target, Classes):
        ax.text(0.5, 0.5, "training samples", transform=ax.transAxes, fontsize=26.0,
                fontweight="bold", color=GREY, alpha=0.3, rotation=20.0, ha="center", va="center",
                zorder=2, gid="watermark")  # fmt: skip
    beside: list[Artist] = []
    if place.cov is not None:
        if uncertainty is not None:
            some = samples.wrong | samples.doubtful | (uncertainty == "all")
            draw_outlines(ax, samples, place.cov, np.flatnonzero(some))
        beside += draw_typical(ax, np.median(place.cov, axis=0))
    written = draw_samples(ax, samples, colors)
    beyond = mark_beyond(ax, samples, colors)
    if isinstance(target, Classes) and groups is not None:
        add_legend(ax, title=target.title)
    elif isinstance(target, Classes) and own_figure:
        _draw_key(ax, colors, samples, written, beyond, probability is not None, gain)
    fix_layout(figure_of(ax))  # the size of names is measured next
    if isinstance(target, Classes) and groups is None and plane and not written:
        beside += name_classes(ax, samples.at, target, colors, probability)
    if len(some := _to_name(names, samples)):
        at, centre = samples.at, np.median(samples.at, axis=0)
        written_names = [str(name) for name in samples.names[some]]
        Names(ax, at[some], written_names, centre=centre, avoid=at, beside=beside)
    return ax


# ------------------------------------------------------------------ reading


def _latent_coordinates(
    tree: xr.DataTree, dataset: xr.Dataset, components: int | tuple[int, ...]
) -> _Coordinates:
    """Coordinates of the chosen components, without probabilities if there are others."""
    chosen, names = component_coordinates(dataset, components)
    index = list(chosen)
    cov = None
    if "latent_cov" in dataset:
        cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
        cov = cov[:, index][:, :, index]
        cov = cov if np.isfinite(cov).all() and cov.any() else None
    is_whole = index == list(range(dataset.sizes[COMPONENT]))
    share = np.atleast_1d(tree.attrs.get("component_share", []))
    for i, component in enumerate(chosen):
        names[i] = names[i][0].upper() + names[i][1:]
        if len(share) == 1 and component == 0:
            names[i] += ", probit units"
        elif component < len(share):
            names[i] += f" ({share[component]:.0%} of the between-class variance)"
    return _Coordinates(
        mean=dataset["latent_mean"].transpose(OBS, COMPONENT).values[:, index],
        cov=cov,
        names=names,
        probability=dataset[VARIABLE] if VARIABLE in dataset and is_whole else None,
    )


def _needs_plane(dataset: xr.Dataset, group: str) -> bool:
    """Whether probabilities of classes are known that latent coordinates do not show."""
    if "probability" not in dataset:
        return False
    total = dataset["probability"].dropna(OBS).sum(LABEL)
    if not total.size or not np.allclose(total, 1.0):
        return False
    many = "latent_mean" not in dataset or dataset.sizes[LABEL] > MOST_LATENT
    return many or group == "fit"


def _plane_coordinates(dataset: xr.Dataset) -> _Coordinates:
    """Coordinates of the plane of the predictions, learned from them, and its probabilities.

    Classes that are predicted for no sample have none. Names contain the share of each coordinate
    in the variance of the probabilities, unless coordinates carry all of them.
    """
    probability = dataset["probability"].transpose(OBS, LABEL).values
    plane = PredictionPlane().fit(probability)
    mean = plane.transform(probability)
    grid = evaluate_on_grid(mean, plane.predict_log_proba)[VARIABLE]
    predicted = np.bincount(probability.argmax(axis=1), minlength=probability.shape[1]) > 0
    centred = probability - probability.mean(axis=0)
    size = np.maximum(np.sum(mean**2, axis=0), np.finfo(np.float64).tiny)
    total = max(float(np.sum(centred**2)), np.finfo(np.float64).tiny)
    share = np.sum((mean.T @ centred) ** 2, axis=1) / size / total
    carried = [f"{part:.0%} of their variance" for part in share]
    if plane.power_ == 1:
        carried = ["log ratios of probabilities"] * len(share)
    names = [f"Predictions {i} ({what})" for i, what in enumerate(carried, start=1)]
    shown = grid.assign_coords({LABEL: dataset[LABEL].values})
    shown = shown.where(xr.DataArray(predicted, dims=LABEL), 0.0)
    return _Coordinates(mean=mean, cov=None, names=names, probability=shown, plane=plane)


def _groups(groups: Any, n_samples: int) -> Classes:
    values = np.asarray(groups)
    if values.shape != (n_samples,):
        raise ValueError(
            f"groups must have one value per sample, ({n_samples},), got {values.shape}"
        )
    names, index = np.unique(values.astype(str), return_inverse=True)
    return Classes(index=index.astype(np.int64), names=tuple(names.tolist()), title="group")


def _read_samples(dataset: xr.Dataset, mean: FloatArray, target: Target) -> Samples:
    """Samples with their probabilities, if these are of the classes that colour them."""
    samples = plain_samples(mean, target, dataset[OBS].values)
    if "probability" not in dataset or not isinstance(target, Classes) or target.title == "group":
        return samples
    probability = dataset["probability"].transpose(OBS, LABEL).values
    if not np.allclose(probability.sum(axis=1), 1.0):
        return samples
    wrong = (probability.argmax(axis=1) != target.index) & (target.index >= 0)
    wrong &= target.title == "class"
    doubtful = probability.max(axis=1) < SURE
    return replace(samples, probability=probability, wrong=wrong, doubtful=doubtful)


def _held_out(dataset: xr.Dataset, samples: Samples) -> HeldOutScore | None:
    """Score of predictions with known labels; None if there are none."""
    target, probability = samples.target, samples.probability
    if probability is None or not isinstance(target, Classes) or target.title != "class":
        return None
    known = target.index >= 0
    if "class_frequency" not in dataset or known.sum() < 2:
        return None
    # A class without training samples has the frequency of a rounding error.
    frequency = np.maximum(dataset["class_frequency"].values, np.finfo(np.float64).eps)
    log_p = -log_losses(probability[known], target.index[known])
    return HeldOutScore.of(log_p, target.index[known], frequency[target.index[known]])


def _convinces(score: HeldOutScore) -> bool:
    """Whether predictions are better than the class frequencies."""
    return score.gain - ONE_SIDED * score.gain_se > MIN_GAIN


def _agreement(probability: xr.DataArray, mean: FloatArray, samples: Samples) -> float:
    """Share of the samples at whose place the background has the predicted class."""
    if samples.probability is None:
        return 1.0
    return float(np.mean(class_at(probability, mean) == samples.probability.argmax(axis=1)))


def _header(
    tree: xr.DataTree,
    group: str,
    samples: Samples,
    gain: HeldOutScore | None,
    place: _Coordinates,
    agreement: float | None,
) -> tuple[str, tuple[str, str] | None]:
    """Caption, and the verdict with its colour."""
    n, target = len(samples.at), samples.target
    if group == "fit" and samples.probability is None:
        caption = f"{n} training samples." + caveats(tree, None)
        if not isinstance(target, Classes):
            return caption, None
        return caption, ("Training samples: separation here is no evidence", BAD)
    if gain is None or not isinstance(target, Classes):
        caption = f"{n} samples, held out or new."
        if samples.probability is not None:
            caption = f"{n} samples without known labels; colour: predicted class."
        return caption + caveats(tree, None), None
    kind = (
        "training samples, predicted without their labels" if group == "fit" else "held-out samples"
    )
    known = target.index >= 0
    right, loss = f"{np.mean(~samples.wrong[known]):.0%} right", f"log loss {-gain.score:.2f}"
    guess = f"class frequencies {gain.gain - gain.score:.2f}"
    if place.plane is not None:
        log_q, truth = place.plane.predict_log_proba(place.mean[known]), target.index[known]
        right += f" (plane {np.mean(log_q.argmax(axis=1) == truth):.0%})"
        guess = f"plane {-log_q[np.arange(len(truth)), truth].mean():.2f}, {guess}"
    parts = [f"{n} {kind}", right, f"{loss} ({guess})"]
    if agreement is not None:
        parts.append(f"background and prediction agree for {agreement:.0%}")
    text = f"gain over the class frequencies: {gain.gain:z.2f} ± {gain.gain_se:.2f} nats"
    verdict = (f"Better than chance; {text}", GOOD)
    if not _convinces(gain):
        verdict = (f"Not shown to be better than chance; {text}", BAD)
    elif agreement is not None and agreement < POOR:
        other = f"{1.0 - agreement:.0%} of the samples lie in the colour of another class"
        verdict = (f"{verdict[0]}. Careful: {other} than the predicted one", BAD)
    return " · ".join(parts), verdict


def _to_name(names: int | bool | Sequence[Hashable], samples: Samples) -> np.ndarray:
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


# ------------------------------------------------------------------ the key


def _draw_key(
    ax: Axes,
    colors: list[Any],
    samples: Samples,
    written: bool,
    beyond: int,
    background: bool,
    gain: HeldOutScore | None,
) -> None:
    """Meaning of background and points, beside the axes."""
    left, at, beside = 1.02, 1.05, 1.095
    text: dict[str, Any] = {"transform": ax.transAxes, "fontsize": 7.5}
    outside: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
    notes = []
    if gain is not None and not _convinces(gain):
        notes.append("No background: no evidence\nthat the model predicts\nbetter than chance.")
    if beyond:
        notes.append(f"{beyond} beyond the axes\n(arrowheads)")
    ax.text(left, 1.0, "\n\n".join(notes), va="top", color=GREY, **text)
    if samples.probability is None:
        return
    y = 0.0
    for wrong, doubtful in ((True, True), (True, False), (False, True), (False, False)):
        if wrong and not samples.wrong.any():
            continue
        y += 0.05
        shade = GREY if doubtful else INK
        if written:
            weight = "normal" if doubtful else "bold"
            ax.text(at, y, "a", color=shade, weight=weight, ha="center", va="center", **text)
        else:
            face, edge = ("white", GREY) if doubtful else (GREY, "white")
            ax.scatter(at, y, s=22, facecolors=face, edgecolors=edge, **outside)
        if wrong:
            ring = ring_style(np.array([doubtful]))
            ax.scatter(at, y, s=80, facecolors="none", **ring, **outside)
        meaning = f"doubtful: below {SURE:g}" if doubtful else "sure"
        ax.text(
            beside, y, f"wrong, {meaning.split(':')[0]}" if wrong else meaning, va="center", **text
        )
    if not background:
        return
    steps = ("undecided", *(f"{low:g} to {high:g}" for low, high in pairwise((*STEPS, 1.0))))
    y += 0.09
    for opacity, meaning in zip(OPACITY, steps, strict=True):
        for j, shade in enumerate(colors[:3]):
            box = Rectangle((left + 0.02 * j, y - 0.018), 0.02, 0.036, **outside)
            box.set(facecolor=tint(shade, opacity), edgecolor="#dddddd", linewidth=0.4)
            ax.add_patch(box)
        ax.text(beside, y, meaning, va="center", **text)
        y += 0.05
    ax.text(left, y, "probability of the\nclass at a place", va="bottom", **text)
