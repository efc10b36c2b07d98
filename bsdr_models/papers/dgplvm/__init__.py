r"""D-GPLVM as its paper prints it: R. Urtasun, T. Darrell (2007), ICML 24.

============================================ ===================================================
The paper                                    Here
============================================ ===================================================
Eqs. (1) to (3), classifier of a GP          ``model.build_model(classifier=True)``
Its approximation, expectation propagation   ``bsdr_models.dgplvm.probit``
Eqs. (4), (5), (8), likelihood and kernel    ``map.evaluate_paper``
Eqs. (9) to (12), discriminative prior       ``bsdr_models.dgplvm.problem.Criterion``
Eq. (13), objective                          ``model.build_model``, ``map.fit_paper``
Its terms and their sum                      ``bsdr_models.dgplvm.problem.Objective.terms``
Eqs. (14) to (16), latent of a new sample    ``model.build_model(X_new=)``
Eqs. (17), (18), back-constraint             ``map.kernel_mapping``
============================================ ===================================================

``fit`` minimises the objective and returns a tree, which ``predict`` reads. In the paper the
formulae of S_w and S_b, Eqs. (10) and (11), are exchanged (``docs/explanation/errata.md``).
"""

from bsdr_models.lazy import load_on_use

_PUBLIC: dict[str, str | None] = {
    "build_model": "model",
    "fit": "fitting",
    "map": None,
    "predict": ".predictions",
}

__all__ = list(_PUBLIC)
__getattr__ = load_on_use(__name__, _PUBLIC)
