"""Summaries of fitted BSDR estimators."""

from typing import Any

import numpy as np

from bsdr_models import summary
from bsdr_models.checks import R_HAT_LIMIT


def paper_summary_parts(model: Any) -> summary.SummaryParts:
    """Summary of a fit of the paper's model."""
    context = model._context
    of_user = context.priors is None  # draws of a model of the user
    prior = "of the user" if of_user else f"{context.projection_prior} projection"
    sections = {
        "model": [("prior", prior)],
        "data": _data_lines(model, of_user=of_user),
        "fit": [],
        "latent space": [
            summary.component_line(model.relevance_, "the variance of the linear predictor"),
            ("latent scale", f"{model.latent_scale_:g}"),
        ],
    }
    if context.config["inference"] != "mean_field":
        return _of_draws(model, sections)
    result = model._result
    sections["fit"] = [
        ("engine", "mean field"),
        summary.bound_line(
            "bound", result.elbo, converged=result.converged, interrupted=result.interrupted
        ),
        *summary.restart_line(result.restarts, best=result.elbo[-1]),
    ]
    return summary.SummaryParts(sections=sections, remarks=[summary.NARROW])


def _data_lines(model: Any, *, of_user: bool = False) -> list[summary.Line]:
    context = model._context
    scaling = "each scaled to unit variance" if context.config["standardize"] else "centred"
    scaling = "not scaled" if of_user else scaling
    shape = (context.n_samples or len(context.X), context.X.shape[1])
    data = summary.data_lines(shape, scaler=model._scaler, scaling=scaling)
    if context.kept is not None:
        data.append(("in memory", f"a subsample of {len(context.kept)}"))
    elif context.target == "multiclass":
        counts = np.bincount(context.targets, minlength=len(context.labels))
        data.append(summary.class_line(context.labels, counts))
    else:
        data.append(
            summary.output_line(context.target, context.labels, context.y, scaled=not of_user)
        )
    return data


def summary_parts(model: Any) -> summary.SummaryParts:
    """Summary of a fit at full rank."""
    fit, config = model._hierarchical, model._context.config
    posterior, n_draws = fit.posterior, fit.n_draws
    what = "class means" if posterior.target == "multiclass" else "the linear predictor"
    lines = [("engine", summary.ENGINES[fit.engine])]
    approximate = fit.engine in ("advi", "laplace")
    if fit.engine == "conjugate":
        lines.append(("draws", f"{n_draws}, independent"))
    elif approximate:
        lines.append(("draws", f"{n_draws}, independent, of an approximation"))
    else:
        lines.append(("draws", f"{n_draws} from each of {fit.n_chains} chains"))
    if np.isfinite(fit.pareto_k):
        lines.append(("Pareto k", f"{fit.pareto_k:.2f} of the importance ratios; good below 0.7"))
    if np.isfinite(fit.r_hat) and not approximate:
        mixing = f"R-hat at most {fit.r_hat:.3g}, bulk ESS at least {fit.ess:.0f}"
        of = "log likelihood and linear predictor"
        lines.append(("mixing", f"{mixing}; {fit.unmixed:.0%} of {of} above {R_HAT_LIMIT}"))
    if np.isfinite(fit.log_evidence):
        error = f" ± {fit.log_evidence_error:.1f}" if fit.log_evidence_error > 0.0 else ""
        lines.append(("log evidence", f"{fit.log_evidence:.1f}{error} nats"))
        against = f"{fit.log_bayes_factor:.1f} nats against the model without features"
        lines.append(("log Bayes factor", against))
    latent = [summary.component_line(model.relevance_, f"the variance of {what}")]
    prior = [("prior", "one scale of the projection")]
    exponent = getattr(posterior.metric, "exponent", 0.0)
    if exponent > 0.0:
        prior.append(("prior covariance", f"that of the features to the power {-exponent:g}"))
    if config["kernel"] != "linear" or fit.choice is not None:
        kernel = _kernel_line(model)
        prior.append(("kernel", kernel))
    if hasattr(model, "view_share_"):
        prior = [("prior", "a scale of each view"), *prior[1:]]
        shares = zip(model.views_, model.view_share_, strict=True)
        each = ", ".join(f"{name} {share:.0%}" for name, share in shares)
        latent.append(("views", f"{each} of the variance of the linear predictor"))
    sections = {
        "model": prior,
        "data": _data_lines(model),
        "fit": lines,
        "latent space": latent,
    }
    if posterior.target != "regression":
        value = f"{posterior.temperature:.2g}"
        if config["temperature"] == "auto" and posterior.temperature != 1.0:
            value += ", chosen by held-out samples"
        sections["predictions"] = [("temperature", f"{value}; 1 is the posterior predictive")]
    if np.isfinite(fit.held_out.score):
        sections.setdefault("predictions", []).append(summary.held_out_line(fit.held_out))
    remarks = summary.signal_remarks(fit.attrs())
    if fit.engine == "advi":
        return summary.SummaryParts(sections=sections, remarks=[*remarks, summary.ADVI])
    if fit.engine == "laplace":
        return summary.SummaryParts(
            sections=sections, remarks=remarks, if_not_converged=summary.LAPLACE
        )
    mixed = (
        f"The chains have not mixed: R-hat reaches {fit.r_hat:.2f}. Intervals and ellipses are "
        "approximate; take more draws."
    )
    return summary.SummaryParts(
        sections=sections,
        remarks=remarks,
        if_not_converged=mixed if np.isfinite(fit.r_hat) else summary.ONE_CHAIN,
    )


def _kernel_line(model: Any) -> str:
    """Kernel of a fit in words, with the scores of those that were compared."""
    choice = model._hierarchical.choice
    if choice is None:
        given = model._context.config["kernel"]
        return given if isinstance(given, str) else " + ".join(given)
    scores = zip(choice.names, choice.scores, strict=True)
    each = ", ".join(f"{score:.2f} {name}" for name, score in scores)
    return f"held-out log scores {each}"


def _of_draws(model: Any, sections: dict[str, list[summary.Line]]) -> summary.SummaryParts:
    tree, config = model.idata_, model._context.config
    engine = summary.ENGINES[config["inference"]]
    sections["fit"] = [
        ("engine", engine),
        *summary.draw_lines(tree, tune=config["sampling"]["tune"]),
    ]
    return summary.SummaryParts(sections=sections, if_not_converged=summary.not_mixed(tree))
