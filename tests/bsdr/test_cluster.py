"""BSDR on a cluster: the numbers of one process, whatever happens to the cluster."""

import os

import numpy as np
import pytest

from bsdr_models.bsdr.block_arrays import make_checkpoint
from bsdr_models.bsdr.block_starts import prepare
from bsdr_models.bsdr.fit import fit_blocks
from bsdr_models.bsdr.priors import Priors
from bsdr_models.bsdr.stochastic import fit_stochastic
from bsdr_models.row_sources import make_blocks

pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

PRIORS = Priors(latent_scale=0.3)
MODEL = {"n_components": 2, "projection_prior": "entrywise"}
PRIORS_OF = ("entrywise", "columnwise", "rowwise")


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    return rng.standard_normal((900, 8)) + 1.5 * np.eye(3, 8)[y], y


def blocks_of(arrays, client=None):
    return make_blocks(*arrays, block_rows=130, client=client)


def fit(rows, *, callbacks=(), checkpoint=None, max_iter=14, **more):
    data = prepare(
        rows, None, n_labels=3, projection_prior=more.get("projection_prior", "entrywise")
    )
    written = None if checkpoint is None else make_checkpoint(checkpoint, data, PRIORS, **MODEL)
    return fit_blocks(
        data,
        PRIORS,
        rng=np.random.default_rng(1),
        max_iter=max_iter,
        tol=1e-9,
        callbacks=callbacks,
        checkpoint=written,
        **{**MODEL, **more},
    )


def start_cluster():
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")


def same(found, expected):
    assert found.elbo == pytest.approx(expected.elbo, rel=1e-12)
    ours, theirs = found.state.shared, expected.state.shared
    np.testing.assert_allclose(ours.projection.mean, theirs.projection.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.weights.mean, theirs.weights.mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("projection_prior", PRIORS_OF)
def test_workers_come_to_the_numbers_of_one_process(projection_prior, arrays, threads_cluster):
    expected = fit(blocks_of(arrays), projection_prior=projection_prior)
    same(fit(blocks_of(arrays, threads_cluster), projection_prior=projection_prior), expected)


def test_steps_on_some_blocks_are_taken_by_workers_as_here(arrays, threads_cluster):
    found = []
    for rows in (blocks_of(arrays), blocks_of(arrays, threads_cluster)):
        data = prepare(rows, None, n_labels=3)
        rng = np.random.default_rng(2)
        found.append(fit_stochastic(data, PRIORS, rng=rng, passes=2, at_once=2, **MODEL))
    assert found[1].info.elbo == pytest.approx(found[0].info.elbo, rel=1e-9)
    np.testing.assert_allclose(found[1].estimates, found[0].estimates, rtol=1e-9)


def test_a_stochastic_start_has_a_block_for_every_worker(arrays, threads_cluster):
    rows, here = blocks_of(arrays, threads_cluster), blocks_of(arrays)
    assert (rows.at_once, here.at_once) == (2, 1)
    rng = np.random.default_rng(1).spawn(1)[0]  # of the first restart
    begun = fit_stochastic(prepare(here, None, n_labels=3), PRIORS, rng=rng, at_once=2, **MODEL)
    same(fit(rows, start="stochastic"), fit(here, resume=begun.state))


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(arrays):
    with start_cluster() as cluster, distributed.Client(cluster, set_as_default=False) as client:

        def kill(iteration, state, info):
            if iteration == 6:
                os.kill(next(iter(client.run(os.getpid).values())), 9)

        same(fit(blocks_of(arrays, client), callbacks=[kill]), fit(blocks_of(arrays)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster, whose scheduler is gone
def test_a_lost_cluster_costs_nothing_before_the_checkpoint(arrays, tmp_path):
    options = {"checkpoint": tmp_path, "accelerate": False}
    cluster = start_cluster()
    client = distributed.Client(cluster, set_as_default=False, timeout=2)

    def close(iteration, state, info):
        if iteration == 24:
            cluster.close()

    with pytest.raises(ConnectionError, match="cluster is gone"):
        fit(blocks_of(arrays, client), callbacks=[close], max_iter=30, **options)
    client.close()
    with start_cluster() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        found = fit(blocks_of(arrays, client), max_iter=30, **options)
    expected = fit(blocks_of(arrays), accelerate=False, max_iter=30)
    assert found.elbo == pytest.approx(expected.elbo[20:], rel=1e-12)  # the 21st sweep, and on
