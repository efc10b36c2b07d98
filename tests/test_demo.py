"""The demo runs from its command line and writes its files."""

import re
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import xarray as xr

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import wine as demo


@pytest.mark.slow
def test_demo_writes_a_page_with_pictures_and_posteriors(tmp_path, capsys):
    folder = tmp_path / "out"
    demo.main(["--output", str(folder)])

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert not any("…" in line for line in lines)
    for name in ("BSDR", "BM2PCA", "D-GPLVM", "shrinkage LDA + logistic"):
        (row,) = [line for line in lines if re.match(rf"│ {re.escape(name)} +│ +0\.", line)]
        accuracy, log_loss, _ = (float(cell) for cell in row.strip("│").split("│")[1:])
        assert accuracy > 0.9
        assert log_loss < 0.25

    page = (folder / "index.html").read_text()
    shown = re.findall(r'<img src="([^"]+)"', page)
    assert sorted(shown) == sorted(path.name for path in folder.glob("*.png"))
    assert {"map_bsdr.png", "map_bm2pca.png", "map_dgplvm.png", "map_digits.png"} <= set(shown)
    for name in shown:
        picture = matplotlib.image.imread(folder / name)
        assert np.unique(picture.reshape(-1, 4), axis=0).shape[0] > 20
    with xr.open_datatree(folder / "wine_bsdr.nc", engine="h5netcdf") as tree:
        assert tree.attrs["inference_method"] == "hmc"
        assert tree["posterior"].sizes["chain"] == 4
