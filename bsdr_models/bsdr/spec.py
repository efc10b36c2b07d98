"""ModelSpec of BSDR: variables and dims of Gönen (2013)."""

from types import MappingProxyType

from bsdr_models.inference.dims import BASIS, COMPONENT, CONTRAST, FEATURE, GROUP, LABEL, OBS, VIEW
from bsdr_models.inference.spec import ModelSpec

SPEC = ModelSpec(
    name="bsdr",
    citation_bibtex="""@article{gonen2013bsdr,
  author  = {G{\\"o}nen, Mehmet},
  title   = {Bayesian Supervised Dimensionality Reduction},
  journal = {IEEE Transactions on Cybernetics},
  volume  = {43},
  number  = {6},
  pages   = {2179--2189},
  year    = {2013},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS, LABEL),
            "projection_precision": (FEATURE, COMPONENT),
            "projection": (FEATURE, COMPONENT),
            "latent": (OBS, COMPONENT),
            "latent_offset": (OBS, COMPONENT),
            "weight_precision": (COMPONENT, LABEL),
            "weights": (COMPONENT, LABEL),
            "bias_precision": (LABEL,),
            "bias": (LABEL,),
            "utilities": (OBS, LABEL),
            "scale": (),
            "projection_offset": (FEATURE, CONTRAST),
            "basis_offset": (BASIS, CONTRAST),
            "bias_contrasts": (CONTRAST,),
            "view_scale": (VIEW,),
            "basis_weights": (BASIS, COMPONENT),
            "view_share": (VIEW,),
            "group_scale": (),
            "group_offset": (GROUP, CONTRAST),
            "group_effect": (GROUP, LABEL),
            "noise_scale": (LABEL,),
            "noise_precision": (LABEL,),
            "coef": (FEATURE, LABEL),
            "bias_centered": (LABEL,),
        }
    ),
    identified=("coef", "bias_centered", "group_scale", "group_effect"),
    alignment=MappingProxyType(
        {"loadings": "projection", "weights": "weights", "method": "signed_permutation"}
    ),
)
