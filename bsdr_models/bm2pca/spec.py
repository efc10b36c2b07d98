"""Specification of BM2PCA: the paper, and the variables of the trees with their dims."""

from types import MappingProxyType

from bsdr_models.inference.dims import COMPONENT, FEATURE, LABEL, OBS
from bsdr_models.inference.spec import ModelSpec

SPEC = ModelSpec(
    name="bm2pca",
    citation_bibtex="""@inproceedings{du2015bm2pca,
  author    = {Du, Changying and Zhe, Shandian and Zhuang, Fuzhen and Qi, Yuan and He, Qing
               and Shi, Zhongzhi},
  title     = {Bayesian Maximum Margin Principal Component Analysis},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {29},
  pages     = {2582--2588},
  year      = {2015},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS, LABEL),
            "offset": (FEATURE,),
            "loading_precision": (COMPONENT,),
            "loadings": (FEATURE, COMPONENT),
            "noise_precision": (),
            "latent": (OBS, COMPONENT),
            "weight_precision": (LABEL,),
            "weights": (COMPONENT, LABEL),
            "bias": (LABEL,),
            "scores": (OBS, LABEL),
            "coef": (FEATURE, LABEL),
            "intercept": (LABEL,),
        }
    ),
    identified=("coef", "intercept", "noise_precision"),
    alignment=MappingProxyType(
        {"loadings": "loadings", "weights": "weights", "method": "procrustes"}
    ),
)
