"""The asyncio form has Memory's verbs, and they do what Memory's do."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import suppress

import pytest
from support import STORY, HashEncoder, open_memory, shown

from zeromem import AsyncMemory, Memory, importers
from zeromem.errors import InvalidInputError, StoreError, TraceNotFoundError

# What servers use, and attributes: no verbs of those who remember and ask.
NOT_VERBS = {"append", "warm_encoder", "reader", "n_bytes", "config"}
OPTIONS = {"encoder": HashEncoder(), "annotator": "rules", "device": "cpu"}


def run(coroutine, seconds=60):
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


def public(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_verb_of_memory_is_there():
    assert public(Memory) - NOT_VERBS <= public(AsyncMemory)
    for name in public(Memory) - NOT_VERBS:
        ours, theirs = getattr(AsyncMemory, name), getattr(Memory, name)
        if callable(theirs):
            awaited = inspect.iscoroutinefunction(ours) or inspect.isasyncgenfunction(ours)
            assert awaited, name
            required = [
                [n for n, p in inspect.signature(verb).parameters.items()
                 if p.default is p.empty and p.kind == p.POSITIONAL_OR_KEYWORD]
                for verb in (ours, theirs)
            ]  # fmt: skip
            assert required[0] == required[1], name


def test_the_verbs_do_the_same(tmp_path):
    question = "What is Ana's kitten called?"

    async def main(path):
        async with AsyncMemory.open(path, scope="ana", **OPTIONS) as mem:
            assert mem.scope == "ana"
            added = await mem.add_many(STORY, progress=False)
            one = await mem.add("A new one.", speaker="Ben", session="s1", id="new")
            return [
                [(a.id, a.lsn, a.created) for a in (*added, one)],
                shown(await mem.retrieve(question, k=3)),
                [shown(r) for r in await mem.retrieve_batch([question, "Who founded Acme?"])],
                (await mem.explain(question)).seeds,
                (await mem.answer("Who founded Acme?")).text,
                await mem.get(["new", "none"]),
                [s.trace for s in (await mem.traces(order="time", limit=3)).items],
                [s.trace.id for s in await mem.around("new", before=1)],
                await mem.sessions(),
                [s.trace async for s in mem.export()],
                await mem.forget(session="s1"),
                {k: v for k, v in (await mem.stats()).items() if k != "store_bytes"},
                mem.usage,
            ]

    def plain(path):
        with open_memory(path, scope="ana", encoder=OPTIONS["encoder"]) as mem:
            added = mem.add_many(STORY, progress=False)
            one = mem.add("A new one.", speaker="Ben", session="s1", id="new")
            return [
                [(a.id, a.lsn, a.created) for a in (*added, one)],
                shown(mem.retrieve(question, k=3)),
                [shown(r) for r in mem.retrieve_batch([question, "Who founded Acme?"])],
                mem.explain(question).seeds,
                mem.answer("Who founded Acme?").text,
                mem.get(["new", "none"]),
                [s.trace for s in mem.traces(order="time", limit=3).items],
                [s.trace.id for s in mem.around("new", before=1)],
                mem.sessions(),
                [s.trace for s in mem.export()],
                mem.forget(session="s1"),
                {k: v for k, v in mem.stats().items() if k != "store_bytes"},
                mem.usage,
            ]

    assert run(main(tmp_path / "a.zm")) == plain(tmp_path / "b.zm")


def test_a_memory_is_opened_by_awaiting_and_by_entering(tmp_path):
    path = tmp_path / "a.zm"

    async def main():
        mem = await AsyncMemory.open(path, scope="ana", **OPTIONS)
        await mem.add("Miso is a kitten.")
        await mem.close()
        async with await AsyncMemory.open(path, scope="ana", **OPTIONS) as mem:
            assert (await mem.stats())["traces"] == 1
        with suppress(ZeroDivisionError):
            async with AsyncMemory.open(path, scope="ana", **OPTIONS) as mem:
                raise ZeroDivisionError
        with pytest.raises(StoreError, match="closed"):
            await mem.stats()
        several = [AsyncMemory.open(path, scope=name, **OPTIONS) for name in ("ana", "ben")]
        opened = await asyncio.gather(*several)
        assert [m.scope for m in opened] == ["ana", "ben"]
        for mem in opened:
            await mem.close()

    run(main())


def test_nothing_is_opened_before_it_is_awaited_and_faults_are_told(tmp_path):
    path = tmp_path / "a.zm"

    async def main():
        AsyncMemory.open(path, scope="ana", **OPTIONS)
        assert not path.exists()
        with pytest.raises(InvalidInputError, match="zone must be"):
            await AsyncMemory.open(path, zone="Nowhere/At", **OPTIONS)
        with pytest.raises(InvalidInputError, match="zone must be"):
            async with AsyncMemory.open(path, zone="Nowhere/At", **OPTIONS):
                raise AssertionError("it was entered")

    run(main())


def test_import_reads_a_file(tmp_path):
    path = tmp_path / "story.jsonl"
    path.write_text("".join(importers.to_json_line(t) + "\n" for t in STORY))

    async def main():
        async with AsyncMemory(open_memory()) as mem:
            added = await mem.import_(path, progress=False)
            return len(added), [s.trace.text async for s in mem.export()]

    assert run(main()) == (len(STORY), [t.text for t in STORY])


def test_fifty_at_once_get_what_each_gets_alone():
    questions = [
        f"What does {name} say of {thing} {i}?"
        for i in range(9)
        for name in ("Ana", "Ben")
        for thing in ("Porto", "Acme", "Miso")
    ][:50]

    async def main():
        async with AsyncMemory(open_memory()) as mem:
            await mem.add_many(STORY)
            together = await asyncio.gather(*map(mem.retrieve, questions))
            return [shown(r) for r in together], [shown(mem.memory.retrieve(q)) for q in questions]

    together, alone = run(main())
    assert together == alone


def test_who_is_cancelled_stops_waiting_and_a_write_that_began_is_finished():
    entered, gate = threading.Event(), threading.Event()

    class Gated(HashEncoder):
        def encode_spans(self, texts, spans):
            entered.set()
            assert gate.wait(30)
            return super().encode_spans(texts, spans)

    async def main():
        async with AsyncMemory(open_memory(encoder=Gated())) as mem:
            adding = asyncio.create_task(mem.add("Ana is here.", id="a"))
            await asyncio.to_thread(entered.wait, 30)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            assert list(await mem.get(["a"])) == ["a"]  # it was durable before it was encoded
            gate.set()
            return [e.id for e in await mem.retrieve("Ana")]

    assert run(main()) == ["a"]


def test_errors_reach_the_caller():
    async def main():
        async with AsyncMemory(open_memory()) as mem:
            with pytest.raises(InvalidInputError, match="text"):
                await mem.add("  ")
            with pytest.raises(TraceNotFoundError):
                await mem.around("none")
            with pytest.raises(InvalidInputError, match="k must be"):
                await mem.retrieve("x", k=0)
        await mem.close()  # idempotent
        for call in (mem.retrieve("x"), mem.add("x"), mem.stats()):
            with pytest.raises(StoreError, match="closed"):
                await call
        with pytest.raises(StoreError, match="closed"):
            async for _ in mem.export():
                pass

    run(main())
    with pytest.raises(InvalidInputError, match="memory must be a Memory"):
        AsyncMemory("agent.zm")


def test_an_export_that_is_left_early_blocks_nothing():
    async def main():
        async with AsyncMemory(open_memory()) as mem:
            await mem.add_many([f"number {i}" for i in range(600)])
            async for first in mem.export():
                assert first.trace.text == "number 0"
                break
            return await mem.forget(everything=True)

    assert run(main()) == 600
