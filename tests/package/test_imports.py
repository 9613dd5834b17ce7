"""What imports what: programs load no more than they call, and no imports form a circle."""

from __future__ import annotations

import ast
import pickle
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from _support.run_python import run_python
from _support.sources import SOURCES

from roipool import compat
from roipool.tools import libraries

# Prints the modules of `roipool.tools` that are imported, on one line.
PRINT = "print(*sorted(name for name in sys.modules if name.startswith('roipool.tools')))"

# What may import them: the command line, what tests other implementations, the tools themselves,
# (Files that only a checkout has may, too.)
USERS = ("roipool/cli/", "roipool/testing.py", "pytest_roipool.py", "roipool/tools/")


def test_pooling_and_verification_import_no_tools() -> None:
    """One call of every public pooling function, checked as `roipool verify` checks it."""
    code = """
        import importlib, pkgutil, sys
        import roipool
        from roipool import verification
        for package in (roipool.compat, verification):
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
        from roipool.systems import SYSTEMS
        from roipool.verification import check, generate
        for name in SYSTEMS:
            case = generate.draw(0, 0, [name], tiny=True)
            for finding in check.check(case, check.subjects(case, 0)):
                assert finding.comparison.problem is None, finding
    """
    done = run_python(f"{textwrap.dedent(code)}\n{PRINT}")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_pooling_imports_no_table_of_systems() -> None:
    code = "import sys, roipool, roipool.compat; print('roipool.systems' in sys.modules)"
    assert run_python(code).stdout == "False\n"


# Prints the modules of roipool that are imported, on one line.
LOADED = "print(*sorted(name for name in sys.modules if name.startswith('roipool')))"


def loaded_by(code: str) -> set[str]:
    """Return the modules of roipool that a new process imports for this code."""
    done = run_python(f"import sys\n{code}\n{LOADED}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_loads_the_core_alone() -> None:
    """Its 48 modules, 13 of operations, 5 of masks; neither `compat` nor the oracle."""
    loaded = loaded_by("import roipool")
    assert not {name for name in loaded if name.startswith(("roipool.compat", "roipool.reference"))}
    assert len(loaded) <= 48


def test_a_system_loads_no_other_system() -> None:
    loaded = loaded_by("import roipool\nroipool.compat.caffe.roi_pooling")
    systems = {f"roipool.compat.{name}" for name in compat.__all__}
    assert loaded & systems == {"roipool.compat.caffe"}
    assert "roipool.reference" not in loaded


def test_rows_import_no_verification() -> None:
    """`verification` is about rows, which know nothing of it."""
    assert not {name for name in loaded_by("import roipool.systems") if "verification" in name}


def test_modules_that_are_not_imported_are_found() -> None:
    """By `dir`, in completions, in misspellings, by `import *` and in pickles."""
    names = sorted(compat.__all__)
    found = [module.name for module in pkgutil.iter_modules(compat.__path__)]
    assert names == sorted(name for name in found if not name.startswith("_"))
    pickled = pickle.dumps([compat.mmcv.roi_align, compat.mmcv.RoIAlign(7)])
    code = f"""
        import pickle, rlcompleter, sys
        import roipool
        assert dir(roipool) == sorted(roipool.__all__) and "compat" not in vars(roipool)
        complete = rlcompleter.Completer({{"roipool": roipool}}).attr_matches
        assert complete("roipool.comp") == ["roipool.compat"]
        assert dir(roipool.compat) == {names} and "mmcv" not in vars(roipool.compat)
        assert complete("roipool.compat.mmc") == ["roipool.compat.mmcv"]
        assert roipool.compat.mmcv is sys.modules["roipool.compat.mmcv"]
        for package in (roipool, roipool.compat):
            try:
                package.referenc
            except AttributeError as error:
                wanted = f"module '{{package.__name__}}' has no attribute 'referenc'"
                assert (str(error), error.name, error.obj) == (wanted, "referenc", package)
        exec("from roipool.compat import *", names := {{}})
        assert {{*names}} - {{"__builtins__"}} == {{*roipool.compat.__all__}}
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    code = f"import pickle\nfunction, layer = pickle.loads({pickled!r})\nprint(function, layer)"
    done = run_python(code)
    assert done.stdout.startswith("<function roi_align at "), done.stderr


@pytest.mark.parametrize("library", ["dask", "jax", "torch"])
def test_front_ends_import_no_tools(library: str) -> None:
    pytest.importorskip(library)
    done = run_python(f"import sys, roipool.{library}\n{PRINT}")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file names in its imports, relative ones in full.

    Imports within functions count, and those for type checkers, and calls of `import_module`.
    """
    package = path.relative_to(SOURCES).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (one.value for one in node.args if isinstance(one, ast.Constant))


def test_no_imports_form_a_circle() -> None:
    """Each file can be read after those that it needs."""
    modules = {
        ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (SOURCES / "roipool").rglob("*.py")
    }
    compiled = "roipool._cpu"
    known = {*modules, compiled}
    needed: dict[str, set[str]] = {}
    for module, path in modules.items():
        named = (name if name in known else name.rpartition(".")[0] for name in imported(path))
        needed[module] = {name for name in named if name in known and name != module}
    source = (SOURCES / "roipool" / "_cpu.pyx").read_text()
    needed[compiled] = {*re.findall(r"^from (roipool\S*) import", source, re.MULTILINE)}
    assert sum(map(len, needed.values())) > len(modules)
    TopologicalSorter(needed).prepare()  # a CycleError names the modules of a circle


def test_only_programs_import_tools() -> None:
    files = [*SOURCES.glob("*.py"), *(SOURCES / "roipool").rglob("*.py")]
    importers = {
        path.relative_to(SOURCES).as_posix()
        for path in files
        if any(f"{name}.".startswith("roipool.tools.") for name in imported(path))
    }
    assert {name for name in importers if not name.startswith(USERS)} == set()
    assert {user for user in USERS if any(name.startswith(user) for name in importers)} == {*USERS}


def test_the_libraries_need_little_elsewhere() -> None:
    """This package runs in the environments of old libraries, without roipool."""
    names = set()
    for path in Path(libraries.__file__).parent.glob("*.py"):
        if path.name in ("process.py", "client.py"):  # they start the others
            continue
        for node in ast.parse(path.read_text(), feature_version=(3, 8)).body:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module or "")
    needed = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert needed == {"numpy"}
