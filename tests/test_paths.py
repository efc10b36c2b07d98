"""Paths: special files are neither opened nor replaced, and the error comes before any work."""

import inspect
import os
import socket

import pytest
from sklearn.datasets import load_iris

import bsdr_models
from bsdr_models import plots
from bsdr_models.papers import PaperBSDRClassifier

X, y = load_iris(return_X_y=True)
NAMES = {"path", "file", "filename", "folder", "output"}


def save(path):
    PaperBSDRClassifier().set_params(optimization__max_iter=3).fit(X, y).save(path)


WRITE = {"save": save}
TAKE = {**WRITE, "load": bsdr_models.load}

writes = pytest.mark.parametrize("function", WRITE)
takes = pytest.mark.parametrize("function", TAKE)

pytestmark = pytest.mark.filterwarnings("ignore:mean field stopped")


def test_every_function_with_a_path_is_tested():
    public = {name: getattr(bsdr_models, name) for name in bsdr_models.__all__}
    public |= {name: getattr(plots, name) for name in plots.__all__}
    public |= {"save": PaperBSDRClassifier.save}
    callables = {name: each for name, each in public.items() if callable(each)}
    found = {
        name for name, each in callables.items() if NAMES & set(inspect.signature(each).parameters)
    }
    assert found == TAKE.keys()


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as each:
        each.bind(str(path))


@takes
@pytest.mark.parametrize("make", [make_pipe, make_socket])
def test_special_files_stay(function, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    make("special")
    before = os.lstat("special")
    with pytest.raises(OSError, match=r"device or pipe.*special"):
        TAKE[function]("special")
    after = os.lstat("special")
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert os.listdir() == ["special"]


def test_devices_are_refused():
    with pytest.raises(OSError, match=r"device or pipe.*null"):  # load never opens it to write
        bsdr_models.load(os.devnull)


@pytest.mark.parametrize("function", ["save", "load"])
def test_a_folder_is_no_file(function, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory, not a file"):
        TAKE[function](tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
@writes
def test_read_only_folders(function, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    with pytest.raises(PermissionError, match=r"folder"):
        WRITE[function](folder / "new")
    assert list(folder.iterdir()) == []


@takes
def test_nul_in_a_path(function):
    with pytest.raises(ValueError, match="null"):
        TAKE[function]("a\0b")
