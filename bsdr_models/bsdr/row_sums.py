"""What a sweep of the mean field adds up over rows: all that its global updates and bound read.

Sums of two sets of rows add, so a fit may hold its rows wherever they are.
"""

from dataclasses import dataclass

from bsdr_models.typing import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSums:
    """Sums over rows after an update of the latent positions z_n; t_n are the scores.

    n_rows
        N.
    total
        Sum of E[z_n], (R,).
    second
        Sum of E[z_n] E[z_n]', (R, R).
    gap
        Sum of |E[z_n] - E[Q]' x_n|^2.
    score_total
        Sum of E[t_n], (K,).
    score_cross
        Sum of E[z_n] E[t_n]', (R, K).
    score_square
        Sum of E[t_nc]^2, (K,).
    cross
        Sum of x_n E[z_n]' over features, (P, R); None where the design still has the rows.
    """

    n_rows: int
    total: FloatArray
    second: FloatArray
    gap: float
    score_total: FloatArray
    score_cross: FloatArray
    score_square: FloatArray
    cross: FloatArray | None = None

    def __add__(self, other: "LatentSums") -> "LatentSums":
        """Sums over the rows of both."""
        ours, theirs = self.cross, other.cross
        return LatentSums(
            n_rows=self.n_rows + other.n_rows,
            total=self.total + other.total,
            second=self.second + other.second,
            gap=self.gap + other.gap,
            score_total=self.score_total + other.score_total,
            score_cross=self.score_cross + other.score_cross,
            score_square=self.score_square + other.score_square,
            cross=None if ours is None or theirs is None else ours + theirs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSums:
    """Sums over rows after an update of the scores, which have the untruncated means m_n.

    log_prob
        Sum of the log probabilities of the truncation.
    inner
        Sum of E[t_n]' (mu_n - m_n), with mu_n the present means.
    square
        Sum of |m_n|^2.
    """

    log_prob: float
    inner: float
    square: float

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Sums over the rows of both."""
        return ScoreSums(
            log_prob=self.log_prob + other.log_prob,
            inner=self.inner + other.inner,
            square=self.square + other.square,
        )
