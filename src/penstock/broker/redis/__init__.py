"""The broker on Redis or Valkey: tickets shared by every process that knows its URL."""

from penstock.broker.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
