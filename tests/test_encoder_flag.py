"""BGE-M3 through FlagEmbedding, on a tiny random XLM-R in BGE-M3's form on disk."""

import json
import subprocess
import sys

import numpy as np
import pytest

from zeromem.errors import EncoderError, ModelNotFoundError
from zeromem.ingest.encode import Encoder, FlagEncoder, load_encoder
from zeromem.ingest.encoders.base import unit
from zeromem.ingest.encoders.find import describe

DIM, LIMIT = 24, 32
WORDS = ["the", "cat", "sat", "on", "a", "mat", "ana", "and", "leo", "saw", "miso", "run"]


def make_bge_m3(folder):
    """Write an XLM-R of random weights, a Unigram tokenizer, and BGE-M3's two heads."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [("\u2581" + w, -2.0) for w in WORDS]
    letters = [(c, -8.0) for c in "\u2581abcdefghijklmnopqrstuvwxyz.,!:"]
    vocab = [*special, *pieces, *letters]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>",
        sep_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=LIMIT,
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(vocab), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=LIMIT + 2, initializer_range=0.3,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
    )  # fmt: skip
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    torch.save(torch.nn.Linear(DIM, DIM).state_dict(), folder / "colbert_linear.pt")
    torch.save(torch.nn.Linear(DIM, 1).state_dict(), folder / "sparse_linear.pt")
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bge_m3(tmp_path_factory.mktemp("bge-m3"))


@pytest.fixture(scope="module")
def flag_embedding():
    return pytest.importorskip(
        "FlagEmbedding", reason="FlagEmbedding is not installed: pip install 'zeromem[bge]'"
    )


@pytest.fixture(scope="module")
def encoder(folder, flag_embedding):
    return FlagEncoder(describe(folder))


TEXTS = ["Ana saw miso.", "the cat sat on a mat and leo saw the cat run!", "run", ""]


def test_the_folder_is_recognised(folder):
    model = describe(folder)
    assert model.is_bge_m3
    assert (model.dim, model.pooling, model.max_tokens) == (DIM, "cls", LIMIT)
    assert isinstance(load_encoder(str(folder)), FlagEncoder)


def test_without_flagembedding_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "FlagEmbedding", None)
    with pytest.raises(ModelNotFoundError, match=r"pip install 'FlagEmbedding==1.4.2'"):
        FlagEncoder(describe(folder)).encode(["cat"])


def test_vectors_are_flagembeddings_own(encoder, folder, flag_embedding):
    model = flag_embedding.BGEM3FlagModel(str(folder), use_fp16=False, devices=["cpu"])
    expected = np.concatenate([model.encode([t])["dense_vecs"] for t in TEXTS])
    found = encoder.encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.05
    assert isinstance(encoder, Encoder)


def test_spans_are_texts_of_their_own(encoder):
    text = "the cat sat. leo saw miso."
    spans = np.asarray([(0, 12), (13, 26)], np.int32)
    found = encoder.encode_spans([text], [spans])
    expected = encoder.encode(["the cat sat.", "leo saw miso.", text])
    np.testing.assert_allclose(found.span_vectors, expected[:2], atol=1e-5)
    np.testing.assert_allclose(unit(found.text_vectors), expected[2:], atol=1e-5)
    assert found.n_tokens.tolist() == [8]
    assert found.span_tokens.tolist() == [4, 4]


def test_long_text_is_split_not_cut(encoder):
    words = [WORDS[i % 5] for i in range(70)]
    found = encoder.encode_spans([" ".join(words)], [np.zeros((0, 2), np.int32)])
    assert found.n_tokens.tolist() == [70]
    step = LIMIT - 2
    parts = [" ".join(words[i : i + step]) for i in range(0, 70, step)]
    weights = [len(p.split()) + 2 for p in parts]
    expected = np.average(encoder.encode(parts), axis=0, weights=weights)
    np.testing.assert_allclose(found.text_vectors[0], expected, atol=1e-4)


def test_out_of_memory_halves_and_retries(encoder, monkeypatch):
    import torch

    expected = encoder.encode(TEXTS)
    sizes = []
    forward = FlagEncoder._forward

    def tight(self, model, ids, mask):
        sizes.append(len(ids))
        if len(ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, model, ids, mask)

    monkeypatch.setattr(FlagEncoder, "_forward", tight)
    monkeypatch.setattr(encoder, "_budget", encoder._budget)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert sizes == [4, 2, 2]


def test_broken_weights_are_an_error(encoder, monkeypatch):
    forward = FlagEncoder._forward
    monkeypatch.setattr(FlagEncoder, "_forward", lambda *a: forward(*a) * float("nan"))
    with pytest.raises(EncoderError, match="NaN"):
        encoder.encode(["cat"])


def test_loading_is_silent(folder, flag_embedding):
    code = (
        "import sys; from zeromem.ingest.encode import load_encoder; "
        "load_encoder(sys.argv[1]).encode(['cat ' * 80] * 300)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    assert done.stderr == ""
