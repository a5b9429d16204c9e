"""The last stage: read R(q), calibrate the draft, cite. The only one that may spend LLM tokens."""

from zeromem.answer import readers
from zeromem.answer.grounded import answer_from
from zeromem.answer.reader import Draft, Reader

__all__ = ["Draft", "Reader", "answer_from", "readers"]
