"""Posterior predictive checks: replicated targets of the training samples.

Latent coordinates are drawn given the features only: given the targets, any model would pass.
"""

import numpy as np
import xarray as xr

from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr.paper.predict import DrawPosterior
from bsdr_models.bsdr.paper.trees import draw_posterior
from bsdr_models.dims import CHAIN, DRAW, LABEL, OBS


def predictive_check(tree: xr.DataTree, *, rng: np.random.Generator) -> xr.DataTree:
    """Replicated targets of the training samples, one set for each draw.

    For ``arviz.plot_ppc_*``.

    Parameters
    ----------
    tree : xarray.DataTree
        ``idata_`` of a BSDR estimator.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior_predictive`` (chain, draw, obs) and ``observed_data`` (obs) with ``y``:
        classes by their index in the coordinate ``outcome``, labels and real targets with a last
        axis ``outcome``.

    Raises
    ------
    ValueError
        If the tree has no features, as of a large fit.

    Notes
    -----
    Prior predictive checks use the PyMC model of the estimator:
    ``pymc.sample_prior_predictive(model=estimator.model_)`` and
    ``arviz.plot_ppc_rootogram(found, group="prior_predictive")``.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier
    >>> from bsdr_models.bsdr.predictive_check import predictive_check
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BSDRClassifier(random_state=0).fit(X, y)
    >>> check = predictive_check(model.idata_, rng=np.random.default_rng(0))
    >>> reliability = az.plot_ppc_pava(check, data_type="categorical")
    """
    if "constant_data" not in tree.children:
        raise ValueError("the tree has no group 'constant_data', hence no features")
    target = tree.attrs["target"]
    posterior = tree["posterior"].to_dataset()
    # Only those of the paper's model have noise in their latent coordinates.
    latent_scale, lapse = (tree.attrs.get(name, 0.0) for name in ("latent_scale", "lapse"))
    draws = draw_posterior(posterior, latent_scale=latent_scale, target=target)
    values = draw_targets(draws, tree["constant_data"]["X"].to_numpy(), lapse=lapse, rng=rng)
    values = values.reshape(posterior.sizes[CHAIN], posterior.sizes[DRAW], *values.shape[1:])
    if target == "regression":
        values = values * tree.attrs["y_scale"] + tree.attrs["y_mean"]
    observed = tree["fit/y_index"] if target == "multiclass" else tree["observed_data/y"]
    axes = (OBS, LABEL)[: observed.ndim]
    seen = xr.Dataset({"y": observed.drop_attrs()}).transpose(*axes)
    drawn = {name: posterior.coords[name] for name in (CHAIN, DRAW)}
    replicated = xr.Dataset({"y": ((CHAIN, DRAW, *axes), values)}, coords={**seen.coords, **drawn})
    attrs = {name: tree.attrs[name] for name in ("model", "inference_method", "target")}
    attrs["labels"] = [str(name) for name in posterior.coords[LABEL].values]
    return xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs=attrs), "posterior_predictive": replicated, "observed_data": seen}
    )


def draw_targets(
    draws: DrawPosterior, X: FloatArray, *, lapse: float = 0.0, rng: np.random.Generator
) -> np.ndarray:
    """Targets of samples (M, P) from every draw of the parameters.

    Returns
    -------
    (S, M) of int, (S, M, K) of int 0 and 1, or (S, M, K) of float
        By target: classes, labels, real.
    """
    out = []
    for s in range(len(draws.bias)):
        Q, W, b = draws.projection[s], draws.weights[s], draws.bias[s]
        z = X @ Q + draws.latent_scale * rng.standard_normal((len(X), Q.shape[1]))
        noise = rng.standard_normal((len(X), len(b)))
        if draws.noise_precision is not None:
            noise /= np.sqrt(draws.noise_precision[s])
        t = z @ W + b + noise
        if draws.target == "multiclass":
            t = _lapsed(t.argmax(axis=1), lapse, len(b), rng)
        elif draws.target == "multilabel":
            t = _lapsed((t > 0.0).astype(np.int64), lapse, 2, rng)
        out.append(t)
    return np.stack(out)


def _lapsed(labels: np.ndarray, lapse: float, k: int, rng: np.random.Generator) -> np.ndarray:
    """Labels, of which a share is replaced by uniform draws from k."""
    if lapse == 0.0:
        return labels
    return np.where(rng.random(labels.shape) < lapse, rng.integers(0, k, labels.shape), labels)
