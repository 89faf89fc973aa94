"""The autoscaler of a sweep: it starts and drains workers that run elsewhere, one step at a time."""

import secrets
from typing import Final

from penstock.autoscaler.backends import FleetBackend
from penstock.autoscaler.loop import Autoscaler
from penstock.backends.fleets import fleet_backend, fleet_environ, fleet_extras
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting
from penstock.model.extras import require

OF_A_MACHINE: Final = frozenset({"processes", "containers"})
"""Fleet backends whose workers would run where the function does."""


class FunctionScaling:
    """An autoscaler and its fleet backend, kept between sweeps.

    It does not give up its role between them: the role expires by itself, so that a sweep of another process acts then.
    """

    def __init__(self, engine: Engine, backend: FleetBackend) -> None:
        settings = engine.settings
        self._backend = backend
        self.autoscaler = Autoscaler(
            engine,
            backend,
            holder=f"function-{secrets.token_hex(8)}",
            app=settings.functions.app,
            app_name=settings.worker.app or None,
            environment=fleet_environ(settings),
        )

    async def close(self) -> None:
        """Let another process act at once. The workers go on."""
        await self.autoscaler.close()
        await self._backend.close()


def make_scaling(engine: Engine) -> FunctionScaling | None:
    """The autoscaler of the settings; None where they name no app. InvalidSetting if its workers cannot run."""
    settings = engine.settings
    if not settings.functions.app:
        return None
    if settings.fleet.backend in OF_A_MACHINE:
        raise InvalidSetting(
            f"fleet.backend: workers cannot be {settings.fleet.backend} of a Lambda function; set it to ecs, "
            "or leave functions.app empty and scale them elsewhere"
        )
    require(*fleet_extras(settings))
    return FunctionScaling(engine, fleet_backend(settings, engine))
