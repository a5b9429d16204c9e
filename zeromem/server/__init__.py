"""The HTTP server: one store for many tenants. ``zeromem.server.app.create_app`` makes it."""
