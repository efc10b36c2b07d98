"""All limits on times and memory in one table, read from the tables of the page."""

from dataclasses import dataclass

from benchmarks.evidence.page import table as as_markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Lines of one table that have a limit.

    part, number
        Which table of which part, from 0.
    what
        Description of a line, by names of columns.
    value
        Column that is compared with the limit.
    most
        Column of the limit.
    kind
        Unit of the limit, if lines of one table have several.
    time, floor
        Columns in ms; "" for none.
    """

    part: str
    what: str
    value: str
    number: int = 0
    most: str = "aim"
    kind: str = ""
    time: str = ""
    floor: str = ""


SWEEP = {"time": "sweep ms", "value": "sweep / floor", "floor": "floor ms"}
LIMITS = (
    Bars(part="sweeps", what="BSDR, a sweep, N, D, K, R = {N, D, K, R}, {prior}", **SWEEP),
    Bars(part="footprint", what="BSDR, fit: {fit}, s", value="wall s", most="limit", kind="s"),
    Bars(
        part="footprint",
        what="BSDR, fit: {fit}, MiB",
        value="MiB above the data",
        most="limit, MiB",
    ),
    Bars(
        part="bm2pca_sweeps",
        what="BM2PCA, a sweep, N, D, R, K, problems = {N, D, R, K, problems}",
        time="sweep ms",
        floor="products ms",
        value="sweep / products",
        kind="products",
    ),
    Bars(
        part="bm2pca_sweeps",
        what="BM2PCA, a sweep, N, D, R, K, problems = {N, D, R, K, problems}, ms",
        value="sweep ms",
        kind="ms",
        floor="products ms",
    ),
    Bars(
        part="gp_likelihood",
        what="D-GPLVM, density and gradient, N = {N}",
        time="ms",
        floor="floor ms",
        value="ratio",
    ),
    Bars(
        part="gp_likelihood",
        number=1,
        what="D-GPLVM, the same with inducing positions, N = {N}, ms",
        value="ms",
        floor="floor ms",
        most="aim, ms",
    ),
    Bars(
        part="gp_fits",
        what="D-GPLVM, the whole objective, N = {N}",
        time="ms",
        floor="floor ms",
        value="ratio",
    ),
    Bars(
        part="gp_fits",
        number=1,
        what="D-GPLVM, 1000 new rows placed by {placed by}, ms",
        value="1000 new rows, ms",
        most="aim, ms",
    ),
)
HEAD = ["what", "ms", "floor ms", "measured", "at most", "holds"]


def report(page: str) -> str:
    """Markdown table of every limit on a page, and whether it holds.

    Raises
    ------
    ValueError
        If a table or a column is not there.
    """
    lines = [line for bars in LIMITS for line in _lines(page, bars)]
    missed = sum(line[-1] == "**no**" for line in lines)
    return (
        "### All limits\n\n"
        "Set before the code was written, read from the tables below: ratios to the floor beside "
        "them, or seconds, milliseconds and MiB as such. "
        f"{len(lines) - missed} of {len(lines)} hold.\n\n" + as_markdown(HEAD, lines)
    )


def _lines(page: str, bars: Bars) -> list[list[str]]:
    found = []
    for row in _tables(page, bars.part)[bars.number]:
        if missing := {bars.value, bars.most} - row.keys():
            raise ValueError(f"the table of {bars.part} has no column {', '.join(missing)}")
        limit = row[bars.most].removesuffix("**missed**").split()
        if limit == ["-"] or limit[1:] != bars.kind.split():
            continue
        value, most = float(row[bars.value]), float(limit[0])
        what = bars.what
        for name, cell in row.items():
            what = what.replace(f"{{{name}}}", cell)
        times = [row[name] if name else "-" for name in (bars.time, bars.floor)]
        holds = "yes" if value <= most else "**no**"
        found.append([what, *times, row[bars.value], f"{most:g}", holds])
    return found


def _tables(page: str, part: str) -> list[list[dict[str, str]]]:
    """Tables of a part, each line by the names of the columns."""
    text = page.partition(f"<!-- {part}: begin -->")[2].partition(f"<!-- {part}: end -->")[0]
    blocks: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            blocks[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif blocks[-1]:
            blocks.append([])
    return [
        [dict(zip(block[0], row, strict=True)) for row in block[2:]] for block in blocks if block
    ]
