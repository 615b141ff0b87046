"""Device nodes of the tests' own: those of the machine are not touched."""

import os
import stat

import pytest


@pytest.fixture
def make_node(tmp_path):
    """Return a function that makes a node of a device."""

    def make(name, kind, major, minor):
        path = tmp_path / name
        try:
            os.mknod(path, kind | 0o666, os.makedev(major, minor))
        except PermissionError:
            pytest.skip("needs the right to make device nodes: root, outside containers that take it away")
        return path

    return make


@pytest.fixture
def null_device(make_node):
    return make_node("null", stat.S_IFCHR, 1, 3)
