"""Health and metrics of the operator, over HTTP."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from quire_operator.errors import SettingsError
from quire_operator.reconciling.metrics import Metrics


async def serve(
    host: str, port: int, metrics: Metrics, *, is_ready: Callable[[], bool]
) -> web.AppRunner:
    """Serve /healthz, /readyz and /metrics until the runner's cleanup.

    Raises
    ------
    SettingsError
        Nothing can listen there.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        ready = is_ready()
        return web.Response(text="ok\n" if ready else "not yet\n", status=200 if ready else 503)

    async def show_metrics(_: web.Request) -> web.Response:
        text = generate_latest(metrics.registry)
        return web.Response(body=text, headers={"content-type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose others by --http-host"
            " and --http-port"
        ) from error
    return runner
