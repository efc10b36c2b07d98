"""A file is there whole or as it was before."""

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import bsdr_models
from bsdr_models import BSDRClassifier, MNPClassifier, persistence


@pytest.mark.parametrize(
    "estimator", [MNPClassifier(), BSDRClassifier(), BSDRClassifier(variant="paper")]
)
def test_before_a_fit_there_is_nothing_to_save(estimator, tmp_path):
    with pytest.raises(NotFittedError):
        estimator.save(tmp_path / "model.nc")
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_ones_own_is_refused(mnp, tmp_path):
    model, X = mnp

    class Mine(MNPClassifier):
        pass

    mine = Mine().fit(X, model.predict(X))
    with pytest.raises(TypeError, match=r"Mine cannot be saved, only .*'MNPClassifier'"):
        mine.save(tmp_path / "model.nc")
    with pytest.raises(TypeError, match="cannot be saved"):
        persistence.save(np.arange(3), tmp_path / "model.nc")
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_text_and_need_not_end_in_nc(mnp, tmp_path):
    model, X = mnp
    path = f"{tmp_path}/my model"
    model.save(path)
    model.save(path)
    assert os.listdir(tmp_path) == ["my model"]
    np.testing.assert_array_equal(bsdr_models.load(path).predict(X), model.predict(X))


def test_a_link_is_followed_and_permissions_stay(mnp, tmp_path):
    target, link = tmp_path / "target.nc", tmp_path / "link.nc"
    target.touch(mode=0o600)
    link.symlink_to(target)
    mnp[0].save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert bsdr_models.load(target).n_features_in_ == 4


def test_places_where_no_file_can_be(mnp, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match=r"is a directory.*folder'"):
        mnp[0].save(tmp_path / "folder")
    with pytest.raises(FileNotFoundError, match=r"cannot save here.*none/model\.nc'"):
        mnp[0].save(tmp_path / "none" / "model.nc")
    with pytest.raises(OSError, match=r"File name too long: .*longlong"):
        mnp[0].save(tmp_path / ("long" * 100))
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, path, mode):
        self._file = open(path, mode)  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, contents):
        self._file.write(contents[: len(contents) // 2])
        self._file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_model(fault, mnp, saved, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = saved.read_bytes()
    if fault == "write":
        monkeypatch.setattr(persistence, "open", Full, raising=False)
    else:
        monkeypatch.setattr(persistence.os, fault, fail)
    with pytest.raises(OSError, match=r"nothing was changed: No space left.*model\.nc'") as caught:
        mnp[0].save(saved)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


def test_a_limit_of_the_system_leaves_the_old_model(mnp, saved):
    before = saved.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"File too large.*model\.nc'"):
            mnp[0].save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


def test_an_interrupted_save_leaves_the_old_model(mnp, saved, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    before = saved.read_bytes()
    monkeypatch.setattr(persistence.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mnp[0].save(saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


# Children save two models in turn until they are killed; what they leave must load. What they
# write is ready before, so that they are killed while they write.
KILLER = """
import os, random, signal, sys, time
import numpy as np
import bsdr_models
from bsdr_models import persistence

path, kills = sys.argv[1], int(sys.argv[2])
rng, delays = np.random.default_rng(0), random.Random(0)
X = rng.standard_normal((120, 60))
models = [bsdr_models.MNPClassifier(max_iter=2).fit(X + shift, np.arange(120) % 3)
          for shift in (0.0, 1.0)]
models[0].save(path)
known = {model.predict_proba(X).tobytes() for model in models}
ready = {id(model): persistence._pack(model, "MNPClassifier") for model in models}
persistence._pack = lambda model, name: ready[id(model)]
drafts = 0
for _ in range(kills):
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                model.save(path)
    time.sleep(delays.uniform(0.01, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert bsdr_models.load(path).predict_proba(X).tobytes() in known
    drafts = len(os.listdir(os.path.dirname(path))) - 1
models[0].save(path)
print(drafts, len(os.listdir(os.path.dirname(path))) - 1 == drafts)
"""


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_killed_save_leaves_a_whole_model(kills, tmp_path):
    """Drafts that are left over are in nobody's way."""
    code = [sys.executable, "-W", "ignore", "-c", KILLER, str(tmp_path / "model.nc"), str(kills)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    drafts, others_stay = done.stdout.split()
    assert others_stay == "True"
    if kills > 20:  # some of them have hit half way
        assert int(drafts) > 0
    assert all(name.endswith((".nc", ".tmp")) for name in os.listdir(tmp_path))


def test_drafts_are_hidden_and_told_apart(mnp, saved, monkeypatch):
    seen = []

    def watch(source, target):
        seen.append(Path(source).name)
        os.rename(source, target)

    monkeypatch.setattr(persistence.os, "replace", watch)
    mnp[0].save(saved)
    mnp[0].save(saved)
    assert len(set(seen)) == 2
    assert all(name.startswith(".model.nc.") and name.endswith(".tmp") for name in seen)
