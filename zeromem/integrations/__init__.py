"""Memory inside frameworks of others: LangChain, LangGraph and LlamaIndex, each an extra."""
