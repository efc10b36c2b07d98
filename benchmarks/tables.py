"""What is measured: tasks, methods, and which belong together in a table."""

from dataclasses import dataclass
from typing import Any

from benchmarks import datasets
from benchmarks.datasets import Split
from bsdr_models.bsdr.priors import SPARSE

# Arguments of BSDRClassifier besides n_components and random_state.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "single fit": {"projection_prior": "columnwise", "latent_scale": 0.3},
    "mean field": {"preset": "paper"},
    "Gibbs": {"preset": "paper", "inference": "gibbs", "sampler": "joint"},
    "mean field, columnwise": {"preset": "paper", "projection_prior": "columnwise"},
    "Gibbs, columnwise": {
        "preset": "paper",
        "projection_prior": "columnwise",
        "inference": "gibbs",
        "sampler": "joint",
    },
    "ARD": {"projection_prior": "columnwise", "latent_scale": 0.1, "priors": SPARSE},
    "ARD, 160 iterations": {
        "projection_prior": "columnwise",
        "latent_scale": 0.1,
        "priors": SPARSE,
        "max_iter": 160,
    },
    "ARD, stacked": {"priors": SPARSE},
}
RIVALS = ("shrinkage LDA", "PLS-DA", "NCA")

# Of BM2PCAClassifier: its variants, one classifier for each class or one subspace for all.
MARGIN = ("paper, one-vs-rest", "paper, shared", "label-free, one-vs-rest", "label-free, shared")
MARGIN_RIVALS = ("linear SVM", "linear SVM in the metric", "PCA + SVM", "PLS + SVM")

# Of DGPLVMClassifier: its default, what the default is made of, and rivals.
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
    "linear SVM, C chosen",
    "linear SVM, C = 100",
    "LDA, Ledoit-Wolf",
    "BSDR",
    "BM2PCA",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a table.

    source
        Name of the set, or "noise".
    scheme
        "per class", "halves", "few rows", "first rows" or "noise": the function of
        :mod:`benchmarks.datasets`.
    sizes
        Its arguments between the name and the repeat.
    n_components
        R.
    """

    source: str
    scheme: str
    sizes: tuple[int, ...]
    n_components: int

    def split(self, repeat: int) -> Split:
        """Rows of one repeat."""
        if self.scheme == "noise":
            return datasets.noise(*self.sizes, repeat)
        if self.scheme == "halves":
            return datasets.halves(self.source, repeat)
        n_train, *n_test = self.sizes
        if self.scheme == "few rows":
            return datasets.few_rows(self.source, n_train, repeat)
        if self.scheme == "first rows":
            return datasets.first_rows(self.source, n_train, repeat)
        return datasets.per_class(self.source, n_train, repeat, *n_test)

    def __str__(self) -> str:
        per_class = "{0} per class"
        sizes = {"halves": "halves", "noise": "{0} x {1}", "first rows": "{0} rows"}
        size = sizes.get(self.scheme, per_class)
        return f"{self.source} {size.format(*self.sizes)}, R = {self.n_components}"


def _drawn(source: str, n_components: int, *sizes: int) -> Task:
    return Task(source=source, scheme="per class", sizes=sizes, n_components=n_components)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Tasks, and the methods that are run on them.

    tasks, methods
        Rows and columns.
    ours
        Methods whose differences from each of the others are told, split by split.
    measures
        Scores that have a table each, with a row for every method; none for the usual tables.
    """

    tasks: tuple[Task, ...]
    methods: tuple[str, ...]
    ours: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()


def _few(source: str, n_train: int) -> Task:
    return Task(source=source, scheme="few rows", sizes=(n_train,), n_components=10)


def _first(source: str, n_components: int, *sizes: int) -> tuple[Task, ...]:
    return tuple(
        Task(source=source, scheme="first rows", sizes=(n,), n_components=n_components)
        for n in sizes
    )


# Scores of a classifier, best first; "worst" is the error of the worst split.
MEASURES = ("error", "log_loss", "brier", "worst")

TABLES = {
    "few-samples": Table(
        tasks=(
            *(_drawn("wine", r, 10) for r in (1, 2)),
            *(_drawn("iris", r, 10) for r in (1, 2)),
            *(_drawn("breast cancer", r, 20) for r in (1, 2)),
            _drawn("digits", 2, 10),
        ),
        methods=("default", *RIVALS),
    ),
    "noise": Table(
        tasks=tuple(
            Task(source="noise", scheme="noise", sizes=sizes, n_components=2)
            for sizes in ((60, 200, 3), (30, 13, 3))
        ),
        methods=("default", *RIVALS),
    ),
    "real": Table(
        tasks=(
            _drawn("vowel", 2, 100),
            _drawn("mfeat", 2, 100),
            _drawn("digits", 2, 100),
            _drawn("usps", 2, 100, 100),
        ),
        methods=("default", "single fit", "LDA", "shrinkage LDA", "NCA", "PCA"),
    ),
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
            "default",
            "full LDA",
        ),
    ),
    "ard": Table(
        tasks=(_drawn("vowel", 8, 100),),
        methods=("ARD", "ARD, 160 iterations", "ARD, stacked", "default"),
    ),
    "bm2pca": Table(
        tasks=(
            _few("ORL", 2),
            _few("Yale", 3),
            _few("Yale B", 5),
            _few("11_Tumors", 3),
            _few("20 News", 5),
        ),
        methods=(*MARGIN, *MARGIN_RIVALS),
        ours=MARGIN,
    ),
    "bm2pca-others": Table(
        tasks=(_few("Yale 32x32", 3), _few("9_Tumors", 3), _few("mfeat", 5), _few("USPS", 5)),
        methods=(*MARGIN, *MARGIN_RIVALS),
        ours=MARGIN,
    ),
    "bm2pca-common": Table(
        tasks=(
            Task(source="wine", scheme="halves", sizes=(), n_components=2),
            Task(source="iris", scheme="halves", sizes=(), n_components=2),
            Task(source="breast cancer", scheme="halves", sizes=(), n_components=1),
            _drawn("digits", 9, 100),
        ),
        methods=(*MARGIN, "linear SVM", "default", "shrinkage LDA"),
        ours=MARGIN,
    ),
    "dgplvm": Table(
        tasks=_first("USPS 3 v 5", 1, 10, 20, 30, 50, 100),
        methods=(*DGPLVM, *DGPLVM_RIVALS),
        measures=MEASURES,
    ),
    "dgplvm-three-classes": Table(
        tasks=(
            *_first("oil", 2, 20, 50, 100),
            *_first("oil, unit variance", 2, 20, 50, 100),
            *_first("wine", 2, 20, 50, 100),
        ),
        methods=(*DGPLVM, *DGPLVM_RIVALS),
        measures=MEASURES,
    ),
    "dgplvm-others": Table(
        tasks=(
            Task(source="noise", scheme="noise", sizes=(60, 200, 3), n_components=2),
            *(_drawn("digits", r, n) for n in (10, 20) for r in (2, 9)),
        ),
        methods=("D-GPLVM", "D-GPLVM, infinite weight", "linear SVM, C chosen", "LDA, Ledoit-Wolf"),
        measures=MEASURES,
    ),
}
