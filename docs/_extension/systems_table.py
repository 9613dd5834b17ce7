"""The table of all systems on the page of implementations, from their rows in `roipool.systems`."""

from __future__ import annotations

from collections import defaultdict

from roipool.systems import SYSTEMS, System, oracle_of


def table() -> str:
    """Return the table: a line for each function or method, by the oracle that defines it."""
    functions: dict[tuple[str, str], list[System]] = defaultdict(list)
    for name, row in SYSTEMS.items():
        if row.forward.startswith("compat."):
            function = row.forward.removeprefix("compat.").removesuffix(".forward")
            functions[oracle_of(name).operation.forward, function].append(row)
    oracles = list(dict.fromkeys(oracle for oracle, _ in functions))
    lines = [
        f"| `{oracle}` | `{function}` | {_gradients(rows)} | {_releases(rows)} |"
        for (oracle, function), rows in sorted(
            functions.items(), key=lambda item: oracles.index(item[0][0])
        )
    ]
    head = "| oracle | function | gradients | compared with a release |"
    return "\n".join([head, "|---|---|---|---|", *lines])


def _gradients(rows: list[System]) -> str:
    return ", ".join(
        word
        for word, field in (("features", "backward"), ("boxes", "box_gradient"))
        if any(getattr(row, field) for row in rows)
    )


def _releases(rows: list[System]) -> str:
    libraries = {name for row in rows for one in row.compared.values() for name in one.libraries}
    stored = any(row.goldens for row in rows)
    return "; ".join(
        [
            *["stored results"] * stored,
            *[f"installed {', '.join(sorted(libraries))}"] * bool(libraries),
        ]
    )
