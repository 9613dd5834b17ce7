"""Derivatives and batches within `jax.shard_map`, on two devices that XLA makes of one processor.

A program of its own, because the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from _support.cases import ALL_CASES, OperationCase
from _support.run_python import run_python

TWO_DEVICES = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "JAX_PLATFORMS": "cpu",
}

PROGRAM = """
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import roipool

mesh = Mesh(np.array(jax.devices()), ("d",))
assert len(jax.devices()) == 2
rng = np.random.default_rng(0)
x = jnp.asarray(rng.standard_normal((4, 3, 8, 9)), jnp.float32)
one = jnp.asarray(rng.uniform(0, 8, (6, 2, 2)), jnp.float32)
boxes = jnp.concatenate([one.min(1), one.max(1) + 1], 1)
local = jnp.arange(6) % 2  # the images of a device's maps

def pool(x, boxes, indices):
    return roipool.roi_align(x, boxes, 2, 1.0, 2, batch_indices=indices)

def over(maps, table):
    return functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(maps, table, table), out_specs=P("d"),
    )
"""

# Maps of each device's own and boxes that all share; the reverse; both their own.
WAYS = {
    "maps": ("P('d')", "P()", "jnp.concatenate([pool(x[:2], boxes, n), pool(x[2:], boxes, n)])"),
    "boxes": ("P()", "P('d')", "pool(x, boxes, n)"),
    "both": (
        "P('d')",
        "P('d')",
        "jnp.concatenate([pool(x[:2], boxes[:3], n[:3]), pool(x[2:], boxes[3:], n[3:])])",
    ),
}
CHECKS = """
n = local
sharded = over({maps}, {table})(pool)
def expected(x, boxes):
    return {expected}
def found(x, boxes):
    return sharded(x, boxes, n)

def close(one, other):
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-5)

for compiled in (lambda f: f, jax.jit):
    assert (np.asarray(compiled(found)(x, boxes)) == np.asarray(expected(x, boxes))).all()
    weights = jnp.asarray(rng.standard_normal(expected(x, boxes).shape), jnp.float32)
    for argument in (0, 1):
        loss = lambda f: lambda *given: (f(*given) * weights).sum()
        close(compiled(jax.grad(loss(found), argument))(x, boxes),
              jax.grad(loss(expected), argument)(x, boxes))
    change = jnp.asarray(rng.standard_normal(x.shape), jnp.float32)
    close(compiled(lambda x, c: jax.jvp(lambda x: found(x, boxes), (x,), (c,))[1])(x, change),
          jax.jvp(lambda x: expected(x, boxes), (x,), (change,))[1])
batch = jnp.stack([x, 2 * x])
close(jax.vmap(lambda x: found(x, boxes))(batch), jax.vmap(lambda x: expected(x, boxes))(batch))
print("ok")
"""


@pytest.mark.parametrize("way", WAYS)
def test_within_shard_map(way: str) -> None:
    maps, table, expected = WAYS[way]
    checks = CHECKS.format(maps=maps, table=table, expected=expected)
    answer = run_python(PROGRAM + checks, **TWO_DEVICES)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "ok\n"


# ---- Every operation, in one program

EVERY = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from _support.cases import ALL_CASES

mesh = Mesh(np.array(jax.devices()), ("d",))
maps = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3, 8, 9)), jnp.float32)

def problem_of(case):
    boxes, indices = jnp.asarray(case.boxes(), jnp.float32), jnp.asarray(case.indices())
    pool = lambda x: case.pool(x, boxes, indices)
    sharded = jax.shard_map(pool, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    each = lambda x: jnp.concatenate([pool(x[:2]), pool(x[2:])])
    if not (np.asarray(jax.jit(sharded)(maps)) == np.asarray(each(maps))).all():
        return "other pooled values"
    weights = jnp.cos(jnp.arange(each(maps).size, dtype=jnp.float32)).reshape(each(maps).shape)
    slopes = [jax.grad(lambda x: (f(x) * weights).sum())(maps) for f in (sharded, each)]
    return "" if np.allclose(*slopes, rtol=2e-5, atol=1e-5) else "another gradient"

cases = [case for case in ALL_CASES if not case.adaptive]
print(json.dumps({case.name: problem_of(case) for case in cases}))
"""


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    """Run every operation; return the errors of each."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH", "")]))
    answer = run_python(EVERY, PYTHONPATH=path, **TWO_DEVICES)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, str] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("case", [case for case in ALL_CASES if not case.adaptive], ids=str)
def test_every_operation(case: OperationCase, problems: dict[str, str]) -> None:
    assert problems[case.name] == ""
