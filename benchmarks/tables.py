"""Tasks and methods of each table."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks import datasets
from benchmarks.methods import METHODS, bm2pca, dgplvm
from benchmarks.protocols import PROTOCOLS, Split

RIVALS = ("shrinkage LDA", "PLS-DA", "NCA")
PROJECTIONS = ("PCA", "factor analysis", "LDA", "shrinkage LDA", "PLS-DA", "NCA")
EXTRA_PROJECTIONS = ("LFDA", "LMNN", "supervised UMAP")

MARGIN = ("paper, one-vs-rest", "paper, shared", "label-free, one-vs-rest", "label-free, shared")
MARGIN_RIVALS = (
    "linear SVM",
    "linear SVM in the metric",
    "PCA + SVM",
    "PLS + SVM",
    "LDA + SVM",
    "full logistic",
)
DGPLVM = (
    "D-GPLVM",
    "D-GPLVM, weight 3",
    "D-GPLVM, infinite weight",
    "D-GPLVM, by likelihood",
    "D-GPLVM, Laplace",
    "D-GPLVM, EP",
    "D-GPLVM, paper",
)
DGPLVM_RIVALS = (
    "GPC",
    "GPC, fixed kernel",
    "LDA + GPC",
    "LDA + SVM",
    "linear SVM, C chosen",
    "linear SVM, C = 100",
    "LDA, Ledoit-Wolf",
    "BSDR",
    "BM2PCA",
)
DRAWN = ("D-GPLVM", "D-GPLVM, paper", "GPC", "GPC, fixed kernel", "LDA + GPC")
DRAWN += ("linear SVM, C chosen", "BM2PCA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a table.

    source
        Name of the set, or "noise".
    scheme
        Name of the protocol.
    sizes
        Arguments of the protocol besides the name and the split.
    n_components
        R; 0 for methods that see all features.
    """

    source: str
    scheme: str
    sizes: tuple[int, ...]
    n_components: int

    def split(self, repeat: int) -> Split:
        """Samples of one split."""
        return PROTOCOLS[self.scheme](self.source, self.sizes, repeat)

    def asked_of(self, method: str) -> "Task":
        """The task for a method: without a projection one fit serves all R."""
        return replace(self, n_components=0) if METHODS[method].full else self

    @property
    def why_not(self) -> str:
        """Why it cannot be run; empty if it can."""
        return datasets.why_not(self.source)

    def __str__(self) -> str:
        sizes = {"halves": "halves", "noise": "{0} x {1}", "first rows": "{0} rows"}
        size = sizes.get(self.scheme, "{0} per class").format(*self.sizes)
        return f"{self.source} {size}, R = {self.n_components}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Tasks, and the methods that are run on them.

    tasks, methods
        Rows and columns.
    ours
        Methods whose paired differences from each of the others are reported.
    measures
        Scores that have a table each, with a row for every method; none for the usual tables.
    curve
        The x-axis of a plot: components, training samples (per class), or an argument
        of the methods. No plot if empty.
    score
        The y-axis.
    drawn
        Methods in the plot; all if empty.
    dots
        Score of a plot of all tasks and methods; none if empty.
    ranks
        Score by which methods are ranked on every task; no plot of ranks if empty.
    seeds
        First, and one past the last.
    """

    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    ours: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    curve: Literal["", "n_components", "rows", "C", "weight"] = ""
    score: str = "accuracy"
    drawn: tuple[str, ...] = ()
    dots: str = ""
    ranks: str = ""
    seeds: tuple[int, int] = (0, 10)

    @property
    def bundled(self) -> bool:
        """Whether it needs no archive."""
        sets = (datasets.SETS.get(task.source) for task in self.tasks)
        return all(found is None or found.bundled is not None for found in sets)


def _drawn(source: str, n_components: int, *sizes: int) -> Task:
    return Task(source=source, scheme="per class", sizes=sizes, n_components=n_components)


def _few(source: str, n_train: int, n_components: int = 10) -> Task:
    return Task(source=source, scheme="few rows", sizes=(n_train,), n_components=n_components)


def _halves(source: str, n_components: int) -> Task:
    return Task(source=source, scheme="halves", sizes=(), n_components=n_components)


def _first(source: str, n_components: int, *sizes: int) -> tuple[Task, ...]:
    return tuple(
        Task(source=source, scheme="first rows", sizes=(n,), n_components=n_components)
        for n in sizes
    )


def _read_by(readout: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name} + {readout}" for name in names)


# Sets of the classification experiments of Gönen (2013): 100 training samples per class.
_THREE_SETS = tuple(
    _drawn(source, r, *sizes)
    for source, sizes in (("vowel", (100,)), ("mfeat", (100,)), ("usps", (100, 100)))
    for r in range(1, 11)
)
_NOISE = Task(source="noise", scheme="noise", sizes=(60, 200, 3), n_components=2)
# Scores of a classifier, best first; "worst" is the error of the worst split.
MEASURES = ("error", "log_loss", "brier", "worst")
_DIGITS = _first("USPS 3 v 5", 1, 10, 20, 30, 40, 50, 100)

TABLES = {
    "few-samples": Table(
        tasks=(
            *(_drawn("wine", r, 10) for r in (1, 2)),
            *(_drawn("iris", r, 10) for r in (1, 2)),
            *(_drawn("breast cancer", r, 20) for r in (1, 2)),
            _drawn("digits", 2, 10),
        ),
        methods=("default", *RIVALS, *EXTRA_PROJECTIONS, "full logistic"),
        ours=("default",),
        dots="log_loss",
    ),
    "noise": Table(
        tasks=(
            _NOISE,
            Task(source="noise", scheme="noise", sizes=(30, 13, 3), n_components=2),
        ),
        methods=("default", *RIVALS, *EXTRA_PROJECTIONS, "full logistic"),
    ),
    "many-sets": Table(
        tasks=(
            *(_drawn(source, 2, 10) for source in ("wine", "iris", "oil")),
            _drawn("breast cancer", 1, 10),
            *(_drawn(source, 5, 10, 50) for source in ("digits", "vowel", "mfeat", "usps")),
            *(_drawn(source, 5, 4, 10) for source in ("ORL", "Yale 32x32", "Yale B")),
        ),
        methods=(
            "default",
            "mean field",
            "label-free, shared",
            "D-GPLVM",
            *PROJECTIONS,
            "kernel PCA",
            "MNP",
            "full logistic",
            "linear SVM",
            "LDA, Ledoit-Wolf",
            "GPC",
        ),
        ours=("default", "label-free, shared", "D-GPLVM"),
        ranks="log_loss",
    ),
    # Gönen (2013)
    "engines": Table(
        tasks=tuple(_halves(source, 2) for source in ("iris", "wine")),
        methods=(
            "mean field",
            "Gibbs",
            "mean field, columnwise",
            "Gibbs, columnwise",
            "default",
            "full LDA",
        ),
    ),
    "real": Table(
        tasks=(
            _drawn("vowel", 2, 100),
            _drawn("mfeat", 2, 100),
            _drawn("digits", 2, 100),
            _drawn("usps", 2, 100, 100),
        ),
        methods=("default", "single fit", *PROJECTIONS),
        ours=("default",),
        dots="accuracy",
    ),
    "bsdr-probit": Table(
        tasks=_THREE_SETS,
        methods=("default", "mean field", *_read_by("probit", PROJECTIONS), "MNP"),
        ours=("default", "mean field"),
        curve="n_components",
    ),
    "bsdr-neighbours": Table(
        tasks=_THREE_SETS,
        methods=(
            *_read_by("k-NN", ("default", "mean field", *PROJECTIONS, *EXTRA_PROJECTIONS)),
            "full k-NN",
        ),
        ours=_read_by("k-NN", ("default", "mean field")),
        curve="n_components",
    ),
    "ard": Table(
        tasks=(_drawn("vowel", 8, 100),),
        methods=("ARD", "ARD, 160 iterations", "default", "mean field"),
    ),
    "sample-size": Table(
        tasks=(_drawn("vowel", 8, 10), _drawn("vowel", 8, 100)),
        methods=("default", "mean field", "MNP", "full logistic"),
        ours=("default", "mean field"),
    ),
    "retrieval": Table(
        tasks=(
            *(_drawn("usps", r, 100, 100) for r in (5, 10)),
            _few("ORL", 2, 5),
            _few("ORL", 2, 10),
            *(_drawn("Flickr", r, 100) for r in (5, 10)),
        ),
        methods=("default", "mean field", "label-free, shared", *PROJECTIONS, "full k-NN"),
        measures=("map", "accuracy"),
    ),
    # Du et al. (2015)
    "bm2pca": Table(
        tasks=(
            _few("ORL", 2),
            _few("14_Tumors", 2),
            _few("20 News", 5),
            _few("Yale", 3),
            _few("Yale B", 5),
            _few("11_Tumors", 3),
            _few("TRECVID2003", 3),
        ),
        methods=(*MARGIN, *MARGIN_RIVALS),
        ours=MARGIN,
        seeds=(0, 20),
    ),
    "bm2pca-others": Table(
        tasks=(_few("Yale 32x32", 3), _few("9_Tumors", 3), _few("mfeat", 5), _few("USPS", 5)),
        methods=(*MARGIN, *MARGIN_RIVALS),
        ours=MARGIN,
    ),
    "bm2pca-common": Table(
        tasks=(
            _halves("wine", 2),
            _halves("iris", 2),
            _halves("breast cancer", 1),
            _drawn("digits", 9, 100),
        ),
        methods=(*MARGIN, "linear SVM", "default", "shrinkage LDA"),
        ours=MARGIN,
    ),
    "bm2pca-rows": Table(
        tasks=tuple(_few("Yale", n, r) for r in (10, 20, 30) for n in (2, 3, 4, 5, 6, 7, 8)),
        methods=("paper, one-vs-rest, C = 10", "label-free, one-vs-rest", "PCA + SVM"),
        curve="rows",
        seeds=(0, 20),
    ),
    "bm2pca-cost": Table(
        tasks=tuple(
            _few(source, n, r) for source, n in (("ORL", 2), ("Yale B", 5)) for r in (10, 20)
        ),
        methods=tuple(f"paper, one-vs-rest, C = {cost:g}" for cost in bm2pca.COSTS),
        curve="C",
        seeds=(0, 20),
    ),
    # Urtasun and Darrell (2007)
    "dgplvm": Table(
        tasks=_DIGITS,
        methods=(*DGPLVM, *DGPLVM_RIVALS),
        ours=("D-GPLVM",),
        measures=MEASURES,
        curve="rows",
        score="error",
        drawn=DRAWN,
    ),
    "dgplvm-three-classes": Table(
        tasks=(
            *_first("oil", 2, 20, 50, 100),
            *_first("oil, unit variance", 2, 20, 50, 100),
            *_first("wine", 2, 20, 50, 100),
        ),
        methods=(*DGPLVM, *DGPLVM_RIVALS),
        ours=("D-GPLVM",),
        measures=MEASURES,
        curve="rows",
        score="error",
        drawn=DRAWN,
    ),
    "dgplvm-weight": Table(
        tasks=(*_first("oil", 2, 100), *_first("USPS 3 v 5", 1, 100)),
        methods=tuple(f"D-GPLVM, paper, weight {weight:g}" for weight in dgplvm.PAPER_WEIGHTS),
        measures=("error", "log_loss"),
        curve="weight",
        score="error",
    ),
    "dgplvm-others": Table(
        tasks=(_NOISE, *(_drawn("digits", r, n) for n in (10, 20) for r in (2, 9))),
        methods=("D-GPLVM", "D-GPLVM, infinite weight", "linear SVM, C chosen", "LDA, Ledoit-Wolf"),
        measures=MEASURES,
    ),
}
