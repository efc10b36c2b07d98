"""ModelSpec of D-GPLVM: variables and dims of Urtasun and Darrell (2007)."""

from types import MappingProxyType

from bsdr_models.inference.dims import COMPONENT, FEATURE, OBS
from bsdr_models.inference.spec import ModelSpec

SPEC = ModelSpec(
    name="dgplvm",
    citation_bibtex="""@inproceedings{urtasun2007dgplvm,
  author    = {Urtasun, Raquel and Darrell, Trevor},
  title     = {Discriminative {Gaussian} Process Latent Variable Model for Classification},
  booktitle = {Proceedings of the 24th International Conference on Machine Learning},
  pages     = {927--934},
  year      = {2007},
}""",
    variables=MappingProxyType(
        {
            "X": (OBS, FEATURE),
            "y": (OBS,),
            "latent_raw": (OBS, COMPONENT),
            "latent": (OBS, COMPONENT),
            "signal_variance": (),
            "lengthscale": (),
            "noise_variance": (),
            "criterion": (),
        }
    ),
    identified=("signal_variance", "lengthscale", "noise_variance", "criterion"),
    alignment=MappingProxyType({"loadings": "latent", "method": "procrustes"}),
)
