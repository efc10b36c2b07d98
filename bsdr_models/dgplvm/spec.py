"""ModelSpec of D-GPLVM: variables, dims, symbols and equations of Urtasun and Darrell (2007)."""

from types import MappingProxyType

from bsdr_models.dims import COMPONENT, FEATURE, OBS
from bsdr_models.spec import ModelSpec, Variable

SPEC = ModelSpec(
    name="dgplvm",
    paper=(
        "R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for "
        "classification. International Conference on Machine Learning 24, 927-934."
    ),
    citation_bibtex="""@inproceedings{urtasun2007dgplvm,
  author    = {Urtasun, Raquel and Darrell, Trevor},
  title     = {Discriminative {Gaussian} Process Latent Variable Model for Classification},
  booktitle = {Proceedings of the 24th International Conference on Machine Learning},
  pages     = {927--934},
  year      = {2007},
}""",
    variables=MappingProxyType(
        {
            "X": Variable(
                dims=(OBS, FEATURE),
                symbol="Y",
                equation="x_d ~ N(m_d 1, K), m_d integrated out",
                description="Scaled features, (samples, features).",
            ),
            "y": Variable(
                dims=(OBS,),
                symbol="Z",
                equation="p(latent) ~ exp(-weight tr(S_b^-1 S_w))",
                description="Class of each sample; enters the prior of the latent coordinates.",
            ),
            "latent_raw": Variable(
                dims=(OBS, COMPONENT),
                symbol="U",
                equation="U_nr ~ N(0, 1); latent is L_b U, centred and whitened",
                description="Auxiliary coordinates from which the whitened ones are computed.",
            ),
            "latent": Variable(
                dims=(OBS, COMPONENT),
                symbol="X",
                equation="latent' 1 = 0, latent' latent = N I",
                description="Whitened latent coordinates of each sample.",
            ),
            "signal_variance": Variable(
                dims=(),
                symbol="theta_1",
                equation="K_ij = v a exp(-|x_i - x_j|^2 / 2 l^2) + v b delta_ij; a ~ LogNormal",
                description="Explained variance of the features, in units of their mean variance.",
            ),
            "lengthscale": Variable(
                dims=(),
                symbol="theta_2^-1/2",
                equation="l ~ LogNormal",
                description="Length-scale of the features as functions of the latent coordinates.",
            ),
            "noise_variance": Variable(
                dims=(),
                symbol="1 / theta_4",
                equation="b ~ LogNormal",
                description="Variance of the noise, in units of the features' mean variance.",
            ),
            "criterion": Variable(
                dims=(),
                symbol="J",
                equation="tr(S_b^-1 S_w) of the latent coordinates",
                description="Overlap of the classes in the latent space; small means separated.",
            ),
        }
    ),
    identified=("signal_variance", "lengthscale", "noise_variance", "criterion"),
)
