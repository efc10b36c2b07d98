"""What a fit of BM2PCA has to say for itself, in its own words."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models import summary

NARROW = (
    "Covariances are those at an optimum and leave out what its parts do to each other: they are "
    "too narrow."
)
# Attributes of the tree that are settings of the model.
SETTINGS = ("variant", "strategy", "C", "epsilon", "metric_scale", "temperature")


def facts(model: Any) -> summary.SummaryParts:
    """SummaryParts of a fitted classifier or regressor."""
    context, learned = model._context, model._learned
    sections = {
        "model": [
            (name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else f"{value}")
            for name, value in context.attrs.items()
            if name in SETTINGS
        ],
        "data": _data(model),
        "fit": [("engine", _engine(model))],
        "latent space": [summary.component_line(model.relevance_, "the variance of the scores")],
        "held-out rows": [*_compared(model.cv_results_), *_calibrated(model)],
    }
    if learned.sampled is not None:
        sections["fit"] += summary.draw_lines(model.idata_, tune=context.config["tune"])
        return summary.SummaryParts(
            sections=sections, if_not_converged=summary.not_mixed(model.idata_)
        )
    label_free = context.attrs["variant"] == "label_free"
    ends_early = getattr(model, "n_sweeps_", None) is not None
    sections["fit"] += [
        summary.bound_line(
            "objective" if label_free else "bound",
            learned.elbo,
            converged=learned.converged,
            interrupted=learned.interrupted,
            ends_early=ends_early,
        ),
        *summary.restart_line(learned.restarts, best=learned.elbo[-1]),
    ]
    return summary.SummaryParts(
        sections=sections,
        remarks=[NARROW if label_free else summary.NARROW],
        if_not_converged=None if ends_early else summary.STOPPED,
    )


def _data(model: Any) -> list[summary.Line]:
    """Of the rows as they were given, before gaps were filled."""
    context, task = model._context, model._observed
    observed = task.observed.any(axis=1)
    scaling = "each scaled to unit variance" if context.config["standardize"] else "on one scale"
    if model._scaler is None:
        scaling = "sparse, as they are"
    if len(task.columns) > 1:
        scaling += f", {len(task.columns)} views"
    lines = summary.data_lines(
        task.X.shape,
        scaler=model._scaler,
        scaling=scaling,
        missing=0.0 if issparse(task.X) else float(np.isnan(task.X).mean()),
        n_unlabeled=int(np.count_nonzero(~observed)),
    )
    if context.index is None:
        return [*lines, summary.output_line(context.target, context.labels, task.Y)]
    counts = np.bincount(context.index[observed], minlength=len(context.labels))
    return [*lines, summary.class_line(context.labels, counts)]


def _engine(model: Any) -> str:
    attrs, n_sweeps = model._context.attrs, getattr(model, "n_sweeps_", None)
    if (attrs["variant"], attrs.get("strategy")) == ("label_free", "shared"):
        return "maximum of the objective, by L-BFGS"
    engine = summary.ENGINES[model._context.config.get("inference", "mean_field")]
    return engine if n_sweeps is None else f"{engine}, {n_sweeps} sweeps"


def _compared(found: dict[str, Any] | None) -> list[summary.Line]:
    """What held-out rows, or the bound, say of the setting that was chosen."""
    if found is None:
        return []
    if "log_loss" in found:
        best, settings = int(np.argmin(found["log_loss"])), found["candidates"]
        lines = [
            ("accuracy", f"{found['accuracy'][best]:.3f}"),
            summary.held_out_line(-found["log_loss"][best]),
        ]
    elif "squared_error" in found:
        settings = found["settings"]
        error = float(np.min(found["squared_error"]))
        lines = [("squared error", f"{error:.3g} of the variance of the outputs")]
    else:
        return []
    if len(settings) > 1:
        lines.append(("settings", f"the best of {len(settings)} compared there"))
    return lines


def _calibrated(model: Any) -> list[summary.Line]:
    if not (hasattr(model, "std_factor_") and model._context.config["calibrate"]):
        return []
    factors = ", ".join(f"{factor:.3g}" for factor in model.std_factor_[:8])
    return [("calibration", f"standard deviations multiplied by {factors}")]
