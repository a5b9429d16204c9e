"""Zero-Mem: a memory engine for LLM agents that spends no LLM tokens."""
