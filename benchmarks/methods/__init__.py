"""All methods, by their names in the tables."""

from benchmarks.methods import full_space, margins, models, probit, projections, tempered
from benchmarks.methods.base import Method

METHODS: dict[str, Method] = {
    **models.METHODS,
    **margins.METHODS,
    **projections.METHODS,
    **probit.METHODS,
    **full_space.METHODS,
    **tempered.METHODS,
}
