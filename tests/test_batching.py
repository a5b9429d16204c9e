"""Micro-batching: what it answers, in which order, and that nothing waits for ever."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import asynccontextmanager, suppress

import pytest
from server_support import GatedEncoder, open_memories
from support import STORY, HashEncoder, shown

from zeromem.asking import Call
from zeromem.errors import EncoderError
from zeromem.server.batching import Batcher
from zeromem.server.problems import Problem
from zeromem.types import Trace

QUESTIONS = ["What is Ana's kitten called?", "Where does Ana live?", "Who founded Acme?",
             "What is on the Tagus?", "Who visits Porto?"]  # fmt: skip


@pytest.fixture(scope="module")
def memories():
    with open_memories() as found:
        for i in range(4):
            with found.use(f"s{i}") as memory:
                memory.add_many([*STORY, Trace(f"Number {i} is special to Ana.")])
                memory.retrieve("warm")
        yield found


@asynccontextmanager
async def batching(**options):
    batcher = Batcher(**options)
    batcher.start()
    try:
        yield batcher
    finally:
        await batcher.close()


def run(coroutine, seconds=60):
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


def call(memories, i, questions, **options):
    with memories.use(f"s{i}") as memory:
        return Call.of(memory, questions, options)


def test_answers_are_those_of_the_memory_alone_bit_for_bit(memories):
    rng = random.Random(3)
    asked = [
        (rng.randrange(4), rng.sample(QUESTIONS, rng.randint(1, 3)), {"k": rng.choice([1, 5])})
        for _ in range(60)
    ]
    expected = []
    for i, questions, options in asked:
        with memories.use(f"s{i}") as memory:
            expected.append([shown(memory.retrieve(q, **options)) for q in questions])
    for options in ({"max_batch": 1}, {"max_batch": 7}, {}, {"n_rounds": 3}, {"window": 0.0}):
        sizes = []

        async def ask(options=options, sizes=sizes):
            seen = {"seen": lambda n, *more: sizes.append(n)}
            async with batching(**seen, **options) as batcher:
                return await asyncio.gather(
                    *(batcher.ask(f"t{i}", call(memories, i, q, **o)) for i, q, o in asked)
                )

        found = run(ask())
        assert [[shown(one.retrieval) for one in answered] for answered in found] == expected
        assert sum(sizes) == sum(len(q) for _, q, _ in asked)
        if not options:
            assert max(sizes) > 8, "nothing was batched"


def test_tenants_are_served_in_turn():
    """One who asked fifty questions first makes itself wait, and not who asks one."""
    encoder = GatedEncoder()
    with open_memories(encoder=encoder) as memories:
        for scope in ("s0", "s1", "s2"):
            with memories.use(scope) as memory:
                memory.add_many(STORY)
                memory.retrieve("warm")
        order = []

        async def ask(batcher, tenant, i, text):
            await batcher.ask(tenant, call(memories, i, [text]))
            order.append(text)

        async def main():
            async with batching(max_batch=3, window=0.0) as batcher:
                first = asyncio.create_task(ask(batcher, "greedy", 0, "gate"))
                await asyncio.to_thread(encoder.entered.wait, 30)
                later = [asyncio.create_task(ask(batcher, "greedy", 0, f"g{n}")) for n in range(50)]
                await asyncio.sleep(0)
                later += [
                    asyncio.create_task(ask(batcher, name, i, f"{name}{n}"))
                    for i, name in ((1, "b"), (2, "c")) for n in range(2)
                ]  # fmt: skip
                await asyncio.sleep(0)
                encoder.open.set()
                await asyncio.gather(first, *later)

        run(main())
    assert order[0] == "gate"
    # Three to a batch, one of each tenant.
    assert set(order[1:4]) == {"g0", "b0", "c0"}
    assert set(order[4:7]) == {"g1", "b1", "c1"}
    assert order[7:] == [f"g{n}" for n in range(2, 50)]


def test_what_waits_is_bounded_and_the_greedy_are_refused_first():
    encoder = GatedEncoder()
    with open_memories(encoder=encoder) as memories:
        with memories.use("s0") as memory:
            memory.add_many(STORY)
            memory.retrieve("warm")

        async def main():
            async with batching(max_batch=1, max_waiting=20, window=0.0) as batcher:
                tasks = [asyncio.create_task(batcher.ask("greedy", call(memories, 0, ["gate"])))]
                await asyncio.to_thread(encoder.entered.wait, 30)
                refused = []
                for tenant, n in (("greedy", 30), ("modest", 2), ("third", 2)):
                    for i in range(n):
                        task = asyncio.create_task(
                            batcher.ask(tenant, call(memories, 0, [f"{tenant} {i}"]))
                        )
                        await asyncio.sleep(0)
                        if task.done():
                            refused.append((tenant, task.exception()))
                        else:
                            tasks.append(task)
                        if (tenant, i) == ("greedy", 18):
                            assert not refused  # alone it may use all but what others need
                        assert batcher.n_waiting <= 20
                encoder.open.set()
                await asyncio.gather(*tasks)
                assert batcher.n_waiting == 0
                return refused

        refused = run(main())
    assert {error.status_code for _, error in refused} == {429}
    assert all(int(error.headers["Retry-After"]) >= 1 for _, error in refused)
    assert [tenant for tenant, _ in refused].count("greedy") == 11


def test_a_modest_tenant_gets_in_while_a_greedy_one_is_refused():
    encoder = GatedEncoder()
    with open_memories(encoder=encoder) as memories:
        with memories.use("s0") as memory:
            memory.add_many(STORY)
            memory.retrieve("warm")

        async def main():
            async with batching(max_batch=1, max_waiting=20, window=0.0) as batcher:
                ask = lambda tenant, text: asyncio.create_task(  # noqa: E731
                    batcher.ask(tenant, call(memories, 0, [text]))
                )
                tasks = [ask("greedy", "gate")]
                await asyncio.to_thread(encoder.entered.wait, 30)
                tasks.append(ask("modest", "m0"))
                await asyncio.sleep(0)
                greedy = [ask("greedy", f"g{i}") for i in range(30)]
                await asyncio.sleep(0)
                tasks += [ask("modest", f"m{i}") for i in range(1, 9)]
                await asyncio.sleep(0)
                kept = [task for task in greedy if not task.done()]
                for task in set(greedy) - set(kept):
                    assert task.exception().status_code == 429
                encoder.open.set()
                await asyncio.gather(*tasks, *kept)  # none of the modest one's was refused
                return len(kept)

        assert run(main()) == 9  # with the first, half of twenty


def test_an_error_stays_with_its_call(memories):
    class Failing:
        """A memory's state that cannot be read."""

        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        is_ready = True

        def now(self):
            raise EncoderError("the state cannot be made")

    async def main():
        async with batching() as batcher:
            good = [batcher.ask("a", call(memories, 0, [q])) for q in QUESTIONS]
            bad = batcher.ask("a", Failing(call(memories, 1, ["x"])))
            return await asyncio.gather(*good, bad, return_exceptions=True)

    *good, bad = run(main())
    assert isinstance(bad, EncoderError)
    with memories.use("s0") as memory:
        assert [shown(g[0].retrieval) for g in good] == [
            shown(memory.retrieve(q)) for q in QUESTIONS
        ]


def test_who_leaves_frees_its_place():
    encoder = GatedEncoder()
    with open_memories(encoder=encoder) as memories:
        with memories.use("s0") as memory:
            memory.add_many(STORY)
            memory.retrieve("warm")

        async def main():
            async with batching(max_batch=4, window=0.0) as batcher:
                first = asyncio.create_task(batcher.ask("a", call(memories, 0, ["gate"])))
                await asyncio.to_thread(encoder.entered.wait, 30)
                leaving = [
                    asyncio.create_task(batcher.ask("a", call(memories, 0, [f"left {i}"])))
                    for i in range(10)
                ]
                last = asyncio.create_task(batcher.ask("a", call(memories, 0, ["last"])))
                await asyncio.sleep(0)
                assert batcher.n_waiting == 12
                for task in leaving:
                    task.cancel()
                await asyncio.sleep(0)
                assert batcher.n_waiting == 2
                encoder.open.set()
                await asyncio.gather(first, last)
                assert batcher.n_waiting == 0

        run(main())
        assert "last" in encoder.asked
        assert not any("left" in text for text in encoder.asked)


class SlowFeatures(HashEncoder):
    """Traces that hold "slow" are encoded when they may be; questions always."""

    def __init__(self):
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()

    def encode_spans(self, texts, spans):
        if any("slow" in text for text in texts):
            self.entered.set()
            assert self.open.wait(30)
        return super().encode_spans(texts, spans)


def test_a_stale_memory_is_refreshed_beside_and_blocks_nobody():
    encoder = SlowFeatures()
    with open_memories(encoder=encoder) as memories:
        for scope in ("s0", "s1"):
            with memories.use(scope) as memory:
                memory.add_many(STORY)
                memory.retrieve("warm")
        with memories.use("s0") as memory:
            memory.append([Trace("A slow trace about zebras.", id="zebra")])

        async def main():
            async with batching(window=0.0) as batcher:
                stale = asyncio.create_task(batcher.ask("a", call(memories, 0, ["zebras"])))
                await asyncio.to_thread(encoder.entered.wait, 30)
                for question in QUESTIONS:
                    await batcher.ask("b", call(memories, 1, [question]))
                assert not stale.done()
                encoder.open.set()
                return await stale

        (found,) = run(main())
        assert found.retrieval[0].id == "zebra"


def test_closing_answers_what_was_begun_and_refuses_the_rest():
    encoder = GatedEncoder()
    with open_memories(encoder=encoder) as memories:
        with memories.use("s0") as memory:
            memory.add_many(STORY)
            memory.retrieve("warm")

        async def main():
            batcher = Batcher(max_batch=1, window=0.0)
            batcher.start()
            begun = asyncio.create_task(batcher.ask("a", call(memories, 0, ["gate"])))
            await asyncio.to_thread(encoder.entered.wait, 30)
            waiting = [
                asyncio.create_task(batcher.ask("a", call(memories, 0, [f"q{i}"])))
                for i in range(5)
            ]
            await asyncio.sleep(0)
            closing = asyncio.create_task(batcher.close())
            await asyncio.sleep(0)
            encoder.open.set()
            await closing
            assert len(await begun) == 1
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(error, Problem)
                assert error.status_code == 503
            with pytest.raises(Problem, match="another server"):
                await batcher.ask("a", call(memories, 0, ["late"]))
            assert batcher.n_waiting == 0

        run(main())


@pytest.mark.parametrize("seed", range(3))
def test_no_call_waits_for_ever(memories, seed):
    """Random arrivals, departures, writes and rounds; the time limit is the test."""
    rng = random.Random(seed)
    counts = {"answered": 0, "left": 0, "refused": 0}

    async def one(batcher):
        await asyncio.sleep(rng.choice([0, 0, rng.random()]))
        i = rng.randrange(4)
        asked = rng.sample(QUESTIONS, rng.randint(1, 2))
        waiting = batcher.ask(f"t{i}", call(memories, i, asked))
        if rng.random() < 0.05:
            with memories.use(f"s{i}") as memory:
                memory.append([Trace(f"Ana said {rng.random()}.")])
        try:
            if rng.random() < 0.2:
                found = await asyncio.wait_for(waiting, rng.random() * 0.02)
            else:
                found = await waiting
        except TimeoutError:
            counts["left"] += 1
        except Problem as problem:
            counts["refused" if problem.status_code == 429 else "failed"] += 1
        else:
            assert len(found) == len(asked)
            counts["answered"] += 1

    async def main():
        options = {"max_batch": rng.choice([1, 8, 64]), "n_rounds": rng.choice([1, 2, 4]),
                   "window": rng.choice([0.0, 0.001])}  # fmt: skip
        async with batching(max_waiting=1000, **options) as batcher:
            await asyncio.gather(*(one(batcher) for _ in range(2000)))
            assert batcher.n_waiting == 0

    run(main(), 60)
    assert sum(counts.values()) == 2000
    assert counts["answered"] > 200


def test_a_round_that_nobody_waits_for_does_not_stop_the_next(memories):
    async def main():
        async with batching(window=0.0) as batcher:
            for _ in range(30):
                task = asyncio.create_task(batcher.ask("a", call(memories, 0, ["x"])))
                await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            return await batcher.ask("a", call(memories, 0, [QUESTIONS[0]]))

    assert len(run(main())) == 1
