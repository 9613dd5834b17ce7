"""Checks the installed package's types as a user's checkers see them, beside torch, JAX and Dask.

    python scripts/check_types.py

`mypy --strict` and pyright must accept `tests/package/typed_user.py`, and find each mistake in it.
Of what pyright says about the completeness of the package's types, every name that programs call
must be free; how many there are is printed, and how many names of the tools leave a type to be
inferred: attributes that are assigned, which nobody outside reads. Needs mypy, pyright and the
libraries in this Python's environment, and runs in a folder without sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

USER = Path(__file__).parent.parent / "tests" / "package" / "typed_user.py"
# What is installed beside the library, and not called by programs.
TOOLS = ("roipool.cli.", "roipool.tools.", "roipool.verification.")


def run(*command: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this Python in a folder."""
    # pyright takes the libraries of the Python that comes first on the path.
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
    """Return the names that programs call of which pyright does not know the type."""
    completeness = json.loads(report)["typeCompleteness"]
    symbols = completeness["symbols"]
    if not any(each["name"] == "roipool.roi_align" for each in symbols):
        raise RuntimeError("pyright has not found the package that is installed here")
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
        # No configuration: the project's own leaves libraries out.
        for checker in (("mypy", "--strict", "--config-file="), ("pyright",)):
            result = run(*checker, str(USER), folder=folder)
            print(f"{checker[0]}: {(result.stdout + result.stderr).strip()}")
            failed |= result.returncode != 0
        options = ["--verifytypes", "roipool", "--ignoreexternal", "--outputjson"]
        names = incomplete(run("pyright", *options, folder=folder).stdout)
    for name in names:
        print(f"its type is not known: {name}")
    return 1 if failed or names else 0


if __name__ == "__main__":
    sys.exit(main())
