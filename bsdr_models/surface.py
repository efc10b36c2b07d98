"""What every estimator of the zoo offers beside scikit-learn's methods."""

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
