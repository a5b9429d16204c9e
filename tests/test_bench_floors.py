"""bench/floors.py and bench/subjects.py: floors follow from the work; kernels are checked."""

from __future__ import annotations

import floors
import kernel_cases
import numpy as np
import pytest
import subjects
import synthetic

RATES = floors.Rates(
    threads=1,
    copy=10e9,
    read=20e9,
    near=40e9,
    gather=((1, 1 << 14, 1e9), (1, 1 << 24, 1e8), (4, 1 << 14, 2e9), (4, 1 << 24, 4e8)),
    operations=100e9,
    cache=16 << 20,
)


def test_the_largest_of_three_is_the_floor() -> None:
    assert floors.floor(floors.Work(dram=20e9, operations=1e9), RATES) == (2.0, "memory")
    assert floors.floor(floors.Work(dram=1e9, operations=300e9), RATES) == (3.0, "arithmetic")
    gathered = floors.Work(dram=1e9, operations=1e9, gathered=5e9, table=1 << 14)
    assert floors.floor(gathered, RATES) == (pytest.approx(5.0), "gather")


def test_what_is_used_again_costs_dram_only_beyond_the_cache() -> None:
    near = floors.Work(dram=1e6, operations=0, again=9e6, working_set=1 << 20)
    far = floors.Work(dram=1e6, operations=0, again=9e6, working_set=1 << 30)
    assert floors.floor(near, RATES).seconds == pytest.approx(1e6 / 40e9)
    assert floors.floor(far, RATES).seconds == pytest.approx(1e7 / 10e9)


def test_places_that_are_near_are_fetched_faster() -> None:
    """The order of a kernel's own fetches counts, not just how many there are."""
    rows = np.arange(1 << 19, dtype=np.int32)
    shuffled = np.random.default_rng(0).permutation(rows)
    seconds = [
        floors.floor(
            floors.Work(dram=1, operations=0, gathered=len(rows) * 10, places=places), RATES
        ).seconds
        for places in (rows // 16, shuffled)
    ]
    assert seconds[0] < seconds[1]


def test_gather_rates_lie_between_those_measured() -> None:
    assert RATES.lines(1 << 10) == pytest.approx(1e9)
    assert RATES.lines(1 << 30) == pytest.approx(1e8)
    assert RATES.lines(1 << 19) == pytest.approx(10**8.5)
    assert RATES.lines(1 << 14, run=64) == pytest.approx(2e9)


def test_ppr_work_by_hand() -> None:
    work = floors.ppr(n_nodes=1000, nnz=5000, b=64, n_iter=10)
    assert work.operations == 2 * 10 * 5000 * 64
    assert work.gathered == 10 * 5000 * 4  # four lines hold a node's 64 columns
    assert work.dram == 8 * 1000 + 8 * 5000 + 2 * 4 * 1000 * 64
    more = floors.floor("ppr", RATES, n_nodes=1000, nnz=5000, b=64, n_iter=20)
    assert more.seconds == pytest.approx(2 * floors.floor(work, RATES).seconds)


def test_measuring_gives_rates_that_machines_have() -> None:
    rates = floors.measure(1, large=8 << 20, repeats=2)
    assert 1e8 < rates.copy < 1e12
    assert 1e8 < rates.operations < 1e12
    assert all(1e5 < rate < 1e11 for _, _, rate in rates.gather)
    assert rates.cache >= 1 << 18
    assert "GB/s" in floors.describe(rates)


@pytest.fixture(scope="module")
def inputs() -> subjects.Inputs:
    memory = synthetic.Synthetic(12_000, dim=32)
    return subjects.Inputs(memory, memory.questions(8))


@pytest.mark.parametrize("b", [1, 5])
def test_every_kernel_passes_its_check_and_a_wrong_result_does_not(
    b: int, inputs: subjects.Inputs
) -> None:
    names = []
    for case in kernel_cases.Cases(inputs).all(b):
        found = case.run()
        case.check(found)
        with pytest.raises(AssertionError):
            case.check([_perturbed(found[0])])
        assert case.floor(RATES).seconds > 0
        names.append(case.kernel)
    assert set(kernel_cases.KERNELS) - {"topk"} <= set(names)


@pytest.mark.parametrize("b", [1, 5])
@pytest.mark.parametrize("kernel", kernel_cases.ON_DEVICE)
def test_device_code_on_numpy_passes_its_check(
    kernel: str, b: int, inputs: subjects.Inputs
) -> None:
    case = kernel_cases.device_case(inputs, kernel, b, subjects.GPU_ON_NUMPY)
    found = case.run()
    case.check(found)
    with pytest.raises(AssertionError):
        case.check(_perturbed(found))
    assert case.floor(RATES).seconds > 0


def _perturbed(found):
    """Move every seventh value of an array, or of each of several."""
    if isinstance(found, tuple):
        return (
            type(found)._make(map(_perturbed, found))
            if hasattr(found, "_fields")
            else tuple(map(_perturbed, found))
        )
    moved = found.copy()
    flat = moved.reshape(-1)
    if flat.dtype == np.bool_:
        flat[::7] = ~flat[::7]
    else:
        flat[::7] += flat.dtype.type(1)
    return moved
