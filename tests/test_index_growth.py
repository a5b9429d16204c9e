"""An index that grows: equal to one built at once in every array, whatever way it came about."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support import BACKEND, DIM, NAMES, STORY, build, difference, features, logs, rows_of

from zeromem import _hierarchy
from zeromem.config import Config, GraphConfig, HierarchyConfig
from zeromem.index import Index
from zeromem.index import index as index_module
from zeromem.index.columns import Column, Columns
from zeromem.index.features import ASKS
from zeromem.index.lists import Lists
from zeromem.index.names import Names
from zeromem.index.segment import SPEAKER, TITLE
from zeromem.text import terms
from zeromem.types import Trace

CONFIGS = {
    "default": Config(),
    "paper": Config.paper(),
    "idf and speakers": Config(graph=GraphConfig(idf_weighting=True, speaker_weight=0.5)),
    "short episodes": Config(
        hierarchy=HierarchyConfig(window=5, min_turns=1, max_turns=3, depth=0.0, gap_hours=1.0)
    ),
}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def assert_alike(a: Index, b: Index) -> None:
    """Not only what readers see: what the next addition starts from too."""
    assert difference(a.state, b.state) is None
    assert difference(a.arrays, b.arrays) is None
    assert a.last_lsn == b.last_lsn


def pending(rows, some):
    """Features of rows; those of ``some`` are of the words alone, as where an encoder fails."""
    found = features(rows)
    for i, row in enumerate(rows):
        if row.lsn in some:
            empty = {
                name: getattr(found[i], name)[:, :0]
                for name in ("turn_vectors", "sentence_vectors", "entity_vectors")
            }
            found[i] = replace(found[i], encoded=False, **empty)
    return found


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@settings(max_examples=60)
@given(log=logs, data=st.data())
def test_any_history_is_what_it_left(config, log, data):
    """Extend by some, forget, cut, in any order; nothing of what it was before changes."""
    index, kept = build([], config), []
    rows = rows_of(log)
    late = data.draw(st.sets(st.integers(1, 14), max_size=3))
    while rows:
        n = data.draw(st.integers(1, 4))
        part, rows = rows[:n], rows[n:]
        before, held = index, kept
        index, kept = index.extend(part, pending(part, late)), kept + part
        if data.draw(st.booleans()):  # an older value goes on another way
            assert_alike(before.extend(part, pending(part, late)), index)
        match data.draw(st.sampled_from(["add", "add", "add", "forget", "until"])):
            case "forget":
                gone = data.draw(st.sets(st.integers(1, part[-1].lsn), max_size=3))
                index = index.without(gone)
                kept = [r for r in kept if r.lsn not in gone]
            case "until":
                lsn = data.draw(st.integers(0, part[-1].lsn))
                index, kept = index.until(lsn), [r for r in kept if r.lsn <= lsn]
        assert_alike(before, build([], config).extend(held, pending(held, late)))
    # A name keeps the vector that it came with: once its first trace is gone, a pending one's.
    whole = build([], config).extend(kept, pending(kept, late))
    if late:
        vectors = {**whole.state.vectors, "entity_vectors": index.state.vectors["entity_vectors"]}
        norm = {"entity_inverse_norm": index.state.columns["entity_inverse_norm"]}
        columns = whole.state.columns.replaced(**norm)
        state = replace(whole.state, vectors=vectors, columns=columns)
        whole = Index(state, DIM, config, BACKEND)
    assert_alike(index, whole)


def test_additions_larger_than_a_batch_are_the_same(monkeypatch):
    rows = rows_of(STORY * 4)
    whole = build(rows)
    monkeypatch.setattr(index_module, "_BATCH", 5)
    assert_alike(build(rows), whole)
    assert_alike(
        build(rows).without([3, 4, 30]), build([r for r in rows if r.lsn not in (3, 4, 30)])
    )


# ---- against an oracle


def links_of(turns, names):
    """Which titles each turn names, word for word."""
    titles = {e for _, place, e in turns.mentions.tolist() if place == TITLE}
    vocabulary = list(turns.vocabulary)
    texts = [
        [vocabulary[t] for t in turns.term[a:z]] for a, z in pairwise(turns.term_indptr.tolist())
    ]
    return [
        {
            e for e in titles
            if 2 <= len(own := terms([names[e]])[0]) <= 8
            and any(text[i : i + len(own)] == own for i in range(len(text)))
        }
        for text in texts
    ]  # fmt: skip


def expected_rows(arrays, config):
    """B by turn, of eq. 4 and the configuration's edges."""
    turns, n = arrays.turns, len(arrays)
    names = list(turns.entities)
    spoken = {e for e, name in enumerate(names) if name in set(turns.speakers)}
    counts = [Counter() for _ in range(n)]
    for turn, place, e in turns.mentions.tolist():
        if place >= 0 and (config.speaker_mentions or e not in spoken):
            counts[turn][e] += 1
    if config.title_links:
        for count, linked in zip(counts, links_of(turns, names), strict=True):
            for e in linked:
                count[e] = max(count[e], 1)
    df = Counter(e for count in counts for e in count)
    rows = []
    for turn, count in enumerate(counts):
        weight = {
            e: k * (np.log1p((n - df[e] + 0.5) / (df[e] + 0.5)) if config.idf_weighting else 1.0)
            for e, k in count.items()
        }
        total = sum(weight.values())
        row = Counter({e: w / total for e, w in weight.items()})
        for kind, extra in ((TITLE, config.title_weight), (SPEAKER, config.speaker_weight)):
            for e in {e for t, p, e in turns.mentions.tolist() if t == turn and p == kind}:
                row[e] += extra
        rows.append({e: w for e, w in row.items() if w})
    return rows


@configs
@settings(max_examples=30)
@given(log=logs, cuts=st.lists(st.integers(0, 14), max_size=4))
def test_the_graph_is_the_oracles(config, log, cuts):
    rows = rows_of(log)
    index = build([], config)
    for part in np.split(np.arange(len(rows)), sorted(c for c in cuts if c <= len(rows))):
        some = [rows[i] for i in part]
        index = index.extend(some, features(some))
    arrays, g = index.arrays, index.arrays.graph
    n, m = len(arrays), len(arrays.turns.entities)
    degree = np.zeros(n + m)
    for turn, row in enumerate(expected_rows(arrays, config.graph)):
        own = slice(*g.mention_indptr[turn : turn + 2])
        assert g.mention_entity[own].tolist() == sorted(row)
        assert_allclose(g.mention_weight[own], [row[e] for e in sorted(row)], rtol=1e-6)
        for e, weight in row.items():
            degree[turn] += weight
            degree[n + e] += weight
    for turn in np.flatnonzero(arrays.previous >= 0).tolist():
        for end in (turn, arrays.previous[turn]):
            degree[end] += config.graph.adjacency_weight
    walked = degree > 0
    assert_allclose(g.inverse_degree[walked], 1 / degree[walked], rtol=1e-5)
    assert not g.inverse_degree[~walked].any()


@settings(max_examples=30)
@given(logs)
def test_lists_are_what_the_turns_say(log):
    arrays = build(rows_of(log)).arrays
    turns, g = arrays.turns, arrays.graph
    n = len(arrays)
    for term in range(len(turns.vocabulary)):
        count = Counter()
        for turn in range(n):
            own = turns.term[slice(*turns.term_indptr[turn : turn + 2])]
            count[turn] += int((own == term).sum())
        indptr, values, counts = arrays.postings.csr()
        own = slice(*indptr[term : term + 2])
        assert dict(zip(values[own].tolist(), counts[own].tolist(), strict=True)) == +count
        assert arrays.postings.of(term).tolist() == sorted(+count)
    assert_array_equal(arrays.lengths, np.diff(turns.term_indptr))
    mentions = turns.mentions.tolist()
    for z in range(len(turns.sentence_span)):
        own = g.sentence_entity[slice(*g.sentence_entity_indptr[z : z + 2])]
        assert own.tolist() == sorted({e for _, place, e in mentions if place == z})
    for e in range(len(turns.entities)):
        held = sorted({place for _, place, other in mentions if other == e and place >= 0})
        assert g.entity_sentences.of(e).tolist() == held
        titled = sorted({t for t, place, other in mentions if other == e and place == TITLE})
        assert g.titled.of(e).tolist() == titled


@configs
@settings(max_examples=30)
@given(log=logs)
def test_the_hierarchy_is_the_turns_own(config, log):
    arrays = build(rows_of(log), config).arrays
    turns, n, h = arrays.turns, len(arrays), config.hierarchy
    raw = arrays.turn_vectors.array().astype(float) * turns.n_tokens[:, None]
    members = [np.flatnonzero(turns.session == s) for s in range(len(turns.sessions))]
    links = np.full((2, n), -1)
    window = np.zeros(n)
    episode = np.full(n, -1)
    norms = np.zeros(n)
    for rows in members:
        links[0, rows[1:]], links[1, rows[:-1]] = rows[:-1], rows[1:]
        half = (h.window - 1) // 2
        for i, row in enumerate(rows.tolist()):
            window[row] = np.linalg.norm(raw[rows[max(0, i - half) : i + half + 1]].sum(axis=0))
        unit = np.array([0, len(rows)])
        gap = int(h.gap_hours * 3.6e9)
        vectors = arrays.turn_vectors.take(rows)
        weights, times = turns.n_tokens[rows].astype(np.float32), turns.time[rows]
        similarity = _hierarchy.similarities(unit, vectors, weights, times, h.window, gap)
        at = np.arange(len(rows), dtype=np.int32)
        _, _, _, bounds, _, _ = _hierarchy.segment(
            at - np.int32(1), at[-1:], at[-1:] + np.int32(1), similarity, times, at[:0],
            h.depth, h.min_turns, h.max_turns, gap,
        )  # fmt: skip
        for a, z in pairwise(bounds.tolist()):
            episode[rows[a:z]] = rows[a]
            norms[rows[a]] = np.linalg.norm(raw[rows[a:z]].sum(axis=0))
    assert_array_equal(arrays.previous, links[0])
    assert_array_equal(arrays.following, links[1])
    assert_array_equal(arrays.episode_of, episode)
    for found, norm in (
        (arrays.window_inverse_norm, window),
        (arrays.episode_inverse_norm, norms),
        (
            arrays.turn_inverse_norm,
            np.linalg.norm(arrays.turn_vectors.array().astype(float), axis=1),
        ),
    ):
        assert_allclose(found, np.divide(1, norm, out=np.zeros(n), where=norm > 0), rtol=1e-6)


@settings(max_examples=20)
@given(logs)
def test_groups_are_who_speaks(log):
    arrays = build(rows_of(log)).arrays
    turns = arrays.turns
    who = list(zip(turns.speaker.tolist(), turns.role.tolist(), strict=True))
    seen = list(dict.fromkeys(who))
    assert arrays.group.tolist() == [seen.index(w) for w in who]
    half = Config().hierarchy.half_informative
    for g, w in enumerate(seen):
        own = [i for i, other in enumerate(who) if other == w]
        asks = np.mean([bool(turns.flags[i] & ASKS) for i in own])
        says = np.mean([turns.n_tokens[i] / (turns.n_tokens[i] + half) for i in own])
        assert arrays.group_asks[g] == pytest.approx(asks, rel=1e-6)
        assert arrays.group_informative[g] == pytest.approx(says, rel=1e-6)


# ---- what comes late and changes what was there


def grown(*texts, config=None):
    """Index traces one by one, with the one that is built at once beside it."""
    rows = rows_of(texts)
    index = build([], config)
    for row in rows:
        index = index.extend([row], features([row]))
    assert_alike(index, build(rows, config))
    return index.arrays


def names_in(arrays, turn):
    g = arrays.graph
    own = g.mention_entity[slice(*g.mention_indptr[turn : turn + 2])]
    return {arrays.turns.entities.name(e) for e in own.tolist()}


def test_a_title_is_linked_to_turns_that_named_it_before_it_came():
    arrays = grown(
        Trace("we walked along the old harbour at night."),
        Trace("an old man in the harbour."),
        Trace("it lies on the river.", role="document", title="Old Harbour"),
        Trace("the old harbour again."),
    )
    linked = [t for t in range(4) if "old harbour" in names_in(arrays, t)]
    assert linked == [0, 2, 3]


def test_a_speaker_who_was_mentioned_before_is_a_link_no_more():
    arrays = grown(
        Trace("I met Carla and Dora.", speaker="Ana"),
        Trace("yes, that is so.", speaker="Carla"),
        Trace("Dora and Carla left.", speaker="Ana"),
    )
    assert [names_in(arrays, t) for t in range(3)] == [{"dora"}, set(), {"dora"}]
    paper = grown(
        Trace("I met Carla.", speaker="Ana"), Trace("Hello.", speaker="Carla"),
        config=Config.paper(),
    )  # fmt: skip
    assert names_in(paper, 0) == {"carla"}


def test_many_late_titles_and_speakers_at_once():
    early = [Trace(f"{a} of {b} met {b} by the old {a} bridge.") for a in NAMES for b in NAMES]
    late = [Trace("x.", role="document", title=f"Old {a} Bridge") for a in NAMES]
    late += [Trace("y.", speaker=a) for a in NAMES]
    rows = rows_of(early + late)
    index = build(rows[: len(early)])
    assert_alike(index.extend(rows[len(early) :], features(rows[len(early) :])), build(rows))


# ---- memory is shared with what an index grows into, and with nothing else


def test_an_addition_writes_behind_and_copies_nothing_that_grows():
    rows = rows_of([Trace(f"Ana met Ben in Porto, number {i}.", session="s") for i in range(40)])
    index = build(rows[:30])
    longer = index
    for row in rows[30:]:
        longer = longer.extend([row], features([row]))
    first, last = index.arrays, longer.arrays
    for name in ("lsn", "term", "mentions", "sentence_span", "time"):
        assert np.shares_memory(getattr(first.turns, name), getattr(last.turns, name)), name
    assert np.shares_memory(first.graph.mention_weight, last.graph.mention_weight)
    assert np.shares_memory(first.turn_vectors.parts[0], last.turn_vectors.parts[0])
    assert_alike(index, build(rows[:30]))


def test_what_is_left_after_forgetting_shares_nothing_with_what_was():
    index = build(rows_of([*STORY, Trace("Xylo likes xylophones.", session="s1")]))
    left = index.without([10])
    for name, array in left.state.columns.items():
        assert not np.shares_memory(array, index.state.columns[name]), name
    for kind, chunks in left.state.vectors.items():
        for mine in chunks.parts:
            assert not any(np.shares_memory(mine, p) for p in index.state.vectors[kind].parts)
    for kind, names in left.state.names.items():
        assert names._ids is not index.state.names[kind]._ids
        assert not any("xylo" in name for name in names._names)


def test_sealed_parts_stay_the_same_arrays():
    """A device holds arrays by identity."""
    rows = rows_of([Trace(f"Ana met Ben in Porto, number {i}.", session="s") for i in range(40)])
    index = build(rows[:39])
    sealed = Lists.sealed(index.arrays.postings.csr(), counted=True)
    state = replace(index.state, lists={**index.state.lists, "postings": sealed})
    longer = Index(state, DIM, index.config, BACKEND).extend(rows[39:], features(rows[39:]))
    for mine, theirs in zip(
        longer.arrays.postings.kernel_args[:3], sealed.kernel_args, strict=False
    ):
        assert mine is theirs
    assert_alike(longer, build(rows))


# ---- the classes by themselves


@given(st.lists(st.lists(st.integers(0, 99), max_size=90), max_size=8), st.data())
def test_columns_are_the_arrays_they_stand_for(parts, data):
    column, expected = Column(np.zeros(0, np.int32)), []
    kept = []
    for part in parts:
        kept.append((column, list(expected)))
        if data.draw(st.booleans()) and kept:  # go on from an older value
            column, older = data.draw(st.sampled_from(kept))
            expected = list(older)
        column = column.extended(np.array(part, np.int32))
        expected += part
        if expected and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(expected) - 1))
            column = column.changed(np.array([at]), [-1], np.array([7], np.int32))
            expected[at] = -1
            expected.append(7)
    for found, wanted in [*kept, (column, expected)]:
        assert found.array.tolist() == wanted
        assert not found.array.flags.writeable
        assert found.array.flags.c_contiguous


def test_a_column_copies_a_bounded_number_of_times():
    column, buffers = Column(np.zeros(0, np.int32)), set()
    for i in range(20_000):
        column = column.extended([i])
        buffers.add(column.array.ctypes.data)
    assert_array_equal(column.array, np.arange(20_000))
    assert len(buffers) < 20


def test_a_failed_write_harms_no_value():
    column = Column(np.arange(3, dtype=np.int32)).extended([3])
    with pytest.raises(ValueError, match="array element"):
        column.extended([[1, 2], [3, 4]])
    assert column.extended([4]).array.tolist() == [0, 1, 2, 3, 4]
    assert column.extended([5]).array.tolist() == [0, 1, 2, 3, 5]


def test_columns_by_name():
    columns = Columns.of({"a": np.arange(2), "b": np.zeros(0, np.int32)})
    longer = columns.extended(a=[7]).replaced(b=np.ones(1, np.int32))
    assert list(longer) == ["a", "b"]
    assert len(longer) == 2
    assert longer["a"].tolist() == [0, 1, 7]
    assert columns["a"].tolist() == [0, 1]
    assert longer["b"].tolist() == [1]


def test_names_keep_to_their_own_end():
    one, ids = Names().extended(["ana", "ben", "ana"])
    assert ids.tolist() == [0, 1, 0]
    two, ids = one.extended(["carla", "ben", "carla"])
    assert ids.tolist() == [2, 1, 2]
    other, ids = one.extended(["dora"])  # an older value goes on another way
    assert ids.tolist() == [2]
    assert list(one) == ["ana", "ben"]
    assert "carla" not in one
    assert one.get("carla") is None
    assert dict(two) == {"ana": 0, "ben": 1, "carla": 2}
    assert dict(other) == {"ana": 0, "ben": 1, "dora": 2}
    assert two.name(2) == "carla"
    assert one.extended(["ben"])[0] is one
    assert 3 not in two
    with pytest.raises(KeyError):
        one["carla"]
    for i in (2, -1):
        with pytest.raises(IndexError):
            one.name(i)
    assert repr(one) == "Names(['ana', 'ben'])"


@given(st.lists(st.lists(st.integers(0, 6), max_size=30), max_size=8), st.booleans(), st.booleans())
def test_lists_are_the_dictionaries_they_stand_for(parts, counted, sealed):
    lists, expected = Lists.empty(counted=counted), {}
    value = n_keys = 0
    for part in parts:
        n_keys = max([n_keys, *(k + 1 for k in part)])
        values = np.arange(value, value + len(part))
        value += len(part)
        counts = values.astype(np.float32) / 2 if counted else None
        lists = lists.extended(n_keys, np.array(part, np.int64), values, counts)
        for key, v in zip(part, values.tolist(), strict=True):
            expected.setdefault(key, []).append(v)
        if sealed:
            lists = Lists.sealed(lists.csr(), counted=counted)
    assert len(lists) == n_keys
    assert [lists.of(k).tolist() for k in range(-1, 9)] == [
        expected.get(k, []) for k in range(-1, 9)
    ]
    assert lists.any(np.arange(9)).tolist() == [k in expected for k in range(9)]
    indptr, values, counts = lists.csr()
    assert [values[a:z].tolist() for a, z in pairwise(indptr)] == [
        expected.get(k, []) for k in range(n_keys)
    ]
    assert counts.tolist() == ((values / 2).tolist() if counted else [])
    assert lists.csr()[0] is indptr


def test_a_long_tail_is_sealed():
    lists = Lists.empty(counted=False)
    tails = []
    for i in range(60):
        lists = lists.extended(9, np.full(1000, i % 9), np.arange(1000 * i, 1000 * i + 1000))
        tails.append(len(lists.kernel_args[4]))
    assert max(tails) <= 15_000
    assert min(tails) == 0
    assert tails[-1] > 4096  # the larger the sealed part, the longer a tail may be
    assert_array_equal(lists.of(3)[:1000], np.arange(3000, 4000))


def test_threads_that_extend_one_value_do_not_meet():
    """Whoever comes second goes on in a copy."""
    rows = rows_of([Trace(f"Ana met Ben in Porto, number {i}.", session="s") for i in range(30)])
    index = build(rows[:10])
    parts = [
        [replace(r, trace=replace(r.trace, speaker=name)) for r in rows[10:]] for name in NAMES
    ]
    made = [features(part) for part in parts]
    expected = [build(rows[:10] + part) for part in parts]

    def grown(i):
        found = index
        for row, f in zip(parts[i], made[i], strict=True):
            found = found.extend([row], [f])
        return found

    with ThreadPoolExecutor(len(parts)) as pool:
        for found, wanted in zip(pool.map(grown, range(len(parts))), expected, strict=True):
            assert_alike(found, wanted)
