"""The encoders behind one protocol. Importing this loads no model and no framework."""
