"""The SDK's way to a server: `Client` and `AsyncClient`, HTTP only. Importing this imports no HTTP library."""

from penstock.client.aio import AsyncClient
from penstock.client.client import Client
from penstock.client.handle import JobHandle
from penstock.client.options import Content, Duration, JobSpec, ScheduleOptions, SubmitOptions

__all__ = ["AsyncClient", "Client", "Content", "Duration", "JobHandle", "JobSpec", "ScheduleOptions", "SubmitOptions"]
