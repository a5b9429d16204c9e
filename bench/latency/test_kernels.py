"""Each kernel at three sizes, one question and 64, with its floor beside it."""

from __future__ import annotations

from typing import Any

import floors
import pytest
from kernel_cases import KERNELS


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.benchmark(min_rounds=20, max_time=0.5, warmup=False)
def test_kernel(benchmark: Any, world: Any, rates: floors.Rates, kernel: str, b: int) -> None:
    """What a batch of b questions asks of a kernel, on the one thread that calls it."""
    ready = world.cases.case(kernel, b)
    if ready is None:
        pytest.skip("these questions need no such call")
    ready.check(ready.run())
    least = ready.floor(rates)
    benchmark.group = f"{kernel}, {b} at once"
    benchmark(ready.run)
    if benchmark.stats is not None:  # --benchmark-disable runs once without timing
        median = benchmark.stats.stats.median
        over = median / least.seconds
        benchmark.extra_info.update(floor=least.seconds, bound=least.bound, over_floor=over)
        print(f"\n{kernel} {world.size} b={b}: {1e3 * median:.3f} ms, floor "
              f"{1e3 * least.seconds:.3f} ms by {least.bound}, {over:.2f}x")  # fmt: skip
