"""From traces to features. Importing this loads neither torch nor spaCy nor a model."""
