"""BM2PCA by blocks of rows: the numbers of the fit in memory, however the rows are cut."""

import pickle
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from bsdr_models.bm2pca import block_arrays, blocks, mean_field, paper
from bsdr_models.bm2pca.block_problem import Targets, prepare
from bsdr_models.bm2pca.fit import fit_blocks, fit_mean_field
from bsdr_models.bm2pca.generative import Generative
from bsdr_models.bm2pca.mean_field import at_positions
from bsdr_models.bm2pca.predict import MarginPosterior
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.checkpoint import Checkpoint
from bsdr_models.inference.row_blocks import Block, InProcess, Unread
from bsdr_models.numerics.scaling import Scaler

N, D, K, R, COST = 63, 7, 4, 3, 2.0
CUTS = {
    "1 block": (N,),
    "3 blocks": (20, 30, 13),
    "7 blocks": (1, 17, 4, 9, 20, 2, 10),
}
# Two outcomes are in one column; "free" rows have no label, among them one whole block.
CASES = {
    "binary": {"outcomes": 1},
    "one-vs-rest": {"strategy": "one_vs_rest"},
    "shared": {},
    "free": {"free": True, "pool": False},
    "free one-vs-rest": {"free": True, "pool": False, "strategy": "one_vs_rest"},
    "pooled": {"free": True, "pool": True},
    "pooled one-vs-rest": {"free": True, "pool": True, "strategy": "one_vs_rest"},
    "tube": {"outcomes": 1, "epsilon": 0.3},
    "tube shared": {"epsilon": 0.3, "free": True, "pool": False},
    "sparse": {"sparse": True},
    "sparse pooled": {"sparse": True, "free": True, "pool": True, "strategy": "one_vs_rest"},
    "wide": {"features": 80},
}
every_case = pytest.mark.parametrize("case", CASES)
every_cut = pytest.mark.parametrize("cut", CUTS)


@dataclass(frozen=True, kw_only=True)
class Given:
    """Rows and targets, and the same as the fit in memory holds them: labelled rows first."""

    X: np.ndarray
    Y: np.ndarray
    targets: Targets
    pool: bool
    data: mean_field.Data
    order: np.ndarray

    def cut(self, name):
        ends = np.cumsum(CUTS[name])
        begins = ends - CUTS[name]
        return InProcess(
            [
                Block(X=self.X[b:e], y=self.Y[b:e], begin=int(b))
                for b, e in zip(begins, ends, strict=True)
            ]
        )

    def problem(self, row_blocks, **options):
        return prepare(row_blocks, self.targets, pool=self.pool, **options)

    def positions(self, seed=1):
        """Starting positions in the order of X, and of the rows held in memory."""
        p, n, _ = self.data.margins.y.shape
        mean = np.random.default_rng(seed).standard_normal((p, N, R))
        return mean, np.ascontiguousarray(mean[:, self.order[:n]])


def given(case, *, in_span=False):
    """A toy; rows that are wide stay so in memory unless they are to be held ``in_span``."""
    spec = {"outcomes": K, "strategy": "shared", "epsilon": None, "free": False} | CASES[case]
    rng = np.random.default_rng(11)
    d, k, pool = spec.get("features", D), spec["outcomes"], spec.get("pool", False)
    X = rng.standard_normal((N, 2)) @ rng.standard_normal((2, d)) + rng.standard_normal((N, d))
    X[:, 0] += 2.0
    Y = X[:, :k] + 0.5 * rng.standard_normal((N, k))
    unlabelled = rng.random(N) < 0.4 if spec["free"] else np.zeros(N, bool)
    if spec["free"]:
        unlabelled[18:22] = True
    if spec["epsilon"] is None:
        Y = np.where(Y > 0.5, 1.0, -1.0)
    Y[unlabelled] = 0.0 if spec["epsilon"] is None else np.nan
    if spec.get("sparse"):
        X = csr_array(X * (rng.random(X.shape) < 0.5))
    task = Task(
        X=X,
        Y=Y,
        epsilon=spec["epsilon"],
        n_components=R,
        strategy=spec["strategy"],
        start="label",
        priors=PAPER,
    )
    data = paper.make_data(task, [COST], pool=pool)
    if d > N and not in_span:
        whole = replace(data.views[0], X=X, basis=None, total=X.sum(axis=0))
        data = replace(data, views=(whole,))
    return Given(
        X=X,
        Y=Y,
        targets=Targets(strategy=spec["strategy"], cost=COST, epsilon=spec["epsilon"]),
        pool=pool,
        data=data,
        order=np.concatenate([np.flatnonzero(~unlabelled), np.flatnonzero(unlabelled)]),
    )


def numbers(value, skip=()):
    """Every array within a state, by where it is found."""
    if is_dataclass(value):
        return {
            f"{f.name}.{name}": array
            for f in fields(value)
            if f.name not in skip
            for name, array in numbers(getattr(value, f.name)).items()
        }
    if isinstance(value, tuple):
        return {
            f"{i}.{name}": array
            for i, each in enumerate(value)
            for name, array in numbers(each).items()
        }
    return {} if value is None else {"": np.asarray(value)}


def check_same(shared, state, *, rtol=1e-9):
    """All that belongs to no row; entries to ``rtol`` of the largest of their array."""
    pairs = [(shared, state, ("latent", "slack"))]
    pairs += [(shared.latent, state.latent, ("mean", "cov"))]
    for one, other, skip in pairs:
        found, expected = numbers(one, skip), numbers(other, skip)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            size = np.abs(array).max(initial=1e-300)
            np.testing.assert_allclose(found[name], array, rtol=0, atol=rtol * size, err_msg=name)


def check_same_terms(found, expected, *, rel=1e-9):
    size = max(abs(value) for value in expected.terms.values())
    assert found.elbo == pytest.approx(expected.elbo, rel=rel)
    assert dict(found.terms) == pytest.approx(dict(expected.terms), rel=rel, abs=rel * 1e-3 * size)


@every_case
@every_cut
def test_ten_sweeps_are_those_in_memory(case, cut):
    toy = given(case)
    row_blocks = toy.cut(cut)
    problem = toy.problem(row_blocks)
    everywhere, mean = toy.positions()
    state = at_positions(mean, toy.data)
    found = blocks.init(row_blocks, problem, n_components=R, seed=0, start=everywhere)
    check_same(found.shared, state, rtol=1e-12)
    for _ in range(10):
        state, expected = mean_field.step(state, toy.data, PAPER)
        found, info = blocks.step(found, row_blocks, problem, PAPER)
        check_same_terms(info, expected)
    check_same(found.shared, state)


def test_wide_rows_reach_the_bound_of_their_own_span():
    toy = given("wide", in_span=True)
    assert toy.data.views[0].basis is not None
    row_blocks = toy.cut("3 blocks")
    problem = toy.problem(row_blocks)
    everywhere, mean = toy.positions()
    state = at_positions(mean, toy.data)
    found = blocks.init(row_blocks, problem, n_components=R, seed=0, start=everywhere)
    for _ in range(5):
        state, expected = mean_field.step(state, toy.data, PAPER)
        found, info = blocks.step(found, row_blocks, problem, PAPER)
    assert info.elbo == pytest.approx(expected.elbo, rel=1e-9)


@every_cut
@pytest.mark.parametrize("sparse", [False, True])
def test_scaled_rows_are_seen_as_memory_scales_them(cut, sparse):
    toy = given("one-vs-rest")
    X = np.where(np.abs(toy.X) < 0.4, 0.0, 3.0 * toy.X)
    scaler = Scaler.fit(X)
    toy = replace(toy, X=csr_array(X) if sparse else X.astype(np.float32))
    scaled = scaler.transform(X if sparse else toy.X.astype(np.float64))
    whole = replace(given("one-vs-rest"), X=scaled)
    expected = whole.cut("1 block")
    row_blocks = toy.cut(cut)
    options = {"n_components": R, "seed": 3, "start": "pca"}
    one = blocks.init(expected, whole.problem(expected), **options)
    problem = toy.problem(row_blocks, scaler=scaler)
    other = blocks.init(row_blocks, problem, **options)
    for _ in range(5):
        one, there = blocks.step(one, expected, whole.problem(expected), PAPER)
        other, here = blocks.step(other, row_blocks, problem, PAPER)
    check_same_terms(here, there)


@every_case
@pytest.mark.parametrize("cut", ["3 blocks", "7 blocks"])
def test_a_fit_climbs_as_it_does_in_memory(case, cut, monkeypatch):
    """Rotations and extrapolations among the sweeps: the same bound after every one."""
    toy = given(case)
    row_blocks = toy.cut(cut)
    everywhere, mean = toy.positions()
    options = {"n_components": R, "rng": np.random.default_rng(0), "max_iter": 40, "tol": 0.0}
    problem = toy.problem(row_blocks)
    found = fit_blocks(row_blocks, problem, PAPER, start=everywhere, **options)
    monkeypatch.setattr(mean_field, "init", lambda data, *_, **__: at_positions(mean, data))
    expected = fit_mean_field(toy.data, PAPER, **options)
    np.testing.assert_allclose(found.elbo, expected.elbo, rtol=1e-7)
    check_same(found.state.shared, expected.state, rtol=1e-4)
    new = np.random.default_rng(5).standard_normal((9, toy.X.shape[1]))
    scores = blocks.posterior(found.state, problem).score_means(new)
    there = MarginPosterior(
        generative=Generative.of(expected.state.views, toy.data.views, (None,)),
        weights=expected.state.weights,
    )
    np.testing.assert_allclose(scores, there.score_means(new), rtol=1e-4, atol=1e-4)


def test_an_extrapolated_state_is_that_in_memory():
    """Positions, sums and slacks, far along a direction; X'Z without a reading of X."""
    toy = given("pooled")
    row_blocks = toy.cut("3 blocks")
    problem = toy.problem(row_blocks)
    everywhere, mean = toy.positions()
    state = at_positions(mean, toy.data)
    found = blocks.init(row_blocks, problem, n_components=R, seed=0, start=everywhere)
    how = blocks.extrapolation(row_blocks, problem)
    vectors, points = [], []
    for _ in range(2):
        state, _ = mean_field.step(state, toy.data, PAPER)
        found, _ = blocks.step(found, row_blocks, problem, PAPER)
        vectors.append(mean_field.pack(state))
        points.append(how.pack(found))
    change = points[1] - points[0]
    assert how.norm(change) == pytest.approx(np.linalg.norm(vectors[1] - vectors[0]), rel=1e-9)
    there = mean_field.unpack(vectors[0] + 3.0 * (vectors[1] - vectors[0]), state, toy.data)
    here = how.unpack(points[0] + 3.0 * change, found)
    check_same(here.shared, there)
    check_same(
        blocks.step(here, row_blocks, problem, PAPER)[0].shared,
        mean_field.step(there, toy.data, PAPER)[0],
    )


# ------------------------------------------------------------------------------------ what is read


class OnDisk(Unread):
    """Rows that count how often they are read."""

    def __init__(self, X):
        self.X, self.n_reads = X, 0

    @property
    def shape(self):
        return self.X.shape

    def read(self):
        self.n_reads += 1
        return self.X


@pytest.mark.parametrize("case", ["shared", "pooled one-vs-rest"])
def test_a_sweep_reads_the_rows_once_and_nothing_else_does(case, monkeypatch):
    """Neither slacks and bounds, nor rotations, nor extrapolations."""
    toy, sweeps = given(case), []
    disks = [OnDisk(toy.X[:40]), OnDisk(toy.X[40:])]
    row_blocks = InProcess(
        [
            Block(X=disks[0], y=toy.Y[:40], begin=0),
            Block(X=disks[1], y=toy.Y[40:], begin=40),
        ]
    )
    problem, step = toy.problem(row_blocks), blocks.step

    def counted(*arguments):
        sweeps.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(blocks, "step", counted)
    rng = np.random.default_rng(0)
    fit_blocks(row_blocks, problem, PAPER, n_components=R, rng=rng, max_iter=30, tol=0.0)
    assert len(sweeps) >= 30
    assert [disk.n_reads for disk in disks] == 2 * [1 + 1 + len(sweeps)]


class OverWire(InProcess):
    """Everything goes to the blocks and comes back as bytes, whose number is kept."""

    largest = 0

    def visit(self, function, *parts, shared=None):
        self.largest = max(self.largest, len(pickle.dumps(shared)))
        sent = pickle.loads(pickle.dumps((function, parts, shared)))
        kept, total = super().visit(sent[0], *sent[1], shared=sent[2])
        self.largest = max(self.largest, len(pickle.dumps(total)))
        return pickle.loads(pickle.dumps((kept, total)))


def test_what_travels_is_small_and_no_row():
    """Of the size of D x R and R x K, whatever N and whatever is pooled."""
    toy = given("pooled one-vs-rest")
    wide = np.random.default_rng(0).standard_normal((N, 300))
    row_blocks = OverWire(replace(toy, X=wide).cut("3 blocks")._blocks)
    problem = toy.problem(row_blocks)
    row_blocks.largest = 0
    rng = np.random.default_rng(0)
    fit_blocks(row_blocks, problem, PAPER, n_components=R, rng=rng, max_iter=12)
    assert 300 * R * K * 8 < row_blocks.largest < 2.5 * 300 * R * K * 8


# ------------------------------------------------------------------------------ starts and targets


def where_it_starts(toy, cut, start):
    row_blocks = toy.cut(cut)
    problem = toy.problem(row_blocks)
    state = blocks.init(row_blocks, problem, n_components=R, seed=7, start=start)
    _, info = blocks.step(state, row_blocks, problem, PAPER)
    return info.elbo


@pytest.mark.parametrize("case", ["binary", "one-vs-rest", "pooled", "sparse", "tube shared"])
@pytest.mark.parametrize("start", ["label", "pca", "random"])
def test_starts_do_not_depend_on_the_cut(case, start):
    toy = given(case)
    found = [where_it_starts(toy, cut, start) for cut in CUTS]
    np.testing.assert_allclose(found, found[0], rtol=1e-9)


@pytest.mark.parametrize("case", ["binary", "one-vs-rest", "pooled", "sparse", "tube shared"])
def test_the_principal_start_is_that_in_memory(case):
    toy = given(case)
    rng = np.random.default_rng(0)
    state = mean_field.init(toy.data, PAPER, n_components=R, rng=rng, start="pca")
    expected = mean_field.step(state, toy.data, PAPER)[1].elbo
    assert where_it_starts(toy, "3 blocks", "pca") == pytest.approx(expected, rel=1e-9)


def test_the_label_start_is_that_in_memory():
    """As many outcomes as components, so that nothing is left to chance."""
    toy = given("tube shared")
    rng = np.random.default_rng(0)
    state = mean_field.init(toy.data, PAPER, n_components=R, rng=rng, start="label")
    expected = mean_field.step(state, toy.data, PAPER)[1].elbo
    assert where_it_starts(toy, "3 blocks", "label") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_class_numbers_are_signs(n_labels):
    codes = np.random.default_rng(2).integers(-1, n_labels, N)
    signs = np.where(codes[:, None] == np.arange(n_labels), 1.0, -1.0)
    signs = (signs[:, 1:] if n_labels == 2 else signs) * (codes >= 0)[:, None]
    targets = Targets(strategy="one_vs_rest", cost=1.0, n_labels=n_labels)
    np.testing.assert_array_equal(targets.columns(codes), signs)


@pytest.mark.parametrize("case", ["shared", "pooled one-vs-rest", "tube"])
def test_a_fit_goes_on_from_its_checkpoint(case, tmp_path):
    toy = given(case)
    row_blocks = toy.cut("3 blocks")
    problem = toy.problem(row_blocks)
    options = {"n_components": R, "tol": 0.0, "accelerate": False}

    def climb(n, **more):
        rng = np.random.default_rng(4)
        return fit_blocks(row_blocks, problem, PAPER, rng=rng, max_iter=n, **options, **more)

    whole, codec = climb(12), block_arrays.codec(problem, n_components=R)
    climb(8, callbacks=[Checkpoint(tmp_path, row_blocks, codec, every=6)])
    state = Checkpoint(tmp_path, row_blocks, codec).begin(0, pytest.fail)
    np.testing.assert_array_equal(climb(6, resume=state).elbo, whole.elbo[6:])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_in_blocks_are_complete(bad):
    toy = given("shared")
    X = toy.X.copy()
    X[33, 2] = bad
    with pytest.raises(ValueError, match="complete and finite"):
        toy.problem(replace(toy, X=X).cut("3 blocks"))


def test_rows_in_blocks_have_targets():
    toy = given("shared")
    with pytest.raises(ValueError, match="need targets"):
        toy.problem(InProcess([Block(X=toy.X, y=None, begin=0)]))


# ------------------------------------------------------------------------------------- on a cluster


@pytest.mark.parametrize("case", ["binary", "shared", "pooled one-vs-rest", "tube shared"])
def test_a_cluster_comes_to_the_numbers_of_one_process(case, threads_cluster):
    """Rotations and extrapolations, and everything that a checkpoint would write."""
    dask_array = pytest.importorskip("dask.array")
    from bsdr_models.inference.dask_blocks import OnDask

    toy, found = given(case), []
    rows = dask_array.from_array(toy.X, chunks=(CUTS["3 blocks"], D))
    for row_blocks in (toy.cut("3 blocks"), OnDask(threads_cluster, rows, toy.Y)):
        problem = toy.problem(row_blocks)
        result = fit_blocks(
            row_blocks,
            problem,
            PAPER,
            n_components=R,
            rng=np.random.default_rng(1),
            max_iter=16,
            tol=0.0,
        )
        codec = block_arrays.codec(problem, n_components=R)
        found.append((result.elbo, codec.shared(result.state)))
    (elbo, shared), (elbo_there, shared_there) = found
    np.testing.assert_allclose(elbo_there, elbo, rtol=1e-12)
    for name, array in shared.items():
        np.testing.assert_allclose(shared_there[name], array, rtol=1e-9, atol=1e-9, err_msg=name)
