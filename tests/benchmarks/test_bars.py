"""The table of all limits says what the tables on the page say."""

import pytest

from benchmarks import bars
from benchmarks.report import PAGE

PAGE_TEXT = """
<!-- gp_fits: begin -->
| N | ms | floor ms | ratio | aim |
| --- | --- | --- | --- | --- |
| 100 | 0.4 | 0.1 | 4.00 | - |
| 300 | 4 | 2 | 2.00 | 1.3 |
| 1000 | 40 | 39 | 1.03 | 1.3 |

| placed by | fit, s | 1000 new rows, ms | aim, ms |
| --- | --- | --- | --- |
| map | 0.1 | 10.0 | 10 |
<!-- gp_fits: end -->
"""
OF_FITS = tuple(each for each in bars.LIMITS if each.part == "gp_fits")


def test_a_line_for_every_limit_and_whether_it_holds(monkeypatch):
    monkeypatch.setattr(bars, "LIMITS", OF_FITS)
    text = bars.report(PAGE_TEXT)
    lines = [line for line in text.splitlines() if line.startswith("| D-GPLVM")]
    assert lines == [
        "| D-GPLVM, the whole objective, N = 300 | 4 | 2 | 2.00 | 1.3 | **no** |",
        "| D-GPLVM, the whole objective, N = 1000 | 40 | 39 | 1.03 | 1.3 | yes |",
        "| D-GPLVM, 1000 new rows placed by map, ms | - | - | 10.0 | 10 | yes |",
    ]
    assert "2 of 3 hold" in text


def test_a_column_that_is_gone_is_an_error(monkeypatch):
    monkeypatch.setattr(bars, "LIMITS", OF_FITS)
    with pytest.raises(ValueError, match="gp_fits has no column ratio"):
        bars.report(PAGE_TEXT.replace("| ratio |", "| share |"))


def test_every_kind_of_limit_is_on_the_page():
    text = bars.report(PAGE.read_text())
    for each in bars.LIMITS:
        begin = each.what.partition("{")[0]
        assert f"| {begin}" in text
