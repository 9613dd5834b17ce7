"""All forms of input of the command line, and rejected input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from _support.cli_runs import FAST, fails, given_to_a_system, save_map
from _support.platforms import needs_matplotlib

from roipool.cli import files, main
from roipool.compat import tensorflow
from roipool.tools.compare.engines import ENGINES
from roipool.tools.compare.systems import SYSTEMS

Image = pytest.importorskip("PIL.Image")

BOXES = [[1.0, 2.0, 9.0, 8.0], [0.5, 0.0, 4.25, 3.0]]
ROIS = [[0.0, *box] for box in BOXES]


# Accepted input


@needs_matplotlib
def test_batch_indices_reach_the_systems() -> None:
    np.save("boxes.npy", [[2, 0, 0, 3, 3], [0, 1, 1, 2, 2]])
    name = save_map(shape=(3, 2, 4, 5))
    seen = given_to_a_system(name, "--boxes", "boxes.npy", "--save", "figure.png")
    assert seen.rois[:, 0].tolist() == [2, 0]


@pytest.mark.thorough
@needs_matplotlib
@pytest.mark.parametrize("text", ["nan,0,4,4\n0,-inf,inf,4\n3,3,1,1\n", "", "# none\n"])
def test_strange_boxes_are_no_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("boxes.csv").write_text(text)
    arguments = ["compare", "--boxes", "boxes.csv", "--output-size", "2", "--json", "out.json"]
    assert main([*arguments, "--save", "figure.png"]) == 0
    content = json.loads(Path("out.json").read_text())
    assert content["input"]["boxes_count"] == text.count("\n") - text.count("#")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shape", [(10, 12), (2, 10, 12), (1, 2, 10, 12), (3, 1, 10, 12)])
@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "int64", "bool", ">f4"])
def test_feature_maps(shape: tuple[int, ...], dtype: str) -> None:
    values = (np.arange(np.prod(shape)).reshape(shape) % 100).astype(dtype)
    np.save("map.npy", values)
    seen = given_to_a_system("map.npy", "--spatial-scale", "1/2")
    assert seen.features.dtype == np.float32
    assert np.array_equal(seen.features, values.reshape((1,) * (4 - len(shape)) + shape))
    assert seen.rois[0].tolist() == [0, 0, 0, 24, 20]  # box coordinates are image pixels


def test_archives_of_arrays() -> None:
    np.savez("one.npz", anything=np.ones((4, 5)))
    np.savez("two.npz", features=np.ones((6, 7)), other=np.zeros(1))
    seen = given_to_a_system("one.npz")
    assert seen.features.shape == (1, 1, 4, 5)
    seen = given_to_a_system("two.npz")
    assert seen.features.shape == (1, 1, 6, 7)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_picture_modes(mode: str) -> None:
    if mode == "I;16":
        picture = Image.fromarray(np.full((6, 8), 65535, np.uint16))
    elif mode in ("I", "F"):
        picture = Image.new(mode, (8, 6), 65535 if mode == "I" else 1)
    else:
        picture = Image.new("RGB", (8, 6), "white").convert(mode)
    picture.save("picture.tiff")
    seen = given_to_a_system("picture.tiff")
    assert seen.features.shape == (1, 3, 6, 8)
    assert seen.features.dtype == np.float32
    assert np.allclose(seen.features, 1, atol=0.01)


def test_transparency_is_white_and_orientation_is_honoured() -> None:
    Image.new("RGBA", (8, 6), (0, 0, 0, 0)).save("clear.png")
    seen = given_to_a_system("clear.png")
    assert np.all(seen.features == 1)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (8, 6)).save("turned.jpg", exif=exif)
    seen = given_to_a_system("turned.jpg")
    assert seen.features.shape == (1, 3, 8, 6)


@pytest.mark.parametrize("name", ["moving.gif", "pages.tiff"])
def test_the_first_of_several_pictures_is_noted(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    black, white = Image.new("L", (8, 6)), Image.new("L", (8, 6), 255)
    for more, is_noted in (([], False), ([white], True)):
        black.save(name, save_all=True, append_images=more)
        assert main(["compare", *FAST, name]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert (f"note: {name} has several pictures: the first is read" in printed) == is_noted


def test_picture_is_resized_so_that_boxes_land_on_it() -> None:
    picture = Image.new("RGB", (40, 20))
    picture.paste((255, 255, 255), (20, 0, 40, 20))
    picture.save("half.png")
    seen = given_to_a_system("half.png", "--spatial-scale", "0.25")
    assert seen.features.shape == (1, 3, 5, 10)
    assert np.all(seen.features[..., :4] == 0)
    assert np.all(seen.features[..., 6:] == 1)
    assert seen.rois[0].tolist() == [0, 0, 0, 40, 20]


def test_chosen_boxes_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", save_map(), *FAST]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "10 boxes (no --boxes given: the whole map and its 3 x 3 parts)" in out


@pytest.mark.parametrize("scale", ["1e-320", "1e-40"])
@pytest.mark.parametrize(
    "arguments", [["map.npy"], ["--make", "1x4x5"], ["--make", "1x3x4x5"], ["--volume"]]
)
def test_a_scale_of_almost_0_warns_of_nothing(
    scale: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    save_map()
    assert main(["compare", *arguments, "--systems", "*", "--spatial-scale", scale]) == 0
    assert capsys.readouterr().err == ""


# Rejected input


def test_bad_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("flat.npy", np.zeros(4))
    np.save("deep.npy", np.zeros((1, 1, 1, 1, 1, 1)))
    np.save("complex.npy", np.zeros((4, 4), complex))
    np.save("object.npy", np.array([{}, None]), allow_pickle=True)
    np.savez("several.npz", a=np.zeros(1), b=np.zeros(1))
    Path("text.npy").write_text("hello")
    Path("text.npz").write_text("hello")
    Path("empty.npy").touch()
    whole = Path(save_map()).read_bytes()
    Path("cut.npy").write_bytes(whole[:-8])
    assert "needs shape (K, 4) or (K, 5)" in fails(capsys, "map.npy", "--boxes", "flat.npy")
    assert "needs shape (H, W)" in fails(capsys, "deep.npy")
    assert "complex" in fails(capsys, "complex.npy")
    assert "a, b" in fails(capsys, "several.npz")
    for name in ("object.npy", "text.npy", "text.npz", "empty.npy", "cut.npy"):
        assert f"{name}: not an array" in fails(capsys, name)


def test_bad_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save("whole.png")
    whole = Path("whole.png").read_bytes()
    Path("cut.png").write_bytes(whole[: len(whole) // 2])
    Path("header.png").write_bytes(whole[:30])
    Path("text.png").write_text("not a picture")
    Path("folder.png").mkdir()
    assert "cut.png: damaged" in fails(capsys, "cut.png")
    assert "header.png: " in fails(capsys, "header.png")
    assert "text.png: not a picture" in fails(capsys, "text.png")
    assert "folder.png" in fails(capsys, "folder.png")
    assert "missing.png: No such file" in fails(capsys, "missing.png")
    assert "missing.npy: No such file" in fails(capsys, "missing.npy")
    assert "missing.csv: No such file" in fails(capsys, "whole.png", "--boxes", "missing.csv")


# ---- Boxes in other forms, maps in other files


@pytest.mark.parametrize("scale", [1.0, 0.5, 1 / 3, 0.3, 0.07])
def test_fractions_of_tensorflow_are_returned_to_it(scale: float) -> None:
    """TensorFlow gets the numbers of the file; a whole map of ones is pooled to ones."""
    rng = np.random.default_rng(0)
    for shape in [(1, 9, 12), (1, 8, 47), (1, 16, 15)]:
        fractions = np.vstack([[[0, 0, 1, 1]], rng.uniform(-0.5, 1.5, (20, 4))])
        np.savetxt("boxes.csv", fractions, header="y1,x1,y2,x2", delimiter=",", fmt="%.17g")
        features = rng.uniform(1, 2, (1, *shape)).astype(np.float32)
        np.save("map.npy", features)
        given = given_to_a_system(
            *("map.npy", "--boxes", "boxes.csv", "--spatial-scale", str(scale)),
            *("--box-format", "tensorflow", "--output-size", "4"),
        )
        pooled = ENGINES["cpu"](SYSTEMS["tensorflow.crop_and_resize"])(given, "forward")
        expected = tensorflow.crop_and_resize(
            features.transpose(0, 2, 3, 1), fractions.astype(np.float32), [0] * 21, (4, 4)
        )
        assert (pooled[0] > 0).all()
        outside = (pooled == 0) != (expected.transpose(0, 3, 1, 2) == 0)
        assert not outside.any()
        np.testing.assert_allclose(pooled, expected.transpose(0, 3, 1, 2), atol=2e-5)


def test_fractions_of_tensorflow_are_not_pixels(capsys: pytest.CaptureFixture[str]) -> None:
    save_map()
    Path("boxes.csv").write_text("0,0,1,1\n")
    Path("coco.json").write_text('{"annotations": [{"bbox": [1, 2, 8, 6]}]}')
    form = ["--box-format", "tensorflow"]
    error = fails(capsys, "map.npy", "--boxes", "boxes.csv", *form, "--normalized")
    assert "--normalized: boxes of --box-format tensorflow are fractions" in error
    error = fails(capsys, "map.npy", "--boxes", "coco.json", *form)
    assert "annotation 1: 'bbox' is in pixels" in error
    assert main(["compare", *FAST, "map.npy", "--boxes", "boxes.csv"]) == 0
    assert "TensorFlow's --box-format tensorflow" in " ".join(capsys.readouterr().out.split())


def test_safetensors(capsys: pytest.CaptureFixture[str]) -> None:
    files = pytest.importorskip("safetensors.numpy")
    values = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    files.save_file({"features": values, "other": values[0]}, "map.safetensors")
    given = given_to_a_system("map.safetensors")
    np.testing.assert_array_equal(given.features, values[None].astype(np.float32))
    capsys.readouterr()
    files.save_file({"a": values, "b": values}, "map.safetensors")
    assert "it contains a, b" in fails(capsys, "map.safetensors")
    Path("map.safetensors").write_bytes(b"\xff" * 64)
    assert "not an array that can be read" in fails(capsys, "map.safetensors")
    header = b'{"features":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}'
    Path("map.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert "of type BF16" in fails(capsys, "map.safetensors")


def test_a_made_map() -> None:
    given = given_to_a_system("--make", "3x8x10", "--spatial-scale", "0.5")
    assert given.features.shape == (1, 3, 8, 10)
    again = given_to_a_system("--make", "3x8x10", "--spatial-scale", "0.5")
    np.testing.assert_array_equal(given.features, again.features)
    assert given.rois[:, 1:].max() > 20  # beyond a picture of twice the size
    assert (given.rois[:, 3] < given.rois[:, 1]).any()  # reversed


def test_two_options_may_not_write_one_file_by_two_names(tmp_path: Path) -> None:
    names = str(tmp_path / "file.json"), f"{tmp_path}/../{tmp_path.name}/file.json"
    with pytest.raises(ValueError, match="both --json and --page would write it"):
        files.check_outputs(dict(zip(("--json", "--page"), names, strict=True)))
