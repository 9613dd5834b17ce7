"""Machine code on disk, by a stand-in for the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roipool import _settings
from roipool._cuda import cubins, nvrtc


class Compiler:
    """Counts what it compiles."""

    def __init__(self) -> None:
        self.version, self.asked = "13.0", 0

    def compiled(self, source: str = "text", capability: int = 90) -> bytes:
        """Return the machine code of a process that has none yet."""
        nvrtc.machine_code.cache_clear()
        return nvrtc.machine_code(source, capability, 13)

    def __call__(self, handle: Any, source: str, *options: str, result: str) -> bytes:
        self.asked += 1
        return f"{self.version} {options[0]} {source}".encode()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    own = Compiler()
    monkeypatch.setattr(nvrtc, "library", lambda newest: None)
    monkeypatch.setattr(nvrtc, "version", lambda handle: own.version)
    monkeypatch.setattr(nvrtc, "compile_cuda", own)
    return own


def keep_in(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _settings.read_environment({"ROIPOOL_CUDA_CACHE_DIR": str(folder)})
    monkeypatch.setattr(_settings, "_environment", environment)


def test_a_second_process_compiles_nothing(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path / "of" / "cubins", monkeypatch)
    first = compiler.compiled()
    assert [compiler.compiled(), compiler.asked] == [first, 1]
    (file,) = (tmp_path / "of" / "cubins").iterdir()  # no temporary file is left
    assert file.suffix == ".cubin"


def test_another_text_gpu_or_compiler_is_compiled(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path, monkeypatch)
    codes = [compiler.compiled(), compiler.compiled("other"), compiler.compiled(capability=80)]
    compiler.version = "13.1"
    codes.append(compiler.compiled())
    assert [len({*codes}), compiler.asked] == [4, 4]


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * 100])
def test_a_damaged_file_is_compiled_anew(
    compiler: Compiler, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path, monkeypatch)
    first = compiler.compiled()
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert [compiler.compiled(), compiler.compiled(), compiler.asked] == [first, first, 2]


def test_a_folder_that_cannot_be_written_is_no_error(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    keep_in(occupied / "cubins", monkeypatch)  # below a file, which root cannot write either
    assert compiler.compiled() == compiler.compiled()
    assert compiler.asked == 2


def test_a_full_disk_leaves_nothing(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: Any) -> Path:
        raise OSError(28, "No space left on device")

    keep_in(tmp_path, monkeypatch)
    monkeypatch.setattr(Path, "replace", refuse)
    compiler.compiled()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_settings, "_environment", _settings.read_environment({}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cubins.folder() == tmp_path / "roipool"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification says to ignore
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cubins.folder() == tmp_path / ".cache" / "roipool"

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert cubins.folder() is None
