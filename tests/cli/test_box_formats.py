"""Boxes of annotation programs, notes on boxes that look wrong, and hints at options."""

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


def test_a_column_names_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    save_map("a.npy")
    save_map("c.npy")
    Path("f.csv").write_text("filename,x1,y1,x2,y2\nin/a.jpg,2,3,8,7\nb.jpg,1,1,2,2\n")
    given = given_to_a_system("a.npy", "--boxes", "f.csv")
    np.testing.assert_array_equal(given.rois, [FIRST])
    capsys.readouterr()
    assert "no line has the filename c.npy" in fails(capsys, "c.npy", "--boxes", "f.csv")
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
