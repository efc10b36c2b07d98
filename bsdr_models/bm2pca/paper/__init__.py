"""The conjugate model of the paper: mean field, Gibbs sampling and its PyMC model."""
