"""Hostile files and environments: one line of error, status 2, no lost files, bounded memory."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.cli_runs import (
    FAST,
    complains,
    fails,
    names_here,
    one_line,
    run_program,
    save_map,
    strict_json,
)
from _support.platforms import needs_links, needs_matplotlib, needs_posix

from roipool.cli import info, main
from roipool.tools.compare import box_files

pytestmark = pytest.mark.thorough

Image = pytest.importorskip("PIL.Image")


# ---- Pictures


@pytest.mark.parametrize("kind", ["EPS", "PDF", "ICO", "TGA"])
def test_only_some_formats_are_opened(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (16, 16)).save("picture.png", kind)
    assert "not a picture in one of the formats BMP, " in fails(capsys, "picture.png")


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a piece of a PNG file."""
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


@pytest.mark.parametrize("size", [8000, 14000])
def test_decompression_bombs(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture beyond the limit, and one that Pillow itself rejects, with another limit."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 1, 0, 0, 0, 0))
    Path("bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b""))
    line = fails(capsys, "bomb.png")
    limit = "has more than 50,000,000 pixels: give a smaller picture, or a part of it"
    assert line == f"roipool: error: bomb.png: {limit}\n"


@pytest.mark.parametrize("scale", ["1e308", "300"])
def test_enlarging_is_bounded(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "50,000,000 pixels" in fails(capsys, "--spatial-scale", scale)


# ---- Arrays


def header_of(shape: tuple[int, ...]) -> bytes:
    """Return a file that declares an array but contains no data."""
    stream = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def archive(name: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile("map.npz", "w", compression) as made:
        made.writestr(name, content)
    return "map.npz"


def test_an_array_is_refused_by_what_it_declares(capsys: pytest.CaptureFixture[str]) -> None:
    huge = header_of((1, 3, 16384, 16384))
    Path("map.npy").write_bytes(huge)
    assert "more than 134,217,728 numbers" in fails(capsys, "map.npy")
    assert "more than 134,217,728 numbers" in fails(capsys, archive("features.npy", huge))
    Path("map.npy").write_bytes(header_of((1, 3, 99, 99)))  # but holds none
    assert "map.npy: not an array" in fails(capsys, "map.npy")
    Path("map.npy").write_bytes(header_of((-1, -3)))
    assert "map.npy: not an array" in fails(capsys, "map.npy")


def test_archives_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert "it contains no array" in fails(capsys, archive("features", b"hello"))
    assert "map.npz: not an array" in fails(capsys, archive("features.npy", b"hello"))
    small = header_of((1, 1)) + bytes(4)
    packed = archive("features.npy", small, zipfile.ZIP_LZMA)  # its dictionary may have 4 GiB
    assert "compression that NumPy does not" in fails(capsys, packed)
    np.savez("map.npz", features=np.array([{}, None]))  # pickled
    assert "needs real numbers" in fails(capsys, "map.npz")


# ---- Boxes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("lines.csv", "1,2,3,4\n" * (box_files.MAX_BOXES + 2), "more than 1,000,000 lines"),
        ("list.json", f"[{'0,' * box_files.MAX_BOXES}0]", "more than 1,000,000 boxes"),
        ("field.csv", f"1,2,3,{'4' * 140_000}\n", "line 1: has more than 100,000 characters"),
        ("large.csv", " " * (2**26 + 1), "larger than 64 MiB"),
        ("images.json", '{"images":5,"annotations":[]}', "'images' must be a list, not 5"),
        ("deep.json", '{"annotations":[{"image_id":' + "[" * 900 + "]" * 900 + "}]}", "no 'bbox'"),
    ],
)
def test_texts_of_any_size(
    name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    line = fails(capsys, save_map(), "--boxes", name)
    assert message in line
    assert len(line) < 200


def test_results_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("boxes.npy", np.ones((200_000, 4)))
    assert "each result would hold" in fails(
        capsys, save_map(), "--boxes", "boxes.npy", "--output-size", "20"
    )


# ---- Names and messages


@needs_posix
def test_a_name_that_is_not_utf8() -> None:
    name = os.fsdecode(b"caf\xe9.npy")
    Path(name).write_bytes(Path(save_map()).read_bytes())
    run = run_program("compare", name, *FAST, "--json", "out.json")
    assert (run.returncode, run.stderr) == (0, "")
    assert "caf\\udce9.npy" in run.stdout
    assert strict_json("out.json")["input"]["features"] == name


def test_a_message_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--rtol", "--systems", "--output-size", "--boxes"):
        assert len(complains(capsys, "compare", option, "x" * 100_000)) < 1100


def test_what_nobody_foresaw_is_no_failed_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise KeyError("surprise")

    monkeypatch.setattr(info, "facts", broken)
    line = complains(capsys, "info")
    assert "a bug in roipool: KeyError in test_hostile.py, line " in line


# ---- Standard output


@needs_posix
def test_standard_output_is_closed() -> None:
    run = run_program("compare", "--json", "-", stdout=None, preexec_fn=lambda: os.close(1))
    assert "standard output is closed" in one_line(run)


@pytest.mark.parametrize(("command", "unbuffered"), [("info", ""), ("verify", "1")])
def test_a_closed_pipe_is_no_error(command: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    run = run_program(command, stdout=writer, env=environment)
    os.close(writer)
    assert run.stderr == ""
    assert run.returncode in (0, 141)


@needs_posix
def test_a_full_disk_on_standard_output() -> None:
    with Path("/dev/full").open("w") as full:
        assert "No space left" in one_line(run_program("info", stdout=full))


# ---- Output files


@needs_posix
def test_a_replaced_file_keeps_its_permissions() -> None:
    Path("out.json").write_text("old")
    for mode in (0o600, 0o664):
        Path("out.json").chmod(mode)
        assert main(["compare", *FAST, "--json", "out.json"]) == 0
        assert Path("out.json").stat().st_mode & 0o777 == mode


def limit_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@needs_posix
@pytest.mark.parametrize(
    ("option", "name"),
    [("--json", "out.json"), pytest.param("--save", "figure.png", marks=needs_matplotlib)],
)
def test_a_full_disk(option: str, name: str) -> None:
    Path(name).write_text("old")
    run = run_program("compare", *FAST, option, name, preexec_fn=limit_files)
    assert f"error: {name}: " in one_line(run)
    assert names_here() == [name]
    assert Path(name).read_text() == "old"


@needs_posix
def test_a_disk_that_is_read_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error: /sys/out.json: " in fails(capsys, "--json", "/sys/out.json")


@needs_links
def test_another_name_of_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(save_map()).read_bytes()
    Path("link.json").symlink_to("map.npy")
    os.link("map.npy", "hard.json")
    for name in ("link.json", "hard.json", "./map.npy", f"{Path.cwd()}/map.npy"):
        assert "would overwrite the input" in fails(capsys, "map.npy", "--json", name)
    assert Path("map.npy").read_bytes() == before


@needs_posix
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/null"])
def test_a_device_is_no_input(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even by another name: reading /dev/zero would not end."""
    for link in ("x.npy", "x.npz", "x.png", "x"):
        Path(link).symlink_to(device)
        assert f"error: {link}: a device, not a file\n" in fails(capsys, link)
    for link in ("x.csv", "x.json", "x.npy"):
        if not Path(link).is_symlink():
            Path(link).symlink_to(device)
        assert f"error: {link}: a device, not a file\n" in fails(capsys, "--boxes", link)
    assert f"error: {device}: a device, not a file\n" in fails(capsys, "--boxes", device)
    Path("x.safetensors").symlink_to(device)
    if importlib.util.find_spec("safetensors"):
        assert "x.safetensors: a device, not a file" in fails(capsys, "x.safetensors")


@needs_posix
def test_a_bad_variable_that_is_not_utf8() -> None:
    run = run_program("info", env={**os.environ, "ROIPOOL_ISA": os.fsdecode(b"\xe9\n\x1b")})
    assert "ROIPOOL_ISA is " in one_line(run)


# ---- The program that tries many files


@needs_matplotlib
@needs_posix
def test_hostile_files() -> None:
    program = Path(__file__).parents[1] / "faults" / "hostile_files.py"
    command = [sys.executable, str(program), "--calls", "20", "--seed", "3"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "20 calls from 0 of seed 3, 0 failures" in run.stdout
