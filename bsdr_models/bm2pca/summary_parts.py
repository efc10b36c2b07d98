"""Summary of a fit of BM2PCA."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models import summary

NARROW = (
    "Covariances are conditional ones at an optimum, without posterior correlations between "
    "factors: they are too small."
)
# Attributes of the DataTree that are settings of the model.
SETTINGS = ("strategy", "C", "epsilon", "metric_scale", "temperature")


def make_summary_parts(model: Any) -> summary.SummaryParts:
    """Summary of a fitted classifier or regressor."""
    context, result = model._context, model._learned
    sections = {
        "model": [
            (name.replace("_", " "), _in_words(value))
            for name, value in context.attrs.items()
            if name in SETTINGS
        ],
        "data": _data(model),
        "fit": [("engine", _engine(model))],
        "latent space": [summary.component_line(model.relevance_, "the variance of the scores")],
        "held-out samples": [*_performance(model), *_calibration(model)],
    }
    remarks = summary.signal_remarks(context.attrs)
    if result.sampled is not None:
        sections["fit"] += summary.draw_lines(model.idata_, tune=context.config["sampling"]["tune"])
        return summary.SummaryParts(
            sections=sections, remarks=remarks, if_not_converged=summary.not_mixed(model.idata_)
        )
    label_free = "metric_scale" in context.attrs
    ends_early = getattr(model, "n_sweeps_", None) is not None
    sections["fit"] += [
        summary.bound_line(
            "objective" if label_free else "bound",
            result.elbo,
            converged=result.converged,
            interrupted=result.interrupted,
            ends_early=ends_early,
        ),
        *summary.restart_line(result.restarts, best=result.elbo[-1]),
    ]
    return summary.SummaryParts(
        sections=sections,
        remarks=[*remarks, NARROW if label_free else summary.NARROW],
        if_not_converged=None if ends_early else summary.STOPPED,
    )


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return f"{value:.3g}" if isinstance(value, float) else f"{value}"


def _data(model: Any) -> list[summary.Line]:
    """Describe the data before imputation."""
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
    if context.tasks:
        for (name, classes), own in zip(context.tasks, context.index.T, strict=True):
            counts = np.bincount(own[own >= 0], minlength=len(classes))
            lines.append((f"task {name}", summary.class_line(classes, counts)[1]))
        return lines
    counts = np.bincount(context.index[observed], minlength=len(context.labels))
    return [*lines, summary.class_line(context.labels, counts)]


def _engine(model: Any) -> str:
    attrs, n_sweeps = model._context.attrs, getattr(model, "n_sweeps_", None)
    if "metric_scale" in attrs and attrs["strategy"] == "shared":
        return "maximum of the objective, by L-BFGS"
    engine = summary.ENGINES[model._context.config.get("inference", "mean_field")]
    return engine if n_sweeps is None else f"{engine}, {n_sweeps} sweeps"


def _performance(model: Any) -> list[summary.Line]:
    """Held-out performance of the chosen setting."""
    cv_results = model.cv_results_
    if cv_results is None:
        return []
    if "log_loss" in cv_results:
        best, settings = int(np.argmin(cv_results["log_loss"])), cv_results["candidates"]
        lines = [
            ("accuracy", f"{cv_results['accuracy'][best]:.3f}"),
            summary.held_out_line(model._held_out),
        ]
    elif "squared_error" in cv_results:
        settings = cv_results["settings"]
        error = float(np.min(cv_results["squared_error"]))
        lines = [("squared error", f"{error:.3g} of the variance of the outputs")]
    else:
        return []
    if len(settings) > 1:
        lines.append(("settings", f"the best of {len(settings)} compared there"))
    return lines


def _calibration(model: Any) -> list[summary.Line]:
    if not (hasattr(model, "std_factor_") and model._context.config["loss"]["calibrate"]):
        return []
    slopes, factors = (
        ", ".join(f"{each:.3g}" for each in values[:8])
        for values in (model.slope_, model.std_factor_)
    )
    value = f"predictions multiplied by {slopes}, standard deviations by {factors}"
    return [("calibration", value)]
