"""Tasks and methods of each table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks import datasets
from benchmarks.methods import METHODS, margins, models
from benchmarks.protocols import PROTOCOLS, Split
from benchmarks.simulated import DESIGNS

OURS = ("BSDR", "BM2PCA", "D-GPLVM")
STACK = "stack"
# Methods of R dimensions, and classifiers of all features; their settings are cross-validated.
PROJECTIONS = (
    "PCA",
    "PLS-DA",
    "shrinkage LDA",
    "sparse LDA",
    "kernel LDA",
    "LFDA",
    "NCA",
    "LMNN",
    "supervised UMAP",
)
CLASSIFIERS = (
    "logistic regression",
    "LDA, all components",
    "PLS-DA, number chosen",
    "nearest shrunken centroids",
    "naive Bayes",
    "random forest",
    "extra trees",
    "gradient boosting",
    "RBF support vectors",
    "linear SVM",
)
MARGIN = (
    "paper, one-vs-rest",
    "paper, one-vs-rest, C = 10, 100 sweeps",
    "paper, shared",
    "BM2PCA",
)
MARGIN_RIVALS = ("linear SVM", "PCA + SVM", "PLS + SVM", "LDA + SVM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A set (or "noise"), a protocol with its sizes, and R.

    R is 0 for methods of all features, and for the models' own defaults.
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
        sizes = {
            "halves": "halves",
            "noise": "{0} x {1}",
            "first samples": "{0} samples",
            "groups given": "{0} groups of {1}",
            "groups unknown": "{0} groups of {1}, unknown",
        }
        size = sizes.get(self.scheme, "{0} per class").format(*self.sizes)
        return f"{self.source} {size}, R = {self.n_components}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Tasks as columns, methods as rows, the score that is shown, and seeds (first, past the last).

    Methods of `defaults` have their own number of components, whatever that of the tasks.
    A `ranked` one has the mean rank over its tasks, best first. With a `curve` there is a plot over
    it in place of a table. `published` are lines of the paper's own table, by name: cells separated
    by commas. The `page` is a path in ``docs``.
    """

    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    defaults: tuple[str, ...] = ()
    published: Mapping[str, str] = field(default_factory=dict)
    score: str = "accuracy"
    ranked: bool = False
    curve: Literal["", "n_components", "samples", "C", "weight"] = ""
    seeds: tuple[int, int] = (300, 305)
    page: str = "benchmarks/papers"

    def pairs(self) -> list[tuple[Task, str]]:
        """Tasks and methods of which there are fits, each once."""
        found = {(task.asked_of(m), m): None for task in self.tasks for m in self.methods}
        own = [replace(task, n_components=0) for task in self.tasks]
        return list(found | {(task, m): None for task in own for m in self.defaults})


def _drawn(source: str, n_components: int, *sizes: int) -> Task:
    return Task(source=source, scheme="per class", sizes=sizes, n_components=n_components)


def _few(source: str, n_train: int, n_components: int = 10) -> Task:
    return Task(source=source, scheme="few samples", sizes=(n_train,), n_components=n_components)


def _first(source: str, n_components: int, *sizes: int) -> tuple[Task, ...]:
    return tuple(
        Task(source=source, scheme="first samples", sizes=(n,), n_components=n_components)
        for n in sizes
    )


def _read_by(readout: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name} + {readout}" for name in names)


# Sets of the comparison, and samples per class: for training, and for the test if not all others.
SETS: dict[str, tuple[int, ...]] = {
    "wine": (10,),
    "iris": (10,),
    "breast cancer": (20,),
    "oil": (10,),
    "digits": (10,),
    "vowel": (10,),
    "mfeat": (10,),
    "usps": (10, 100),
    "ORL": (5,),
    "Yale 32x32": (5,),
    "Yale B": (5,),
    "11_Tumors": (5,),
}
# Sets of the classification experiments of Gönen (2013): 100 training samples per class.
_THREE_SETS = tuple(
    _drawn(source, r, *sizes)
    for source, sizes in (("vowel", (100,)), ("mfeat", (100,)), ("usps", (100, 100)))
    for r in (1, 2, 3, 5, 8)
)
_PROCESSES = ("D-GPLVM", "D-GPLVM, paper", "GPC", "LDA + GPC", "linear SVM", "LDA + SVM")
_LINEAR = ("PCA", "factor analysis", "PLS-DA", "LDA", "NCA")

TABLES = {
    "people": Table(
        tasks=tuple(_drawn(source, r, *sizes) for r in (2, 5) for source, sizes in SETS.items()),
        methods=("BM2PCA", "D-GPLVM", *PROJECTIONS, *CLASSIFIERS, STACK),
        defaults=OURS,
        score="log_loss",
    ),
    "designs": Table(
        tasks=tuple(
            Task(source=name, scheme="design", sizes=(10, 300), n_components=3) for name in DESIGNS
        ),
        methods=(STACK, *PROJECTIONS, *CLASSIFIERS),
        defaults=OURS,
        score="log_loss",
        ranked=True,
        page="benchmarks",
    ),
    "groups": Table(
        tasks=tuple(
            Task(source=source, scheme=scheme, sizes=sizes, n_components=0)
            for source, sizes in (("repeated measures", (24, 5)), ("studies", (6, 10)))
            for scheme in ("groups given", "groups unknown")
        ),
        methods=(*OURS, STACK, *CLASSIFIERS),
        score="log_loss",
        ranked=True,
        page="benchmarks",
    ),
    "views": Table(
        tasks=(_drawn("mfeat", 0, 10),),
        methods=("BSDR, views", "BSDR", "BM2PCA"),
        score="log_loss",
        seeds=(300, 310),
        page="how_to/kernels_and_views",
    ),
    # Gönen (2013)
    "engines": Table(
        tasks=tuple(
            Task(source=source, scheme="halves", sizes=(), n_components=2)
            for source in ("iris", "wine")
        ),
        methods=(
            "mean field",
            "Gibbs",
            "mean field, columnwise",
            "Gibbs, columnwise",
            "BSDR",
            "full LDA",
        ),
    ),
    "bsdr-probit": Table(
        tasks=_THREE_SETS,
        methods=("mean field", *_read_by("probit", _LINEAR), "MNP"),
        curve="n_components",
        seeds=(300, 301),
    ),
    "bsdr-neighbours": Table(
        tasks=_THREE_SETS,
        methods=(*_read_by("k-NN", ("mean field", *_LINEAR)), "full k-NN"),
        curve="n_components",
        seeds=(300, 301),
    ),
    "ard": Table(
        tasks=(_drawn("vowel", 8, 100),),
        methods=("ARD", "ARD, 160 iterations", "mean field", "BSDR"),
    ),
    "sample-size": Table(
        tasks=(_drawn("vowel", 8, 10), _drawn("vowel", 8, 100)),
        methods=("mean field", "BSDR", "MNP"),
    ),
    "retrieval": Table(
        tasks=(
            *(_few("ORL", 2, r) for r in (5, 10, 30)),
            *(_drawn("usps", r, 100, 100) for r in (5, 9)),
        ),
        methods=("mean field", "BSDR", "BM2PCA", "PCA + k-NN", "PLS-DA + k-NN", "full k-NN"),
        score="map",
    ),
    # Du et al. (2015)
    "bm2pca": Table(
        tasks=(
            _few("ORL", 2),
            _few("20 News", 5),
            _few("Yale", 3),
            _few("Yale B", 5),
            _few("11_Tumors", 3),
        ),
        methods=(*MARGIN, *MARGIN_RIVALS),
        published={
            "BM2PCA": "73.7 ± 3.8, 35.3 ± 3.0, 65.7 ± 3.5, 43.8 ± 4.8, 77.1 ± 4.9",
            "SVM": "41.7 ± 8.7, 45.3 ± 1.4, 74.2 ± 3.1, 62.3 ± 6.8, 83.8 ± 3.7",
            "PCA + SVM": "54.4 ± 2.9, 38.8 ± 2.5, 55.8 ± 4.2, 12.9 ± 5.3, 67.6 ± 6.3",
            "LDA + SVM": "19.1 ± 2.5, 31.1 ± 2.6, 37.1 ± 7.1, 15.7 ± 1.8, 28.6 ± 5.2",
        },
    ),
    "bm2pca-samples": Table(
        tasks=tuple(_few("Yale", n, r) for r in (10, 30) for n in (2, 3, 4, 5, 6, 7, 8)),
        methods=("paper, one-vs-rest, C = 10", "PCA + SVM"),
        curve="samples",
    ),
    "bm2pca-cost": Table(
        tasks=tuple(
            _few(source, n, r) for source, n in (("ORL", 2), ("Yale B", 5)) for r in (10, 20)
        ),
        methods=tuple(f"paper, one-vs-rest, C = {cost:g}" for cost in margins.COSTS),
        curve="C",
    ),
    # Urtasun and Darrell (2007)
    "dgplvm": Table(
        tasks=_first("USPS 3 v 5", 1, 10, 20, 30, 40, 50, 100),
        methods=_PROCESSES,
        score="error",
        published={
            "D-GPLVM": "0.16, 0.11, 0.08, 0.072, 0.065, 0.045",
            "GPC": "0.46, 0.48, 0.43, 0.48, 0.48, 0.49",
            "LDA + GPC": "0.16, 0.13, 0.13, 0.10, 0.084, 0.071",
            "SVM": "0.49, 0.47, 0.48, 0.48, 0.48, 0.49",
            "LDA + SVM": "0.39, 0.31, 0.27, 0.22, 0.16, 0.099",
        },
    ),
    "dgplvm-oil": Table(
        tasks=(*_first("oil", 2, 20, 50, 100), *_first("wine", 2, 20, 50, 100)),
        methods=_PROCESSES,
        score="error",
        curve="samples",
    ),
    "dgplvm-weight": Table(
        tasks=(*_first("oil", 2, 100), *_first("USPS 3 v 5", 1, 100)),
        methods=tuple(f"D-GPLVM, paper, weight {weight:g}" for weight in models.WEIGHTS),
        curve="weight",
        score="error",
    ),
}
