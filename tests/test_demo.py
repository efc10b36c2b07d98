"""The demo runs from its command line and writes its files."""

import pytest
import wine as demo
import xarray as xr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_demo_writes_two_reports_and_a_posterior(tmp_path, capsys):
    folder = tmp_path / "out"
    demo.main(["--output", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    for name in ("BSDR", "BM2PCA", "D-GPLVM", "shrinkage LDA"):
        (row,) = [line for line in lines if line.startswith(f"{name} ") and "." in line]
        accuracy, log_loss = row.removeprefix(name).split()[:2]
        assert float(accuracy) > 0.9
        assert float(log_loss) < 0.25
    wine = (folder / "index.html").read_text()
    assert "118 held-out samples" in wine
    assert wine.count("data:image/png") == 8  # map, confusion, reliability, effects and four boxes
    digits = (folder / "digits.html").read_text()
    assert "500 held-out samples" in digits
    assert "Better than chance" in digits
    with xr.open_datatree(folder / "wine.nc", engine="h5netcdf") as tree:
        assert tree.attrs["inference_method"] == "hmc"
        assert tree["posterior"].sizes["chain"] == 8
