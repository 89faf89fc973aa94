-- Who alone may do what: autoscaling, for one. The fence grows whenever a role passes to another holder.
CREATE TABLE penstock.roles (
    role text PRIMARY KEY,
    holder text NOT NULL,
    fence bigint NOT NULL CHECK (fence >= 1),
    held_until bigint NOT NULL
);
