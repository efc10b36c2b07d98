"""What every estimator of the zoo offers beside scikit-learn's methods."""

import os
from typing import ClassVar

from bsdr_models.card import Card


class Surface:
    """Methods that ask nothing of the model but its card and its fitted attributes."""

    _card: ClassVar[Card]

    @classmethod
    def citation(cls) -> str:
        """The paper of the model, as a BibTeX entry.

        Examples
        --------
        >>> from bsdr_models import BSDRClassifier
        >>> print(BSDRClassifier.citation().splitlines()[0])
        @article{gonen2013bsdr,
        """
        return cls._card.citation_bibtex

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, which :func:`bsdr_models.load` reads.

        One NetCDF file, which `xarray.open_datatree` and ArviZ open as `idata_`; its group
        ``estimator`` has all else. There is no code in it. **It holds the training rows**, scaled:
        `idata_`, `model_` and some predictions need them.

        A file of that name is replaced once the new one is complete on disk; until then, and if
        anything goes wrong, it stays as it is.

        Parameters
        ----------
        path : str or path-like
            By custom with the ending ``.nc``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If an argument of the estimator cannot be stored, as a function of one's own.
        OSError
            If the file cannot be written; the message names it.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from sklearn.datasets import load_wine
        >>> import bsdr_models
        >>> X, y = load_wine(return_X_y=True)
        >>> model = bsdr_models.BM2PCAClassifier(random_state=0).fit(X[::3], y[::3])
        >>> with TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/wine.nc")
        ...     again = bsdr_models.load(f"{folder}/wine.nc")
        >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
        True
        """
        from bsdr_models.persistence import save

        save(self, path)
