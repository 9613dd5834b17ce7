"""Plant the faults of `faults.py` and `front_ends.py`, or mutants, one at a time, and detect them.

A fault is planted in a copy of the working tree, which is built without optimisation for one
instruction set. These checks run, each until its first failure:

- verify: ``roipool verify --backend cpu``;
- calls: the random calls of one seed, compared as `roipool.tools.random_calls` does;
- tests: the tests of the subject, by default only if the other checks pass (``--tests``).

::

    python tests/faults/plant.py --check                # does every snippet occur once? (a test)
    python tests/faults/plant.py --only "align: margin" --tests always
    python tests/faults/plant.py --write                # all of them, and tests/faults/README.md
    python tests/faults/plant.py --mutants 60           # a sample of mutants
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from faults import FAULTS as ENGINES
from faults import Fault
from front_ends import FRONT_ENDS
from mutants import EQUIVALENT, Mutant, all_mutants, sample

FAULTS = [*ENGINES, *FRONT_ENDS]
ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("README.md")
SEED = 1
LIMIT = {"verify": 300, "calls": 300, "tests": 600}  # seconds, many times what they take
MEMORY = 8 * 2**30
NOTHING, NOT_ASKED, NOT_BUILT = "-", "", "not built"
CAUGHT_BY = ("verify", "calls", "tests")

# setup.py, but for one instruction set and not optimised: the last -O counts.
BUILD = """
import runpy, setuptools

real_setup = setuptools.setup

def setup(*, cmdclass, **arguments):
    class OneEngine(cmdclass["build_ext"]):
        def usable_engines(self):
            self.extensions[0].extra_compile_args.append("-O0")
            for flags in super().usable_engines().values():
                if not any("v4" in flag for flag in flags):
                    chosen = flags
            return {"baseline": [*chosen, "-O0"]}
    real_setup(cmdclass={"build_ext": OneEngine}, **arguments)

setuptools.setup = setup
runpy.run_path("setup.py", run_name="__main__")
"""

# Prints the number of the first random call that differs, or nothing.
CALLS = """
import sys
from roipool.verification.check import check, subjects
from roipool.verification.generate import draw

seed, count = map(int, sys.argv[1:])
for number in range(count):
    print("now", number, flush=True)
    case = draw(seed, number)
    for finding in check(case, subjects(case, number)):
        if finding.comparison.problem is not None:
            print("found", number, case.operation, "against", finding.subject, flush=True)
            sys.exit()
"""


class NotBuiltError(Exception):
    """The sources do not compile."""


class Tree:
    """A copy of the working tree, built, in which faults are planted and taken out again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stale = False  # the extension is built with a fault that was taken out
        self.failed: set[str] = set()  # tests, with some fault
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = ROOT / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",  # two faults of one length in one second are one file
            "ROIPOOL_EMULATOR_CACHE": str(folder / "build" / "emulator"),
        }
        self.build()

    def run(
        self, arguments: list[str], limit: float = 500, *, until: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in the tree, or until a line ends so.

        A limit that is reached is a return code of -SIGXCPU.
        """
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        ended = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        ended.daemon = True
        ended.start()
        output = ""
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if until and line.rstrip().endswith(until):
                break
        else:
            process.wait()
        in_time = ended.is_alive()
        ended.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        code = process.returncode if in_time else -signal.SIGXCPU
        return subprocess.CompletedProcess(arguments, code, output)

    def build(self) -> None:
        """Build the extension in place, anew whatever the times of its sources say."""
        for built in (*self.folder.glob("build/lib*"), *self.folder.glob("roipool/_cpu.*.so")):
            shutil.rmtree(built) if built.is_dir() else built.unlink()
        done = self.run(["-c", BUILD, "-q", "build_ext", "--inplace"])
        if done.returncode:
            raise NotBuiltError(f"the tree cannot be built:\n{done.stdout[-3000:]}")

    def plant(self, fault: Fault | Mutant, *, take_out: bool = False) -> None:
        """Replace the snippet, or take the fault out again, and build what depends on it."""
        place = self.folder / fault.file
        text = (ROOT / fault.file).read_text()
        place.write_text(text if take_out else fault.planted(text))
        is_built = not (fault.on_gpu or place.suffix == ".py")
        if not take_out and (is_built or self.stale):
            self.build()
        self.stale = take_out and is_built


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


# ---- What looks for a fault


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a process that did not finish shows: an error, a crash, or no end."""
    if done.returncode == -signal.SIGXCPU:
        return "never ends"
    if done.returncode < 0:
        return f"crash ({signal.Signals(-done.returncode).name})"
    return "an error"


def verify(tree: Tree) -> str:
    """Return the first group of ``roipool verify`` that is wrong."""
    command = ["-m", "roipool", "verify", "--backend", "cpu"]
    done = tree.run(command, LIMIT["verify"], until="WRONG")
    if done.returncode == 0:
        return NOTHING
    wrong = re.search(r"^cpu[^:\n]*: (.*?)  +[\d,]+ numbers .*WRONG$", done.stdout, re.MULTILINE)
    return wrong[1] if wrong else how_it_ended(done)


def calls(tree: Tree, count: int) -> str:
    """Return the first random call that is wrong, and what it was compared with."""
    done = tree.run(["-c", CALLS, str(SEED), str(count)], LIMIT["calls"])
    found = re.search(r"^found (\d+) (.*)", done.stdout, re.MULTILINE)
    if found:
        return f"{int(found[1]) + 1:,} ({found[2]})"
    if done.returncode == 0:
        return NOTHING
    last = re.findall(r"^now (\d+)", done.stdout, re.MULTILINE)
    return f"{int(last[-1]) + 1:,} ({how_it_ended(done)})" if last else how_it_ended(done)


def tests(tree: Tree, fault: Fault | Mutant) -> str:
    """Return the first test of the fault's subject that fails."""
    # These can pass only when everything runs.
    whole = ("test_every_function_is_called", "test_every_golden_file_is_used")
    arguments = shlex.split(fault.tests)
    if "-k" in arguments:
        which = arguments.pop(arguments.index("-k") + 1)
        arguments.remove("-k")
    else:
        which = "not emulator"
    which = " and ".join([which, *(f"not {name}" for name in whole)])
    done = tree.run(
        ["-m", "pytest", "-qx", "-p", "no:cacheprovider", *arguments, "-k", which], LIMIT["tests"]
    )
    if done.returncode == 0:
        return NOTHING
    failed = re.search(
        r"^(?:FAILED|ERROR) (tests/(\S+?)::\S*?(\w+)(?:\[.*?\])?)(?: - .*)?$",
        done.stdout,
        re.MULTILINE,
    )
    if failed is None:
        return how_it_ended(done)
    tree.failed.add(failed[1])
    return f"{failed[2]}: {failed[3]}"


def examine(tree: Tree, fault: Fault, count: int, *, when: str) -> dict[str, str]:
    """Plant a fault, look for it, and take it out."""
    tree.plant(fault)
    try:
        found = dict.fromkeys(CAUGHT_BY, NOT_ASKED)
        if not fault.by_tests_only:
            found["verify"], found["calls"] = verify(tree), calls(tree, count)
        missed = not any(map(is_caught, found.values()))
        if when == "always" or (when == "missed" and missed):
            found["tests"] = tests(tree, fault)
    finally:
        tree.plant(fault, take_out=True)
    return found


def killer_of(tree: Tree, mutant: Mutant, count: int) -> str:
    """Return what finds a mutant first, random calls or a test."""
    try:
        tree.plant(mutant)
        if is_caught(found := calls(tree, count)):
            return f"random call {found}"
        return tests(tree, mutant)
    except NotBuiltError:
        return NOT_BUILT
    finally:
        tree.plant(mutant, take_out=True)


def fail_without_a_fault(tree: Tree) -> int:
    """Run the tests that failed again, now that all faults are out; return whether one does."""
    tree.build()
    done = tree.run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *sorted(tree.failed)])
    if tree.failed and done.returncode:
        print(f"these prove nothing:\n{done.stdout[-3000:]}")
        return 1
    return 0


def is_caught(found: str) -> bool:
    """Return whether something was found."""
    return found not in (NOTHING, NOT_ASKED)


# ---- The table

HEADER = "| fault | in | slip | verify | random call | tests |"
ROW = re.compile(r"^\| (?P<name>[^|]+) \| `[^|]+` \| [^|]+ \|" + r"([^|]*)\|" * 3 + "$", re.M)


def row_of(fault: Fault, found: dict[str, str]) -> str:
    """Return a fault's line of the table."""
    file = fault.file.removeprefix("roipool/").removeprefix("kernels/")
    cells = [found[by] for by in CAUGHT_BY]
    return f"| {fault.name} | `{file}` | {fault.slip} | {' | '.join(cells)} |"


def known_rows() -> dict[str, dict[str, str]]:
    """Return what the committed table says of each fault."""
    text = TABLE.read_text() if TABLE.exists() else ""
    return {
        row["name"]: dict(zip(CAUGHT_BY, (row[n].strip() for n in (2, 3, 4)), strict=True))
        for row in ROW.finditer(text)
    }


def summary(results: dict[str, dict[str, str]]) -> str:
    """Return how many faults each check detects."""
    tally: Counter[str] = Counter()
    for fault in (fault for fault in FAULTS if fault.name in results):
        found = results[fault.name]
        by_verify, by_calls, by_tests = (is_caught(found[by]) for by in CAUGHT_BY)
        tally["verify"] += by_verify
        tally["calls"] += by_calls
        tally["one of both"] += by_verify or by_calls
        tally["tests on the GPU"] += by_tests and fault.on_gpu
        tally["tests only"] += by_tests and not (by_verify or by_calls or fault.on_gpu)
        if not (by_verify or by_calls or by_tests):
            tally["equivalent" if fault.equivalent else "survivors"] += 1
    on_gpu = sum(fault.on_gpu for fault in FAULTS)
    reached = sum(not fault.by_tests_only for fault in FAULTS)
    return f"""\
- {len(FAULTS)} faults: {reached} in code that calls on NumPy arrays reach, {on_gpu} in the CUDA
  engine, {len(FAULTS) - reached - on_gpu} in front ends and conversions of arrays;
- of the {reached}, `roipool verify` detects {tally["verify"]}, random calls {tally["calls"]}, at
  least one of both {tally["one of both"]};
- of all others the tests detect {tally["tests only"]}, and {tally["tests on the GPU"]} in the CUDA
  engine on the emulator;
- {tally["equivalent"]} change no result, and {tally["survivors"]} are not detected."""


def write_table(results: dict[str, dict[str, str]], count: int) -> None:
    """Write the committed table."""
    proofs = [f"- {fault.name}: {fault.equivalent}" for fault in FAULTS if fault.equivalent]
    lines = [
        "# Planted faults",
        "",
        "The checks that detect plausible mistakes, planted one at a time. Written by",
        f"`python tests/faults/plant.py --write --calls {count}` on {date.today()},",
        f"{processor()}. The faults are in [faults.py](faults.py) and",
        "[front_ends.py](front_ends.py).",
        "",
        summary(results),
        "",
        "verify: the first group of `roipool verify` that fails. random call: the number of the",
        f"first call of seed {SEED} that fails, its operation and the subject of the comparison.",
        "tests: the first test that fails; tests run only for faults that nothing else detects.",
        "`-`: not detected. Empty: not run.",
        "",
        HEADER,
        "|---|---|---|---|---|---|",
        *(row_of(fault, results[fault.name]) for fault in FAULTS if fault.name in results),
        "",
        *(["## Faults that change no result", "", *proofs, ""] if proofs else []),
    ]
    TABLE.write_text("\n".join(lines))


def processor() -> str:
    """Return the processor's name."""
    with Path("/proc/cpuinfo").open() as facts:
        names = [line.partition(": ")[2].strip() for line in facts if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} processors"


# ---- Mutants


def kind_of(mutant: Mutant, killer: str) -> str:
    """Return what became of a mutant."""
    if killer == NOTHING:
        return "equivalent" if mutant.equivalent else "survive"
    if killer == NOT_BUILT:
        return "not compiled"
    return "found by random calls" if killer.startswith("random call") else "found by tests"


def mutant_row(mutant: Mutant, killer: str) -> str:
    """Return a mutant's line of the table."""
    file = mutant.file.removeprefix("roipool/").removeprefix("kernels/")
    before, after = (
        "`" + line.strip().replace("|", r"\|") + "`" for line in (mutant.before, mutant.after)
    )
    return f"| `{file}` | {mutant.operator} | {before} | {after} | {killer} |"


def examine_mutants(tree: Tree, count: int, calls: int) -> int:
    """Plant a sample; return how many survive that no proof excuses."""
    kinds: Counter[str] = Counter()
    for mutant in sample(count, SEED):
        killer = killer_of(tree, mutant, calls)
        print(mutant_row(mutant, killer), flush=True)
        kinds[kind_of(mutant, killer)] += 1
    of_all = f"of {sum(1 for _ in all_mutants())} mutants {count} were planted: "
    print(of_all + ", ".join(f"{number} {kind}" for kind, number in kinds.items()))
    return kinds["survive"]


# ---- The program


def problems() -> Iterable[str]:
    """Yield the faults that cannot be planted, and the tests of the table that are no more."""
    for fault in FAULTS:
        file = ROOT / fault.file
        occurrences = file.read_text().count(fault.snippet) if file.exists() else 0
        if occurrences != 1:
            yield f"{fault.name}: its snippet occurs {occurrences} times in {fault.file}, not once"
    names = [fault.name for fault in FAULTS]
    yield from (f"{name}: a name of two faults" for name in set(names) if names.count(name) > 1)
    for name, found in known_rows().items():
        named = re.fullmatch(r"(\S+\.py): (test_\w+)", found["tests"])
        if named and not has_test(ROOT / "tests" / named[1], named[2]):
            yield f"{name}: {TABLE.name} names {named[0]}, which does not exist"


def has_test(file: Path, name: str) -> bool:
    """Return whether a file has a test, of its own or of the contract of front ends."""
    places = [file, *(file.parent / "contract").glob("*.py")]
    return file.exists() and any(f"def {name}(" in place.read_text() for place in places)


def mutant_problems() -> Iterable[str]:
    """Yield mutants that change more than a line, and reasons for what is no mutant any more."""
    for mutant in sample(100, SEED):
        text = (ROOT / mutant.file).read_text()
        lines = zip(text.split("\n"), mutant.planted(text).split("\n"), strict=True)
        if sum(one != other for one, other in lines) != 1:
            yield f"{mutant.file}: {mutant.name}: changes more than a line"
    places = {(one.file, one.before.strip(), one.after.strip()) for one in all_mutants()}
    yield from (
        f"{place}: a reason in EQUIVALENT, but no mutant" for place in EQUIVALENT.keys() - places
    )


def open_questions() -> Iterable[str]:
    """Yield what the table does not say yet, and the faults that nothing finds."""
    known = known_rows()
    for fault in FAULTS:
        if fault.name not in known:
            yield f"{fault.name}: not planted yet"
        elif not fault.equivalent and not any(map(is_caught, known[fault.name].values())):
            yield f"{fault.name}: nothing finds it, and no proof says that it changes nothing"
    names = {fault.name for fault in FAULTS}
    yield from (f"{name}: in {TABLE.name} only" for name in known.keys() - names)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="only look whether all is up to date")
    parser.add_argument("--mutants", type=int, metavar="N", help="plant so many mutants instead")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--only", action="append", help="faults whose name this begins; repeatable")
    when = ("never", "missed", "always")
    parser.add_argument("--tests", choices=when, default="missed", help="when to run tests")
    parser.add_argument("--calls", type=int, default=1000, help="random calls (default 1000)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the table; rows of faults that are not examined stay",
    )
    arguments = parser.parse_args()
    if arguments.check:
        wrong = [*problems(), *mutant_problems()]
        print("\n".join(wrong) or f"{len(FAULTS)} faults are up to date")
        print("\n".join(open_questions()))
        return int(bool(wrong))
    prefixes = tuple(arguments.only or [""])
    chosen = [fault for fault in FAULTS if fault.name.startswith(prefixes)]
    if arguments.list:
        print("\n".join(f"{fault.name}: {fault.slip} ({fault.file})" for fault in chosen))
        return 0
    results: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="roipool-faults-") as folder:
        tree = Tree(Path(folder))
        for detector in (verify(tree), calls(tree, arguments.calls)):
            if is_caught(detector):
                sys.exit(f"something is found without a fault: {detector}")
        if arguments.mutants:
            return int(examine_mutants(tree, arguments.mutants, arguments.calls) > 0)
        for fault in chosen:
            start = time.monotonic()
            found = examine(tree, fault, arguments.calls, when=arguments.tests)
            print(f"{row_of(fault, found)} {time.monotonic() - start:.0f} s", flush=True)
            results[fault.name] = found
            if arguments.write:
                write_table(known_rows() | results, arguments.calls)
        print(summary(known_rows() | results))
        return fail_without_a_fault(tree)


if __name__ == "__main__":
    sys.exit(main())
