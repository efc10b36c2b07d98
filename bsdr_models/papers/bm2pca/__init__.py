r"""BM2PCA as its paper prints it: C. Du et al. (2015), AAAI.

The regressor has the same conjugate steps, with the epsilon-insensitive loss.

============================================= ===================================================
The paper                                     Here
============================================= ===================================================
Factor model and its priors, before Eq. (1)   ``model.build_model``
Eqs. (2), (3), pseudo-likelihood of the hinge ``model.margin_factor``
Eq. (4), augmented pseudo-posterior           ``model.build_model(augmented=True)``
V(t), V(W), V(r), V(tau), not printed         ``bsdr_models.bm2pca.views.update``
V(Z) after Eq. (5)                            ``mean_field.update_latent``
V(eta) after Eq. (5)                          ``mean_field.update_weights``
V(nu) after Eq. (5)                           ``mean_field.update_weight_precision``
V(lambda) after Eq. (5)                       ``mean_field.update_slack``, ``loss_augmentation``
Gibbs sampling of Eq. (4), not printed        ``gibbs.step`` and the functions that it calls
V(z_new) and predictions                      ``predictions.predict``
============================================= ===================================================

``fit`` runs these steps and returns a tree, which ``predict`` reads. Misprints of the paper, V(Z)
and V(lambda) among them, are in ``docs/explanation/errata.md``. The paper prints one class against
the rest: ``sklearn.multiclass.OneVsRestClassifier`` of the estimator.
"""

from bsdr_models.lazy import load_on_use

_PUBLIC: dict[str, str | None] = {
    "SAMPLING": "gibbs",
    "build_model": "model",
    "fit": "fitting",
    "gibbs": None,
    "mean_field": None,
    "predict": ".predictions",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
