"""Sections of the summary that are specific to D-GPLVM."""

from typing import Any

import numpy as np

from bsdr_models import summary
from bsdr_models.dgplvm.leave_one_out import centroid_slope


def summary_parts(model: Any) -> summary.SummaryParts:
    """SummaryParts of a fitted classifier."""
    result, context, known = model._learned, model._context, model._context.index >= 0
    attrs, config = context.attrs, context.config
    counts = np.bincount(context.index[known], minlength=len(context.labels))
    sections = {
        "model": [
            ("criterion", f"{attrs['criterion']}, weight {attrs['weight']:g}"),
            *((name.replace("_", " "), f"{v:g}") for name, v in result.settings.items()),
        ],
        "data": [
            *summary.data_lines(
                context.X.shape,
                scaler=model._scaler,
                scaling="each scaled to unit variance" if model.standardized_ else "on one scale",
                n_unlabeled=int(np.count_nonzero(~known)),
            ),
            summary.class_line(context.labels, counts),
        ],
        "fit": [],
        "latent space": [
            summary.component_line(model.relevance_, "the scatter of class centroids")
        ],
        "held-out samples": _held_out(model),
    }
    remarks = [summary.sentence(message) for message in result.messages]
    if result.sampled is not None:
        engine, tree = summary.ENGINES[config["inference"]], model.idata_
        sections["fit"] = [
            ("engine", engine),
            *summary.draw_lines(tree, tune=config["sampling"]["tune"]),
        ]
        return summary.SummaryParts(
            sections=sections, remarks=remarks, if_not_converged=summary.not_mixed(tree)
        )
    sections["fit"] = [
        ("engine", "posterior mode, by L-BFGS"),
        summary.bound_line(
            "log density", result.trace, converged=result.converged, interrupted=result.interrupted
        ),
        *summary.restart_line(result.restarts, best=result.trace[-1], name="starts"),
    ]
    return summary.SummaryParts(sections=sections, remarks=remarks)


def _held_out(model: Any) -> list[summary.Line]:
    """Leave-one-out accuracy and log score of the training samples."""
    result, y = model._learned, model._context.index
    if not result.settings or result.sampled is not None:  # the paper's model has no settings
        return []
    known = y >= 0
    slope = centroid_slope(result.latent[known], result.left_out.mean[known], y[known])
    log_p = result.posterior.left_out()[known]
    accuracy = float(np.mean(log_p.argmax(axis=1) == y[known]))
    return [
        ("accuracy", f"{accuracy:.3f}"),
        *([summary.held_out_line(result.held_out)] if np.isfinite(result.held_out.score) else []),
        ("centroids", f"{slope:.2f} of their distance is left"),
    ]
