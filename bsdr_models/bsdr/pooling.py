r"""Class probabilities of one sample pooled over the draws of a posterior.

.. math::
    p_a(k \mid x) \propto \Bigl\{ \frac1S \sum_s p_s(k \mid x)^a \Bigr\}^{1/a},
    \qquad p_0(k \mid x) \propto \exp \frac1S \sum_s \log p_s(k \mid x).

With a = 1 (linear pooling) this is the posterior predictive distribution, which is correct if the
model is. With a = 0 (logarithmic pooling, Genest & Zidek [1]_) disagreement between draws flattens
the distribution less. On real data the draws of a linear projection disagree more than the data
justify, and a power below one is better calibrated; on data from the model it is overconfident. The
power affects predictions only, not the posterior.

References
----------
.. [1] C. Genest, J. V. Zidek (1986). Combining probability distributions: a critique and an
       annotated bibliography. Statistical Science 1(1).
"""

from collections.abc import Sequence
from numbers import Real
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray

type Pooling = Literal["auto", "linear", "log"] | float

# Powers that are weighted by held-out samples.
POWERS = (1.0, 0.5, 0.25, 0.0)


def pool(log_p: FloatArray, power: float) -> FloatArray:
    """Pooled log probabilities, normalised over the last axis.

    Parameters
    ----------
    log_p : (S, ..., K)
        Log probabilities of each draw, finite.
    power : float
        a, from 0 to 1.

    Returns
    -------
    (..., K)
    """
    pooled = log_p.mean(axis=0) if power == 0.0 else logsumexp(power * log_p, axis=0) / power
    normaliser = np.logaddexp.reduce(pooled, axis=-1, keepdims=True)
    return np.asarray(pooled - normaliser)


def weigh_powers(log_scores: Sequence[float]) -> float:
    """Mean of :data:`POWERS`, weighted by the likelihood of held-out labels.

    Parameters
    ----------
    log_scores : sequence of float
        Log probability of all held-out labels under each power, in nats.

    Returns
    -------
    float
        An average over powers that held-out samples hardly distinguish.
    """
    scores = np.asarray(log_scores)
    weights = np.exp(scores - logsumexp(scores))
    return float(weights @ np.array(POWERS))


def as_power(pooling: Pooling) -> float | None:
    """Power of a setting; None if it is chosen by held-out samples.

    Raises
    ------
    ValueError
        If it is neither a name of a pooling nor a number from 0 to 1.
    """
    known = {"auto": None, "linear": 1.0, "log": 0.0}
    if isinstance(pooling, str):
        if pooling in known:
            return known[pooling]
    elif isinstance(pooling, Real) and not isinstance(pooling, bool) and 0.0 <= pooling <= 1.0:
        return float(pooling)
    raise ValueError(
        f"pooling must be 'auto', 'linear', 'log' or a number from 0 to 1, got {pooling!r}"
    )
