"""Write tables of benchmarks/README.md, README.md and docs/gpu.md from the files of results.

The text between the markers ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` is replaced.
benchmarks/run.sh runs this script last; it measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from roipool.cli.files import replacing

HERE = Path(__file__).parent
PEERS = ("torchvision", "mmcv", "onnxruntime", "openvino", "tensorflow", "mxnet", "paddle")
INFERENCE = ("onnxruntime", "openvino", "mxnet", "paddle")
NOT_MEASURED = "not yet measured"

Row = dict[str, Any]
Values = dict[str, float]


# Reading


def content(name: str) -> dict[str, Any]:
    """Return the content of a file of results, without rows if it does not exist."""
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def rows_of(name: str, **wanted: Any) -> list[Row]:
    """Return the rows of a file with the given values, without absent libraries."""
    rows = [row for row in content(name)["rows"] if not row.get("absent")]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def most_threads() -> int:
    """Return the largest number of threads measured."""
    return max((row["threads"] for row in rows_of("cpu")), default=0)


def ratios(codes: str, operation: str, libraries: Sequence[str]) -> Values:
    """Return each workload's ratio to the fastest of these libraries."""
    found = {}
    for code in codes.split():
        rows = rows_of("cpu", code=code, operation=operation, threads=most_threads())
        fastest = [row["ratio"] for row in rows if row["library"] in libraries]
        if fastest:
            found[code] = min(fastest)
    return found


def gpu_results() -> list[dict[str, Any]]:
    """Return the latest results of scripts/gpu.sh."""
    folders = sorted(HERE.glob("results-*"), key=lambda path: path.name[-10:])  # by date
    found = folders[-1].glob("bench*.json") if folders else []
    paths = sorted(found, key=lambda path: (path.stem != "bench", path.name))
    return [json.loads(path.read_text()) for path in paths]


def gpu_rows(**wanted: Any) -> list[Row]:
    """Return their rows with the given values, without absent libraries."""
    rows = [row for found in gpu_results() for row in found["rows"] if not row.get("absent")]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def gpu_ratios(operation: str, codes: str, dtype: str) -> Values:
    """Return the ratios of torchvision's time on a GPU to roipool's, for NCHW and a cold cache."""
    rows = gpu_rows(
        operation=operation, dtype=dtype, layout="NCHW", clock="cold", library="torchvision"
    )
    return {row["code"]: row["ratio"] for row in rows if row["code"] in codes.split()}


def gpu_floors() -> Values:
    """Return the times of forwards on a GPU, relative to the memory's time."""
    wanted = {"dtype": "float32", "layout": "NCHW", "clock": "cold", "library": "roipool"}
    rows = gpu_rows(operation="roi_align", **wanted)
    return {row["code"]: row["times_floor"] for row in rows}


def growth(series: str, operation: str = "roi_align") -> list[tuple[float, float]]:
    """Return the growth of the parameter and of the time in each step of a series."""
    rows = rows_of("scaling", series=series, operation=operation)
    return [(float(row["value"]) / float(rows[0]["value"]), row["growth"]) for row in rows]


# Writing


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Format a number with about three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def time(seconds: float) -> str:
    """Format a time with its unit."""
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} us"


def where(name: str) -> str:
    """Describe the machine and software of a file's measurements in one line."""
    machine = content(name).get("machine")
    if machine is None:
        return NOT_MEASURED
    commit = machine["commit"] or "unknown"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}; "
        f"Python {machine['python']}, NumPy {machine['numpy']}; {machine['date']}, "
        f"commit {commit[:12]}{'-dirty' if commit.endswith('-dirty') else ''}"
    )


# Targets: the goal, the measurement, and whether it meets the goal


def least(limit: float, values: Values) -> tuple[str, bool]:
    """Each value must reach the limit."""
    return listed(values, "x"), min(values.values()) >= limit


def most(limit: float, values: Values, unit: str = "x") -> tuple[str, bool]:
    """No value may be above the limit."""
    return listed(values, unit), max(values.values()) <= limit


def listed(values: Values, unit: str) -> str:
    """Format values with their names."""
    return ", ".join(f"{name} {number(value)}{unit}" for name, value in values.items())


def floors() -> Values:
    """Return the times of forwards into reused outputs, relative to the memory's time."""
    rows = rows_of("out-reuse")
    return {row["code"]: row["times_floor"] for row in rows if "backward" not in row["operation"]}


def instruction_sets() -> Values:
    """Return the ratio of AVX2's time to AVX-512's, on W1a."""
    medians = [
        row["median"]
        for name in ("isa-avx2", "isa-avx512")
        for row in rows_of(name, operation="roi_align")
    ]
    return {"W1a": medians[0] / medians[1]} if len(medians) == 2 else {}


def tiny_call() -> Values:
    """Return the microseconds of the smallest call."""
    rows = rows_of("calls", workload="tiny-call", operation="roi_align", library="roipool")
    return {row["workload"]: row["median"] * 1e6 for row in rows}


def small_call() -> Values:
    """Return the ratio of torchvision's time for a small call to roipool's."""
    rows = rows_of("calls", workload="small-call", operation="roi_align", library="torchvision")
    return {row["workload"]: row["ratio"] for row in rows}


def proportions() -> Values:
    """Return the time of 32 times the boxes or channels, relative to 32 times the time."""
    steps = {name: growth(name)[-1:] for name in ("boxes", "channels")}
    return {name: longer / more for name, step in steps.items() for more, longer in step}


def constants() -> Values:
    """Return the ratio of the longest to the first time, for parameters without effect."""
    names = ("samples per bin and axis", "cells of the map, 10 boxes")
    steps = {name: [longer for _, longer in growth(name)] for name in names}
    return {name: max(longer) for name, longer in steps.items() if longer}


FORWARD, BACKWARD = "roi_align", "roi_align_backward"
TORCHVISION = ("torchvision",)
TARGETS: tuple[tuple[str, Callable[[], Values], Callable[[Values], tuple[str, bool]]], ...] = (
    (
        "forward, float32 NCHW, against torchvision: 25x",
        lambda: ratios("W1a W1b W3a W5a", FORWARD, TORCHVISION),
        lambda values: least(25, values),
    ),
    (
        "the same against the fastest of ONNX Runtime, OpenVINO, MXNet, Paddle: 12x",
        lambda: ratios("W1a W1b W3a W5a", FORWARD, INFERENCE),
        lambda values: least(12, values),
    ),
    (
        "backward, float32 NCHW, against torchvision: 80x",
        lambda: ratios("W1a W5a", BACKWARD, TORCHVISION),
        lambda values: least(80, values),
    ),
    (
        "roi_pool forward against torchvision: 15x",
        lambda: ratios("W4a", "roi_pool", TORCHVISION),
        lambda values: least(15, values),
    ),
    (
        "crop_and_resize NHWC forward against TensorFlow: 1.5x",
        lambda: ratios("W6a W6b", "crop_and_resize", ("tensorflow",)),
        lambda values: least(1.5, values),
    ),
    (
        "crop_and_resize NHWC backward against TensorFlow: 3x",
        lambda: ratios("W6a W6b", "crop_and_resize_backward", ("tensorflow",)),
        lambda values: least(3, values),
    ),
    (
        "forward with `out=` reused: at most 3 times the memory time",
        floors,
        lambda values: most(3, values),
    ),
    (
        "AVX2: at most 1.5 times as long as AVX-512",
        instruction_sets,
        lambda values: most(1.5, values),
    ),
    (
        "one box of an 8 x 8 map, one channel: at most 15 us",
        tiny_call,
        lambda values: most(15, values, " us"),
    ),
    (
        "10 boxes of a map of 1 MB with 100 channels: faster than torchvision",
        small_call,
        lambda values: least(1, values),
    ),
    (
        "32 times as many boxes or channels: at most 1.3 x 32 times as long",
        proportions,
        lambda values: most(1.3, values),
    ),
    (
        "more samples, or more cells around few boxes: at most 1.3 times as long",
        constants,
        lambda values: most(1.3, values),
    ),
    (
        "GPU forward, float32 NCHW, against torchvision: 3x",
        lambda: gpu_ratios(FORWARD, "W1a W3a W5a", "float32"),
        lambda values: least(3, values),
    ),
    (
        "GPU forward, float16 NCHW, against torchvision: 4x",
        lambda: gpu_ratios(FORWARD, "W1a W3a W5a", "float16"),
        lambda values: least(4, values),
    ),
    (
        "GPU backward, float32 NCHW, deterministic, against torchvision: 2x",
        lambda: gpu_ratios(BACKWARD, "W1a W5a", "float32"),
        lambda values: least(2, values),
    ),
    (
        "GPU forward: at most 3 times the memory time",
        gpu_floors,
        lambda values: most(3, values),
    ),
)


def targets() -> str:
    """Return the table of targets."""
    rows = []
    for text, measured, judged in TARGETS:
        values = measured()
        found, met = judged(values) if values else (NOT_MEASURED, False)
        rows.append((text, found, ("yes" if met else "no") if values else ""))
    return table(("target", "measured", "met"), rows)


# The other tables


def comparison(rows: list[Row], memory_too: bool = True) -> str:
    """Return a table with a row for each operation of a workload, and a column for each library."""
    libraries = [name for name in PEERS if any(row["library"] == name for row in rows)]
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        key = (row["workload"], row["code"], row["operation"], row["threads"])
        cases.setdefault(key, {})[row["library"]] = row
    lines = []
    for (workload, code, operation, threads), found in cases.items():
        mine = found["roipool"]
        name = f"{workload} ({code})" if code else workload
        peers = [against(found.get(library)) for library in libraries]
        line = [name, f"`{operation}`", str(threads), time(mine["median"]), *peers]
        lines.append([*line, number(mine["times_floor"]), *([memory(mine)] if memory_too else [])])
    header = ["workload", "operation", "threads", "roipool", *libraries, "x floor"]
    return (
        table([*header, *(["peak / output"] if memory_too else [])], lines)
        if lines
        else NOT_MEASURED
    )


def against(row: Row | None) -> str:
    """Format a ratio, with a star if results differ by more than the tolerance."""
    if row is None:
        return ""
    return f"{number(row['ratio'])}x{'' if row['agreement']['agrees'] else '*'}"


def memory(row: Row) -> str:
    """Format the peak and the output in megabytes."""
    if row["peak_bytes"] is None:
        return ""
    return f"{number(row['peak_bytes'] / 1e6)} / {number(row['output_bytes'] / 1e6)} MB"


def reuse() -> str:
    """Return roipool's times by the memory that results are written to."""
    lines = []
    for row in rows_of("cpu", library="roipool", threads=most_threads()):
        same = {key: row[key] for key in ("code", "operation", "library", "threads")}
        others = [rows_of(name, **same) for name in ("out-reuse", "no-reuse")]
        if all(others):
            times = [row["median"], *(found[0]["median"] for found in others)]
            lines.append([row["code"], f"`{row['operation']}`", *map(time, times)])
    header = ("workload", "operation", "freed memory reused", "`out=` reused", "no memory reused")
    return table(header, lines) if lines else NOT_MEASURED


def types() -> str:
    """Return roipool's times for each type and layout."""
    rows = rows_of("dtypes")
    names = list(dict.fromkeys(row["dtype"] for row in rows))
    cases: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        key = (row["code"], f"`{row['operation']}`", row["layout"])
        cases.setdefault(key, {})[row["dtype"]] = row
    lines = [
        [*key, *(time(found[name]["median"]) for name in names)] for key, found in cases.items()
    ]
    return table(("workload", "operation", "layout", *names), lines) if rows else NOT_MEASURED


def alone() -> str:
    """Return roipool's times with and without other libraries in its process."""
    lines = []
    for row in rows_of("dtypes", dtype="float32", layout="NCHW"):
        same = {key: row[key] for key in ("code", "operation", "layout", "threads", "library")}
        lines += [
            [row["code"], f"`{row['operation']}`", time(row["median"]), time(beside["median"])]
            for beside in rows_of("cpu", **same)
        ]
    header = ("workload", "operation", "alone", "beside the others")
    return table(header, lines) if lines else NOT_MEASURED


def scaling() -> str:
    """Return the growth of each series, forward and backward."""
    rows = rows_of("scaling")
    tables = []
    for series in dict.fromkeys(row["series"] for row in rows):
        found = [row for row in rows if row["series"] == series]
        values = list(dict.fromkeys(row["value"] for row in found))
        lines = []
        for operation in dict.fromkeys(row["operation"] for row in found):
            steps = [row for row in found if row["operation"] == operation]
            growths = [f"{number(row['growth'])}x" for row in steps[1:]]
            lines.append([f"`{operation}`", time(steps[0]["median"]), *growths])
        tables.append(table((series, *values), lines))
    return "\n\n".join(tables) if tables else NOT_MEASURED


def traffic() -> str:
    """Return the instructions and traffic of each workload."""
    sizes = ("compulsory_bytes", "bytes_past_second_cache", "bytes_past_first_cache")
    lines = [
        [
            f"{row['workload']} ({row['code']})",
            f"`{row['operation']}`",
            f"{number(row['instructions'] / 1e6)} M",
            *(f"{number(row[size] / 1e6)} MB" for size in sizes),
        ]
        for row in rows_of("traffic")
    ]
    header = ("workload", "operation", "instructions", "compulsory", "past 2 MiB", "past 48 KiB")
    return table(header, lines) if lines else NOT_MEASURED


def many_cores() -> str:
    """Return the work of calls that are cut for several threads, and their expected speed-up."""
    rows = rows_of("many_cores")
    if not rows:
        return NOT_MEASURED
    threads = list(rows[0]["work"])[1:]
    lines = [
        [
            row["name"],
            f"{number(row['instructions'] / 1e6)} M",
            *(f"{row['work'][each]:.2f}x" for each in threads),
            *(f"{number(row['speed_up'][each])}x" for each in threads),
        ]
        for row in rows
    ]
    header = (
        "row",
        "instructions",
        *(f"work, {each} threads" for each in threads),
        *(f"speed-up, {each} threads" for each in threads),
    )
    return table(header, lines)


def gpu() -> str:
    """Return the times of calls on a GPU, and what the host takes for them."""
    cases: dict[tuple[str, ...], dict[tuple[str, str], Row]] = {}
    for row in gpu_rows():
        name = f"{row['workload']} ({row['code']})" if row["code"] else row["workload"]
        key = (name, f"`{row['operation']}`", row["dtype"], row["layout"])
        cases.setdefault(key, {})[row["clock"], row["library"]] = row
    lines = []
    for key, found in cases.items():
        mine, other = found["cold", "roipool"], found.get(("cold", "torchvision"))
        hosts = [found.get(("launch", library)) for library in ("roipool", "torchvision")]
        lines.append(
            [
                *key,
                time(mine["median"]),
                time(other["median"]) if other else "",
                f"{number(other['ratio'])}x" if other else "",
                number(mine["times_floor"]),
                ", ".join(time(row["median"]) for row in hosts if row),
            ]
        )
    if not lines:
        return NOT_MEASURED
    machine = gpu_results()[0]["machine"]
    header = ("workload", "operation", "type", "layout", "roipool", "torchvision", "ratio")
    text = table((*header, "x memory", "host"), lines)
    return (
        f"{text}\n\n{machine['device']}, CuPy {machine['cupy']}, Python {machine['python']}; "
        f"{machine['date']}, commit {machine['commit'][:12]}"
    )


# The workloads and libraries of the README's table, described for readers without a key.
README_WORKLOADS = {
    "W1a": "box head of Faster R-CNN, 4 maps, 1000 boxes",
    "W3a": "mask head of Mask R-CNN, 4 maps, 100 boxes",
    "W4a": "VGG16, 300 boxes",
    "W5a": "ResNet-50 C4, 1000 boxes",
    "W6a": "TensorFlow's box head, NHWC, 1000 boxes",
}
README_LIBRARIES = ("torchvision", "onnxruntime", "tensorflow")


def readme() -> str:
    """Return the speed table of the project's README."""
    rows = rows_of("readme", threads=2)
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["code"], row["operation"]), {})[row["library"]] = row
    lines = [
        [
            README_WORKLOADS[code],
            f"`{operation}`",
            time(libraries["roipool"]["median"]),
            *(against(libraries.get(library)) for library in README_LIBRARIES),
        ]
        for (code, operation), libraries in found.items()
    ]
    header = ("boxes and maps", "operation", "roipool", *README_LIBRARIES)
    return f"{table(header, lines)}\n\n{where('readme')}" if lines else NOT_MEASURED


def fill(path: Path, parts: dict[str, str]) -> None:
    """Replace the text between the markers of a file."""
    text = path.read_text()
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, _, rest = text.partition(begin)
        _, found, tail = rest.partition(end)
        if not found:
            raise ValueError(f"{path}: has no markers for {name}")
        text = f"{head}{begin}\n{part}\n{end}{tail}"
    with replacing(str(path)) as stream:
        stream.write(text.encode())


def main() -> None:
    """Fill all files."""
    fill(
        HERE / "README.md",
        {
            "machine": where("cpu"),
            "targets": targets(),
            "comparison": comparison(rows_of("cpu")),
            "more": comparison(rows_of("more"), memory_too=False),
            "reuse": reuse(),
            "stress": comparison([*rows_of("stress"), *rows_of("calls")], memory_too=False),
            "types": types(),
            "alone": alone(),
            "scaling": scaling(),
            "traffic": traffic(),
            "many-cores": many_cores(),
        },
    )
    fill(HERE.parent / "README.md", {"speed": readme()})
    fill(HERE.parent / "docs" / "gpu.md", {"gpu": gpu()})


if __name__ == "__main__":
    main()
