import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeromem.text import canonical, is_stop, sanitize, terms, word_spans

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("“The  Golden\tGate Bridge’s”", "golden gate bridge"),
        ("Ana's", "ana"),
        ("King’s College", "king's college"),
        ("C++", "c++"),
        ("C#", "c#"),
        ("C", "c"),
        ("Persuasion (film)", "persuasion (film)"),
        ("(Persuasion)", "persuasion"),
        ("**Miso**!", "miso"),
        ("the my cat", "cat"),
        ("The", "the"),
        ("Ｍｉｓｏ", "miso"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("cafe\u0301", "café"),
        ("Theo", "theo"),
        ("an\u00ada", "ana"),
        ("\ud800Ana\x00", "ana"),
        ("東京", "東京"),
        (" ... ", ""),
        ("", ""),
    ],
)
def test_canonical_form(name, expected):
    assert canonical(name) == expected


@given(ANY_TEXT)
def test_canonical_is_idempotent_and_storable(name):
    once = canonical(name)
    assert canonical(once) == once
    once.encode()
    assert not any(unicodedata.category(c) == "Cc" for c in once)


@given(st.text(st.sampled_from("aBtheHE's ’.()[]\"the "), max_size=20))
def test_canonical_is_idempotent_on_awkward_names(name):
    once = canonical(name)
    assert canonical(once) == once


def test_terms_are_stemmed_in_order_with_repeats():
    assert terms(["Running cats ran; the cat runs, and I ran 3 miles."]) == [
        ["run", "cat", "ran", "cat", "run", "ran", "3", "mile"]
    ]


def test_terms_of_other_scripts():
    cjk, single, mixed, hindi = terms(["東京都へ", "猫 cat", "2026年5月", "हिन्दी भाषा"])
    assert cjk == ["東京", "京都", "都へ"]
    assert single == ["猫", "cat"]
    assert mixed == ["2026", "年", "5", "月"]
    assert hindi == ["हिन्दी", "भाषा"]


def test_terms_fold_unicode_forms_to_one():
    forms = terms(["café", "cafe\u0301", "CAFÉ", "ｃａｆé"])
    assert forms == [["café"]] * 4


@given(st.lists(ANY_TEXT, max_size=4))
def test_terms_of_a_text_do_not_depend_on_its_batch(texts):
    rows = terms(texts)
    assert rows == [terms([text])[0] for text in texts]
    for term in (t for row in rows for t in row):
        assert term
        assert not re.search(r"\s", term)
        term.encode()


def test_terms_agree_with_bm25s_on_plain_english():
    import bm25s
    import Stemmer

    text = "The quick brown foxes were jumping over lazy dogs, happily swimming in rivers"
    expected = bm25s.tokenize(
        [text],
        stopwords="english",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=False,
        show_progress=False,
    )
    assert terms([text]) == expected


def test_terms_from_many_threads():
    texts = [f"the cats of tenant {i} are running towards {i * 7}" for i in range(64)]
    expected = terms(texts)
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda t: terms([t])[0], texts * 4))
    assert rows == expected * 4


def test_a_blob_is_one_term():
    blob = "qx7" * 500_000
    assert terms([blob]) == [[blob]]


def test_word_spans_are_offsets():
    text = "Hi, 東京 — don't\u00a0stop 🐱!"
    assert [text[a:z] for a, z in word_spans(text)] == ["Hi", "東", "京", "don", "t", "stop"]


@given(ANY_TEXT)
def test_word_spans_are_ordered_and_disjoint(text):
    spans = word_spans(text)
    flat = [x for span in spans for x in span]
    assert flat == sorted(flat)
    assert all(a < z for a, z in spans)


@given(ANY_TEXT)
def test_sanitize_keeps_offsets(text):
    clean = sanitize(text)
    assert len(clean) == len(text)
    clean.encode()
    assert "\0" not in clean
    assert all(a == b for a, b in zip(text, clean, strict=True) if b != "\ufffd")


def test_stop_words():
    assert all(map(is_stop, ["the", "What", "would", "about", "because", "becaus"]))
    assert not any(map(is_stop, ["kitten", "miso", "東京", "3"]))
