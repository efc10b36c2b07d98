"""The demo runs from its command line and writes its files."""

import matplotlib.image
import numpy as np
import pytest
import xarray as xr

from bsdr_models import demo


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_demo_writes_pictures_and_posteriors(tmp_path, monkeypatch, capsys):
    # NUTS has tests of its own; compiling its model would be most of the time here.
    short = {"smc": {}, "paper": {"variant": "paper"}}
    monkeypatch.setattr(demo, "FITS", short)
    demo.main(["--output", str(tmp_path / "out")])

    printed = capsys.readouterr().out
    assert "shrinkage LDA" in printed
    assert "Probability of the true class" in printed
    (row,) = [line for line in printed.splitlines() if line.startswith("│ BSDR  ")]
    accuracy, log_loss, _ = (float(cell) for cell in row.strip("│").split("│")[1:])
    assert accuracy > 0.9
    assert log_loss < 0.25
    assert "coef[" in printed
    pictures = sorted((tmp_path / "out").glob("*.png"))
    assert len(pictures) == 11
    for path in pictures:
        assert np.unique(matplotlib.image.imread(path).reshape(-1, 4), axis=0).shape[0] > 20
    with xr.open_datatree(tmp_path / "out" / "wine_smc.nc", engine="h5netcdf") as tree:
        assert tree.attrs["inference_method"] == "smc"
        assert tree["posterior"].sizes["chain"] == 4
