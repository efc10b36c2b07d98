"""Result of a diagnosis: rows with a verdict, printed as text or HTML."""

from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
import xarray as xr

from bsdr_models.text_table import html_notes, html_row, text_notes, text_rows

type Kind = Literal["identified", "aligned", "sampler", "approximation", "search"]

# Numbers of a row: field, heading, format.
COLUMNS = (
    ("entries", "entries", "{:.0f}"),
    ("r_hat", "R-hat", "{:.4g}"),
    ("ess_bulk", "bulk ESS", "{:.0f}"),
    ("ess_tail", "tail ESS", "{:.0f}"),
    ("mcse_mean", "MCSE", "{:.2g}"),
    ("value", "value", "{:.3g}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a diagnosis. Numbers that were not computed are NaN.

    quantity
        Name of the quantity.
    kind
        ``identified``, ``aligned`` (meaningful only after alignment), ``sampler``,
        ``approximation`` or ``search`` (for a mode, or the optimum of a bound).
    verdict
        Begins with ``ok``, ``not converged:``, ``too few draws:`` or ``not applicable:``.
    entries
        Number of varying entries checked.
    r_hat
        Largest rank-normalised split R-hat of an entry.
    ess_bulk, ess_tail
        Smallest effective sample sizes of an entry.
    mcse_mean
        Largest Monte Carlo standard error of the mean of an entry.
    worst
        Name of the entry with the largest R-hat, or empty.
    value
        Value of a row without entries: divergences, BFMI, k-hat, difference in nats.
    """

    quantity: str
    kind: Kind
    verdict: str
    entries: float = np.nan
    r_hat: float = np.nan
    ess_bulk: float = np.nan
    ess_tail: float = np.nan
    mcse_mean: float = np.nan
    worst: str = ""
    value: float = np.nan

    @property
    def ok(self) -> bool | None:
        """Whether the row passes; None if not applicable."""
        if self.verdict.startswith("not applicable"):
            return None
        return self.verdict.startswith("ok")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Result of `diagnose`.

    title
        Model, engine and number of draws.
    rows
        Identified quantities first.
    is_mcmc
        Whether the draws are of Markov chains.
    remarks
        Sentences below the table.
    """

    title: str
    rows: tuple[Row, ...]
    is_mcmc: bool
    remarks: tuple[str, ...] = ()

    @property
    def converged(self) -> bool | None:
        """Whether every row on identified quantities and on the sampler passes.

        None if unknown: for one chain, an approximation or a mode.
        """
        if not self.is_mcmc:
            return None
        found = [row.ok for row in self.rows if row.kind in ("identified", "sampler")]
        if any(ok is False for ok in found):
            return False
        identified = [row.ok for row in self.rows if row.kind == "identified"]
        return True if True in identified else None

    @property
    def table(self) -> xr.Dataset:
        """The rows as a Dataset over ``quantity`` (see ``to_dataframe``)."""
        names = ("kind", "verdict", "worst", *(field for field, _, _ in COLUMNS))
        return xr.Dataset(
            {
                name: ("quantity", np.array([getattr(row, name) for row in self.rows]))
                for name in names
            },
            coords={"quantity": [row.quantity for row in self.rows]},
            attrs={"title": self.title},
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headings and texts of the columns that are not all NaN, and the verdict."""
        shown = [
            column
            for column in COLUMNS
            if any(np.isfinite(getattr(row, column[0])) for row in self.rows)
        ]
        head = ["quantity", *(title for _, title, _ in shown), "verdict"]
        body = [
            [
                row.quantity,
                *(_number(getattr(row, field), form) for field, _, form in shown),
                row.verdict,
            ]
            for row in self.rows
        ]
        return head, body

    def __str__(self) -> str:
        head, body = self._cells()
        return "\n".join([self.title, *text_rows([head, *body]), *text_notes(self.remarks)])

    def _repr_html_(self) -> str:
        head, body = self._cells()
        rows = [html_row(head, tags=["th"] * len(head))]
        rows += [html_row(cells, tags=["td"] * len(cells)) for cells in body]
        table = f"<table><caption>{escape(self.title)}</caption>{''.join(rows)}</table>"
        return table + html_notes(self.remarks)


def _number(value: float, form: str) -> str:
    return form.format(value) if np.isfinite(value) else ""
