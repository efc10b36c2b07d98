"""Power of the checks of the mean field: each detects faults planted in copies of the code.

A fault is one edit of a source file. ``check`` is the check that must fail: ``monte_carlo`` (wrong
bound) or ``stationary`` (an update is not optimal). ``blind`` are checks that pass nevertheless.
The code passes for the same problems and seeds, in test_mean_field.
"""

from dataclasses import dataclass, field
from types import FunctionType, ModuleType

import pytest

from bsdr_models.bsdr import mean_field
from bsdr_models.numerics import design, factors


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Replace ``old`` by ``new`` in ``module``, for its class ``owner`` if it is not mean_field."""

    name: str
    old: str
    new: str
    check: str
    blind: tuple[str, ...] = ()
    seed: int = 0
    problem: dict = field(default_factory=lambda: {"kind": "entrywise", "target": "multiclass"})
    module: ModuleType = mean_field
    owner: str | None = None


FAULTS = [
    # ------------------------------------------------------------------------------ the bound
    Fault(
        name="trace of Cov(Q) dropped",
        old="distance += float(q.gram_trace.sum())",
        new="pass",
        check="monte_carlo",
    ),
    Fault(
        name="trace of Cov(z) counted for one row",
        old="n * float(np.trace(z.cov))",
        new="float(np.trace(z.cov))",
        check="monte_carlo",
    ),
    Fault(
        name="N D for N R in the constant",
        old="-0.5 * (n * r * (LOG_2PI",
        new="-0.5 * (n * q.mean.shape[0] * (LOG_2PI",
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="entropy of Z missing",
        old="distance / v) + n * z.row_entropy",
        new="distance / v)",
        check="monte_carlo",
    ),
    Fault(
        name="entropy of Phi missing",
        old="+ phi.entropy()",
        new="",
        check="monte_carlo",
    ),
    Fault(
        name="entropy of (b, W) missing",
        old="float(weight_log_prior) + w.entropy()",
        new="float(weight_log_prior)",
        check="monte_carlo",
    ),
    Fault(
        name="scale for rate in the prior of Phi, in the bound",
        old="priors.projection_shape, priors.projection_rate\n",
        new="priors.projection_shape, 1 / priors.projection_rate\n",
        check="monte_carlo",
    ),
    Fault(
        name="prior of Psi used for lambda, in the bound",
        old="slice(0, 1), priors.bias_shape, priors.bias_rate",
        new="slice(0, 1), priors.weight_shape, priors.weight_rate",
        seed=1,
        check="monte_carlo",
    ),
    Fault(
        name="bias missing from the utilities",
        old="state.weights.mean[1:] + state.weights.mean[0]",
        new="state.weights.mean[1:]",
        check="monte_carlo",
    ),
    Fault(
        name="plain instead of truncated entropy of T",
        old='terms["utilities"] = t.log_prob + ',
        new='terms["utilities"] = ',
        check="monte_carlo",
    ),
    Fault(
        name="plain instead of truncated entropy of T, two-sided labels",
        old='terms["utilities"] = t.log_prob + ',
        new='terms["utilities"] = ',
        problem={"kind": "rowwise", "target": "multilabel", "size": "wide"},
        check="monte_carlo",
    ),
    Fault(
        name="origin of T taken to be its present mean",
        old="np.vdot(t.mean, linear_predictor_mean(state) - t.origin)",
        new="np.vdot(t.mean, 0.0 * t.origin)",
        check="monte_carlo",
    ),
    Fault(
        name="off-diagonal of E[b~ b~'] dropped",
        old="second_moment(state.weights), moment",
        new="second_moment(state.weights) * np.eye(len(state.weights.mean)), moment",
        check="monte_carlo",
    ),
    Fault(
        name="covariance of the weights dropped from the square of the utilities",
        old="second_moment(state.weights), moment",
        new="second_moment(replace(state.weights, cov=0 * state.weights.cov)), moment",
        check="monte_carlo",
    ),
    Fault(
        name="log 2 pi per output instead of per entry",
        old="each = n * (tau.mean_log - LOG_2PI)",
        new="each = n * tau.mean_log - LOG_2PI",
        problem={"kind": "entrywise", "target": "regression"},
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="variance of Q missing from E[Q**2] everywhere",
        module=factors,
        owner="RidgeColumns",
        old="return self.mean**2 + self.variance",
        new="return self.mean**2",
        seed=1,
        check="monte_carlo",
    ),
    Fault(
        name="Cov(z) of one row for the sum of all, everywhere",
        old="second + n * latent.cov",
        new="second + latent.cov",
        check="monte_carlo",
    ),
    Fault(
        name="sign of log rate in the entropy of a Gamma",
        module=factors,
        owner="Gamma",
        old="a - np.log(self.rate)",
        new="a + np.log(self.rate)",
        check="monte_carlo",
    ),
    Fault(
        name="normaliser of a Gamma prior counted once",
        module=factors,
        owner="Gamma",
        old="each.size * (shape",
        new="1 * (shape",
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="log determinant of Woodbury without N log v",
        module=design,
        owner="DenseDesign",
        old="self.n_samples * np.log(variance) - log_det",
        new="-log_det",
        problem={"kind": "rowwise", "target": "multiclass", "size": "wide"},
        check="monte_carlo",
        blind=("monotone",),
    ),
    # ---------------------------------------------------------------------------- the updates
    Fault(
        name="untruncated T",
        old="mean=found.mean, origin=origin",
        new="mean=origin, origin=origin",
        check="monte_carlo",
        blind=("monotone", "stationary"),
    ),
    Fault(
        name="present labels taken for absent ones",
        old="np.where(data.y, 1.0, -1.0)",
        new="np.where(data.y, -1.0, 1.0)",
        problem={"kind": "entrywise", "target": "multilabel"},
        check="monte_carlo",
        blind=("monotone",),
    ),
    Fault(
        name="Cov(b, w) missing from the update of Z",
        old='np.einsum("k,kr->r", tau, second[:, 1:, 0])',
        new="(tau * state.weights.mean[0]) @ state.weights.mean[1:].T",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="E[w] E[w]' for E[w w'] in the update of Z",
        old="cov, log_det = latent_cov(second, tau, priors)",
        new="cov, log_det = latent_cov(second - state.weights.cov, tau, priors)",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="latent scale for latent variance in the update of Q",
        old="data.design.ridge(state.latent.mean, precision, priors.latent_scale**2)",
        new="data.design.ridge(state.latent.mean, precision, priors.latent_scale)",
        check="stationary",
    ),
    Fault(
        name="ARD shape of one entry for a column",
        old="priors.projection_shape + 0.5 * n_tied",
        new="priors.projection_shape + 0.5",
        problem={"kind": "columnwise", "target": "multiclass"},
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="ARD shape of one entry for a row",
        old="priors.projection_shape + 0.5 * n_tied",
        new="priors.projection_shape + 0.5",
        problem={"kind": "rowwise", "target": "multiclass"},
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="scale for rate in the update of Phi",
        old="rate=priors.projection_rate + 0.5 * square",
        new="rate=1 / priors.projection_rate + 0.5 * square",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="variance missing from the update of the weight precisions",
        old="weight_gamma(state.weights.mean**2 + state.weights.variance, priors)",
        new="weight_gamma(state.weights.mean**2, priors)",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="prior of Psi used for lambda, in the update",
        old="shape[0] = priors.bias_shape + 0.5",
        new="pass",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="sum of z z' without Cov(z) in the update of (b, W)",
        old="weights_cov(latent_moment(state.latent, sums), ",
        new="weights_cov(latent_moment(replace(state.latent, cov=0 * state.latent.cov), sums), ",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="bias and weights independent in q(b, W)",
        old="full = tau[:, None, None] * moment",
        new="full = tau[:, None, None] * moment; full[:, 0, 1:] = full[:, 1:, 0] = 0.0",
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="noise shape counts a row twice",
        old="priors.noise_shape + 0.5 * n_samples",
        new="priors.noise_shape + n_samples",
        problem={"kind": "entrywise", "target": "regression"},
        check="stationary",
        blind=("monte_carlo",),
    ),
    Fault(
        name="noise precision missing from the update of Z",
        old="(state.utilities.mean * tau) @ state.weights.mean[1:].T",
        new="state.utilities.mean @ state.weights.mean[1:].T",
        problem={"kind": "entrywise", "target": "regression"},
        check="stationary",
        blind=("monte_carlo",),
    ),
]


def plant(lab, fault, monkeypatch):
    """A copy of mean_field with the fault, or that uses a class with it."""
    copy = lab.planted(fault.module, fault.old, fault.new)
    if fault.owner is None:
        return copy
    owner = getattr(fault.module, fault.owner)
    for name, value in vars(getattr(copy, fault.owner)).items():
        if isinstance(value, FunctionType | property) and not name.startswith("__"):
            monkeypatch.setattr(owner, name, value)
    return mean_field


def fails(lab, mf, fault, check):
    """Whether a check fails."""
    try:
        getattr(lab, f"check_{check}")(mf, lab.make_problem(**fault.problem), seed=fault.seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_caught(lab, fault, monkeypatch):
    mf = plant(lab, fault, monkeypatch)
    assert fails(lab, mf, fault, fault.check)
    assert not any(fails(lab, mf, fault, check) for check in fault.blind)
