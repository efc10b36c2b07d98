"""Seconds of the whole objective of D-GPLVM, of fits, and of embedding new samples."""

import numpy as np

from benchmarks.gp_likelihood import LOG_KERNEL, N_FEATURES, exact_floor, problem
from benchmarks.timing import Work, medians
from bsdr_models import DGPLVMClassifier, DGPLVMMapping
from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.criteria import make_criterion
from bsdr_models.dgplvm.objective import Objective
from bsdr_models.dgplvm.priors import Priors

N_LABELS, N_NEW = 3, 1000
SIZES = (100, 300, 1000, 2000)
# Seconds for new samples: by the map, and by the search of eq. (14), at N = 100.
PLACEMENT_AIMS = {"map": 0.01, "likelihood": 1.0}


def whole_objective(n_samples: int) -> list[str]:
    """Objective and gradient, and the lower bound of its likelihood."""
    case = problem(n_samples)
    y = np.arange(n_samples) % N_LABELS
    weights = centroid_weights(y, N_LABELS)
    objective = Objective(
        gram=case.gram,
        mapping_prior=make_mapping(case.X, weights, width=2.0, noise=0.03, mean_variance=0.3),
        criterion=make_criterion("trace_ratio", y, N_LABELS),
        weight=100.0,
        known=np.arange(n_samples),
        parameter_priors=Priors().kernel,
        map_dof=Priors().map_dof,
        n_components=case.latent.shape[1],
        temper=case.gram.temper,
    )
    x = objective.pack(case.latent, LOG_KERNEL)
    value, gradient = objective(x)
    step = 1e-6 * gradient / np.linalg.norm(gradient)
    slope = (objective(x + step)[0] - objective(x - step)[0]) / 2e-6
    assert np.isfinite(value)
    assert abs(slope - np.linalg.norm(gradient)) < 1e-4 * slope
    seconds, floor = medians(Work(run=lambda _: objective(x)), exact_floor(case), seconds=4.0)
    return [
        str(n_samples),
        f"{1e3 * seconds:.3g}",
        f"{1e3 * floor:.3g}",
        f"{seconds / floor:.2f}",
    ]


def curved(n_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples on three curves in many dimensions, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(N_LABELS, size=n_samples)
    angle = 2.0 * rng.random(n_samples) + 2.1 * y
    axes = np.random.default_rng(0).standard_normal((2, N_FEATURES))
    plane = np.column_stack([np.cos(angle), np.sin(angle)])
    return plane @ axes + 0.5 * rng.standard_normal((n_samples, N_FEATURES)), y


def fits_and_placement() -> list[list[str]]:
    """Seconds of a fit at N = 100, and of a thousand new samples by both methods."""
    X, y = curved(100, 1)
    new, truth = curved(N_NEW, 2)
    lines = []
    for placement, aim in PLACEMENT_AIMS.items():
        model = DGPLVMClassifier(mapping=DGPLVMMapping(placement=placement)).fit(X, y)
        assert model.score(new, truth) > 0.9
        fit, place = medians(
            Work(
                run=lambda _, how=placement: DGPLVMClassifier(
                    mapping=DGPLVMMapping(placement=how)
                ).fit(X, y)
            ),
            Work(run=lambda _, model=model: model.transform(new)),
        )
        lines.append([placement, f"{fit:.3f}", f"{1e3 * place:.1f}", f"{1e3 * aim:g}"])
    return lines


def report() -> str:
    """Markdown tables."""
    objective = [
        ["N", "ms", "floor ms", "ratio"],
        ["---"] * 4,
        *(whole_objective(n_samples) for n_samples in SIZES),
    ]
    placement = [
        ["placed by", "fit, s", f"{N_NEW} new rows, ms", "aim, ms"],
        ["---"] * 4,
        *fits_and_placement(),
    ]
    objective_table, placement_table = (
        "\n".join("| " + " | ".join(line) + " |" for line in lines)
        for lines in (objective, placement)
    )
    return (
        "## D-GPLVM: the whole objective, fits and new rows\n\n"
        f"Whitening, likelihood, criterion and map by all rows, D = {N_FEATURES}, R = 2, beside "
        f"the floor of the likelihood alone.\n\n{objective_table}\n\n"
        f"Three curved classes, N = 100, D = {N_FEATURES}; a fit chooses its settings, searches "
        f"for the mode and fits the classifier.\n\n{placement_table}\n"
    )
