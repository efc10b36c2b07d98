"""Views, groups of features: which of them samples lack, and what may be missing."""

from collections.abc import Sequence

import numpy as np

from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

# Names and features of views.
type Views = Sequence[tuple[str, IntArray]]


def lacking_views(X: FloatArray, columns: Sequence[IntArray]) -> BoolArray:
    """Which views each sample has no values of, (N, V)."""
    return np.stack([np.isnan(X[:, own]).all(axis=1) for own in columns], axis=1)


def check_views(X: FloatArray, views: Views, exclusive: bool | None = None) -> None:
    """Raise ValueError unless the missing values of samples (M, D) are those of whole views.

    Training samples, with ``exclusive=None``, have all views or exactly one each, and new samples
    exactly one if these are ``exclusive``, otherwise at least one.
    """
    training = exclusive is None
    incomplete = np.isnan(X).any(axis=1)
    lacking = lacking_views(X, [columns for _, columns in views])
    for (name, columns), absent in zip(views, lacking.T, strict=True):
        partial = np.isnan(X[:, columns]).any(axis=1) & ~absent
        if partial.any():
            raise ValueError(
                f"sample {int(partial.argmax())} has NaN in some features of view {name!r}: only "
                "whole views may be missing; BM2PCAClassifier takes any missing values"
            )
    present = (~lacking).sum(axis=1)
    if (present == 0).any():
        raise ValueError(f"sample {int(present.argmin())} has no view: all its values are NaN")
    several = present != 1
    if not several.any() or not (incomplete.any() if training else exclusive):
        return
    if not training:
        sample = int(several.argmax())
        raise ValueError(
            f"sample {sample} has {present[sample]} views: new samples must have exactly one, as "
            "the training samples have"
        )
    sample = int(incomplete.argmax())
    absent = [name for (name, _), out in zip(views, lacking[sample], strict=True) if out]
    raise ValueError(
        f"{int(incomplete.sum())} of {len(X)} training samples lack views, sample {sample} "
        f"{absent}: training samples must have all views, or exactly one each. Leave out the "
        "incomplete samples or these views, or use BM2PCAClassifier, whose training samples may "
        "lack views"
    )
