"""What keeps things: the table, the bucket and the registry of images; and the topic that tells of changes."""

from typing import Any, Final

from aws_cdk import CfnDeletionPolicy, CfnResource, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

from deploy.aws.parameters import Parameters
from penstock.store.dynamodb.schema import TTL, definition

IMAGES_KEPT: Final = 20
UPLOAD_DAYS: Final = 1
STREAM: Final = "NEW_IMAGE"
"""What a filter in front of the function `publish` needs to see."""


class Storage:
    """Table and bucket outlive the stack: deleting it deletes no job."""

    def __init__(self, stack: Stack, parameters: Parameters) -> None:
        self._stack = stack
        self.table = _table(stack)
        self.bucket = self._bucket(parameters)
        self.registry = self._registry()
        self.topic = self._topic()
        _retain(self.table, self.bucket, self.registry)

    def _bucket(self, parameters: Parameters) -> s3.CfnBucket:
        bucket = s3.CfnBucket(
            self._stack,
            "Objects",
            bucket_encryption=s3.CfnBucket.BucketEncryptionProperty(
                server_side_encryption_configuration=[
                    s3.CfnBucket.ServerSideEncryptionRuleProperty(
                        server_side_encryption_by_default=s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
                            sse_algorithm="AES256"
                        )
                    )
                ]
            ),
            lifecycle_configuration=s3.CfnBucket.LifecycleConfigurationProperty(
                rules=[
                    s3.CfnBucket.RuleProperty(
                        id="objects-of-jobs",
                        status="Enabled",
                        expiration_in_days=parameters.object_days.value_as_number,
                        abort_incomplete_multipart_upload=s3.CfnBucket.AbortIncompleteMultipartUploadProperty(
                            days_after_initiation=UPLOAD_DAYS
                        ),
                    )
                ]
            ),
            ownership_controls=s3.CfnBucket.OwnershipControlsProperty(
                rules=[s3.CfnBucket.OwnershipControlsRuleProperty(object_ownership="BucketOwnerEnforced")]
            ),
            public_access_block_configuration=s3.CfnBucket.PublicAccessBlockConfigurationProperty(
                block_public_acls=True,
                block_public_policy=True,
                ignore_public_acls=True,
                restrict_public_buckets=True,
            ),
        )
        s3.CfnBucketPolicy(
            self._stack,
            "ObjectsPolicy",
            bucket=bucket.ref,
            policy_document=only_encrypted("s3:*", bucket.attr_arn, f"{bucket.attr_arn}/*"),
        )
        return bucket

    def _registry(self) -> ecr.CfnRepository:
        rule = (
            '{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":"imageCountMoreThan",'
            f'"countNumber":{IMAGES_KEPT}}},"action":{{"type":"expire"}}}}]}}'
        )
        return ecr.CfnRepository(
            self._stack,
            "Images",
            image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(scan_on_push=True),
            image_tag_mutability="IMMUTABLE",
            lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(lifecycle_policy_text=rule),
        )

    def _topic(self) -> sns.CfnTopic:
        topic = sns.CfnTopic(self._stack, "Changes", display_name="Penstock: changes of jobs")
        sns.CfnTopicPolicy(
            self._stack, "ChangesPolicy", topics=[topic.ref], policy_document=only_encrypted("sns:Publish", topic.ref)
        )
        return topic


def _table(stack: Stack) -> dynamodb.CfnTable:
    """The table as the store defines it for CreateTable."""
    asked = definition("any")
    return dynamodb.CfnTable(
        stack,
        "Jobs",
        billing_mode=asked["BillingMode"],
        attribute_definitions=[
            dynamodb.CfnTable.AttributeDefinitionProperty(
                attribute_name=one["AttributeName"], attribute_type=one["AttributeType"]
            )
            for one in asked["AttributeDefinitions"]
        ],
        key_schema=_keys(asked),
        global_secondary_indexes=[
            dynamodb.CfnTable.GlobalSecondaryIndexProperty(
                index_name=index["IndexName"], key_schema=_keys(index), projection=_projection(index["Projection"])
            )
            for index in asked["GlobalSecondaryIndexes"]
        ],
        stream_specification=dynamodb.CfnTable.StreamSpecificationProperty(stream_view_type=STREAM),
        time_to_live_specification=dynamodb.CfnTable.TimeToLiveSpecificationProperty(attribute_name=TTL, enabled=True),
        point_in_time_recovery_specification=dynamodb.CfnTable.PointInTimeRecoverySpecificationProperty(
            point_in_time_recovery_enabled=True
        ),
        sse_specification=dynamodb.CfnTable.SSESpecificationProperty(sse_enabled=False),
    )


def _keys(asked: dict[str, Any]) -> list[dynamodb.CfnTable.KeySchemaProperty]:
    return [
        dynamodb.CfnTable.KeySchemaProperty(attribute_name=one["AttributeName"], key_type=one["KeyType"])
        for one in asked["KeySchema"]
    ]


def _projection(asked: dict[str, Any]) -> dynamodb.CfnTable.ProjectionProperty:
    return dynamodb.CfnTable.ProjectionProperty(
        projection_type=asked["ProjectionType"], non_key_attributes=asked.get("NonKeyAttributes")
    )


def only_encrypted(action: str, *resources: str) -> iam.PolicyDocument:
    """Refuse every call that does not come over TLS."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                sid="OnlyEncrypted",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=[action],
                resources=list(resources),
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            )
        ]
    )


def _retain(*resources: CfnResource) -> None:
    for resource in resources:
        resource.cfn_options.deletion_policy = CfnDeletionPolicy.RETAIN
        resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
