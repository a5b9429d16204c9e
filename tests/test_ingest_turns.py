import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeromem.ingest.turns import cut, layout, rule_sentences
from zeromem.text import word_spans

PIECES = st.sampled_from(
    ["Hello there. ", "a ", "word", "\n", "\n\n", "- item\n", "東京へ行く。", "!!! ", "🐱", " ",
     "\x00", "x" * 70, "Dr. Ana ", "…", "\ud800", "1. one\n", "-" * 90, "\u00a0"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def cover(text, spans):
    left = [True] * len(text)
    for a, z in spans:
        assert 0 <= a < z <= len(text)
        for i in range(a, z):
            assert left[i], "ranges overlap"
            left[i] = False
    return "".join(c for c, kept in zip(text, left, strict=True) if kept)


def long_words(text):
    return sum(1 + (z - a - 1) // 20 for a, z in word_spans(text))


@given(TEXTS)
def test_rule_sentences_cover_all_but_whitespace(text):
    spans = rule_sentences(text)
    assert spans == sorted(spans)
    assert cover(text, spans).strip() == ""
    assert all(text[a:z] == text[a:z].strip() for a, z in spans)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi. How are you? Fine!", ["Hi.", "How are you?", "Fine!"]),
        ("I saw Dr. Smith. He left.", ["I saw Dr. Smith.", "He left."]),
        ("J. Doe wrote it, e.g. here. Yes.", ["J. Doe wrote it, e.g. here.", "Yes."]),
        ('He said "Stop!" Then he left.', ['He said "Stop!"', "Then he left."]),
        ("It cost 3.50 euros. Cheap.", ["It cost 3.50 euros.", "Cheap."]),
        ("行った。楽しかった！また行く", ["行った。", "楽しかった！", "また行く"]),
        ("one\ntwo\n\nthree", ["one", "two", "three"]),
        ("Wait... what?", ["Wait...", "what?"]),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_rule_sentences(text, expected):
    assert [text[a:z] for a, z in rule_sentences(text)] == expected


@given(TEXTS, st.integers(8, 30), st.booleans())
def test_layout_invariants(text, max_words, given_sentences):
    found = layout(text, rule_sentences(text) if given_sentences else [], max_words)
    turns, sentences = found.turns.tolist(), found.sentences.tolist()
    assert cover(text, turns).strip() == ""
    assert cover(text, sentences).strip() == ""
    assert (np.diff(found.sentence_turn) >= 0).all()
    assert sorted(set(found.sentence_turn.tolist())) == list(range(len(turns)))
    for (a, z), turn in zip(sentences, found.sentence_turn, strict=True):
        assert turns[turn][0] <= a < z <= turns[turn][1]
    for a, z in turns:
        assert not text[a].isspace()
        assert not text[z - 1].isspace()
        assert long_words(text[a:z]) <= max_words
    assert found.turns.dtype == found.sentences.dtype == found.sentence_turn.dtype == np.int32


@given(TEXTS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=5))
def test_layout_survives_a_careless_annotator(text, spans):
    found = layout(text, spans, 8)
    assert cover(text, found.sentences.tolist()).strip() == ""


def test_short_text_is_one_turn_and_long_splits_at_sentences():
    text = " ".join(f"This is sentence number {i} here." for i in range(30))
    one = layout(text, rule_sentences(text), 1000)
    assert one.turns.tolist() == [[0, len(text)]]
    assert len(one.sentences) == 30
    many = layout(text, rule_sentences(text), 20)
    assert len(many.turns) == 10
    assert {text[z - 1] for _, z in many.turns.tolist()} == {"."}
    assert [len(word_spans(text[a:z])) for a, z in many.turns.tolist()] == [18] * 10


def test_blocks_divide_sentences():
    text = "Shopping list\n- milk and\n  bread\n- eggs\n\n# Heading\nwrapped line\ncontinues"
    found = layout(text, [(0, len(text))], 100)
    assert [text[a:z] for a, z in found.sentences.tolist()] == [
        "Shopping list",
        "- milk and\n  bread",
        "- eggs",
        "# Heading\nwrapped line\ncontinues",
    ]


def test_an_overlong_sentence_is_cut_at_lines_then_words():
    lines = "\n".join(" ".join(f"w{i}x{j}" for j in range(7)) for i in range(6))
    found = layout(lines, [(0, len(lines))], 16)
    pieces = [lines[a:z] for a, z in found.sentences.tolist()]
    assert [len(p.splitlines()) for p in pieces] == [2, 2, 2]
    words = " ".join(f"w{i}" for i in range(100))
    found = layout(words, [(0, len(words))], 16)
    assert [len(words[a:z].split()) for a, z in found.turns.tolist()] == [16] * 6 + [4]


@pytest.mark.parametrize("char", ["x", "!", "東", "🐱", "\u0301", "-"])
def test_a_flood_of_one_character_becomes_bounded_turns(char):
    text = char * 200_000
    for sentences in ([], rule_sentences(text)):
        found = layout(text, sentences, 150)
        assert (found.turns[:, 1] - found.turns[:, 0]).max() <= 150 * 20
        assert found.turns[0, 0] == 0
        assert found.turns[-1, 1] == len(text)
        assert (found.turns[1:, 0] == found.turns[:-1, 1]).all()


@given(TEXTS, st.integers(1, 50))
def test_cut_covers_in_order(text, limit):
    ranges = cut(text, limit)
    assert "".join(text[a:z] for a, z in ranges) == text
    assert all(0 < z - a <= limit for a, z in ranges)


def test_cut_prefers_lines_then_sentences_then_spaces():
    assert cut("aaaa bbbb. cc\ndd ee", 16)[0] == (0, 14)
    assert cut("aaaa bbbb. cc dd ee", 16)[0] == (0, 11)
    assert cut("aaaa bbbb cc dd ee", 16)[0] == (0, 16)
