"""The routes, one module per concern; each builds a router over a `Service`."""
