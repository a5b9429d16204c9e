"""Each kernel at three sizes, one question and 64, with its floor beside it."""

from __future__ import annotations

from typing import Any

import floors
import pytest
from kernel_cases import KERNELS, case


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.benchmark(min_rounds=20, max_time=0.5, warmup=False)
def test_kernel(benchmark: Any, world: Any, rates: floors.Rates, kernel: str, b: int) -> None:
    if kernel == "pool" and b > 1:
        pytest.skip("pooling is done when a memory is built, not for questions")
    ready = case(world.inputs, kernel, b)
    ready.check(ready.run())
    least = floors.floor(ready.work, rates)
    benchmark.group = f"{kernel}, {b} at once"
    benchmark(ready.run)
    if benchmark.stats is not None:  # --benchmark-disable runs once without timing
        median = benchmark.stats.stats.median
        benchmark.extra_info.update(
            floor=least.seconds, bound=least.bound, over_floor=median / least.seconds,
            **ready.shapes,
        )  # fmt: skip
        print(f"\n{kernel} {world.size} b={b}: {1e3 * median:.3f} ms, floor "
              f"{1e3 * least.seconds:.3f} ms by {least.bound}, "
              f"{median / least.seconds:.2f}x")  # fmt: skip
