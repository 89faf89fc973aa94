"""The broker on Amazon SQS: a standard queue for each backlog, and signals through SNS."""

from penstock.broker.sqs.broker import SqsBroker
from penstock.broker.sqs.queues import QueueTerms

__all__ = ["QueueTerms", "SqsBroker"]
