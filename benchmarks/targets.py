"""The targets of roipool's speed, judged by the files of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from harness.measured import (
    NOT_MEASURED,
    Values,
    content,
    gpu_floors,
    gpu_ratios,
    gpu_results,
    growth,
    number,
    ratios,
    rows_of,
    table,
)

FORWARD, BACKWARD = "roi_align", "roi_align_backward"
TORCHVISION = ("torchvision",)
INFERENCE = ("onnxruntime", "openvino", "mxnet", "paddle")


class Target(NamedTuple):
    """A target: what it says, the values that it is about, and whether each of them meets it.

    Attributes
    ----------
    text : str
        The target.
    measured : callable
        Returns values by their names, none if there are no results.
    is_met : callable
        Says of one value whether it meets the target.
    reason : str
        Why values miss it, where they do.
    unit : str
        Of the values.
    """

    text: str
    measured: Callable[[], Values]
    is_met: Callable[[float], bool]
    reason: str = ""
    unit: str = "x"

    def row(self) -> Sequence[str]:
        """Return the target's row of the table."""
        values = self.measured()
        if not values:
            return self.text, NOT_MEASURED, "", ""
        found = ", ".join(f"{name} {number(value)}{self.unit}" for name, value in values.items())
        met = all(map(self.is_met, values.values()))
        return self.text, found, "yes" if met else "no", "" if met else self.reason


def at_least(limit: float) -> Callable[[float], bool]:
    """Return whether a value reaches the limit."""
    return lambda value: value >= limit


def at_most(limit: float) -> Callable[[float], bool]:
    """Return whether a value is not above the limit."""
    return lambda value: value <= limit


def greatest(values: Values) -> Values:
    """Return the greatest of some values, with its name."""
    return dict(sorted(values.items(), key=lambda item: item[1])[-1:])


def against_memory() -> Values:
    """Return the times of forwards into reused outputs, relative to the memory's time."""
    rows = rows_of("out-reuse")
    return {row["code"]: row["times_floor"] for row in rows if "backward" not in row["operation"]}


def stress_floor() -> Values:
    """Return the time of the gradient of a maximum of samples, relative to the memory's time."""
    rows = rows_of("stress", workload="stress-max-align", operation=BACKWARD, library="roipool")
    return {row["workload"]: row["times_floor"] for row in rows}


def milliseconds(workload: str, operation: str) -> Values:
    """Return the milliseconds of an operation on a workload of the edge cases."""
    rows = rows_of("stress", workload=workload, operation=operation, library="roipool")
    return {row["workload"]: row["median"] * 1e3 for row in rows}


def microseconds(operation: str) -> Values:
    """Return the microseconds of the smallest call."""
    rows = rows_of("calls", workload="tiny-call", operation=operation, library="roipool")
    return {row["workload"]: row["median"] * 1e6 for row in rows}


def small_call() -> Values:
    """Return the ratio of torchvision's time for a small call to roipool's."""
    rows = rows_of("calls", workload="small-call", operation=FORWARD, library="torchvision")
    return {row["workload"]: row["ratio"] for row in rows}


def values_alone() -> Values:
    """Return the ratio of OpenVINO's time for a maximum without its argmax to roipool's."""
    rows = rows_of("more", workload="vgg16-pool-values", operation="roi_pool", library="openvino")
    return {row["workload"]: row["ratio"] for row in rows}


def narrow_types() -> Values:
    """Return the largest ratio of a half type's time to float32's, on NHWC maps."""
    found = {}
    for row in rows_of("dtypes", layout="NHWC", dtype="float32"):
        same = {key: row[key] for key in ("code", "operation", "layout", "library")}
        for dtype in ("float16", "bfloat16"):
            for narrow in rows_of("dtypes", dtype=dtype, **same):
                name = f"{row['code']} `{row['operation']}` {dtype}"
                found[name] = narrow["median"] / row["median"]
    return greatest(found)


def instruction_sets() -> Values:
    """Return the ratio of AVX2's time to AVX-512's, on W1a."""
    medians = [
        row["median"]
        for name in ("isa-avx2", "isa-avx512")
        for row in rows_of(name, operation=FORWARD)
    ]
    return {"W1a": medians[0] / medians[1]} if len(medians) == 2 else {}


def proportions() -> Values:
    """Return the time of 32 times the boxes or channels, relative to 32 times the time."""
    steps = {name: growth(name)[-1:] for name in ("boxes", "channels")}
    return {name: longer / more for name, step in steps.items() for more, longer in step}


def constants() -> Values:
    """Return the ratio of the longest to the first time, for parameters without effect."""
    names = ("samples per bin and axis", "cells of the map, 10 boxes")
    steps = {name: [longer for _, longer in growth(name)] for name in names}
    return {name: max(longer) for name, longer in steps.items() if longer}


def repeated_work() -> Values:
    """Return the most work of a call that is cut for 64 threads, over that for one."""
    return greatest({row["name"]: row["work"]["64"] for row in rows_of("many_cores")})


def speed_ups(names: Iterable[str]) -> Values:
    """Return the speed-up that 64 threads are expected to give."""
    found = {row["name"]: row["speed_up"]["64"] for row in rows_of("many_cores")}
    return {name: found[name] for name in names if name in found}


def neon() -> Values:
    """Return the case in which arm64's engine executes most instructions, relative to AVX2's."""
    return greatest({row["name"]: row["ratio"] for row in rows_of("arm64")})


ON_A_GPU = (
    "W1a moved 2.5 times its distinct bytes through the second-level cache; spills, since gone, "
    "were a fifth"
)
TARGETS = (
    Target(
        "forward against torchvision, box head: 60x",
        lambda: ratios("W1a", FORWARD, TORCHVISION),
        at_least(60),
        "14 instructions for each pooled value with AVX2, and 2.6 times the compulsory bytes past "
        "the second-level cache",
    ),
    Target(
        "backward against torchvision, box head: 90x",
        lambda: ratios("W1a", BACKWARD, TORCHVISION),
        at_least(90),
        "33 instructions for each gradient with AVX2, and 2.6 times the compulsory bytes past the "
        "second-level cache",
    ),
    Target(
        "forward against torchvision, mask head: 30x",
        lambda: ratios("W3a", FORWARD, TORCHVISION),
        at_least(30),
        "latency of runs of one or two cache lines; prefetching does not reduce it",
    ),
    Target(
        "forward against torchvision, adaptive and C4: 25x",
        lambda: ratios("W1b W5a", FORWARD, TORCHVISION),
        at_least(25),
        "W5a writes 803 MB, in twice the memory time",
    ),
    Target(
        "forward against the fastest of ONNX Runtime, OpenVINO, MXNet, Paddle: 12x",
        lambda: ratios("W1a W1b W3a W5a", FORWARD, INFERENCE),
        at_least(12),
        "as against torchvision",
    ),
    Target(
        "roi_pool forward against torchvision: 15x",
        lambda: ratios("W4a", "roi_pool", TORCHVISION),
        at_least(15),
    ),
    Target(
        "roi_pool backward against MXNet: 2x",
        lambda: ratios("W4a W4b", "roi_pool_backward", ("mxnet",)),
        at_least(2),
    ),
    Target(
        "roi_pool forward without argmax, which OpenVINO does not write, against OpenVINO: 1.5x",
        values_alone,
        at_least(1.5),
        "bins of some seven cells: loops are short, and both libraries read the same cells",
    ),
    Target(
        "crop_and_resize NHWC forward against TensorFlow: 1.5x",
        lambda: ratios("W6a W6b", "crop_and_resize", ("tensorflow",)),
        at_least(1.5),
        "memory: W6a moves 206 MB past the second-level cache; neither prefetching the next bin's "
        "cells nor stores through the caches take less time",
    ),
    Target(
        "crop_and_resize NHWC backward against TensorFlow: 2x",
        lambda: ratios("W6a W6b", "crop_and_resize_backward", ("tensorflow",)),
        at_least(2),
    ),
    Target(
        "forward of the box head with `out=` reused: at most 2.3 times the memory time",
        lambda: {code: value for code, value in against_memory().items() if code == "W1a"},
        at_most(2.3),
        "2.6 times the compulsory bytes pass the second-level cache",
    ),
    Target(
        "forward with `out=` reused: at most 3 times the memory time",
        against_memory,
        at_most(3),
        "cells are transposed into scratch memory and read from there by each box",
    ),
    Target(
        "gradient of a maximum of samples: at most 6 times the memory time",
        stress_floor,
        at_most(6),
        "117 instructions for each gradient, of which four are additions where only the argmax "
        "says; looking samples up once for all rows takes a quarter longer",
    ),
    Target(
        "100,000 boxes of 8 channels, forward: at most 6 ms",
        lambda: milliseconds("stress-many-boxes", FORWARD),
        at_most(6),
        "14,000 instructions a box: 28 samples to plan and 49 bins; 6 ms are 0.12 us a box",
        " ms",
    ),
    Target(
        "the same, backward: at most 15 ms",
        lambda: milliseconds("stress-many-boxes", BACKWARD),
        at_most(15),
        "27,000 instructions a box, whose plan is transposed, too",
        " ms",
    ),
    Target(
        "one box of an 8 x 8 map, one channel, forward: at most 4.5 us",
        lambda: microseconds(FORWARD),
        at_most(4.5),
        unit=" us",
    ),
    Target(
        "the same, backward: at most 6 us",
        lambda: microseconds(BACKWARD),
        at_most(6),
        unit=" us",
    ),
    Target(
        "10 boxes of a map of 1 MB with 100 channels: faster than torchvision",
        small_call,
        at_least(1),
    ),
    Target(
        "NHWC float16 and bfloat16: at most 1.1 times as long as float32",
        narrow_types,
        at_most(1.1),
        "an argmax has 32 bits in every type, and rounding to bfloat16 takes six instructions",
    ),
    Target("AVX2: at most 1.5 times as long as AVX-512", instruction_sets, at_most(1.5)),
    Target(
        "32 times as many boxes or channels: at most 1.3 x 32 times as long",
        proportions,
        at_most(1.3),
    ),
    Target(
        "more samples, or more cells around few boxes: at most 1.3 times as long",
        constants,
        at_most(1.3),
        "one sample a bin reads fewer cells than the box has",
    ),
    Target(
        "work of a call that is cut for 64 threads: at most 1.3 times that for one",
        repeated_work,
        at_most(1.3),
        "ordering boxes by place costs its one thread more than the others save: work 1.13x, but a "
        "speed-up of 12.3x for 15.7x",
    ),
    Target(
        "expected speed-up of the box head by 64 threads: 40x",
        lambda: speed_ups(["fpn-box (W1a), roi_align", "fpn-box (W1a), roi_align_backward"]),
        at_least(40),
        "Python and the division into tasks take one thread",
    ),
    Target(
        "arm64: at most 1.15 times the instructions of AVX2, by the width of vectors",
        neon,
        at_most(1.15),
    ),
    Target(
        "GPU forward, float32 NCHW, against torchvision: 3x",
        lambda: gpu_ratios(FORWARD, "W1a W3a W5a", "float32"),
        at_least(3),
        ON_A_GPU,
    ),
    Target(
        "GPU forward, float16 NCHW, against torchvision: 4x",
        lambda: gpu_ratios(FORWARD, "W1a W3a W5a", "float16"),
        at_least(4),
        ON_A_GPU,
    ),
    Target(
        "GPU backward, float32 NCHW, deterministic, against torchvision: 2x",
        lambda: gpu_ratios(BACKWARD, "W1a W5a", "float32"),
        at_least(2),
    ),
    Target("GPU forward: at most 3 times the memory time", gpu_floors, at_most(3), ON_A_GPU),
)


# The files with times that targets are judged by.
TIMED = (
    *("cpu", "out-reuse", "stress", "calls", "more", "dtypes"),
    *("isa-avx2", "isa-avx512", "scaling"),
)


def runs() -> str:
    """Return when targets were measured, and on which commits."""
    files = [(f"`{name}`", content(name)) for name in TIMED]
    files += [("GPU", each) for each in gpu_results()[:1]]
    found: dict[str, list[str]] = {}
    for name, each in files:
        if "machine" in each:
            date, commit = each["machine"]["date"][:10], str(each["machine"]["commit"])[:12]
            found.setdefault(f"on {date}, commit {commit}", []).append(name)
    return "; ".join(f"{', '.join(names)} {when}" for when, names in found.items())


def targets() -> str:
    """Return the table of targets."""
    rows = [each.row() for each in TARGETS]
    text = table(("target", "measured", "met", "why not"), rows)
    return f"{text}\n\nMeasured: {runs()}."
