"""The default of the classifier: a discriminative subspace in the within-class metric."""
