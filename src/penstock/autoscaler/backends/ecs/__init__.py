"""Workers as tasks of Amazon ECS: started and drained by the autoscaler, or services that alarms scale."""

from penstock.autoscaler.backends.ecs.backend import EcsFleets
from penstock.autoscaler.backends.ecs.task import TaskPlan

__all__ = ["EcsFleets", "TaskPlan"]
