"""Checks the types of the installed package with mypy and pyright, beside torch, JAX and Dask.

    python scripts/check_types.py

`mypy --strict` and pyright must accept `tests/package/typed_user.py`, and find each mistake in it.
pyright's report on completeness must not mention any name that programs call. The script prints the
number of such names, and how many names of the tools have inferred types, such as private
attributes. It needs mypy, pyright and the libraries in this Python's environment, and runs in a
folder without sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

USER = Path(__file__).parent.parent / "tests" / "package" / "typed_user.py"
# Parts of the package that programs do not call.
TOOLS = ("roipool.cli.", "roipool.tools.", "roipool.verification.")


def run(*command: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this Python in a folder."""
    # pyright uses the libraries of the first Python on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": path},
    )


def incomplete(report: str) -> list[str]:
    """Return the names called by programs whose types pyright does not know."""
    completeness = json.loads(report)["typeCompleteness"]
    symbols = completeness["symbols"]
    if not any(each["name"] == "roipool.roi_align" for each in symbols):
        raise RuntimeError("pyright did not find the installed package")
    unknown = [each["name"] for each in symbols if each["isExported"] and not each["isTypeKnown"]]
    unclear = [each["name"] for each in symbols if each["isExported"] and each["isTypeAmbiguous"]]
    public = [each["name"] for each in symbols if each["isExported"]]
    called = {name for name in public if not name.startswith(TOOLS)}
    inferred = {*unknown, *unclear}
    print(
        f"pyright --verifytypes: of {len(called)} names that programs call {len(called - inferred)}"
        f" have a type; of {len(public) - len(called)} of the tools, {len(inferred - called)} "
        "leave it to be inferred"
    )
    return sorted(inferred & called)


def main() -> int:
    """Run the checkers; return the exit status."""
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        # Without the project's configuration, which excludes libraries.
        for checker in (("mypy", "--strict", "--config-file="), ("pyright",)):
            result = run(*checker, str(USER), folder=folder)
            print(f"{checker[0]}: {(result.stdout + result.stderr).strip()}")
            failed |= result.returncode != 0
        options = ["--verifytypes", "roipool", "--ignoreexternal", "--outputjson"]
        names = incomplete(run("pyright", *options, folder=folder).stdout)
    for name in names:
        print(f"unknown type: {name}")
    return 1 if failed or names else 0


if __name__ == "__main__":
    sys.exit(main())
