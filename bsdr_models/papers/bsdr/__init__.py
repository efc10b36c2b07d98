r"""BSDR as its paper prints it: M. Gönen (2013), IEEE Transactions on Cybernetics 43(6).

========================================= ======================================================
The paper                                 Here
========================================= ======================================================
Fig. 1, Eqs. (1), (2), the model          ``model.build_model``
Eq. (3), the bound                        ``mean_field.elbo_terms``
Eq. (4), precisions of the projection     ``mean_field.update_projection_precision``
Eq. (5), projection                       ``mean_field.update_projection``, solved by ``design``
Eq. (6), latent coordinates               ``mean_field.update_latent``
Eqs. (7), (8), precisions of the weights  ``mean_field.update_weight_precision``
Eq. (9), weights and biases               ``mean_field.update_weights``
Eq. (10), utilities                       ``mean_field.update_utilities``
Section II-C columnwise, II-D rowwise     ``priors.Priors(projection_prior=...)``
Section II-D, regression, not printed     ``mean_field.update_noise_precision``
Appendix A, Gibbs sampling                ``gibbs.step`` and the functions that it calls
Section II-B3, Appendix B, predictions    ``predictions.predict``
========================================= ======================================================

``fit`` runs these steps and returns a tree, which ``predict`` reads. Misprints of the paper are in
``docs/explanation/errata.md``.
"""

from bsdr_models.lazy import load_on_use

_PUBLIC: dict[str, str | None] = {
    "Optimization": "priors",
    "PAPER": "priors",
    "Priors": "priors",
    "SAMPLING": "priors",
    "SPARSE": "priors",
    "build_model": "model",
    "fit": "fitting",
    "gibbs": None,
    "mean_field": None,
    "predict": ".predictions",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
