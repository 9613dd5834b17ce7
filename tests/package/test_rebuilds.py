"""Builds: only what includes a changed file is compiled; a missing compiler is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _support.platforms import needs_posix

pytest.importorskip("Cython", reason="builds need Cython")

pytestmark = [needs_posix, pytest.mark.thorough]

SOURCES = Path(__file__).parents[2]
KERNELS = "roipool/kernels"
# A tree of the names that setup.py knows: the module includes a definition, one engine another
# header.
FILES = {
    "README.md": "# roipool\n",
    "pyproject.toml": (
        "[project]\nname = 'roipool'\nversion = '1'\ndynamic = ['readme', 'urls']\n"
        "[tool.setuptools]\npackages = []\n"
    ),
    "roipool/_cpu.pyx": (
        "cdef extern from 'kernels/roi_align.h':\n    int answer() noexcept\n"
        "def ask():\n    return answer()\n"
    ),
    f"{KERNELS}/roi_align.h": "inline int answer() { return 1; }\n",
    f"{KERNELS}/cpu/lanes.h": "inline int lanes() { return 4; }\n",
    f"{KERNELS}/cpu/average.cpp": '#include "lanes.h"\nstatic int average = lanes();\n',
    f"{KERNELS}/cpu/maximum.cpp": "static int maximum = 2;\n",
    f"{KERNELS}/cpu/position_sensitive.cpp": "static int position_sensitive = 3;\n",
    f"{KERNELS}/cpu/bytes.cpp": "static int bytes = 4;\n",
}
EVERY_OBJECT = {"_cpu", "average", "maximum", "position_sensitive", "bytes"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("setup.py", "roipool/_addresses.py"):
        shutil.copy(SOURCES / name, tmp_path / name)
    return tmp_path


def build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build in place."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    settings = {**os.environ, "ROIPOOL_NO_OPENMP": "1", **environment}
    return subprocess.run(
        command, cwd=tree, env=settings, capture_output=True, text=True, check=False
    )


def built(tree: Path, **environment: str) -> set[str]:
    """Build in place; return the recompiled objects."""
    objects = {path: path.stat().st_mtime_ns for path in tree.rglob("*.o")}
    run = build(tree, **environment)
    assert run.returncode == 0, run.stderr
    changed = {path for path in tree.rglob("*.o") if path.stat().st_mtime_ns != objects.get(path)}
    return {path.stem for path in changed}


def change(tree: Path, name: str) -> None:
    """Change a file, with a later modification time than the build."""
    for path in tree.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    path = tree / name
    path.write_text(path.read_text() + "\n")


def test_only_what_includes_a_changed_file_is_compiled(tree: Path) -> None:
    assert built(tree) == EVERY_OBJECT
    assert built(tree) == set()
    change(tree, f"{KERNELS}/roi_align.h")
    assert built(tree) == {"_cpu"}
    change(tree, f"{KERNELS}/cpu/lanes.h")
    assert built(tree) == {"average"}
    change(tree, f"{KERNELS}/cpu/maximum.cpp")
    assert built(tree) == {"maximum"}


def test_a_module_that_is_written_again_is_not_compiled(tree: Path) -> None:
    """Cython does so whenever pip builds, because a NumPy that was just installed is newer."""
    built(tree)
    (tree / "roipool/_cpu.cpp").unlink()
    assert built(tree) == set()
    module = tree / "roipool/_cpu.pyx"
    module.write_text(module.read_text() + "def ask_again():\n    return 2 * answer()\n")
    assert built(tree) == {"_cpu"}


def test_other_flags_compile_everything(tree: Path) -> None:
    built(tree)
    assert built(tree, CFLAGS="-DOTHER") == EVERY_OBJECT


def test_a_removed_header_is_noticed(tree: Path) -> None:
    built(tree)
    (tree / KERNELS / "cpu" / "lanes.h").unlink()
    (tree / KERNELS / "cpu" / "average.cpp").write_text("static int average = 3;\n")
    assert built(tree) == {"average"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"PATH": "/nowhere", "CXX": "g++"}, "'g++' is not on PATH"),
        ({"CXX": "false"}, "'false' does not compile an empty program"),
    ],
)
def test_a_missing_compiler_is_said_in_one_sentence(
    tree: Path, settings: dict[str, str], problem: str
) -> None:
    run = build(tree, **settings)
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"error: roipool is compiled from C++, and the compiler {problem}: ")
    assert ("xcode-select" if sys.platform == "darwin" else "apt install g++") in last
    assert "OpenMP" not in run.stderr
    assert "Traceback" not in run.stderr
