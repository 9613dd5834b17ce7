"""Serves a library or functions to another process, without roipool."""

import importlib
import importlib.util
import sys
from pathlib import Path

if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    del sys.path[0]  # the modules of this folder are named after libraries
    name = "_roipool_libraries"
    spec = importlib.util.spec_from_file_location(
        name, str(folder / "__init__.py"), submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    importlib.import_module(name + ".server").serve()
