"""Reports on an implementation, as text and as JUnit XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import roipool
from roipool._errors import shown
from roipool.systems import SEMANTICS, shown_name
from roipool.systems.case import Case
from roipool.tools.libraries.functions import AUTOGRAD
from roipool.tools.random_calls.shrink import text_of
from roipool.verification.call import FunctionCall, run

from .cases import (
    EDGE,
    KINDS,
    CasePlan,
    box_gradient_of,
    covering,
    in_box_type,
    is_ordinary,
    of_box_gradient,
)
from .diagnosis import Diagnosis, diagnose
from .examine import (
    BY_AUTOGRAD,
    BY_FUNCTION,
    IF_DIFFERENTIABLE,
    RESULTS,
    Examiner,
    Outcome,
    is_part,
)
from .implementations import Calls, calls_of, close
from .names import resolved
from .tolerances import Tolerance

MAX_CRASHES = 12
SHOWN_CALLS = 3
MAX_TEXT = 4000
TYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Report:
    """The report on an implementation in one type, on one device.

    Attributes
    ----------
    implementation, semantics, dtype, device : str
        The implementation, the system it was compared with, and the type and device.
    outcomes : list of Outcome
        The outcomes of all calls.
    diagnoses : list of Diagnosis
        Everything that is wrong; empty if the implementation conforms.
    stopped : str
        The reason for not making all calls, or "".
    arrays : str
        The library of the implementation's arrays.
    """

    implementation: str
    semantics: str
    dtype: str
    device: str
    outcomes: list[Outcome]
    diagnoses: list[Diagnosis]
    stopped: str = ""
    arrays: str = "numpy"

    @property
    def conforms(self) -> bool:
        """Whether no call failed."""
        return not self.diagnoses

    @property
    def rounded(self) -> int:
        """How many calls are right except for the rounding of coordinates."""
        return sum(bool(outcome.rounded) for outcome in self.outcomes)

    @property
    def title(self) -> str:
        """The implementation, the system, and the type and device of arrays."""
        semantics = shown_name(self.semantics)
        return f"{self.implementation} as {semantics}, {self.dtype} on {self.device}"

    @property
    def checked(self) -> list[str]:
        """Descriptions of the results that were compared."""
        compared = {
            finding.what.split()[0] for outcome in self.outcomes for finding in outcome.findings
        }
        return [
            words
            for name, words in RESULTS.items()
            if any(is_part(result, name) for result in compared)
        ]

    def _unchecked(self) -> str:
        """Return a note on gradients that roipool has but that were not compared."""
        has = {
            "gradient": SEMANTICS[self.semantics].backward,
            "box_gradient": box_gradient_of(self.semantics),
        }
        left = [RESULTS[name] for name in has if has[name] and RESULTS[name] not in self.checked]
        return f"; not checked: {', '.join(left)}" if left else ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        wrong = sum(bool(outcome.failures) for outcome in self.outcomes)
        numbers = sum(outcome.numbers for outcome in self.outcomes)
        verdict = "conforms" if self.conforms else "DOES NOT CONFORM"
        yield f"{self.title}: {verdict}"
        yield f"    {_calls(len(self.outcomes))}, {numbers:,} numbers; {_calls(wrong)} wrong"
        yield f"    checked: {', '.join(self.checked) or 'nothing'}{self._unchecked()}"
        if self.rounded:
            yield f"    {_calls(self.rounded)} right but for the rounding of positions"
        if wrong:
            yield from self._where_wrong()
        if wrong and all(map(_is_called_as_another, self.outcomes)):
            yield (
                "    a raw operator, which takes rows and columns of the output apart? Verify a "
                "function that takes them as a pair, before the scale"
            )
        if self.stopped:
            yield f"    {self.stopped}"
        for diagnosis in self.diagnoses:
            yield from _lines_of(diagnosis, self)

    def _where_wrong(self) -> Iterator[str]:
        """Yield whether ordinary calls are right, and the kinds of the others that are wrong."""
        ordinary = [outcome for outcome in self.outcomes if is_ordinary(outcome.case)]
        inside = [outcome for outcome in ordinary if not KINDS[EDGE](outcome.case)]
        for which, calls in (("ordinary boxes", ordinary), ("boxes inside the map", inside)):
            if calls and not any(outcome.failures for outcome in calls):
                wrong = [outcome.case for outcome in self.outcomes if outcome.failures]
                kinds = covering(wrong)
                yield f"    {which}: all right; wrong: {', '.join(kinds)}"
                yield f"    to leave these out: --without {','.join(kinds)}"
                return
        if ordinary:
            wrong_calls = sum(bool(outcome.failures) for outcome in ordinary)
            yield f"    ordinary boxes: {wrong_calls} of {_calls(len(ordinary))} wrong"


class BadArgument(ValueError):  # noqa: N818 - a ValueError with the argument's name
    """Raised if an argument of `ReportRequest` is invalid.

    Parameters
    ----------
    name : str
        Name of the argument in `roipool.testing.assert_conforms`.
    """

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"{name}: {words}")
        self.name, self.words = name, words


@dataclass(frozen=True)
class ReportRequest:
    """The arguments of a verification; see `roipool.testing.assert_conforms`."""

    implementation: Callable[..., Any] | str
    semantics: str
    backward: Callable[..., Any] | str | None = None
    backward_boxes: Callable[..., Any] | str | None = None
    arrays: str = "numpy"
    dtypes: Sequence[str] = ("float32",)
    devices: Sequence[str] = ("cpu",)
    options: Mapping[str, Any] = field(default_factory=dict)
    without: Collection[str] = ()
    random_calls: int = 300
    seed: int = 0
    tolerances: Sequence[Tolerance] = ()
    strict: bool = False
    process: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The implementation's name."""
        if isinstance(self.implementation, str):
            return self.implementation
        module = getattr(self.implementation, "__module__", None)
        name = getattr(self.implementation, "__qualname__", type(self.implementation).__name__)
        return f"{module}:{name}" if module else str(name)

    def __post_init__(self) -> None:
        """Replace `semantics` by the key of the system, and add the options in its name."""
        try:
            row, options = resolved(self.semantics)
        except ValueError as error:
            raise BadArgument("semantics", str(error)) from None
        object.__setattr__(self, "semantics", row)
        object.__setattr__(self, "options", {**options, **self.options})

    def check(self) -> None:
        """Raise ValueError or TypeError for invalid arguments."""
        operation = SEMANTICS[self.semantics]
        known_types = {*operation.dtypes} - {*operation.without_oracle}
        _check_choices("dtypes", self.dtypes, [name for name in TYPES if name in known_types])
        _check_choices("without", self.without, KINDS)
        for name in ("random_calls", "seed"):
            if getattr(self, name) < 0:
                raise BadArgument(name, f"must not be negative, got {getattr(self, name)}")
        for name in ("dtypes", "devices"):
            if not getattr(self, name):
                raise BadArgument(name, "must name at least one")
        names = {operation.names.get(own, own): own for own in operation.names}
        known = {name: names.get(name, name) for name in operation.options}
        for own in self.options:
            if operation.names.get(own, own) not in operation.options:
                raise BadArgument(
                    "options",
                    f"{shown_name(self.semantics)} has no option {own!r}; it has "
                    f"{', '.join(known.values()) or 'none'}",
                )
        if self.backward is not None and not operation.backward:
            raise BadArgument(
                "backward", f"that of {shown_name(self.semantics)} cannot be verified"
            )
        if self.backward_boxes is not None and not box_gradient_of(self.semantics):
            raise BadArgument(
                "backward_boxes", f"{shown_name(self.semantics)} has no gradient of boxes"
            )

    @property
    def by_boxes(self) -> str:
        """The source of the gradient of boxes; "" if it is not verified."""
        if self.backward_boxes is not None:
            return BY_AUTOGRAD if self.backward_boxes == AUTOGRAD else BY_FUNCTION
        differentiated = self.backward == AUTOGRAD and box_gradient_of(self.semantics)
        return IF_DIFFERENTIABLE if differentiated else ""

    def plan(self, dtype: str) -> CasePlan:
        """Return the selection of calls for a type."""
        names = SEMANTICS[self.semantics].names
        fixed = {names.get(own, own): value for own, value in self.options.items()}
        return CasePlan(
            self.semantics, dtype, dtype, fixed, self.without, self.random_calls, self.seed
        )

    def examiner(self, dtype: str, device: str) -> tuple[Examiner, Calls]:
        """Return the examiner, and the implementation, which may be a process to close."""
        self.check()
        calls = calls_of(
            self.implementation,
            self.backward,
            AUTOGRAD if self.by_boxes == IF_DIFFERENTIABLE else self.backward_boxes,
            self.arrays,
            device,
            semantics=self.semantics,
            **self.process,
        )
        try:
            examiner = Examiner(
                self.plan(dtype),
                calls,
                has_backward=self.backward is not None,
                by_boxes=self.by_boxes,
                name=self.name,
                tolerances=self.tolerances,
                strict=self.strict,
            )
        except BaseException:
            close(calls)
            raise
        return examiner, calls

    def reports(
        self, progress: Callable[[str, int], None] = lambda title, done: None
    ) -> Iterator[Report]:
        """Verify in each type on each device.

        `progress` is called with a title and the number of calls made so far.
        """
        self.check()
        for device in self.devices:
            for dtype in self.dtypes:
                yield self._report(dtype, device, progress)

    def _report(self, dtype: str, device: str, progress: Callable[[str, int], None]) -> Report:
        examiner, calls = self.examiner(dtype, device)
        outcomes: list[Outcome] = []
        crashes, stopped = 0, ""
        try:
            for outcome in examiner.outcomes():
                outcomes.append(outcome)
                progress(f"{self.semantics}, {dtype} on {device}", len(outcomes))
                subjects = {finding.subject for finding in outcome.failures}
                crashes += bool(subjects & {"crashes", "hangs"})
                if crashes == MAX_CRASHES:
                    stopped = f"stopped after {MAX_CRASHES} calls that crash or hang"
                    break
            progress(f"{self.semantics}, {dtype} on {device}: finding rules", len(outcomes))
            diagnoses = diagnose(examiner, outcomes)
        finally:
            close(calls)
        return Report(
            self.name, self.semantics, dtype, device, outcomes, diagnoses, stopped, self.arrays
        )


def _is_called_as_another(outcome: Outcome) -> bool:
    """Return whether a function rejects its arguments as Python does, and C++ for torch."""
    texts = [str(finding.comparison.problem) for finding in outcome.failures]
    return any("multiple values for argument" in text for text in texts)


def _check_choices(name: str, values: Iterable[str], allowed: Collection[str]) -> None:
    for value in values:
        if value not in allowed:
            raise BadArgument(name, f"{shown(value)} is not one of {', '.join(allowed)}")


# ---- Text


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _lines_of(diagnosis: Diagnosis, report: Report) -> Iterator[str]:
    calls = len(diagnosis.calls)
    yield f"  {diagnosis.results}: {diagnosis.words}"
    more = f" and {calls - SHOWN_CALLS} more" if calls > SHOWN_CALLS else ""
    yield f"    in {_calls(calls)}: {'; '.join(diagnosis.calls[:SHOWN_CALLS])}{more}"
    if diagnosis.kinds:
        yield f"    what they have in common: {', '.join(diagnosis.kinds)}"
    if diagnosis.rules and diagnosis.contradicted:
        yield f"    but {diagnosis.contradicted} of the right calls do not follow this rule"
    if diagnosis.alternatives:
        names = "; ".join(rule.words for rule in diagnosis.alternatives[:SHOWN_CALLS])
        yield f"    or one of these, which explain the calls as well: {names}"
    text = smallest_call(diagnosis, report)
    shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... (shortened)"
    yield f"    smallest: {shown}"
    if diagnosis.subject == "oracle":
        yield f"      {diagnosis.finding.comparison.problem}"


def smallest_call(diagnosis: Diagnosis, report: Report) -> str:
    """Return the smallest wrong call as Python text."""
    case = diagnosis.smallest
    operation = SEMANTICS[report.semantics]
    function = {
        "gradient": operation.backward,
        "box_gradient": box_gradient_of(report.semantics),
    }.get(diagnosis.result, operation.forward)
    arguments = arguments_of(case, function, report.arrays)
    return f"{function.rpartition('.')[2]}({', '.join(arguments)})"


def arguments_of(case: Case, function: str, arrays: str = "numpy") -> list[str]:
    """Return the arguments of the corresponding call of roipool, as text."""
    calls: list[FunctionCall] = []
    operation = in_box_type(SEMANTICS[case.operation], case.dtype)._replace(box_gradient="")
    if function == box_gradient_of(case.operation):
        case = of_box_gradient(case)
        operation = operation._replace(forward="", backward="", box_gradient=function)
    run(case, roipool, operation, calls=calls)
    (call,) = (made for made in calls if made.function == function)
    hidden = ("layout", "out", "return_argmax")
    return [
        f"{name}={text_of(value, arrays)}"
        for name, value in call.arguments.items()
        if name not in hidden
    ]


# ---- JUnit


def junit(reports: Iterable[Report]) -> bytes:
    """Return reports as JUnit XML: a suite for each, a test case for each call."""
    root = ET.Element("testsuites", name="roipool verify")
    for report in reports:
        wrong = [outcome for outcome in report.outcomes if outcome.failures]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_xml(report.title),
            tests=str(len(report.outcomes)),
            failures=str(len(wrong)),
            errors="0",
            skipped="0",
        )
        diagnoses = {name: diagnosis for diagnosis in report.diagnoses for name in diagnosis.calls}
        for outcome in report.outcomes:
            case = ET.SubElement(
                suite, "testcase", classname=_xml(report.title), name=_xml(outcome.name)
            )
            if outcome.failures:
                diagnosis = diagnoses.get(outcome.name)
                message = diagnosis.words if diagnosis else "is wrong"
                failure = ET.SubElement(case, "failure", message=_xml(message))
                failure.text = _xml(
                    "\n".join(
                        f"{finding.what}: {finding.comparison.problem}"
                        for finding in outcome.failures
                    )
                )
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _xml(text: str) -> str:
    """Replace characters that XML cannot represent."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
