"""The metric that is learned from the classes: weights of directions of the features."""
