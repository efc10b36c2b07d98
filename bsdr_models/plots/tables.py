"""Table of latent coordinates."""

from typing import Literal

import numpy as np
import xarray as xr
from scipy.special import entr

from bsdr_models.dims import COMPONENT, COMPONENT_AUX, LABEL, OBS
from bsdr_models.plots._read import (
    Classes,
    Values,
    label_values,
    read,
    read_target,
)

OUTLIER_MEASURES = ("t2", "q_residual", "out_of_range", "tail_probability")


def map_table(tree: xr.DataTree, group: Literal["fit", "predictions"] = "fit") -> xr.Dataset:
    r"""Table of samples: latent coordinates, classes, their uncertainty, and outlier measures.

    Parameters
    ----------
    tree
        Needs `latent_mean` and `latent_cov` in `group`.
    group
        "fit" for the training samples, "predictions" for new ones.

    Returns
    -------
    Dataset
        `mean` and `sd` (obs, component) of the latent coordinates; if known, the class or value
        `observed` (obs,). If the group has class probabilities: `predicted` (obs,), the largest
        probability `confidence` (obs,), and `entropy` (obs,), :math:`-\sum_c p_c \log p_c` in nats.
        If the group has them: `t2` and `q_residual` (linear maps) or `out_of_range` (D-GPLVM), and
        `tail_probability`, which is small for outliers.

    See Also
    --------
    plot_map : the plot.
    plot_outliers : T2 and Q.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> table = plots.map_table(tree, "predictions")
    >>> table["confidence"].sizes
    Frozen({'obs': 89})
    """
    dataset = read(tree, group, "latent_mean", "latent_cov")
    cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
    mean = dataset["latent_mean"].transpose(OBS, COMPONENT)
    table = xr.Dataset({"mean": mean, "sd": mean.copy(data=np.sqrt(np.diagonal(cov, 0, 1, 2)))})
    match read_target(tree, group):
        case Classes(index=index, names=names, title=title) if title != "predicted class":
            table["observed"] = (OBS, np.array([*names, "no label"])[index])
        case Values(values=values):
            table["observed"] = (OBS, values)
    if "probability" in dataset:
        probability = dataset["probability"].transpose(OBS, LABEL).values
        best = probability.argmax(axis=1)
        table["predicted"] = (OBS, label_values(tree, group)[best])
        table["confidence"] = (OBS, probability.max(axis=1))
        table["entropy"] = (OBS, entr(probability).sum(axis=1))
    for name in OUTLIER_MEASURES:
        if name in dataset:
            table[name] = dataset[name]
    return table.drop_vars(LABEL, errors="ignore")
