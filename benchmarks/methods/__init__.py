"""All methods, by their names in the tables."""

from benchmarks.methods import (
    bm2pca,
    bsdr,
    dgplvm,
    full_space,
    probit,
    projections,
    stack,
    tempered,
)
from benchmarks.methods.base import Method

METHODS: dict[str, Method] = {
    **bsdr.METHODS,
    **bm2pca.METHODS,
    **dgplvm.METHODS,
    **projections.METHODS,
    **probit.METHODS,
    **full_space.METHODS,
    **stack.METHODS,
    **tempered.METHODS,
}
