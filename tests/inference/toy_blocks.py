"""EM for a mixture of two normals, in a module that the processes of a cluster can import."""

import os

import numpy as np


def distances(block, centres):
    """X as an array (n, P), and squared distances (n, 2)."""
    X = block.X.toarray() if hasattr(block.X, "toarray") else np.asarray(block.X, dtype=float)
    return X, ((X[:, None, :] - centres) ** 2).sum(axis=2)


def responsibilities(block, centres):
    """Of the first component, (n,)."""
    _, far = distances(block, centres)
    return 1.0 / (1.0 + np.exp(np.clip(0.5 * (far[:, 0] - far[:, 1]), -500.0, 500.0)))


def sums(block, centres):
    """Sufficient statistics of the centres, and a sum with the targets."""
    X, _ = distances(block, centres)
    first = responsibilities(block, centres)
    weight = np.stack([first, 1.0 - first])
    labels = 0.0 if block.y is None else float(np.sum(block.y * first))
    return np.concatenate([(weight @ X).ravel(), weight.sum(axis=1), [labels]])


def init(blocks):
    return np.stack([np.full(blocks.n_features, -0.1), np.full(blocks.n_features, 0.2)])


def step(blocks, centres):
    found = blocks.reduce(sums, shared=centres)
    return found[: centres.size].reshape(centres.shape) / found[-3:-1, None], float(found[-1])


def run(blocks, n_sweeps, on_sweep=lambda number: None):
    """Centres, responsibilities and the last sum with the targets."""
    centres = init(blocks)
    for number in range(n_sweeps):
        on_sweep(number)
        centres, total = step(blocks, centres)
    parts = blocks.map(responsibilities, shared=centres)
    return centres, np.concatenate(blocks.collect(parts)), total


def fail_at(block, begin):
    if block.begin == begin:
        raise FloatingPointError(f"samples from {block.begin}")
    return 1


def overflow(block, shared):
    return int(np.float64(1e300) * np.float64(1e300) > 0.0)


def threads(block, shared):
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(pool["num_threads"] for pool in pools)


def out_of_memory(block, shared):
    """Kill the process, as the system does when memory runs out."""
    os.kill(os.getpid(), 9)


def process(estimator, X, y):
    """The process that computes a score."""
    return os.getpid()
