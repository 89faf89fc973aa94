"""The whole system on emulators of AWS: the shipped template is deployed, loaded, hurt and judged.

ministack gives every service, DynamoDB included, and checks signatures and the policies of the roles; podman runs the
tasks of ECS. What differs from AWS is in `emulation`, difference by difference.
"""
