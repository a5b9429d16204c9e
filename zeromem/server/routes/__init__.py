"""The server's paths, a module for each part of the interface."""
