"""``roipool verify`` passes for a correct library, and fails for every planted error."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _support import emulator
from _support.backends import Backend
from _support.emulator import compiler
from _support.faulty import Faulty
from _support.run_python import NOT_INSTALLED, run_python
from ship_goldens import CASES, SHIPPED, records, selected

import roipool
from roipool import _cpu
from roipool._definitions import OPS, VOLUME_OPS
from roipool.cli import main
from roipool.cli.verify import report
from roipool.systems import SYSTEMS
from roipool.systems.case import LAYOUTS, Case, dtypes
from roipool.systems.core import OPERATIONS, VARIANTS
from roipool.verification import groups, released
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES, Entry, large_entry
from roipool.verification.check import ORACLE, check
from roipool.verification.device import device
from roipool.verification.groups import Tally
from roipool.verification.oracle import against_oracle
from roipool.verification.released import PROGRAMS
from roipool.verification.tolerance import Array, compare, compare_bits

CPU = device("cpu")
# All but the gradient of a mask, a sum of pooled values.
FUNCTIONS = {
    function: op
    for op in (OPS | VOLUME_OPS).values()
    for attribute, function in op.functions.items()
    if attribute != "backward_mask"
}


# Enough for tests of verify itself; of one the argmax is exact.
FEW = [
    entry
    for entry in ENTRIES
    if entry.name in ("inside", "5 channels", "equal samples, ties", "rotated, two samples")
]
FORMS = list(itertools.product(CPU.types, LAYOUTS))


@pytest.fixture(autouse=True)
def same_settings_after() -> Iterator[None]:
    threads, name = roipool.get_num_threads(), _cpu.instruction_set()
    yield
    assert (roipool.get_num_threads(), _cpu.instruction_set()) == (threads, name)


def problems_of(
    library: Any, name: str, *subjects: str, forms: Sequence[tuple[str, str]] = FORMS
) -> dict[tuple[str, str], set[str]]:
    """Return the wrong results of an operation's calls, by type and layout."""
    found: dict[tuple[str, str], set[str]] = {form: set() for form in forms}
    for entry, (dtype, layout) in itertools.product(FEW, forms):
        for _, case in entry.cases(name):
            for one in check(replace(case, dtype=dtype, layout=layout), subjects, library):
                if one.comparison.problem:
                    found[dtype, layout].add(one.what)
    return found


def few_random_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make verification draw a fifth of its random calls, of which other tests make thousands."""
    for name in ("random_calls", "plain_random_calls"):
        few = functools.partial(getattr(groups, name), count=groups.RANDOM_CALLS // 5)
        monkeypatch.setattr(groups, name, few)


# ---- Correct libraries


@pytest.mark.thorough
def test_every_group_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.ci/run` runs the command itself, with only the package installed."""
    few_random_calls(monkeypatch)
    assert report(groups.verify(["cpu"], 3, entries=FEW), ["cpu"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 * len(_cpu.instruction_sets()) + 2
    assert all(line.endswith(" ok") and len(line) <= 80 for line in lines)
    for name in _cpu.instruction_sets():
        assert sum(line.startswith(f"cpu {name}: ") for line in lines) == 4
    assert last.startswith("verified: cpu, ")


def test_what_is_not_checked() -> None:
    missing = ("pytest", "ml_dtypes", "rich", "cupy")
    code = (
        "from roipool.cli.verify import available_backends\n"
        "print(*available_backends('all'), sep='\\n')"
    )
    done = run_python(code, modules=dict.fromkeys(missing, NOT_INSTALLED))
    assert (done.returncode, done.stderr) == (0, "")
    backends, left_out = map(ast.literal_eval, done.stdout.splitlines())
    assert backends == ["cpu"]
    gpu, half_type = left_out
    assert gpu.startswith('cuda: CuPy is not installed: pip install ".[cuda12]"')
    assert half_type == "bfloat16 on cpu: needs ml_dtypes"


def test_every_group_compares_much() -> None:
    found = [
        groups.against_programs(CPU, "released programs"),
        *groups.tallies(groups.catalogue_calls(FEW, CPU.types, 0), CPU),
    ]
    assert [tally.name for tally in found] == [
        "released programs",
        "cpu: oracle",
        "cpu: transposes",
    ]
    for tally in found:
        assert tally.problems == []
        assert tally.count > 100
        assert tally.worst < 1


def test_the_catalogue_is_computed_in_every_form() -> None:
    """All operations compute every type and layout, for any seed."""
    for seed in range(3):
        calls = groups.catalogue_calls(ENTRIES, CPU.types, seed)
        met = {(call.case.operation, call.case.dtype, call.case.layout) for call in calls}
        assert met == {(name, *form) for name, form in itertools.product(OPERATIONS, FORMS)}


def with_few_boxes(rng: np.random.Generator, threads: int = 1) -> Entry:
    """Return the large entry with a tenth of its boxes, which need the same kernels."""
    large = large_entry(rng, threads)
    return replace(large, rois=large.rois[: len(large.rois) // 10])


@pytest.fixture
def few_boxes_on_the_emulator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorten large calls on the emulator, which runs one thread of a GPU at a time."""
    if "gpu" not in request.fixturenames or request.getfixturevalue("gpu").name == "emulator":
        monkeypatch.setattr(groups, "large_entry", with_few_boxes)


@pytest.mark.thorough
def test_the_program_on_a_gpu(
    gpu: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if gpu.name == "emulator":  # takes minutes for large calls, and runs one block at a time
        monkeypatch.setattr(groups, "large_entry", lambda *_: FEW[0])
        few_random_calls(monkeypatch)
    assert report(groups.verify(["cuda"], entries=FEW), ["cuda"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("cuda: ")] == [
        "cuda: released programs",
        "cuda: oracle",
        "cuda: transposes",
        "cuda: random calls",
        "cuda: the same again",
    ]
    assert lines[-1].startswith("verified: cuda, ")


FIRST_TEXTS = 45  # NVRTC takes some half a second for each: 23 seconds


@pytest.mark.thorough
def test_the_first_pass_on_a_gpu_compiles_few_texts(
    capsys: pytest.CaptureFixture[str], few_boxes_on_the_emulator: None
) -> None:
    if (missing := emulator.why_not()) is not None:
        pytest.skip(missing)
    texts = set()

    def compiled(text: str, options: tuple[str, ...], name: str) -> Any:
        texts.add(text)
        return compiler.Kernel(text, options, name)

    with emulator.active() as cupy, cupy.compiled_by(compiled):
        found = groups.verify(["cuda"], entries=FEW, everything=False)
        assert report(found, ["cuda"]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[:-1]] == [
        "cuda: oracle",
        "cuda: transposes",
        "cuda: the same again",
    ]
    assert all("storage float" in text.lower() for text in texts)
    files = {text.split('#line 1 "', 1)[1].split('"')[0] for text in texts}
    assert len(files) >= 8  # every kernel that operations need, and not only their definitions
    assert 0 < len(texts) <= FIRST_TEXTS


def test_every_operation_is_called() -> None:
    called = set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(roipool, name)

    for call in groups.catalogue_calls(FEW, CPU.types, 0):
        run(call.case, Recorder())
    assert called == set(FUNCTIONS)


def test_shipped_goldens_are_those_of_the_tests() -> None:
    for name, arrays in selected().items():
        with np.load(SHIPPED / f"{name}.npz") as shipped:
            assert set(shipped) == set(arrays)
            for key, array in arrays.items():
                np.testing.assert_array_equal(shipped[key], array, strict=True)
    for prefix in CASES:
        assert json.loads((SHIPPED / f"{prefix}cases.json").read_text()) == records(prefix)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 200_000


@pytest.mark.parametrize("name", PROGRAMS)
def test_shipped_goldens_hold_every_answer(name: str) -> None:
    assert sum(1 for _ in PROGRAMS[name].answer.goldens(released.FOLDER)) >= 2


# ---- Planted errors


def off_by_little(result: Array) -> Array:
    """Change one finite value a little more than rounding does."""
    wrong = result.copy()
    finite = np.flatnonzero(np.isfinite(wrong.astype(np.float64)) & (np.abs(wrong) > 0.25))
    if finite.size:
        place = np.unravel_index(finite[finite.size // 2], wrong.shape)
        wrong[place] = wrong[place] * 1.0625
    return wrong


def of_pooled(spoil: Callable[[Array], Array]) -> Callable[[Any], Any]:
    """Return a function that changes pooled values, with an argmax or without."""
    return lambda found: (spoil(found[0]), *found[1:]) if isinstance(found, tuple) else spoil(found)


def another_index(found: tuple[Array, Array]) -> tuple[Array, Array]:
    """Change the first argmax to its neighbour."""
    wrong = found[1].copy()
    wrong.flat[:1] ^= 1
    return found[0], wrong


@pytest.mark.thorough
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_of_one_number_is_found(name: str) -> None:
    library = Faulty(of_pooled(off_by_little), name)
    op = FUNCTIONS[name]
    for variant in [each for each, (other, _) in VARIANTS.items() if other is op] or [op.forward]:
        if name == op.backward_boxes and not SYSTEMS[variant].box_gradient:
            continue
        assert all(problems_of(library, variant, ORACLE).values())
    if name in (op.forward, op.backward):  # others are no transposes
        real = [form for form in FORMS if form[0] in ("float32", "float64")]
        assert all(problems_of(library, op.forward, "transposes", forms=real).values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_error_of_one_number_of_a_program_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(*args: Any) -> dict[str, Array]:
        return {result: off_by_little(array) for result, array in run(*args).items()}

    monkeypatch.setattr(released, "run", spoiled)
    (problem, *_) = groups.against_programs(CPU, "a group", {name: PROGRAMS[name]}).problems
    assert problem.startswith(f"{name}, case ")


@pytest.mark.parametrize(
    ("name", "variant"), [("roi_pool", "roi_pool"), ("roi_align", "roi_align max")]
)
def test_a_wrong_argmax_is_found(name: str, variant: str) -> None:
    wrong = Faulty(another_index, name, when=lambda arguments: arguments["return_argmax"])
    assert all("argmax" in found for found in problems_of(wrong, variant, ORACLE).values())


def test_another_of_equal_samples_is_found() -> None:
    """The value of the sample is right, but not its index."""
    case = Case(
        "roi_align max",
        np.full((1, 1, 8, 8), 1.5),
        np.ones((1, 1, 2, 2)),
        np.array([[0.0, 1, 1, 5, 5]]),
        options={"spatial_scale": 1.0, "sampling_ratio": 2, "aligned": True},
    )
    got = run(case, roipool)
    wrong = got | {"argmax": got["argmax"] + 3}
    assert dict(against_oracle(case, got))["argmax"].problem is None
    assert dict(against_oracle(case, wrong))["argmax"].wrong == 4


@pytest.mark.thorough
def test_the_program_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Faulty(
        off_by_little, "roi_align_backward", when=lambda arguments: arguments["layout"] == "NHWC"
    )
    assert report(groups.verify(["cpu"], entries=FEW, library=wrong), ["cpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED: ")
    failed = [line for line in lines if line.endswith("WRONG")]
    assert [line.split("  ")[0] for line in failed] == [
        f"cpu {name}: {group}"
        for group in ("oracle", "transposes", "random calls")
        for name in _cpu.instruction_sets()
    ]
    shown = [line for line in lines if line.startswith("    ")]
    assert any(" NHWC, " in line and "numbers are off; at (" in line for line in shown)
    assert len(shown) <= 6 * len(failed)


@pytest.mark.thorough
def test_gradients_of_bins_with_many_samples_on_a_gpu(gpu: Backend) -> None:
    """81 samples of a bin in one cell, whose terms are alike: each rounding has the same sign."""
    calls = [
        call
        for call in groups.catalogue_calls(ENTRIES, ("float32",), 0, ("NCHW",), channels=4)
        if call.what == "deformable_ps_roi_pool, float32 NCHW, more bins than cells"
    ]
    assert report(groups.tallies(calls, device("cuda")), ["cuda"]) == 0
    assert calls[0].case.options["samples"] == 9


@pytest.mark.thorough
def test_the_program_fails_on_a_gpu(
    gpu: Backend, capsys: pytest.CaptureFixture[str], few_boxes_on_the_emulator: None
) -> None:
    def one_box(pooled: Any) -> Any:
        pooled[:1] = 99.0
        return pooled

    wrong = Faulty(one_box, "roi_average_pool")
    tallies = groups.verify(["cuda"], entries=FEW, library=wrong, everything=False)
    assert report(tallies, ["cuda"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = [line.split("  ")[0] for line in lines if line.endswith("WRONG")]
    assert failed == ["cuda: oracle", "cuda: transposes"]


def test_another_bit_for_more_threads_is_found() -> None:
    def next_bit(result: Array) -> Array:
        wrong = result.copy()
        wrong.flat[-1:] = np.nextafter(wrong.flat[-1:], wrong.dtype.type(np.inf))
        return wrong

    wrong = Faulty(next_bit, "roi_average_pool", when=lambda _: roipool.get_num_threads() == 5)
    form = [("float32", "NCHW")]
    assert problems_of(wrong, "roi_average_pool", "threads", forms=form) == {
        form[0]: {"pooled with 5 threads"}
    }
    assert not any(problems_of(wrong, "roi_average_pool", ORACLE).values())


def test_another_bit_the_second_time_is_found() -> None:
    calls = itertools.count()
    library = Faulty(of_pooled(lambda pooled: pooled + next(calls)), "roi_pool")
    assert all(problems_of(library, "roi_pool", "again").values())


def test_an_exception_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    def stop(result: Any) -> Any:
        raise RuntimeError("the kernel\ndoes not compile")

    cpu = device("cpu", Faulty(stop, "roi_pool_backward"))
    entries = [large_entry(np.random.default_rng(0))]
    large = (call for call in groups.large_calls(entries, ("float32",), 1, ("again",), ("NCHW",)))
    for calls, group in (
        (groups.catalogue_calls(FEW, CPU.types, 0), "oracle"),
        ((call for call in large if call.case.operation == "roi_pool"), "the same again"),
    ):
        assert report(groups.tallies(calls, cpu), ["cpu"]) == 1
        shown = capsys.readouterr().out
        assert "RuntimeError: the kernel does not compile" in shown
        assert re.search(rf"cpu: {group} .* WRONG", shown)


def test_a_group_without_comparisons_is_wrong() -> None:
    assert Tally("a group").closed().problems == ["nothing was compared"]


def test_cuda_without_a_gpu() -> None:
    code = "from roipool.cli import main; exit(main(['verify', '--backend', 'cuda']))"
    done = run_python(code, modules={"cupy": NOT_INSTALLED})
    assert (done.returncode, done.stdout) == (2, "")
    beginning = "roipool: error: --backend cuda: CuPy is not installed: pip install"
    assert done.stderr.startswith(beginning)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--seed", "-1"], ["--seed", "x"], ["--backend", "tpu"], ["image.png"]]
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ---- The tolerance itself


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_tolerance_is_that_many_roundings(name: str) -> None:
    dtype = dtypes()[name]
    expected = np.array([1.0, -3.0, np.nan, np.inf, 0.0])
    ulps = 4.0 * np.finfo(np.float64 if name == "float64" else np.float32).eps
    ulps *= 4 if name == "float64" else 1
    right = expected.astype(dtype)
    assert compare(right, expected, 1.0).problem is None
    if dtype.itemsize > 2:  # half types are compared by the rounding of storing
        right[0] = 1 + ulps
        assert compare(right, expected, 1.0).worst == pytest.approx(1)
        right[0] = 1 + 1.5 * ulps
    else:
        assert compare(np.nextafter(right, dtype.type(9)), expected, 1.0).wrong >= 2
        right[0] = 1.0625
    found = compare(right, expected, 1.0)
    assert (found.count, found.equal, found.wrong) == (5, 4, 1)
    assert found.problem is not None
    assert found.problem.startswith("1 of 5 numbers are off; at (0,)")


@pytest.mark.parametrize(
    "got", [[1.0, np.inf], [np.nan, np.nan], [1.0, 5.0], [np.inf, np.nan], [-np.inf, np.nan]]
)
def test_what_is_not_finite_must_agree(got: list[float]) -> None:
    assert compare(np.array(got), np.array([1.0, np.nan]), np.inf).wrong == 1


def test_shapes_and_types_must_agree() -> None:
    one = np.ones(3, np.float32)
    assert compare(one[:2], one, 1.0).problem == "got shape (2,), expected (3,)"
    assert (
        compare_bits(one, one.astype(np.float64)).problem == "got dtype float32, expected float64"
    )
    assert compare_bits(one, one).problem is None
    assert compare_bits(one, np.nextafter(one, np.float32(2))).wrong == 3
