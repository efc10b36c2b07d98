"""What a fit of BSDR has to say for itself, in its own words."""

from typing import Any

import numpy as np

from bsdr_models import report
from bsdr_models.bsdr.stacking import Mixture

# Weight of the model without features above which a mixture says that there is no signal.
NO_SIGNAL = 0.5


def no_signal(weight: float) -> str:
    """What a large weight of the model without features means."""
    return (
        "the targets are not predictable from X by this model: cross-validation gives the model "
        f"without features a weight of {weight:.2f}"
    )


def facts(model: Any) -> report.Facts:
    """Facts of a fitted estimator with a projection."""
    context, mixture = model._context, model._mixture
    scaling = "each scaled to unit variance" if context.config["standardize"] else "centred"
    shape = (context.n_rows or len(context.X), context.X.shape[1])
    data = report.data_lines(shape, scaler=model._scaler, scaling=scaling)
    if context.kept is not None:
        data.append(("in memory", f"{len(context.kept)} rows, to look at"))
    elif context.target == "multiclass":
        counts = np.bincount(context.y, minlength=len(context.labels))
        data.append(report.class_line(context.labels, counts))
    else:
        data.append(report.output_line(context.target, context.labels, context.y))
    sections = {
        "model": [("prior", f"{context.projection_prior} projection")],
        "data": data,
        "fit": [],
        "latent space": [
            report.component_line(model.relevance_, "the variance of the scores"),
            ("latent scale", f"{model.latent_scale_:g}"),
        ],
    }
    if context.config["inference"] != "mean_field":
        return _of_draws(model, sections)
    stream = getattr(model, "_stream", None)
    if stream is not None and stream.learned is not None:
        sections["fit"] = [("engine", f"mean field, {stream.learned.n_steps} steps of a stream")]
        return report.Facts(sections=sections, remarks=[report.NARROW])
    leading, max_iter = mixture.fits[0], context.config["max_iter"]
    result = leading.result
    sections["fit"] = [
        ("engine", _engine(mixture, streamed=stream is not None)),
        report.bound_line(
            "bound",
            result.elbo,
            converged=result.converged,
            interrupted=result.interrupted,
            ends_early=not (result.converged or leading.reached(max_iter)),
        ),
        *report.restart_line(result.restarts, best=result.elbo[-1]),
    ]
    remarks = [report.NARROW]
    if np.isfinite(mixture.log_score):
        sections["latent space"].append(_weights(mixture))
        guess = mixture.log_scores[-1]
        sections["held-out rows"] = [report.score_line(mixture.log_score, guess=guess)]
        if context.config["latent_scale"] == "stack" and mixture.no_features_weight > NO_SIGNAL:
            remarks.insert(0, report.sentence(no_signal(mixture.no_features_weight)))
    return report.Facts(
        sections=sections,
        remarks=remarks,
        if_not_converged=report.STOPPED if mixture.reached(max_iter) else None,
    )


def _of_draws(model: Any, sections: dict[str, list[report.Line]]) -> report.Facts:
    tree, config = model.idata_, model._context.config
    engine = report.ENGINES[config["inference"]]
    if config["inference"] == "gibbs":
        engine += f", {tree.attrs['sampler']}"
    sections["fit"] = [("engine", engine), *report.draw_lines(tree, tune=config["tune"])]
    return report.Facts(sections=sections, if_not_converged=report.not_mixed(tree))


def _engine(mixture: Mixture, *, streamed: bool) -> str:
    if streamed:
        return "mean field, all rows of a stream so far"
    return "mean field" + (f", {len(mixture.fits)} fits mixed" if len(mixture.fits) > 1 else "")


def _weights(mixture: Mixture) -> report.Line:
    """Weight of every latent scale, and of the model without features."""
    weights = mixture.weights[:-1].reshape(len(mixture.fits), -1).sum(axis=1)
    by_scale: dict[float, float] = {}
    for fit, weight in zip(mixture.fits, weights, strict=True):
        by_scale[fit.latent_scale] = by_scale.get(fit.latent_scale, 0.0) + float(weight)
    parts = [f"{weight:.2f} for scale {scale:g}" for scale, weight in sorted(by_scale.items())]
    return "weights", ", ".join([*parts, f"{mixture.no_features_weight:.2f} for no features"])
