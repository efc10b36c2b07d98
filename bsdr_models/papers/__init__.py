"""The models as their papers print them, for comparison with the recommended models.

Each folder has the model in PyMC, the steps of the paper's engines, and ``fit`` and ``predict``,
which run them; it says which function is which equation. The classes are these fits as estimators
of scikit-learn. ``maximise`` and ``sample`` run the steps of any model.
"""

from bsdr_models.lazy import load_on_use
from bsdr_models.papers import bm2pca, bsdr, dgplvm

_PUBLIC = {
    "Bound": "coordinate_ascent",
    "Extrapolation": "coordinate_ascent",
    "PaperBM2PCAClassifier": "bm2pca.fitting",
    "PaperBSDRClassifier": "bsdr.fitting",
    "PaperDGPLVMClassifier": "dgplvm.fitting",
    "maximise": "coordinate_ascent",
    "sample": "sampler",
}

__all__ = [*_PUBLIC, "bm2pca", "bsdr", "dgplvm"]
__getattr__ = load_on_use(__name__, _PUBLIC)
