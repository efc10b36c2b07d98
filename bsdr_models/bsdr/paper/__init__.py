"""The model as the paper prints it: mean field, Gibbs sampling and its PyMC model."""
