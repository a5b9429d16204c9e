"""Metrics of retrieval and of answers, and the intervals around them."""
