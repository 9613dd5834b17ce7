"""PyTorch's own processes and compiled libraries: FSDP2, DTensor, DataLoader, AOTInductor.

Each test has two processes of one thread besides its own, which two processors bear, and each of
these imports torch. That of DistributedDataParallel is an example: `test_torch_package.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from _support.platforms import needs_fork, needs_linux
from _support.run_python import run_python

pytest.importorskip("torch")

ONE_THREAD = {"OMP_NUM_THREADS": "1", "ROIPOOL_NUM_THREADS": "1"}

BEGIN = """
import torch, roipool, roipool.torch.nn
import torch.distributed

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
mesh = torch.distributed.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
maps = torch.randn(2, 4, 16, 16)
rois = torch.tensor([[0, 1.0, 1, 10, 10], [1, 3, 4, 13, 12]])
"""
END = """
torch.distributed.destroy_process_group()
"""

SHARDED_PARAMETERS = """
from torch.distributed.fsdp import fully_shard

class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.features = torch.nn.Conv2d(4, 6, 3, padding=1)
        self.pool = roipool.torch.nn.RoIAlign(3, 1.0, 2)
        self.scores = torch.nn.Linear(6 * 9, 2)

    def forward(self, maps, rois):
        return self.scores(self.pool(self.features(maps).relu(), rois).flatten(1))

whole, sharded = Head(), Head()
for part in (sharded.features, sharded.scores, sharded):
    fully_shard(part, mesh=mesh)
own = rois[rank : rank + 1].clone()
own[:, 0] = 0
sharded(maps[rank : rank + 1], own).square().sum().backward()
(whole(maps, rois).square().sum() / 2).backward()
for one, other in zip(sharded.parameters(), whole.parameters(), strict=True):
    torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=1e-5, atol=1e-6)
"""

SHARDED_MAPS = """
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map

table = distribute_tensor(rois, mesh, [Replicate()])
for axis in (1, 0):  # channels of the maps; boxes, whose maps are on both
    placed = [Shard(1)] if axis == 1 else [Replicate()], [Replicate()] if axis == 1 else [Shard(0)]
    given = [distribute_tensor(one, mesh, where) for one, where in zip((maps, rois), placed)]
    given[0].requires_grad_()
    pool = local_map(
        lambda maps, rois: roipool.roi_align(maps, rois, 3),
        out_placements=[Shard(axis)],
        in_placements=tuple(placed),
        device_mesh=mesh,
    )
    pooled = pool(*given).full_tensor()
    assert torch.equal(pooled, roipool.roi_align(maps, rois, 3))
try:
    roipool.roi_align(given[0], given[1], 3)
except NotImplementedError as error:
    assert "sharding strategy" in str(error)
else:
    raise AssertionError("a DTensor was pooled outside local_map")
"""


@needs_linux
@pytest.mark.everything
@pytest.mark.parametrize(
    "code", [SHARDED_PARAMETERS, SHARDED_MAPS], ids=["fully_shard", "local_map"]
)
def test_two_processes(code: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + code + END)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--standalone", "--nproc-per-node", "2", str(script)),
        ],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


DATA = """
    import numpy as np, torch, roipool

    class Crops(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, number):
            rng = np.random.default_rng(number)
            maps = rng.normal(size=(1, 64, 30, 30)).astype(np.float32)
            rois = np.tile(np.array([[0, 1.5, 2, 20, 25]], np.float32), (100, 1))
            pooled = roipool.roi_align(maps, rois, 7)
            again = roipool.roi_align(torch.from_numpy(maps), torch.from_numpy(rois), 7)
            assert (pooled == again.numpy()).all()
            return pooled[0]
"""


@pytest.mark.parametrize(
    "start",
    [pytest.param("fork", marks=needs_fork), pytest.param("spawn", marks=pytest.mark.everything)],
)
def test_workers_of_a_data_loader(start: str) -> None:
    """Also where the process before has used roipool's and torch's threads."""
    code = f"""
        import warnings
        import torch, roipool
        from data import Crops

        if __name__ == "__main__":
            warnings.simplefilter("ignore")  # Python warns of any fork beside threads
            torch.set_num_threads(2)
            roipool.set_num_threads(2)
            crops = Crops()
            expected = torch.stack([torch.from_numpy(crops[i]) for i in range(len(crops))])
            loader = torch.utils.data.DataLoader(
                crops, batch_size=3, num_workers=2, multiprocessing_context={start!r}
            )
            for _ in range(2):
                assert torch.equal(torch.cat(list(loader)), expected)
    """
    done = run_python(code, modules={"data": textwrap.dedent(DATA)})
    assert done.returncode == 0, done.stderr


@needs_linux  # and a compiler
@pytest.mark.everything
def test_a_compiled_library(tmp_path: Path) -> None:
    """AOTInductor: another process loads it, and calls the operator of the imported package."""
    common = f"""
        import torch, roipool.torch

        class Pool(torch.nn.Module):
            def forward(self, maps, rois):
                return roipool.roi_align(maps * 2, rois, 3, 0.5, 2) + 1

        torch.manual_seed(0)
        maps = torch.randn(1, 4, 16, 16)
        rois = torch.tensor([[0, 1.0, 1, 20, 20], [0, 3, 4, 30, 28]])
        file = {str(tmp_path / "pool.pt2")!r}
    """
    compiled = run_python(
        textwrap.dedent(common)
        + textwrap.dedent("""
        program = torch.export.export(Pool(), (maps, rois))
        torch._inductor.aoti_compile_and_package(program, package_path=file)
        """)
    )
    assert compiled.returncode == 0, compiled.stderr
    loaded = run_python(
        textwrap.dedent(common)
        + textwrap.dedent("""
        assert torch.equal(torch._inductor.aoti_load_package(file)(maps, rois), Pool()(maps, rois))
        """)
    )
    assert loaded.returncode == 0, loaded.stderr
