"""Description of this installation, for bug reports and measurements."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from roipool import _cpu
from roipool._addresses import CUPY_EXTRAS
from roipool._settings import MIB, get_cache_limit, get_num_threads, threads_source
from roipool._version import __version__

# How OpenMP's idle threads wait: of any OpenMP, GNU's and LLVM's.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

_CPUINFO = Path("/proc/cpuinfo")


def show_config() -> None:
    """Print what this installation can do, as ``roipool info`` does.

    Versions, processor, threads, instruction sets and cached memory; what CuPy, if it is
    installed, finds of CUDA (it is imported for this), or why there is no GPU; how PyTorch and JAX
    call the kernels, where the program has imported them: ``roipool info`` imports them itself.

    Examples
    --------
    >>> import roipool
    >>> roipool.show_config()  # doctest: +ELLIPSIS
    roipool ...
    """
    imported = [name for name in _FRONT_ENDS if name in sys.modules]
    print_config({**facts(), **front_end_facts(imported)})


def print_config(report: dict[str, Any]) -> None:
    """Print facts for people."""
    for label, text in described(report):
        print(f"{label:<16} {text}")


def facts() -> dict[str, Any]:
    """Return the facts as JSON can hold them; None where something is missing.

    Benchmarks call this: PyTorch and JAX, which would change their processes, are not imported.
    """
    return {
        "roipool": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": processor(),
        "processors_usable": usable_processors(),
        "openmp": _cpu.has_openmp(),
        "team": "pool" if _cpu.uses_pool() else "openmp",
        "threads": get_num_threads(),
        "threads_from": threads_source(),
        "waiting": waiting_policies(),
        "instruction_sets": list(_cpu.instruction_sets()),
        "instruction_set": _cpu.instruction_set(),
        "cache_limit_mib": get_cache_limit(),
        "cached_bytes": _cpu.cached_bytes(),
        "lent_bytes": _cpu.lent_bytes(),
        "ROIPOOL_ISA": os.environ.get("ROIPOOL_ISA") or None,
        **gpu_facts(),
    }


def front_end_facts(names: Iterable[str] = ("torch", "jax")) -> dict[str, str | None]:
    """Return how libraries call the kernels, importing them; None for one that is not installed."""
    return {name: _of_library(name, _FRONT_ENDS[name]) for name in names}


def _of_library(name: str, tell: Callable[[], str]) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the text says what they would
            return _one_line(f"{importlib.import_module(name).__version__}, {tell()}")
    except Exception as error:  # noqa: BLE001 - broken installations raise whatever they like
        return _one_line(f"cannot be used: {error}")


def _torch_transport() -> str:
    importlib.import_module("roipool.torch")  # fails where this torch is too old
    is_on_gpu = importlib.import_module("torch").cuda.is_available()
    return "kernels called on the memory of " + ("tensors" if is_on_gpu else "CPU tensors")


def _jax_transport() -> str:
    return f"kernels called by {importlib.import_module('roipool.jax').transport()}"


_FRONT_ENDS: dict[str, Callable[[], str]] = {"torch": _torch_transport, "jax": _jax_transport}


def gpu_facts() -> dict[str, Any]:
    """Return CuPy's part of the facts; `no_gpu` says in one line why there are no devices."""
    report: dict[str, Any] = dict.fromkeys(
        ("cupy", "cuda_runtime", "cuda_driver", "kernel_cache", "no_gpu")
    )
    report["devices"] = []
    try:
        cupy = importlib.import_module("cupy")
        report["cupy"] = cupy.__version__
        report["kernel_cache"] = os.environ.get("CUPY_CACHE_DIR") or str(
            Path("~/.cupy/kernel_cache").expanduser()
        )
        runtime = cupy.cuda.runtime
        report["cuda_runtime"] = _version(runtime.runtimeGetVersion())
        report["cuda_driver"] = _version(runtime.driverGetVersion())
        report["devices"] = [
            _device(runtime.getDeviceProperties(number))
            for number in range(runtime.getDeviceCount())
        ]
        if not report["devices"]:
            report["no_gpu"] = "CUDA finds no device"
    except ModuleNotFoundError as error:
        missing = (
            f"CuPy is not installed: {CUPY_EXTRAS}"
            if error.name == "cupy"
            else f"CuPy cannot be imported: {error}"
        )
        report["no_gpu"] = _one_line(missing)
    except Exception as error:  # noqa: BLE001 - broken installations raise whatever they like
        report["no_gpu"] = _one_line(f"CuPy finds no CUDA device: {error}")
    return report


def described(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts as labels and texts for people."""
    yield "roipool", report["roipool"]
    yield "Python", report["python"]
    yield "NumPy", report["numpy"]
    yield "platform", report["platform"]
    yield "processor", f"{report['processor']}, {report['processors_usable']} CPUs usable"
    openmp = "yes" if report["openmp"] else "no"
    plural = "" if report["threads"] == 1 else "s"
    yield "OpenMP", f"{openmp}, {report['threads']} thread{plural}: {report['threads_from']}"
    if report["openmp"]:
        yield "idle threads", _of_idle_threads(report)
    sets = ", ".join(report["instruction_sets"])
    forced = ", forced by ROIPOOL_ISA" if report["ROIPOOL_ISA"] else ""
    yield "instruction set", f"{report['instruction_set']}{forced}; usable: {sets}"
    cached, lent = report["cached_bytes"] / MIB, report["lent_bytes"] / MIB
    also = f", {lent:.1f} MiB lent to the system" if lent else ""
    yield "memory cache", f"up to {report['cache_limit_mib']} MiB, {cached:.1f} MiB now{also}"
    for name, label in {"torch": "PyTorch", "jax": "JAX"}.items():
        if report.get(name):
            yield label, report[name]
    if report["cupy"]:
        yield "CuPy", report["cupy"]
        yield "CUDA runtime", report["cuda_runtime"] or "none"
        yield "CUDA driver", report["cuda_driver"] or "none"
        yield "kernel cache", report["kernel_cache"]
    for number, device in enumerate(report["devices"]):
        capability, size = device["compute_capability"], device["memory_bytes"] / 2**30
        yield f"GPU {number}", f"{device['name']}, compute capability {capability}, {size:.1f} GiB"
    if report["no_gpu"]:
        yield "GPU", f"none: {report['no_gpu']}"


def _of_idle_threads(report: dict[str, Any]) -> str:
    if report["team"] == "pool":
        return "sleep: a pool of threads, not OpenMP's"
    policies = ", ".join(f"{name}={value}" for name, value in report["waiting"].items())
    return policies or f"wait as OpenMP does ({', '.join(WAITING)} are not set)"


def processor() -> str:
    """Return the processor's name; Linux tells it in a file only."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return _one_line(line.partition(":")[2])
    return platform.processor() or platform.machine()


def waiting_policies() -> dict[str, str]:
    """Return the environment variables that say how OpenMP's idle threads wait."""
    return {name: _one_line(os.environ[name]) for name in WAITING if os.environ.get(name)}


def usable_processors() -> int:
    """Return the number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(number: int) -> str | None:
    """Return CUDA's 12040 as 12.4; 0 means that there is none."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _device(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "memory_bytes": properties["totalGlobalMem"],
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
