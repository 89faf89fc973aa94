"""Where workers run: two public subnets of a VPC of the stack's own, or the user's.

There is no NAT gateway: it costs more in a month than a small system. Nothing may connect to a worker; DynamoDB and S3
are reached through gateway endpoints, which are free, and the rest through the internet gateway.
"""

from typing import Final

from aws_cdk import Aws, CfnResource, Fn, Stack, Tags, Token
from aws_cdk import aws_ec2 as ec2

from deploy.aws.parameters import Parameters

RANGE: Final = "10.73.0.0/16"
SUBNET_RANGES: Final = ("10.73.0.0/20", "10.73.16.0/20")


class Network:
    """`subnets`, `security_group` and `assign_public_ip` are what a task is started with."""

    def __init__(self, stack: Stack, parameters: Parameters) -> None:
        self._stack = stack
        self._condition = parameters.own_network
        vpc = ec2.CfnVPC(stack, "Vpc", cidr_block=RANGE, enable_dns_hostnames=True, enable_dns_support=True)
        routes = self._routes(vpc)
        own = [self._subnet(vpc, routes, number, block) for number, block in enumerate(SUBNET_RANGES, 1)]
        self._endpoints(vpc, routes)
        self._own(vpc)
        condition = self._condition.logical_id
        self.vpc = Token.as_string(Fn.condition_if(condition, vpc.ref, parameters.vpc.value_as_string))
        given = parameters.subnets.value_as_string
        self.joined_subnets = Token.as_string(
            Fn.condition_if(condition, Fn.join(",", [subnet.ref for subnet in own]), given)
        )
        self.subnets = Fn.split(",", self.joined_subnets)
        self.public_address = parameters.public_address.value_as_string
        self.assign_public_ip = parameters.assign_public_ip
        self.security_group = ec2.CfnSecurityGroup(
            stack,
            "WorkerSecurityGroup",
            group_description="Workers: nothing may connect to them",
            vpc_id=self.vpc,
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description="AWS and the web"
                )
            ],
        )

    def _routes(self, vpc: ec2.CfnVPC) -> ec2.CfnRouteTable:
        gateway = ec2.CfnInternetGateway(self._stack, "InternetGateway")
        attached = ec2.CfnVPCGatewayAttachment(
            self._stack, "InternetGatewayAttachment", vpc_id=vpc.ref, internet_gateway_id=gateway.ref
        )
        table = ec2.CfnRouteTable(self._stack, "RouteTable", vpc_id=vpc.ref)
        route = ec2.CfnRoute(
            self._stack,
            "InternetRoute",
            route_table_id=table.ref,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.ref,
        )
        route.add_resource_dependency(attached)
        self._own(gateway, attached, table, route)
        return table

    def _subnet(self, vpc: ec2.CfnVPC, routes: ec2.CfnRouteTable, number: int, block: str) -> ec2.CfnSubnet:
        subnet = ec2.CfnSubnet(
            self._stack,
            f"Subnet{number}",
            vpc_id=vpc.ref,
            cidr_block=block,
            availability_zone=Fn.select(number - 1, Fn.get_azs()),
        )
        Tags.of(subnet).add("Name", f"{Aws.STACK_NAME}-{number}")
        joined = ec2.CfnSubnetRouteTableAssociation(
            self._stack, f"Subnet{number}Routes", subnet_id=subnet.ref, route_table_id=routes.ref
        )
        self._own(subnet, joined)
        return subnet

    def _endpoints(self, vpc: ec2.CfnVPC, routes: ec2.CfnRouteTable) -> None:
        for service in ("dynamodb", "s3"):
            endpoint = ec2.CfnVPCEndpoint(
                self._stack,
                f"{service.capitalize()}Endpoint",
                vpc_id=vpc.ref,
                service_name=f"com.amazonaws.{Aws.REGION}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=[routes.ref],
            )
            self._own(endpoint)

    def _own(self, *resources: CfnResource) -> None:
        """Make them only where no VPC is given."""
        for resource in resources:
            resource.cfn_options.condition = self._condition
