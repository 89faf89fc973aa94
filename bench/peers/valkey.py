"""Emptying the server of the Redis peers."""

import os

import redis

URL = os.environ["BENCH_REDIS_URL"]


def flush() -> None:
    with redis.Redis.from_url(URL) as connection:
        connection.flushall()
