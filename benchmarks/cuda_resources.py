"""Registers, stack and spills of every CUDA kernel, as reported by NVRTC's assembler.

Writes ``benchmarks/cuda_resources.md``; needs ``pip install -e . --group cuda``, but no GPU. Shared
memory is dynamic (the host chooses its size, see ``_cuda/partition.py``), so the assembler reports
none.

    python benchmarks/cuda_resources.py          # write the tables
    python benchmarks/cuda_resources.py --check  # exit status 1 if they have changed

A check compiles nothing if NVRTC and the kernels' texts are those that the page was made of.

An older NVRTC, for compute capability 8.0, with a separate page, ``cuda_resources-12.9.md``:

    pip install --no-deps --target nvrtc-12.9 "nvidia-cuda-nvrtc-cu12==12.9.*"
    python benchmarks/cuda_resources.py --nvrtc nvrtc-12.9
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _support import nvrtc
from _support.cuda_texts import Text, every_file, every_type_and_layout, of_volumes
from harness.pages import write_or_compare

from roipool._cuda.source import OPTIONS

ARCHITECTURES = [90]  # compute capabilities, times ten
# For older releases of NVRTC, which spill registers on these.
OLDER_ARCHITECTURES = [80]
RESULT = Path(__file__).with_suffix(".md")
PAGE = """\
# What the CUDA kernels use

Written by `python benchmarks/cuda_resources.py{option}` with NVRTC {version}, options
`{options} -ftz=true`: registers per thread, bytes of stack, bytes spilled
(stores and loads). Digest of all texts: `{digest}`.

## The most in any type, layout and definition

{most}

## Each specialisation

{each}
"""


class Found(NamedTuple):
    """The resources of one kernel on an architecture."""

    kernel: str
    text: Text
    architecture: int
    use: nvrtc.Use

    def specialisation(self) -> tuple[str, ...]:
        """The kernel's specialisation; of planning kernels only definition and element type."""
        text = self.text
        others = (text.layout, str(text.pack), text.argmax_type)
        if self.kernel.startswith("plan_"):
            others = ("", "", "")
        definition = f"{text.definition}, {text.maps}" if text.maps else text.definition
        return self.kernel, definition, text.dtype, *others


def texts() -> list[Text]:
    """Return texts of every file in every type and layout, also of whole cells and volumes."""
    cells = every_type_and_layout("maximum_forward", "roi_pool")
    of_cells = (text for text in cells if text.argmax_type == "int")
    return [*every_file(), *of_cells, *of_volumes()]


def resources(text: Text, architecture: int) -> Iterator[Found]:
    """Yield the resources of each kernel of a text."""
    options = (f"--gpu-architecture=sm_{architecture}", "-ftz=true", *OPTIONS)
    for kernel, use in nvrtc.resources(text.source(), *options):
        yield Found(kernel, text, architecture, use)


def digest(architectures: Sequence[int]) -> str:
    """Return a digest of all that the page is made of."""
    made_of = hashlib.sha256(repr((nvrtc.version(), OPTIONS, architectures)).encode())
    for text in texts():
        made_of.update(text.source().encode())
    return made_of.hexdigest()[:32]


def table(columns: list[str], found: list[tuple[tuple[str, ...], Found]]) -> str:
    """Return a table with one line for each distinct row, with the maxima over its kernels."""
    cells: dict[tuple[str, ...], dict[int, list[nvrtc.Use]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row, one in found:
        cells[row][one.architecture].append(one.use)
    architectures = dict.fromkeys(one.architecture for _, one in found)
    lines = [[*columns, *(f"sm_{architecture}" for architecture in architectures)]]
    lines.append(["---"] * len(lines[0]))
    for row, uses in cells.items():
        most = [map(max, zip(*uses[architecture], strict=True)) for architecture in architectures]
        lines.append([*row, *(", ".join(map(str, numbers)) for numbers in most)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(architectures: Sequence[int], option: str) -> str:
    """Compile everything and return the page, which mentions the command's `option`."""
    work = itertools.product(texts(), architectures)
    with ThreadPoolExecutor() as pool:
        done = pool.map(lambda job: list(resources(*job)), work)
        found = list(itertools.chain.from_iterable(done))
    made_for = ["kernel", "definition", "type", "layout", "channels per thread", "argmax"]
    return PAGE.format(
        option=option,
        version=nvrtc.version(),
        options=" ".join(OPTIONS),
        digest=digest(architectures),
        most=table(["kernel"], [((one.kernel,), one) for one in found]),
        each=table(made_for, [(one.specialisation(), one) for one in found]),
    )


def main() -> int:
    """Write the page, or compare it with NVRTC's current report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare, and exit 1 on a difference")
    parser.add_argument("--nvrtc", metavar="FOLDER", help="folder of another NVRTC wheel")
    arguments = parser.parse_args()
    file, architectures, option = RESULT, ARCHITECTURES, ""
    if arguments.nvrtc is not None:
        nvrtc.use_wheel_in(arguments.nvrtc)
        release = ".".join(nvrtc.version().split(".")[:2])
        file = RESULT.with_stem(f"{RESULT.stem}-{release}")
        architectures, option = OLDER_ARCHITECTURES, f" --nvrtc nvrtc-{release}"
    if arguments.check and digest(architectures) in file.read_text():
        print(f"NVRTC and all texts are those of {file.name}")
        return 0
    return write_or_compare(file, page(architectures, option), arguments.check)


if __name__ == "__main__":
    sys.exit(main())
