"""The SDK's way to a server: `Client` and `AsyncClient`, HTTP only. Importing this imports no HTTP library."""

from penstock.client.aio import AsyncClient
from penstock.client.handle import JobHandle
from penstock.client.scheduling import ScheduleOptions
from penstock.client.submission import Content, Duration, JobSpec, SubmitOptions
from penstock.client.sync import Client

__all__ = ["AsyncClient", "Client", "Content", "Duration", "JobHandle", "JobSpec", "ScheduleOptions", "SubmitOptions"]
