"""Programs of `jax.export` find the handler in a process that lowers nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _support.cases import CASES, SHAPE, SIZE, maps
from _support.run_python import run_python

pytest.importorskip("flatbuffers", reason="jax.export needs it to write programs")

import jax
import jax.export
import jax.numpy as jnp

import roipool

CHECKS = [jax.export.DisabledSafetyCheck.custom_call("roipool_cpu")]
AVERAGE = next(case for case in CASES if case.op.forward == "roi_align" and not case.adaptive)

LOAD = """
    import numpy as np, jax, jax.export
    {before}
    import roipool.jax
    {after}
    given = np.load({folder!r} + "/given.npz")
    for name in ("forward", "gradient"):
        with open({folder!r} + "/" + name, "rb") as file:
            program = jax.export.deserialize(bytearray(file.read()))
        found = program.call(given["features"], given["rois"])
        np.testing.assert_array_equal(found, given[name], strict=True)
    assert roipool.jax.transport() == "handlers of XLA"
"""
STARTS = {
    "no backend yet": ("", 'jax.config.update("jax_num_cpu_devices", 3); assert jax.devices()[2:]'),
    "a backend already": ("jax.devices()", ""),
    "another import": ("", "roipool.roi_align(np.ones((1, 1, 3, 3)), [[0, 0, 0, 1, 1]], 2)"),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with programs, their arguments and their results."""
    folder = tmp_path_factory.mktemp("programs")
    features = jnp.asarray(maps(), jnp.float32)
    rois = jnp.asarray(np.column_stack([AVERAGE.indices(), AVERAGE.boxes()]), jnp.float32)

    def forward(features: jax.Array, rois: jax.Array) -> jax.Array:
        return roipool.roi_align(features, rois, SIZE, sampling_ratio=2)

    def loss(features: jax.Array, rois: jax.Array) -> jax.Array:
        return (forward(features, rois) ** 2).sum()

    given = {"features": np.asarray(features), "rois": np.asarray(rois)}
    assert features.shape == SHAPE
    for name, function in {"forward": forward, "gradient": jax.grad(loss)}.items():
        compiled = jax.jit(function)
        exported = jax.export.export(compiled, disabled_checks=CHECKS)(features, rois)
        Path(folder, name).write_bytes(exported.serialize())
        given[name] = np.asarray(compiled(features, rois))
    np.savez(folder / "given.npz", **given)
    return folder


@pytest.mark.parametrize(("before", "after"), STARTS.values(), ids=STARTS)
def test_a_loaded_program_runs(programs: Path, before: str, after: str) -> None:
    """The import starts no backend: settings of JAX can still be changed."""
    done = run_python(LOAD.format(folder=str(programs), before=before, after=after))
    assert done.returncode == 0, done.stderr


def test_an_interface_that_is_not_known_waits(programs: Path) -> None:
    """It could not be taken, which would stop JAX, until its backend has started."""
    code = """
        import jax, roipool
        from roipool import _cpu
        _cpu.XLA_INTERFACES = 7, range(1)
        calls = []
        register, jax.ffi.register_ffi_target = jax.ffi.register_ffi_target, calls.append
        import roipool.jax
        assert not calls
        jax.ffi.register_ffi_target = register
        assert roipool.jax.transport() == "handlers of XLA"
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
