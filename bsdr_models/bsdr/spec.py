"""ModelSpec of BSDR: variables, dims, symbols and equations of Gönen (2013)."""

from collections.abc import Mapping
from types import MappingProxyType

from bsdr_models.arrays import ProjectionPrior
from bsdr_models.dims import BASIS, COMPONENT, FEATURE, LABEL, OBS, VIEW
from bsdr_models.spec import ModelSpec, Variable

PROJECTION_PRECISION_DIMS: Mapping[ProjectionPrior, tuple[str, ...]] = MappingProxyType(
    {
        "entrywise": (FEATURE, COMPONENT),
        "columnwise": (COMPONENT,),
        "rowwise": (FEATURE,),
    }
)
"""Dims of ``projection_precision`` by prior; the specification has those of the paper's."""

SPEC = ModelSpec(
    name="bsdr",
    paper=(
        "M. Gönen (2013). Bayesian supervised dimensionality reduction. "
        "IEEE Transactions on Cybernetics 43(6), 2179-2189."
    ),
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
            "X": Variable(
                dims=(OBS, FEATURE),
                symbol="X",
                equation="given",
                description="Scaled features, one row per sample.",
            ),
            "y": Variable(
                dims=(OBS, LABEL),
                symbol="y",
                equation="y_n = argmax_c t_nc",
                description="Targets: a label per sample, or a value per sample and label.",
            ),
            "projection_precision": Variable(
                dims=PROJECTION_PRECISION_DIMS["entrywise"],
                symbol="Phi",
                equation="phi_fs ~ Ga(projection_shape, projection_rate)",
                description="Precision of the projection; large values shrink it to zero.",
            ),
            "projection": Variable(
                dims=(FEATURE, COMPONENT),
                symbol="Q",
                equation="q_fs ~ N(0, 1 / phi_fs)",
                description="Linear map from features to the latent space.",
            ),
            "latent": Variable(
                dims=(OBS, COMPONENT),
                symbol="Z",
                equation="z_n ~ N(Q' x_n, latent_scale^2 I)",
                description="Latent coordinates of each sample.",
            ),
            "weight_precision": Variable(
                dims=(COMPONENT, LABEL),
                symbol="Psi",
                equation="psi_sc ~ Ga(weight_shape, weight_rate)",
                description="Precision of the weights.",
            ),
            "weights": Variable(
                dims=(COMPONENT, LABEL),
                symbol="W",
                equation="w_sc ~ N(0, 1 / psi_sc)",
                description="Linear classifier in the latent space.",
            ),
            "bias_precision": Variable(
                dims=(LABEL,),
                symbol="lambda",
                equation="lambda_c ~ Ga(bias_shape, bias_rate)",
                description="Precision of the biases.",
            ),
            "bias": Variable(
                dims=(LABEL,),
                symbol="b",
                equation="b_c ~ N(0, 1 / lambda_c)",
                description="Linear predictor of each label at the origin of the latent space.",
            ),
            "utilities": Variable(
                dims=(OBS, LABEL),
                symbol="T",
                equation="t_nc ~ N(w_c' z_n + b_c, 1)",
                description="Latent utilities; the largest gives the label.",
            ),
            "scale": Variable(
                dims=(),
                symbol="tau",
                equation="tau ~ N+(0, scale^2)",
                description="Scale of the projection in the recommended model; near 0: no signal.",
            ),
            "view_scale": Variable(
                dims=(VIEW,),
                symbol="lambda",
                equation="log lambda_v ~ N(0, view_width^2)",
                description="Scale of each view or kernel relative to tau, if there are several.",
            ),
            "basis_weights": Variable(
                dims=(BASIS, COMPONENT),
                symbol="tau lambda P",
                equation="p_bs ~ N(0, 1)",
                description="Loadings of whitened features of kernels and views, in PyMC's model.",
            ),
            "view_share": Variable(
                dims=(VIEW,),
                symbol="s",
                equation="var(eta_v) / sum_u var(eta_u)",
                description="Share of each view in the variances of their linear predictors.",
            ),
            "noise_scale": Variable(
                dims=(LABEL,),
                symbol="sigma",
                equation="log sigma_c ~ N(noise_location, noise_width^2)",
                description="Noise of each regression output in the recommended model.",
            ),
            "noise_precision": Variable(
                dims=(LABEL,),
                symbol="tau",
                equation="tau_c ~ Ga(noise_shape, noise_rate)",
                description="Noise precision of each regression output.",
            ),
            "coef": Variable(
                dims=(FEATURE, LABEL),
                symbol="Q W",
                equation="Q (W - mean_c w_c)",
                description="Linear effect of a feature on a utility, centred over labels.",
            ),
            "bias_centered": Variable(
                dims=(LABEL,),
                symbol="b",
                equation="b_c - mean_c b_c",
                description="Biases centred over labels.",
            ),
        }
    ),
    identified=("coef", "bias_centered"),
)
