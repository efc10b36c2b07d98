"""Summary of a fitted estimator, as text or HTML.

``_summary_parts`` of an estimator returns its own lines; common lines and the layout are here. Only
fitted attributes are used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.checks import R_HAT_LIMIT
from bsdr_models.metrics import HeldOutScore, lack_of_signal, no_signal
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.text_table import html_notes, html_row, text_notes, text_rows

# Largest numbers of classes and of components that are listed, and the longest name.
MAX_CLASSES, MAX_COMPONENTS, MAX_NAME = 8, 8, 24

ENGINES = {
    "hmc": "Hamiltonian Monte Carlo",
    "conjugate": "the exact posterior",
    "mean_field": "mean field",
    "gibbs": "Gibbs",
    "nuts": "NUTS",
    "advi": "ADVI",
    "laplace": "Laplace's method",
}

NARROW = (
    "Mean field is an approximation: intervals and covariances are too narrow, by an unknown "
    "amount."
)

ADVI = (
    "ADVI is an approximation whose convergence cannot be checked: intervals drawn from it are too "
    "narrow."
)

LAPLACE = (
    "Importance ratios show that the normal approximation at the mode is not reliable: use "
    "inference='hmc'."
)

ONE_CHAIN = "A single chain cannot show whether it has converged: sample with chains=4."

STOPPED = "Not converged: the fit stopped at max_iter; it is usable, a larger max_iter is better."

# Colours are inherited from the page.
_STYLE = """<style>
.bsdr-summary { margin: 0.6em 0; line-height: 1.4; max-width: 60em; }
.bsdr-summary table { border-collapse: collapse; background: none; color: inherit;
  font-size: inherit; }
.bsdr-summary caption { text-align: left; font-weight: bold; padding: 0.2em 0; color: inherit; }
.bsdr-summary tr { background: none; }
.bsdr-summary th, .bsdr-summary td { border: 0; padding: 0.1em 1.2em 0.1em 0;
  vertical-align: top; white-space: normal; font-weight: normal; }
.bsdr-summary .section th { font-weight: bold; padding-top: 0.6em; }
.bsdr-summary p { margin: 0.4em 0 0 0; padding-left: 0.7em; border-left: 3px solid #b8860b; }
</style>"""

type Line = tuple[str, str]
type Labels = Sequence[Any] | np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryParts:
    """The estimator's own parts of a summary.

    sections
        Lines (name, text) by heading.
    remarks
        Warnings.
    if_not_converged
        Remark on a fit that has not converged; None if it was not expected to.
    """

    sections: Mapping[str, Sequence[Line]]
    remarks: Sequence[str] = ()
    if_not_converged: str | None = STOPPED


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Summary:
    """Summary of a fit, shown by ``print`` and by notebooks.

    title
        Name of the estimator.
    sections
        Lines (name, text) by heading: model, data, fit, latent space, held-out samples.
    remarks
        Warnings.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True))
    >>> summary = model.summary()
    >>> [line for line in str(summary).splitlines() if "samples" in line]
    ['  samples           178']
    >>> summary.to_frame().columns.tolist()
    ['section', 'name', 'value']
    """

    title: str
    sections: Mapping[str, Sequence[Line]]
    remarks: Sequence[str] = ()

    def __str__(self) -> str:
        """Aligned text."""
        width = max(len(name) for section in self.sections.values() for name, _ in section)
        lines = [self.title]
        for heading, section in self.sections.items():
            padded = [(name.ljust(width), text) for name, text in section]
            lines += [heading, *text_rows(padded, indent=2)]
        if self.remarks:
            lines += ["remarks", *text_notes(self.remarks, indent=2)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for heading, section in self.sections.items():
            rows.append(
                f'<tr class="section"><th colspan="2" style="text-align: left">{escape(heading)}'
                "</th></tr>"
            )
            rows += [html_row(line, tags=("th", "td")) for line in section]
        table = f"<table><caption>{escape(self.title)}</caption>{''.join(rows)}</table>"
        return f'{_STYLE}<div class="bsdr-summary">{table}{html_notes(self.remarks)}</div>'

    def to_frame(self) -> Any:
        """The lines as a pandas DataFrame with columns ``section``, ``name`` and ``value``."""
        import pandas as pd

        return pd.DataFrame(
            [
                (heading, name, text)
                for heading, section in self.sections.items()
                for name, text in section
            ],
            columns=["section", "name", "value"],
        )


def summarise(estimator: Any, paper: str) -> Summary:
    """Summary of a fitted estimator: its own parts, and the common ones."""
    parts: SummaryParts = estimator._summary_parts()
    remarks = list(parts.remarks)
    if estimator.interrupted_:
        remarks.insert(0, "The user interrupted the fit: it holds the state until then.")
    elif not estimator.converged_ and parts.if_not_converged is not None:
        remarks.insert(0, parts.if_not_converged)
    sections = {"model": [("paper", paper), *parts.sections.get("model", ())]}
    sections |= {
        name: [*lines] for name, lines in parts.sections.items() if lines and name != "model"
    }
    return Summary(title=type(estimator).__name__, sections=sections, remarks=remarks)


def not_mixed(tree: xr.DataTree) -> str:
    """Remark on draws that are not known to have converged."""
    if tree.attrs["inference_method"] == "advi":
        return ADVI
    if "r_hat" not in tree.attrs:
        return ONE_CHAIN
    return (
        f"Not converged: R-hat of the identified quantities reaches {tree.attrs['r_hat']:.2f}, "
        f"more than {R_HAT_LIMIT}. Read diagnose(model.idata_) before the draws."
    )


def sentence(remark: str) -> str:
    """Format a warning as a sentence."""
    return remark[0].upper() + remark[1:] + "."


def data_lines(
    shape: tuple[int, int],
    *,
    scaler: Scaler | None,
    scaling: str,
    missing: float = 0.0,
    n_unlabeled: int = 0,
) -> list[Line]:
    """Lines on samples, features and missing values of the training data.

    Parameters
    ----------
    shape : (N, P)
    scaler : Scaler or None
        None if features were not scaled.
    scaling : str
        Description of the scaling.
    missing : float
        Fraction of missing values.
    n_unlabeled : int
        Number of samples without a target.
    """
    n, p = shape
    features = f"{p}, {scaling}"
    if scaler is not None and scaler.constant.any():
        features += f"; {int(scaler.constant.sum())} constant and ignored"
    lines = [
        ("samples", f"{n}, {n_unlabeled} of them without a target" if n_unlabeled else f"{n}"),
        ("features", features),
    ]
    if missing > 0.0:
        lines.append(("missing", f"{missing:.2g} of the entries"))
    return lines


def class_line(labels: Labels, counts: IntArray) -> Line:
    """Classes with their numbers of samples."""
    if len(labels) > MAX_CLASSES:
        return "classes", f"{len(labels)}, of {min(counts)} to {max(counts)} samples"
    named = zip(labels, counts, strict=True)
    each = ", ".join(f"{_short(label)} ({count})" for label, count in named)
    return "classes", f"{len(labels)}: {each}"


def output_line(target: str, labels: Labels, y: np.ndarray, *, scaled: bool = True) -> Line:
    """Labels of a multi-label problem with their numbers of samples; or real outputs."""
    if target == "regression":
        return "outputs", f"{len(labels)}, {'scaled to unit variance' if scaled else 'not scaled'}"
    on = (y > 0).sum(axis=0)
    return "labels", class_line(labels, on)[1]


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def bound_line(
    name: str, bound: FloatArray, *, converged: bool, interrupted: bool, ends_early: bool = False
) -> Line:
    """Final value of an optimisation; in nats unless it is an "objective"."""
    how = ", converged" if converged else ", not converged"
    if interrupted:
        how = ", interrupted"
    elif ends_early:
        how = ", as intended"
    unit = "" if name == "objective" else " nats"
    return name, f"{bound[-1]:.6g}{unit} after {len(bound)} iterations{how}"


def restart_line(ends: Sequence[float], *, best: float, name: str = "restarts") -> list[Line]:
    """Spread of the values that restarts reach."""
    if len(ends) < 2:
        return []
    return [(name, f"{len(ends)}; the worst ends {best - min(ends):.3g} nats below the best")]


def draw_lines(tree: xr.DataTree, *, tune: int | None) -> list[Line]:
    """Number of draws, of warm-up if known, and diagnostics stored in the tree."""
    posterior, attrs = tree["posterior"], tree.attrs
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if attrs["inference_method"] == "advi":
        return [("draws", f"{draws}, independent, from an approximation")]
    which = f"each of {chains} chains" if chains > 1 else "one chain"
    warm_up = "" if tune is None else f", after {tune} of warm-up"
    lines = [("draws", f"{draws} from {which}{warm_up}")]
    if "r_hat" in attrs:
        lines.append(
            (
                "mixing",
                f"R-hat at most {attrs['r_hat']:.3g}, bulk ESS at least {attrs['ess_bulk']:.0f} "
                "(identified quantities)",
            )
        )
    if "sample_stats" in tree.children and "diverging" in tree["sample_stats"]:
        divergent = int(tree["sample_stats"]["diverging"].sum())
        lines.append(("divergences", f"{divergent} of {chains * draws}"))
    return lines


def component_line(relevance: FloatArray, what: str) -> Line:
    """Number of components in use, and their shares."""
    alive = int(np.count_nonzero(relevance >= ALIVE))
    shares = ", ".join(f"{share:.2f}" for share in np.sort(relevance)[::-1][:MAX_COMPONENTS])
    more = ", …" if len(relevance) > MAX_COMPONENTS else ""
    return "components", f"{alive} of {len(relevance)} in use; shares of {what}: {shares}{more}"


def held_out_line(held_out: HeldOutScore) -> Line:
    """Mean held-out log score, and its gain over class frequencies."""
    gain = f"{round(held_out.gain, 3) + 0.0:.3f} ± {held_out.gain_se:.3f}"
    return (
        "log score",
        f"{held_out.score:.3f} nats per sample; gain over the class frequencies {gain}",
    )


def signal_remarks(attrs: Mapping[str, Any]) -> list[str]:
    """Remark on targets that are not predictable, given the attributes of a tree."""
    reason = lack_of_signal(attrs)
    return [] if reason is None else [sentence(no_signal(reason))]
