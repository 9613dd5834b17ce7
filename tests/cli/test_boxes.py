"""Boxes in every form and of other programs, rejected files, notes and hints at options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _support.cli_runs import FAST, complains, fails, given_to_a_system, save_map

from roipool.cli import main
from roipool.tools.compare.systems import SYSTEMS, VOLUME_SYSTEMS

VOC = """<annotation><filename>a.jpg</filename>
<object><name>cat</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>8</xmax><ymax>7</ymax></bndbox></object>
<object><bndbox><ymax>9.5</ymax><xmin>1</xmin><xmax>4</xmax><ymin>2</ymin></bndbox></object>
</annotation>"""
LABELME = {
    "imagePath": "a.jpg",
    "shapes": [
        {"label": "cat", "points": [[8, 7], [2, 3]], "shape_type": "rectangle"},
        {"label": "dog", "points": [[1, 2], [4, 5], [3, 9.5]], "shape_type": "polygon"},
        {"label": "sun", "points": [[5, 5], [5, 3]], "shape_type": "circle"},
    ],
}
POLYGON = {"type": "Polygon", "coordinates": [[[2, 3], [8, 3], [8, 7], [2, 3]]]}
MANY = {"type": "MultiPolygon", "coordinates": [[[[1, 2], [4, 5], [1, 2]]], [[[3, 9.5], [1, 2]]]]}
GEOJSON = {
    "type": "FeatureCollection",
    "features": [{"type": "Feature", "geometry": each} for each in (POLYGON, MANY)],
}
FIRST, SECOND = [0, 2, 3, 8, 7], [0, 1, 2, 4, 9.5]
BOXES = [[1.0, 2.0, 9.0, 8.0], [0.5, 0.0, 4.25, 3.0]]
ROIS = [[0.0, *box] for box in BOXES]


# ---- Forms of boxes


@pytest.mark.parametrize(
    "text",
    [
        "1,2,9,8\n0.5,0,4.25,3\n",
        "0,1,2,9,8\r\n0,0.5,0,4.25,3\r\n",
        "1;2;9;8\n0.5;0;4.25;3",
        "1\t2\t9\t8\n0.5\t0\t4.25\t3\n",
        "1 2  9 8\n 0.5 0 4.25 3\n",
        "# drawn by hand\n1, 2, 9, 8\n\n0.5, 0, 4.25, 3\n",
        '"x1","y1","x2","y2"\n1,2,9,8\n0.5,0,4.25,3\n',
        "\ufeffy2,X2,label,y1,x1,batch_index\n8,9,cup,2,1,0\n3,4.25,,0,0.5,0\n",
        "xmin ymin xmax ymax\n1 2 9 8\n.5 0 4.25 3e0\n",
        "# y1 x1 y2 x2\n2 1 8 9\n0 0.5 3 4.25\n",
    ],
)
def test_csv_forms(text: str) -> None:
    Path("boxes.csv").write_text(text, encoding="utf-8", newline="")
    seen = given_to_a_system(save_map(), "--boxes", "boxes.csv")
    assert seen.rois.dtype == np.float32
    assert seen.rois.tolist() == ROIS


@pytest.mark.parametrize(
    "content",
    [
        BOXES,
        ROIS,
        {"boxes": BOXES},
        [{"x1": x1, "y2": y2, "x2": x2, "y1": y1} for x1, y1, x2, y2 in BOXES],
        {"boxes": [{"x1": a, "y1": b, "x2": c, "y2": d, "batch_index": 0} for a, b, c, d in BOXES]},
        [{"bbox": [a, b, c - a, d - b], "image_id": 7, "score": 0.5} for a, b, c, d in BOXES],
        {"annotations": [{"bbox": [a, b, c - a, d - b], "image_id": 3} for a, b, c, d in BOXES]},
        {
            "images": [{"id": 1, "file_name": "other.npy"}, {"id": 2, "file_name": "x/map.npy"}],
            "annotations": [
                {"bbox": [0, 0, 1, 1], "image_id": 1},
                *({"bbox": [a, b, c - a, d - b], "image_id": 2} for a, b, c, d in BOXES),
            ],
        },
    ],
)
def test_json_forms(content: Any) -> None:
    Path("boxes.json").write_text(json.dumps(content))
    seen = given_to_a_system(save_map(), "--boxes", "boxes.json")
    assert seen.rois.tolist() == ROIS


@pytest.mark.parametrize("rows", [BOXES, ROIS])
def test_array_of_boxes(rows: list[list[float]]) -> None:
    np.save("boxes.npy", rows)
    seen = given_to_a_system(save_map(), "--boxes", "boxes.npy")
    assert seen.rois.tolist() == ROIS


# By the form: a box of a map of 12 x 10 cells, or of a volume of 10 x 8 x 5, in pixels.
BOX_OF_FORM = {
    "xyxy": [2, 3, 8, 7],
    "yxyx": [3, 2, 7, 8],
    "xywh": [2, 3, 6, 4],
    "cxcywh": [5, 5, 6, 4],
    "xyzxyz": [2, 3, 1, 8, 7, 4],
    "zyxzyx": [1, 3, 2, 4, 7, 8],
    "yxyxzz": [3, 2, 7, 8, 1, 4],
    "xyzwhd": [2, 3, 1, 6, 4, 3],
    "cxcyczwhd": [5, 5, 2.5, 6, 4, 3],
}


def write_boxes(path: str, row: list[float]) -> None:
    """Write one box in the form of the file's suffix; a line of a volume's begins with an image."""
    match Path(path).suffix:
        case ".csv":
            image = [0] if len(row) == 6 else []
            Path(path).write_text(",".join(map(str, [*image, *row])) + "\n")
        case ".json":
            Path(path).write_text(json.dumps([row]))
        case ".npy":
            np.save(path, [row])
        case _:
            files = pytest.importorskip("safetensors.numpy")
            files.save_file({"boxes": np.array([row])}, path)


@pytest.mark.parametrize("form", BOX_OF_FORM)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "json", "npy", "safetensors"])
def test_forms_of_boxes(form: str, normalized: bool, suffix: str) -> None:
    row, deep = BOX_OF_FORM[form], "z" in form
    save_map("map.npy", (5, 8, 10) if deep else (2, 10, 12))
    if normalized:
        depth, rows, columns = (5, 8, 10) if deep else (0, 10, 12)
        sizes = {"x": columns, "w": columns, "y": rows, "h": rows, "z": depth, "d": depth}
        row = [value / sizes[axis] for value, axis in zip(row, form.replace("c", ""), strict=True)]
    write_boxes(f"boxes.{suffix}", row)
    options = [*(["--volume"] if deep else []), *(["--normalized"] if normalized else [])]
    given = given_to_a_system(
        "map.npy", "--boxes", f"boxes.{suffix}", "--box-format", form, *options
    )
    expected = [0, 2, 3, 1, 8, 7, 4] if deep else [0, 2, 3, 8, 7]
    np.testing.assert_allclose(given.rois, [expected], rtol=1e-6)


def test_boxes_with_an_angle() -> None:
    save_map()
    Path("boxes.csv").write_text("angle,cx,cy,w,h\n90,5,6,7,8\n")
    Path("boxes.json").write_text('{"annotations": [{"bbox": [1, 2, 8, 6]}]}')
    form = ["--box-format", "cxcywha"]
    given = given_to_a_system("map.npy", "--boxes", "boxes.csv", *form, "--degrees")
    np.testing.assert_allclose(given.rois, [[0, 5, 6, 7, 8, np.pi / 2]], rtol=1e-6)
    given = given_to_a_system("map.npy", "--boxes", "boxes.json", *form)
    np.testing.assert_array_equal(given.rois, [[0, 5, 5, 8, 6, 0]])


def test_a_heading_of_another_form_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("boxes.csv").write_text("x,y,w,h\n1,2,3,4\n")
    line = fails(capsys, save_map(), "--boxes", "boxes.csv")
    assert "--box-format xywh has these" in line
    Path("boxes.json").write_text("[[1, 2, 3]]")
    assert "boxes have 4 numbers x1, y1, x2, y2" in fails(capsys, "--boxes", "boxes.json")


# ---- Files of other programs


@pytest.mark.parametrize(
    ("name", "text", "rois"),
    [
        ("boxes.xml", VOC, [FIRST, SECOND]),
        ("boxes.json", json.dumps(LABELME), [FIRST, SECOND, [0, 3, 3, 7, 7]]),
        ("boxes.geojson", json.dumps(GEOJSON), [FIRST, SECOND]),
        ("boxes.json", json.dumps(POLYGON), [FIRST]),
        ("boxes.xml", "<annotation/>", np.zeros((0, 5))),
    ],
)
@pytest.mark.parametrize("form", ["xyxy", "cxcywh", "yxyx"])
def test_files_of_annotation_programs(name: str, text: str, rois: Any, form: str) -> None:
    Path(name).write_text(text)
    given = given_to_a_system(save_map(), "--boxes", name, "--box-format", form)
    np.testing.assert_allclose(given.rois, rois)


def test_labels_of_yolo() -> None:
    save_map(shape=(2, 10, 20))
    Path("a.txt").write_text(
        "47 0.5 0.5 0.2 0.3\n0 0.25 0.5 0.5 1 0.93\n1 0 0.1 0.5 0.2 0.25 0.6\n"
    )
    given = given_to_a_system("map.npy", "--boxes", "a.txt", "--box-format", "yolo")
    expected = [[0, 8, 3.5, 12, 6.5], [0, 0, 0, 10, 10], [0, 0, 1, 10, 6]]
    np.testing.assert_allclose(given.rois, expected, rtol=1e-6)


def test_a_column_names_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    save_map("a.npy")
    save_map("c.npy")
    Path("f.csv").write_text("filename,x1,y1,x2,y2\nin/a.jpg,2,3,8,7\nb.jpg,1,1,2,2\n")
    given = given_to_a_system("a.npy", "--boxes", "f.csv")
    np.testing.assert_array_equal(given.rois, [FIRST])
    capsys.readouterr()
    wrong = fails(capsys, "c.npy", "--boxes", "f.csv")
    assert "no line has the filename c.npy; name a map after its picture, such as a.npy" in wrong
    made = fails(capsys, "--make", "1x9x9", "--boxes", "f.csv")
    assert "boxes of several pictures; give the IMAGE" in made
    Path("one.csv").write_text("filename,x1,y1,x2,y2\nb.jpg,2,3,8,7\n")
    np.testing.assert_array_equal(given_to_a_system("a.npy", "--boxes", "one.csv").rois, [FIRST])


def test_a_map_has_the_coco_boxes_of_its_picture() -> None:
    save_map("a.npy")
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
    found = [{"image_id": n, "bbox": [2 * n, 3, 6, 4]} for n in (1, 2)]
    Path("coco.json").write_text(json.dumps({"images": images, "annotations": found}))
    given = given_to_a_system("a.npy", "--boxes", "coco.json")
    np.testing.assert_array_equal(given.rois, [FIRST])


@pytest.mark.parametrize(
    ("lines", "notes"),
    [
        (["7200 100 17400 300", "1 1 5 5"], ["note: 1 of 2 boxes is outside the map"]),
        (["nan 0 5 5"], ["note: 1 of 1 boxes is not finite"]),
        (["-9 -9 -4 -4", "2 9 3 11"], ["1 of 2 boxes is outside the map"]),
        (["2 7 9 2", "8 9 4 1"], ["2 of 2 boxes are reversed", "--box-format xywh?"]),
        (["1 1 5 5", "0 0 12 10"], []),
        (["1 1 50 50"], ["1 of 1 boxes is partly far beyond the map"]),
    ],
)
def test_boxes_that_look_wrong_are_noted(
    lines: list[str], notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    save_map()
    Path("boxes.csv").write_text("\n".join(lines))
    assert main(["compare", *FAST, "map.npy", "--boxes", "boxes.csv"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(note in printed for note in notes), printed
    assert ("note:" in printed) == bool(notes)


def test_boxes_of_this_program_are_not_noted(capsys: pytest.CaptureFixture[str]) -> None:
    for image in ([], ["--make", "1x9x9"], [save_map()]):
        assert main(["compare", *FAST, *image]) == 0
        assert "note:" not in capsys.readouterr().out


def test_the_list_of_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [*SYSTEMS, *VOLUME_SYSTEMS]


@pytest.mark.parametrize(
    ("given", "meant"), [("--spatial-scle", "--spatial-scale"), ("--box-fromat=x", "--box-format")]
)
def test_a_misspelt_option_gets_a_suggestion(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"; did you mean {meant}?" in complains(capsys, "compare", given, "2")
    assert "did you mean" not in complains(capsys, "compare", "--qqqqqqqqqqqq")


# ---- Rejected files

NOT_BOXES = {
    "line.csv": ("1,2,3,4\n1,2,3,x\n", "line.csv, line 2: 'x' is not a number"),
    "text.csv": ("1,2,3,4\n1,2,,4\n", "line 2: '' is not a number"),
    "few.csv": ("1,2,3,4\n\n1,2,3\n", "line 3: 3 columns"),
    "many.csv": ("1,2,3,4,5,6\n", "line 1: 6 columns"),
    "ragged.csv": ("1,2,3,4\n0,1,2,3,4\n", "line 2: 5 numbers, but the first box has 4"),
    "wide.csv": ("x,y,w,h\n1,2,3,4\n", "line 1: neither numbers nor a heading"),
    "half.csv": ("x1,y1,x2,y2\n1,2,3\n", "line 2: 3 columns, but the heading has 4"),
    "index.csv": ("0,1,2,3,4\n0.5,1,2,3,4\n", "line 2: the batch index is 0.5"),
    "image.csv": ("1,1,2,3,4\n", "line 1: the batch index is 1"),
    "minus.csv": ("-1,1,2,3,4\n", "the batch index is -1"),
    "nan.csv": ("nan,1,2,3,4\n", "the batch index is nan"),
    "bytes.csv": ("\ud800", "not a text file in UTF-8"),
    "bad.json": ("[[1,2,3,4]", "not valid JSON"),
    "deep.json": ("[" * 100_000, "deep.json: "),
    "number.json": ("3", "the boxes must be a list, not 3"),
    "object.json": ("{}", "needs 'boxes', COCO's 'annotations', LabelMe's"),
    "three.json": ("[[1,2,3,4],[1,2,3]]", "box 2: 3 numbers"),
    "word.json": ('[[1,2,3,"4"]]', "box 1: '4' is a string"),
    "null.json": ("[[1,2,3,null]]", "box 1: None is not a number"),
    "true.json": ("[[1,2,3,true]]", "box 1: True is not a number"),
    "huge.json": (f"[[1,2,3,1{'0' * 400}]]", "box 1: the number is too large"),
    "key.json": ('[{"x1": 1, "y1": 2, "x2": 3}]', "box 1: has no 'y2'"),
    "bbox.json": ('[{"bbox": [1,2,3]}]', "box 1: 'bbox' has 3 numbers"),
    "mixed.json": ('[{"bbox": [1,2,3,4], "image_id": 1}, {"bbox": [1,2,3,4], "image_id": 2}]', "2"),
    "mask.json": ('{"annotations": [{"image_id": 1}]}', "annotation 1: has no 'bbox'"),
    "coco.json": (
        (
            '{"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],'
            ' "annotations": []}'
        ),
        "no image has the file_name map.npy; name a map after its picture, such as a.npy",
    ),
}


@pytest.mark.parametrize("name", NOT_BOXES)
def test_bad_boxes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = NOT_BOXES[name]
    Path(name).write_text(text, encoding="utf-8", errors="surrogatepass")
    line = fails(capsys, save_map(), "--boxes", name, "--json", "out.json")
    assert name in line
    assert message in line


def test_coco_of_several_images_needs_to_know_which(capsys: pytest.CaptureFixture[str]) -> None:
    Path("coco.json").write_text(NOT_BOXES["coco.json"][0])
    assert "give the IMAGE" in fails(capsys, "--boxes", "coco.json")


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.txt", "47 0.5 0.5 0.2 0.3\n", [], "labels of YOLO need --box-format yolo"),
        ("a.txt", "0 0.5 0.5\n", ["--box-format", "yolo"], "a.txt, line 1: 3 numbers, but a box"),
        ("a.txt", "cat 0 0 1 1\n", ["--box-format", "yolo"], "line 1: 'cat' is not a number"),
        ("a.txt", "0.5 0 0 1 1\n", ["--box-format", "yolo"], "is not the number of a class"),
        ("a.xml", "<annotation>", [], "a.xml: not valid XML"),
        ("a.xml", "<kml/>", [], "XML without 'bndbox'"),
        ("a.xml", VOC.replace("<xmin>2</xmin>", ""), [], "object 1: xmin: is not a number"),
        ("a.xml", VOC.replace(">3<", ">x<"), [], "object 1: ymin: 'x' is not a number"),
        ("a.json", '{"shapes": 3}', [], "'shapes' must be a list"),
        ("a.json", '{"shapes": [{"points": []}]}', [], "shape 1: has no points"),
        ("a.json", '{"shapes": [3]}', [], "shape 1: has no points"),
        ("a.geojson", '{"type": "Feature", "geometry": null}', [], "feature 1: has no geometry"),
        ("a.geojson", '{"type": "Point", "coordinates": [1]}', [], "a point has x and y"),
        ("a.json", '{"shape": []}', [], "LabelMe's 'shapes' or GeoJSON's 'features'"),
        ("a.xml", VOC, ["--box-format", "yolo"], "is in pixels, not in fractions"),
    ],
)
def test_damaged_annotations(
    name: str, text: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_map()
    Path(name).write_text(text)
    assert message in fails(capsys, "map.npy", "--boxes", name, *options)
