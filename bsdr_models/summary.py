"""Summary of a fitted estimator as a data frame, from its fitted attributes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import issparse

from bsdr_models.data.targets import majority_share
from bsdr_models.data.validation import R_HAT_LIMIT
from bsdr_models.estimators.calibration import baseline, lack_of_signal, no_signal
from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.association import FOUND, associate
from bsdr_models.numerics.latent import ALIVE

if TYPE_CHECKING:
    from bsdr_models.estimators.base import Estimator

# Largest number of classes, and of components, that are listed.
MAX_LISTED = 8
# Smallest weight of the metric that is listed.
LISTED = 0.05
ENGINES = {
    "hmc": "Hamiltonian Monte Carlo",
    "conjugate": "independent draws of the exact posterior",
    "mean_field": "mean field",
    "gibbs": "Gibbs",
    "nuts": "NUTS",
    "advi": "ADVI",
    "laplace": "Laplace's method",
    "map": "posterior mode",
    "stack": "weights of largest held-out score",
}
# What each attribute with a value for every iteration is called.
TRACES = {
    "lower_bounds_": "lower bound",
    "log_density_": "log density",
    "objective_": "objective",
}
INTERRUPTED = "The user interrupted the fit: it holds the state until then."
NARROW = {
    "mean_field": "Mean field is an approximation: intervals and covariances are too narrow.",
    "advi": "ADVI is an approximation, not checked for convergence: intervals are too narrow.",
}
CONDITIONAL = (
    "Covariances are conditional ones at an optimum, without posterior correlations between "
    "factors: they are too small."
)
ONE_CHAIN = "A single chain cannot show whether it has converged: sample with chains=4."
STOPPED = "Not converged: the fit stopped at max_iter; it is usable, a larger max_iter is better."
LAPLACE = (
    "Importance ratios show that the normal approximation at the mode is not reliable: use "
    "inference='hmc'."
)


def summarise(model: "Estimator", *, scores: bool = True) -> pd.DataFrame:
    """Names and values of a fitted estimator, as text, remarks last; held-out scores if asked."""
    rows = {"model": type(model).__name__}
    for name, value in model.selected_params().items():
        rows[name] = f"{value:.3g}" if isinstance(value, float) else str(value)
    rows |= (
        _data(model)
        | _features(model)
        | _metric(model)
        | _fit(model)
        | _components(model)
        | _predictions(model, scores=scores)
    )
    remarks = _remarks(model, scores=scores)
    index = [*rows, *["remark"] * len(remarks)]
    return pd.DataFrame({"value": [*rows.values(), *remarks]}, index=index)


def to_html(summary: pd.DataFrame) -> str:
    """The whole summary as an HTML table."""
    with pd.option_context("display.max_colwidth", None):
        table = summary.to_html(header=False, border=0, justify="left", classes="bsdr-summary")
    style = ".bsdr-summary th, .bsdr-summary td { text-align: left; white-space: normal; }"
    return f"<style>{style}</style>{table}"


def _data(model: "Estimator") -> dict[str, str]:
    """Samples, features, missing values and targets."""
    context = model._context
    constant = model._scaler.constant
    n = context.n_samples or context.X.shape[0]
    p = model.n_features_in_
    rows = {"samples": f"{n}", "features": f"{p}"}
    if context.kept is not None:
        what = "are kept in memory" if context.weights is None else "have a weight"
        rows["samples"] += f", of which {len(context.kept)} {what}"
    if constant.any():
        rows["features"] += f", {int(constant.sum())} of them constant and ignored"
    given = model._observed_samples
    missing = 0.0 if issparse(given) else float(np.isnan(given).mean())
    if missing > 0.0:
        rows["missing values"] = f"{100.0 * missing:.2g}% of the entries"
    labels = context.targets.names
    index = context.targets.index
    if index is None:
        what = "outputs" if context.targets.kind == "regression" else "labels"
        names = f": {', '.join(map(str, labels))}" if len(labels) <= MAX_LISTED else ""
        return rows | {what: f"{len(labels)}{names}"}
    if context.groups is not None:
        rows["groups"] = f"{len(np.unique(context.groups))}"
        share = majority_share(context.groups, index)
        rows["groups"] += f", whose most frequent classes have {share:.0%} of the samples"
    known = index[index >= 0]
    if len(known) < len(index):
        rows["samples without a label"] = f"{len(index) - len(known)}"
    counts = np.bincount(known, minlength=len(labels))
    order = context.attrs.get("class_order", range(len(labels)))
    listed = [f"{labels[k]} ({counts[k]})" for k in order]
    sizes = f": {', '.join(listed)}"
    if len(labels) > MAX_LISTED:
        sizes = f", of {min(counts)} to {max(counts)} samples"
    return rows | {"classes": f"{len(labels)}{sizes}"}


def _features(model: "Estimator") -> dict[str, str]:
    """How many features are found, and the first of them: in the tree, if there is one."""
    fit = xr.Dataset() if model._tree is None else model._tree["fit"].to_dataset()
    if "explained" in fit:
        varies = fit.isel({FEATURE: model._context.varies})
        explained = varies["explained"].values
        found = varies["false_discovery_rate"].values <= FOUND
    else:
        alone = associate(*model._known())
        explained = alone["explained"]
        found = alone["false_discovery_rate"] <= FOUND
    order = np.argsort(-explained, kind="stable")
    listed = [str(model._context.modelled_names[i]) for i in order[:MAX_LISTED] if found[i]]
    count = int(found.sum())
    first = f", first {', '.join(listed)}" if listed else ""
    return {"features found": f"{count} at a false discovery rate of {FOUND:.0%}{first}"}


def _metric(model: "Estimator") -> dict[str, str]:
    """Weights of the candidates of the metric, the largest first; of each view."""
    weights = getattr(model, "metric_weights_", {})
    rows = {}
    for view, own in (weights if hasattr(model, "views_") else {"": weights}).items():
        listed = [f"{name} {share:.0%}" for name, share in own.items() if share >= LISTED]
        if listed:
            rows[f"metric of {view}" if view else "metric"] = ", ".join(listed)
    return rows


def _diagnostics(model: "Estimator") -> Mapping[Any, Any]:
    """Attributes of the tree, without making it."""
    made = {} if model._tree is None else model._tree.attrs
    return {**model._context.attrs, **model._attrs(), **made}


def _fit(model: "Estimator") -> dict[str, str]:
    """Engine, its length and its diagnostics."""
    attrs = _diagnostics(model)
    method = model._method
    rows = {"inference": ENGINES[method]}
    if method not in ("conjugate", "stack"):
        rows["draws of a chain" if method == "hmc" else "iterations"] = f"{model.n_iter_}"
    for name, what in TRACES.items():
        values: FloatArray = getattr(model, name, np.empty(0))
        if len(values):
            rows[what] = f"{values[-1]:.6g}"
    if "r_hat" in attrs:
        rows["R-hat"] = f"{attrs['r_hat']:.3g}"
        rows["bulk ESS"] = f"{attrs['ess_bulk']:.0f}"
    if np.isfinite(getattr(model, "log_evidence_", np.nan)):
        rows["log evidence"] = f"{model.log_evidence_:.1f} nats"
    rows["converged"] = "yes" if model.converged_ else "no"
    return rows


def _components(model: "Estimator") -> dict[str, str]:
    """Components in use and their shares; shares of views."""
    if not hasattr(model, "relevance_"):
        return {}
    share = np.sort(model.relevance_)[::-1]
    listed = [f"{value:.2f}" for value in share[:MAX_LISTED]]
    rows = {
        "components in use": f"{int(np.count_nonzero(share >= ALIVE))} of {len(share)}",
        "shares of components": ", ".join(listed + ["…"] * (len(share) > MAX_LISTED)),
    }
    if hasattr(model, "view_share_"):
        named = zip(model.views_, model.view_share_, strict=True)
        rows["shares of views"] = ", ".join(f"{name} {value:.2f}" for name, value in named)
    return rows


def _predictions(model: "Estimator", *, scores: bool) -> dict[str, str]:
    """Temperature, and the score of held-out samples."""
    rows = {}
    if hasattr(model, "temperature_") and model._context.targets.kind != "regression":
        rows["temperature"] = ", ".join(f"{value:.2g}" for value in np.ravel(model.temperature_))
    if scores and np.isfinite(getattr(model, "held_out_score_", np.nan)):
        rows["held-out log score"] = f"{model.held_out_score_:.3f} nats per sample"
    if scores and np.isfinite(getattr(model, "held_out_gain_", np.nan)):
        gain = f"{round(model.held_out_gain_, 3) + 0.0:.3f} ± {model.held_out_gain_se_:.3f}"
        base = baseline(model._context.targets.kind).removeprefix("the ")
        rows[f"gain over {base}"] = gain
    return rows


def _remarks(model: "Estimator", *, scores: bool) -> list[str]:
    """What a reader should know, most important first."""
    attrs = _diagnostics(model)
    method = model._method
    reason = lack_of_signal({**attrs, "target": model._context.targets.kind}) if scores else None
    messages = [*model._result.messages, *([] if reason is None else [no_signal(reason)])]
    remarks = [message[0].upper() + message[1:] + "." for message in dict.fromkeys(messages)]
    if hasattr(model, "objective_"):
        remarks.append(CONDITIONAL)
    elif method in NARROW:
        remarks.append(NARROW[method])
    if model.interrupted_:
        return [INTERRUPTED, *remarks]
    if model.converged_:
        return remarks
    if method in ("hmc", "gibbs", "nuts"):
        r_hat = attrs.get("r_hat", np.nan)
        if np.isnan(r_hat):
            return [ONE_CHAIN, *remarks]
        said = f"Not converged: R-hat reaches {r_hat:.2f}, more than {R_HAT_LIMIT}. "
        return [f"{said}Take more draws, and read diagnose(model.idata_) first.", *remarks]
    return [{"laplace": LAPLACE, "advi": NARROW["advi"]}.get(method, STOPPED), *remarks]
