"""Serves one library to another process."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The package is imported from beside it, without roipool. After that, neither its modules nor
    # its neighbours may hide packages of the same name.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    serving = importlib.import_module("libraries.serving")
    del sys.path[0]
    serving.serve(sys.argv[1], int(sys.argv[2]))
