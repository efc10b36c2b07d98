"""Names of every dimension that leaves the package, once."""

CHAIN = "chain"
DRAW = "draw"
OBS = "obs"
FEATURE = "feature"
COMPONENT = "component"
COMPONENT_AUX = "component_aux"
LABEL = "outcome"  # "label" is a name that ArviZ uses inside its tables
ITERATION = "iteration"
TERM = "term"
GRID_X = "grid_x"
GRID_Y = "grid_y"
