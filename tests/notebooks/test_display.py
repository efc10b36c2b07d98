"""A plot shows itself in a notebook that never imports pyplot."""

import nbclient
import pytest
from nbformat.v4 import new_code_cell, new_notebook

FIT = """
from sklearn.datasets import load_iris
from bsdr_models import (BSDRClassifier, plots)
from bsdr_models.papers.bsdr import Optimization
from bsdr_models.papers import PaperBSDRClassifier

model = PaperBSDRClassifier(optimization=Optimization(max_iter=5))
tree = model.fit(*load_iris(return_X_y=True)).idata_
"""


@pytest.mark.slow
def test_every_plot_shows_not_only_the_first():
    cells = [FIT, "plots.plot_map(tree);", "plots.plot_features(tree);"]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    for cell in notebook.cells[1:]:
        assert [output.output_type for output in cell.outputs] == ["display_data"]
        assert "image/png" in cell.outputs[0].data
