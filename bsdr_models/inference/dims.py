"""Names of the dimensions of all trees and tables."""

CHAIN = "chain"
DRAW = "draw"
OBS = "obs"
FEATURE = "feature"
COMPONENT = "component"
COMPONENT_AUX = "component_aux"
LABEL = "outcome"  # "label" is a name that ArviZ uses inside its tables
SCORE = "score"  # the class score that two classes share
VIEW = "view"
GROUP = "group"
BASIS = "basis"
CONTRAST = "contrast"
ITERATION = "iteration"
TERM = "term"
GRID_X = "grid_x"
GRID_Y = "grid_y"
