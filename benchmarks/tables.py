"""Write tables of benchmarks/README.md, README.md and pages of docs/ from the files of results.

The text between the markers ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` is replaced.
benchmarks/run.sh runs this script last; it measures nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.measured import (
    BENCHMARKS,
    NOT_MEASURED,
    Row,
    content,
    gpu_results,
    gpu_rows,
    most_threads,
    number,
    rows_of,
    table,
    time,
    where,
)
from targets import targets

from roipool.cli.files import replacing

PEERS = ("torchvision", "mmcv", "onnxruntime", "openvino", "tensorflow", "mxnet", "paddle")


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


def parts() -> str:
    """Return what misses a small cache with parts of maps for a large one, and for its own."""
    lines = []
    for row in rows_of("parts"):
        large, small = row["bytes_past_second_cache"].values()
        more = row["instructions"]["512 KiB"] / row["instructions"]["2 MiB"] - 1
        lines.append(
            [
                f"{row['workload']} ({row['code']})" if row["code"] else row["workload"],
                f"`{row['operation']}`",
                row["layout"],
                row["dtype"],
                *(f"{number(each / 1e6)} MB" for each in (large, small)),
                *(f"{round(100 * each):+} %" for each in (small / large - 1, more)),
            ]
        )
    sizes = ("parts for 2 MiB", "parts for 512 KiB")
    header = ("workload", "operation", "layout", "type", *sizes, "bytes", "instructions")
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


def arm64() -> str:
    """Return the engine's instructions on arm64 beside those with AVX2."""
    rows = rows_of("arm64")
    lines = [
        [
            row["name"],
            *(number(row[processor] / row["outputs"]) for processor in ("neon", "avx2")),
            f"{row['ratio']:.2f}x",
        ]
        for row in rows
    ]
    if not rows:
        return NOT_MEASURED
    header = ("case", "NEON, per output", "AVX2, per output", "ratio by width")
    found = content("arm64")
    return f"{table(header, lines)}\n\n{'; '.join(found['software'])}; {found['date']}"


def busy_cores() -> str:
    """Return the times of large calls beside busy processes, on two threads beside one."""
    rows = rows_of("busy-cores", workload="fpn-box")
    lines = []
    for mine in (row for row in rows if row["threads"] == 1):
        same = {key: mine[key] for key in ("workload", "operation", "busy")}
        line = [f"`{mine['operation']}`", str(mine["busy"]), time(mine["median"])]
        for pool in (False, True):
            [other] = rows_of("busy-cores", **same, threads=2, pool=pool)
            line += [f"{other[key] / mine[key]:.2f}x" for key in ("median", "p90", "processor")]
        lines.append(line)
    columns = [f"{team}: {key}" for team in ("OpenMP", "pool") for key in ("median", "p90", "CPU")]
    header = ("operation", "busy processes", "one thread", *columns)
    return f"{table(header, lines)}\n\n{where('busy-cores')}" if lines else NOT_MEASURED


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


# Files of results of the README's workloads, of one make of processor each.
MAKES = ("readme", "readme-epyc")


def makes() -> str:
    """Return the README's workloads on each make of processor that they were measured on."""
    found = [rows_of(name, library="roipool", threads=2) for name in MAKES]
    if not all(found):
        return NOT_MEASURED
    lines = []
    for row in found[0]:
        same = {key: row[key] for key in ("code", "operation", "threads")}
        line = [row["code"], f"`{row['operation']}`"]
        for name in MAKES:
            libraries = {one["library"]: one for one in rows_of(name, **same)}
            mine = libraries["roipool"]
            line += [time(mine["median"]), against(libraries.get("torchvision"))]
        lines.append(line)
    names = [content(name)["machine"]["cpu"].partition("(")[0] for name in MAKES]
    columns = [column for name in names for column in (name, "torchvision")]
    text = table(("workload", "operation", *columns), lines)
    return "\n\n".join((text, *map(where, MAKES)))


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
        BENCHMARKS / "README.md",
        {
            "machine": where("cpu"),
            "comparison": comparison(rows_of("cpu")),
            "new-pages": comparison(rows_of("new-pages"), memory_too=False),
            "makes": makes(),
            "more": comparison(rows_of("more"), memory_too=False),
            "reuse": reuse(),
            "stress": comparison([*rows_of("stress"), *rows_of("calls")], memory_too=False),
            "types": types(),
            "alone": alone(),
            "scaling": scaling(),
            "traffic": traffic(),
            "parts": parts(),
            "many-cores": many_cores(),
            "arm64": arm64(),
        },
    )
    fill(BENCHMARKS.parent / "README.md", {"speed": readme()})
    fill(BENCHMARKS.parent / "docs" / "internals" / "targets.md", {"targets": targets()})
    fill(BENCHMARKS.parent / "docs" / "gpu.md", {"gpu": gpu()})
    fill(BENCHMARKS.parent / "docs" / "performance.md", {"busy-cores": busy_cores()})


if __name__ == "__main__":
    main()
