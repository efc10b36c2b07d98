"""Trees of traces: predictions by plain Monte Carlo, components, plots, and wrong traces."""

import warnings
from itertools import product

import arviz as az
import class_means
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.spatial.distance import cdist, pdist
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.model_selection import LeaveOneOut

from bsdr_models import (
    BM2PCAClassifier,
    DGPLVMClassifier,
    Sampling,
    align_draws,
    bm2pca,
    bsdr,
    dgplvm,
    diagnose,
    from_trace,
    papers,
    plots,
    report,
)
from bsdr_models.dgplvm.gp_classifier import fit_gp_classifier
from bsdr_models.dgplvm.priors import MAP_MEAN_VARIANCE
from bsdr_models.dgplvm.trees import SPEC as DGPLVM
from bsdr_models.inference.spec import ModelSpec, find_spec
from tests.toys import BUILDS, FAST, choice, scaled_iris

X, Y = scaled_iris()
NEW, Y_NEW = scaled_iris(start=1, step=7)
SETS = np.column_stack([Y > 0, Y == 1]).astype(int)
HEAVY = papers.bsdr.Priors(weight_shape=3.0, bias_shape=3.0, projection_shape=3.0, latent_scale=0.4)


def trace_of(model, n_draws=60):
    """Draws of the prior, as ``pm.sample`` would return those of the posterior."""
    prior = pm.sample_prior_predictive(n_draws, model=model, random_seed=0, compile_kwargs=FAST)
    groups = {"posterior": prior["prior"].to_dataset()}
    return xr.DataTree.from_dict(groups | {"constant_data": prior["constant_data"].to_dataset()})


def draws_of(trace, *names):
    posterior = trace["posterior"]
    return [posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in names]


def loss(p, y):
    return -np.mean(np.log(np.maximum(p[np.arange(len(y)), y], 1e-9)))


@pytest.fixture(scope="module")
def paper_model():
    return papers.bsdr.build_model(X, Y, n_components=2, priors=HEAVY)


@pytest.fixture(scope="module")
def paper_trace(paper_model):
    return trace_of(paper_model)


@pytest.fixture(scope="module")
def paper_tree(paper_trace):
    return from_trace(paper_trace, X, Y, bsdr.SPEC)


@pytest.mark.parametrize("y", [Y, (Y > 0).astype(int)], ids=["three", "two"])
def test_the_recommended_bsdr_predicts_from_a_trace(y):
    """The lapse is that of the model that was sampled."""
    k = len(np.unique(y))
    trace = trace_of(bsdr.build_model(X, y, priors={"lapse": 0.05, "scale": 1.0}))
    tree = from_trace(trace, X, y, bsdr.SPEC)
    coef, bias = draws_of(trace, "coef", "bias")
    expected = 0.95 * choice(NEW @ coef + bias[:, None]).mean(axis=0) + 0.05 / k
    found = papers.bsdr.predict(tree, NEW)
    known = np.minimum(Y_NEW, k - 1)
    assert loss(found, known) == pytest.approx(loss(expected, known), abs=1e-3)
    assert tree["posterior/projection"].sizes["component"] == k - 1
    assert tree.attrs["latent_scale"] == 0.0


def test_labels_of_a_multi_label_problem_and_of_two_classes():
    for y, target in ((SETS, "multilabel"), (Y > 0, "binary")):
        trace = trace_of(bsdr.build_model(X, y, target=target))
        tree = from_trace(trace, X, y, bsdr.SPEC, target=target)
        coef, bias = draws_of(trace, "coef", "bias")
        eta = NEW @ coef + bias[:, None]
        p = norm.cdf(eta).mean(axis=0)
        np.testing.assert_allclose(papers.bsdr.predict(tree, NEW), 0.997 * p + 0.0015, atol=1e-6)


@pytest.mark.parametrize("augmented", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_papers_bsdr_predicts_with_the_latent_scale_of_the_model(paper_trace, augmented):
    """Over latent coordinates N(Q'x, 0.16 I) by quadrature."""
    trace = paper_trace
    if augmented:
        model = papers.bsdr.build_model(X, Y, n_components=2, priors=HEAVY, augmented=True)
        trace = trace_of(model)
    Q, W, b = draws_of(trace, "projection", "weights", "bias")
    node, weight = np.polynomial.hermite_e.hermegauss(8)
    expected = np.zeros((len(NEW), 3))
    for z, w in zip(product(node, node), np.outer(weight, weight).ravel(), strict=True):
        Z = NEW @ Q + 0.4 * np.array(z)
        expected += w / weight.sum() ** 2 * choice(Z @ W + b[:, None]).mean(axis=0)
    found = papers.bsdr.predict(from_trace(trace, X, Y, bsdr.SPEC), NEW)
    assert loss(found, Y_NEW) == pytest.approx(loss(expected, Y_NEW), abs=1e-3)
    with pytest.raises(ValueError, match="from_trace makes one of a trace"):
        papers.bsdr.predict(trace, NEW)


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
@pytest.mark.parametrize("y", [Y, Y > 0], ids=["three", "two"])
@pytest.mark.parametrize("build", [bm2pca.build_model, papers.bm2pca.build_model])
def test_bm2pca_predicts_by_mean_class_scores(build, y):
    trace = trace_of(build(X, y, n_components=2))
    tree = from_trace(trace, X, y, bm2pca.SPEC)
    coef, intercept = draws_of(trace, "coef", "intercept")
    scores = (NEW @ coef + intercept[:, None]).mean(axis=0)
    if scores.shape[1] == 1:
        expected = np.column_stack([expit(-scores), expit(scores)])
    else:
        expected = softmax(scores, axis=1)
    np.testing.assert_allclose(papers.bm2pca.predict(tree, NEW), expected, rtol=1e-9)
    # Rotated components give the same class scores of the samples.
    if "latent" in tree["posterior"]:
        found = xr.dot(tree["posterior/latent"], tree["posterior/weights"], dim="component")
        own = xr.dot(trace["posterior/latent"], trace["posterior/weights"], dim="component")
        np.testing.assert_allclose(found.values, own.values, atol=1e-9)


@pytest.mark.parametrize(
    ("folder", "spec"), [(papers.bsdr, bsdr.SPEC), (papers.bm2pca, bm2pca.SPEC)]
)
def test_means_of_real_outputs(folder, spec):
    outputs = X[:, 2:]
    trace = trace_of(folder.build_model(X[:, :2], outputs, n_components=2, target="regression"))
    tree = from_trace(trace, X[:, :2], outputs, spec, target="regression")
    at_zero = "bias" if folder is papers.bsdr else "intercept"
    coef, intercept = draws_of(trace, "coef", at_zero)
    expected = (NEW[:, :2] @ coef + intercept[:, None]).mean(axis=0)
    np.testing.assert_allclose(folder.predict(tree, NEW[:, :2]), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
def test_the_papers_dgplvm_averages_over_draws():
    model = papers.dgplvm.build_model(X, Y, n_components=2, weight=10.0)
    trace = trace_of(model, n_draws=3)
    tree = from_trace(trace, X, Y, DGPLVM)
    found = papers.dgplvm.predict(tree, NEW)
    # Rotations change no distance, so that draws may be taken one by one.
    each = []
    for draw in range(3):
        one = tree.copy()
        one["posterior"] = xr.DataTree(tree["posterior"].to_dataset().isel(draw=[0, draw]))
        each.append(papers.dgplvm.predict(one, NEW))
    expected = each[0] + 2.0 * (each[1] - each[0]) + 2.0 * (each[2] - each[0])
    np.testing.assert_allclose(found, expected / 3.0 + 2.0 * each[0] / 3.0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
@pytest.mark.parametrize("y", [Y, Y > 0], ids=["three", "two"])
def test_the_recommended_dgplvm_averages_over_draws(y):
    """By dense matrices, with every sample left out in turn, and sums over latent functions."""
    y = y.astype(int)
    model = dgplvm.build_model(X, y, n_components=1, width=1.5, map_noise=0.1)
    trace = trace_of(model, n_draws=4)
    squares = cdist(np.vstack([X, NEW]), X, "sqeuclidean")
    smooth = np.exp(-1.5 * squares / (2.0 * np.median(pdist(X, "sqeuclidean"))))
    cross = smooth[len(X) :] + MAP_MEAN_VARIANCE
    K = smooth[: len(X)] + MAP_MEAN_VARIANCE + 0.1 * np.eye(len(X))
    variance = 1.1 + MAP_MEAN_VARIANCE - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    normal = norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None, None]
    kernel = None
    expected = 0.0
    for latent in draws_of(trace, "latent")[0]:
        mean = np.mean([latent[y == c].mean(axis=0) for c in np.unique(y)], axis=0)
        left_out = np.empty_like(latent)
        own = np.empty(len(X))
        for others, i in LeaveOneOut().split(X):
            of_others = K[np.ix_(i, others)]
            inverse = np.linalg.inv(K[np.ix_(others, others)])
            left_out[i[0]] = mean + (of_others @ inverse @ (latent[others] - mean))[0]
            own[i] = K[i, i] - np.sum(of_others @ inverse * of_others)
        functions, _ = fit_gp_classifier(left_out, y, kernel=kernel)
        kernel = functions.kernel
        m, v = functions.moments(mean + cross @ np.linalg.solve(K, latent - mean))
        p = norm.cdf(m + np.sqrt(v) * normal).mean(axis=0)
        odds = np.log(p / (1.0 - p)) / np.sqrt(0.5 + 0.5 * variance / own.mean())[:, None]
        if odds.shape[1] == 1:
            odds = np.column_stack([0.0 * odds, odds])
        expected = expected + softmax(odds, axis=1) / 4
    expected = 0.997 * expected + 0.003 / expected.shape[1]
    found = papers.dgplvm.predict(from_trace(trace, X, y, DGPLVM), NEW)
    known = np.minimum(Y_NEW, y.max())
    assert loss(found, known) == pytest.approx(loss(expected, known), abs=1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
def test_dgplvm_predicts_only_by_the_back_constraint_of_its_model():
    model = dgplvm.build_model(X, Y, n_components=2)
    trace = trace_of(model, n_draws=2)
    free = {each.name: trace["posterior"][each.name].values for each in model.free_RVs}
    given = from_trace(free, X, Y, DGPLVM, model=model)
    whole = from_trace(trace, X, Y, DGPLVM)
    np.testing.assert_allclose(
        papers.dgplvm.predict(given, NEW), papers.dgplvm.predict(whole, NEW), atol=1e-6
    )
    free |= {"latent": trace["posterior/latent"].values}
    with pytest.raises(ValueError, match="give model= to from_trace"):
        papers.dgplvm.predict(from_trace(free, X, Y, DGPLVM), NEW)
    fitted = DGPLVMClassifier(n_components=1).fit(X, Y)
    with pytest.raises(ValueError, match=r"recommended estimator.*: use its predict_proba"):
        papers.dgplvm.predict(fitted.idata_, NEW)


def test_trees_of_recommended_estimators_name_what_calibrates(paper_tree):
    model = BM2PCAClassifier(random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="calibrates probabilities: use its predict_proba"):
        papers.bm2pca.predict(model.idata_, NEW)
    tree = paper_tree.copy()
    tree.attrs["temperature"] = 0.7
    with pytest.raises(ValueError, match="calibrates probabilities: use its predict_proba"):
        papers.bsdr.predict(tree, NEW)


def test_components_are_aligned(paper_trace, paper_tree):
    found = paper_tree["posterior"]
    effects = paper_trace["posterior/projection"].values @ paper_trace["posterior/weights"].values
    np.testing.assert_allclose(found["projection"].values @ found["weights"].values, effects)
    aligned = align_draws(paper_trace, loadings="projection", weights="weights", others=["latent"])
    for name in ("projection", "weights", "latent"):
        np.testing.assert_array_equal(found[name].values, aligned["posterior_aligned"][name].values)


@pytest.mark.parametrize(
    ("folder", "spec"), [(papers.bsdr, bsdr.SPEC), (papers.bm2pca, bm2pca.SPEC)]
)
@pytest.mark.parametrize("y", [Y, Y > 0], ids=["three", "two"])
def test_the_tree_of_a_fit_is_that_of_its_trace(folder, spec, y):
    """Of Gibbs sampling; draws that are aligned stay as they are, up to rotation or sign."""
    with warnings.catch_warnings(action="ignore"):  # short chains
        sampling = Sampling(draws=20, tune=10, chains=2)
        own = folder.fit(X, y, n_components=2, inference="gibbs", sampling=sampling, random_state=0)
    tree = from_trace(own, X, y, spec, inference_method="gibbs")
    assert tree.attrs["alignment"] == own.attrs["alignment"]
    for name in ("t2", "q_residual", "relevance", "feature_relevance", "explained"):
        np.testing.assert_allclose(tree["fit"][name], own["fit"][name], rtol=1e-6)
    np.testing.assert_allclose(folder.predict(tree, NEW), folder.predict(own, NEW), atol=1e-2)
    distance = np.linalg.norm(
        tree["fit/latent_mean"].values[:, None] - tree["fit/latent_mean"].values, axis=2
    )
    same = np.linalg.norm(
        own["fit/latent_mean"].values[:, None] - own["fit/latent_mean"].values, axis=2
    )
    np.testing.assert_allclose(distance, same, atol=1e-6)


def test_a_sampler_of_ones_own_gives_arrays(paper_model, paper_trace, paper_tree):
    """With the model missing variables are computed, and its settings are known."""
    posterior = paper_trace["posterior"]
    free = {each.name: posterior[each.name].values for each in paper_model.free_RVs}
    tree = from_trace(free, X, Y, bsdr.SPEC, model=paper_model)
    xr.testing.assert_allclose(tree["fit"].to_dataset(), paper_tree["fit"].to_dataset())
    assert tree.attrs["latent_scale"] == 0.4
    few = {name: free[name] for name in ("projection", "weights", "bias")}
    without = from_trace(few, X, Y, bsdr.SPEC)
    assert without.attrs["latent_scale"] == 1.0  # as in the paper
    np.testing.assert_allclose(
        without["posterior/coef"].values, paper_tree["posterior/coef"].values, atol=1e-12
    )


@pytest.mark.parametrize(
    ("build", "spec"),
    [
        (lambda: bsdr.build_model(X, Y), bsdr.SPEC),
        (lambda: papers.bm2pca.build_model(X, Y, n_components=2), bm2pca.SPEC),
        (lambda: dgplvm.build_model(X, Y, n_components=2), DGPLVM),
    ],
    ids=["bsdr", "paper's bm2pca", "dgplvm"],
)
@pytest.mark.slow
@pytest.mark.usefixtures("coarse_pictures")
@pytest.mark.filterwarnings("ignore:The effect of Potentials")
def test_what_reads_trees_reads_those_of_traces(build, spec, tmp_path):
    tree = from_trace(trace_of(build()), X, Y, spec)
    see_all(tree, tmp_path, outliers=spec is not DGPLVM)
    assert spec.citation_bibtex[:30] in (tmp_path / "trace.html").read_text()


def see_all(tree, folder, *, outliers=True):
    """Diagnostics, plots, summary and report, which has a map and effects, of a tree."""
    assert "identified" in set(diagnose(tree)["kind"])
    plots.plot_biplot(tree)
    if outliers:
        plots.plot_outliers(tree)
    plt.close("all")
    assert len(plots.features_table(tree)["importance"]) == X.shape[1]
    assert len(az.summary(tree, kind="stats")) > 0
    report(tree, folder / "trace.html")


# A model from outside of the package

MEANS = class_means.fit_class_means(X, Y, 3)


def class_means_trace():
    """Exact draws of the posterior of `class_means`, with its effects of the features."""
    drawn = MEANS.draw(40, np.random.default_rng(0))
    return {name: np.concatenate([each, each[:, ::-1]]) for name, each in drawn.items()}


def test_draws_of_pymc_and_advi_are_traces():
    options = {"progressbar": False, "random_seed": 0, "compile_kwargs": FAST}
    with class_means.build_model(X, Y, MEANS.within, MEANS.spread) as model:
        coef = model["class_mean"].T / MEANS.within[:, None] ** 2
        pm.Deterministic("coef", coef, dims=("feature", "outcome"))
        trace = pm.sample(
            4,
            tune=4,
            chains=2,
            cores=1,
            nuts_sampler="pymc",
            quiet=True,
            compute_convergence_checks=False,
            nuts={"max_treedepth": 2, "early_max_treedepth": 2},
            **options,
        )
        approximation = pm.fit(5, method="advi", **options)
        drawn = approximation.sample(20, random_seed=0)
    tree = from_trace(trace, X, Y, class_means.SPEC)
    assert tree.attrs["inference_method"] == "nuts"
    assert tree.attrs["inference_library"] == "pymc"
    assert tree["sample_stats/diverging"].shape == (2, 4)
    tree = from_trace(drawn, X, Y, class_means.SPEC, inference_method="advi")
    assert tree["posterior"].sizes["draw"] == 20
    assert diagnose(tree).loc["spread", "verdict"].startswith("not checked")


@pytest.mark.usefixtures("coarse_pictures")
def test_a_model_from_outside_takes_part(tmp_path):
    tree = from_trace(class_means_trace(), X, Y, class_means.SPEC)
    see_all(tree, tmp_path)
    assert "efron1975stein" in (tmp_path / "trace.html").read_text()
    tree.to_netcdf(tmp_path / "tree.nc")
    with xr.open_datatree(tmp_path / "tree.nc") as again:
        spec = find_spec(again)
    assert spec.name == "class_means"
    assert dict(spec.variables)["coef"] == ["feature", "outcome"]


def test_dims_may_stand_in_any_order():
    trace = xr.Dataset(
        {
            name: (("chain", "draw", *class_means.SPEC.variables[name]), each)
            for name, each in class_means_trace().items()
        }
    )
    expected = from_trace(trace, X, Y, class_means.SPEC)["fit"].to_dataset()
    turned = trace.transpose("outcome", "draw", "feature", "chain")
    found = from_trace(turned, X, Y, class_means.SPEC)["fit"].to_dataset()
    xr.testing.assert_allclose(found, expected)


def test_loadings_of_any_name_are_aligned():
    spec = ModelSpec(
        name="factors",
        citation_bibtex="",
        variables={"factor": ("feature", "component"), "latent": ("obs", "component")},
        identified=("factor",),
        alignment={"loadings": "factor", "method": "procrustes"},
    )
    rng = np.random.default_rng(0)
    turns = np.linalg.qr(rng.standard_normal((2, 30, 2, 2)))[0]
    Q = rng.standard_normal((4, 2))
    drawn = {"factor": Q @ turns, "latent": (X - X.mean(axis=0)) @ Q @ turns}
    tree = from_trace(drawn, X, Y, spec)
    assert float(tree["posterior/factor"].std(("chain", "draw")).max()) < 1e-9
    np.testing.assert_allclose(tree["fit/latent_cov"].values, 0.0, atol=1e-9)
    latent = (X - X.mean(axis=0)) @ tree["fit/projection_mean"].values
    np.testing.assert_allclose(latent, tree["fit/latent_mean"].values, atol=1e-9)


# Wrong traces


def test_wrong_traces_are_refused_by_name(paper_model, paper_trace):
    dataset = paper_trace["posterior"].to_dataset()
    bad = dataset["weights"].copy()
    bad[0, 3] = np.nan
    free = {name: dataset[name].values for name in ("projection", "weights", "bias")}
    named = pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"])[["x1", "x0", "x2", "x3"]]
    cases = [
        (TypeError, "trace must be a DataTree", [1, 2], {}),
        (TypeError, "spec must be a ModelSpec", paper_trace, {"spec": "bsdr"}),
        (ValueError, "no group 'posterior'", xr.DataTree(), {}),
        (
            ValueError,
            "weights has 6 of 360 values that are not finite",
            dataset.assign(weights=bad),
            {},
        ),
        (ValueError, "the trace has 4 features, X has 3", dataset, {"X": X[:, :3]}),
        (ValueError, "the trace has 30 samples, X has 29", dataset, {"X": X[1:], "y": Y[1:]}),
        (ValueError, "the trace has 3 outcomes", dataset, {"y": Y > 0}),
        (ValueError, "X are not the samples of the trace", paper_trace, {"X": 2.0 * X}),
        (ValueError, "y are not the targets of the trace", paper_trace, {"y": Y[::-1]}),
        (ValueError, "features of X in another order", dataset, {"X": named}),
        (ValueError, "none of .*'coef'.*; it has", dataset[["latent"]], {}),
        (
            ValueError,
            r"projection has shape \(60, 4, 2\)",
            {"projection": free["projection"][0]},
            {},
        ),
        (ValueError, "weights must hold numbers", free | {"weights": "abc"}, {}),
        (ValueError, "lacks 'latent_offset'", free, {"model": paper_model}),
        (ValueError, "no dim 'chain'", dataset.isel(chain=0, drop=True), {}),
    ]
    for error, message, trace, options in cases:
        arguments = {"X": X, "y": Y, "spec": bsdr.SPEC} | options
        with pytest.raises(error, match=message):
            from_trace(trace, **arguments)


def test_a_kernel_has_no_effects_of_features():
    trace = trace_of(bsdr.build_model(X, Y, kernel="rbf"))
    with pytest.raises(ValueError, match="none of"):
        from_trace(trace, X, Y, bsdr.SPEC)


def test_constants_of_dgplvm_cannot_be_set():
    for build in (dgplvm.build_model, papers.dgplvm.build_model):
        with (
            build(X, Y, n_components=2),
            pytest.raises(TypeError, match="must be a `SharedVariable`"),
        ):
            pm.set_data({"X": X + 1.0})


@pytest.mark.parametrize("name", BUILDS)
def test_minibatches_are_refused(name):
    batch_X, batch_y = pm.Minibatch(X, Y, batch_size=10)
    for arguments in ((batch_X, batch_y), (X, batch_y)):
        with pytest.raises(ValueError, match=r"not pm\.Minibatch"):
            BUILDS[name](*arguments)
