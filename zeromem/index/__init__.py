"""The index: an immutable value, a pure function of the log's rows and their features."""

from zeromem.index.arrays import Arrays
from zeromem.index.features import TraceFeatures, feature_key
from zeromem.index.index import Index

__all__ = ["Arrays", "Index", "TraceFeatures", "feature_key"]
