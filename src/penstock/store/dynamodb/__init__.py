"""The DynamoDB backend: a shard is a prefix in a table, which any number of processes share."""

from penstock.store.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
